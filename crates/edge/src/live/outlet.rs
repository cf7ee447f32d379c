//! HLS packaging of a stream, once for all viewers and only while clients request it. The packaging
//! task is a viewer of the stream.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use media::hls::Segmenter;
use media::hls::segmenter::{Container, SegmenterConfig, TrackSelection};
use relay::memory::Event;
use relay::{Registry, Stream, Viewer};
use tokio::runtime::Handle;

use super::accounted::AccountedSegmenter;
use super::hls_viewers::{HlsViewers, VIEWER_IDLE};
use crate::config;
use crate::gzip::gzip;
use crate::sync::lock;

/// Time without requests after which packaging stops.
const IDLE: Duration = Duration::from_secs(60);
/// Maximum wait for the next playlist or segment. A new stream needs a whole segment first.
const MAX_WAIT: Duration = Duration::from_secs(12);

/// Returns the segmenter settings of new outlets.
fn segmenter_config(config: &config::Hls, shared: bool) -> SegmenterConfig {
    SegmenterConfig {
        container: match config.container {
            config::Container::Fmp4 => Container::Fmp4,
            config::Container::Ts => Container::Ts,
        },
        segment: config.segment,
        part: config.part,
        window: config.window.into(),
        bytes: config.cache.as_usize(),
        shared,
        slot: None,
        date_offset_ms: None,
        tracks: TrackSelection::All,
    }
}

/// Properties that the renditions of a ladder have in common.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Timing {
    /// As [`SegmenterConfig::slot`].
    pub slot: Option<Duration>,
    /// As [`SegmenterConfig::date_offset_ms`].
    pub date_offset_ms: Option<i64>,
    /// As [`SegmenterConfig::shared`].
    pub shared: bool,
    /// As [`SegmenterConfig::tracks`].
    pub tracks: TrackSelection,
}

/// The HLS packager of a stream, and its viewers.
#[derive(Debug)]
pub struct Outlet {
    stream: Arc<Stream>,
    packed: Mutex<AccountedSegmenter>,
    wakers: Mutex<Vec<Waker>>,
    last_request: Mutex<Instant>,
    over: AtomicBool,
    /// Shared with later outlets of the stream.
    viewers: Arc<HlsViewers>,
    /// Number of the stream's publisher at the start of packaging.
    publisher: u64,
    /// The newest full playlist and delta update, each with its compressed form.
    gzipped: Mutex<[Option<(Bytes, Bytes)>; 2]>,
}

impl Outlet {
    /// Compresses a playlist once for all viewers. `skip` marks a delta update.
    pub(crate) fn gzip(&self, text: &Bytes, skip: bool) -> Bytes {
        let known = &mut lock(&self.gzipped)[usize::from(skip)];
        if let Some((_, packed)) = known.as_ref().filter(|(known, _)| known == text) {
            return packed.clone();
        }
        let packed = Bytes::from(gzip(text));
        *known = Some((text.clone(), packed.clone()));
        packed
    }

    /// Packages the stream until it ends or the outlet is dropped.
    async fn pack(self: Arc<Self>, mut viewer: Viewer) {
        let mut logged = false;
        while let Some(tag) = poll_fn(|context| {
            if self.over.load(Ordering::Relaxed) {
                return Poll::Ready(None);
            }
            viewer.poll_next(context)
        })
        .await
        {
            // A tag from before the start of packaging arrived earlier, by its lag.
            let lag = Duration::from_millis(viewer.lag_ms().into());
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let mut packed = lock(&self.packed);
            let news = packed.segmenter.push(&tag, now.saturating_sub(lag).as_millis() as u64);
            packed.update_account();
            let dropped = packed.segmenter.unsupported_codec().filter(|_| !logged);
            drop(packed);
            if let Some(codec) = dropped {
                logged = true;
                tracing::warn!("{}: HLS cannot carry {codec}: track dropped", self.stream.name());
            }
            if news {
                self.wake();
            }
        }
        lock(&self.packed).segmenter.end();
        self.over.store(true, Ordering::Relaxed);
        self.wake();
    }

    fn wake(&self) {
        core::mem::take(&mut *lock(&self.wakers)).into_iter().for_each(Waker::wake);
    }

    /// Waits until `look` returns a value; `None` after [`MAX_WAIT`] or the end of the stream.
    pub(crate) async fn wait<T>(&self, look: impl Fn(&Segmenter) -> Option<T>) -> Option<T> {
        let until = Instant::now() + MAX_WAIT;
        poll_fn(|context: &mut Context<'_>| {
            let packed = lock(&self.packed);
            let found = look(&packed.segmenter);
            if found.is_some() || self.over.load(Ordering::Relaxed) || Instant::now() >= until {
                return Poll::Ready(found);
            }
            // Registered under the lock, so that no wake-up is lost. `tidy` wakes late waiters.
            lock(&self.wakers).push(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Returns the viewers.
    pub(crate) fn viewers(&self) -> &HlsViewers {
        &self.viewers
    }

    /// Returns the stream.
    pub(crate) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Marks the outlet as requested, so that packaging continues.
    pub(crate) fn touch(&self) {
        *lock(&self.last_request) = Instant::now();
    }

    /// Ends packaging. The task notices only at the stream's next tag, so evicts here.
    fn stop(&self) {
        self.over.store(true, Ordering::Relaxed);
        lock(&self.packed).evict_all();
        self.wake();
    }

    /// Whether no more segments follow.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Returns the result of `look`. If there is none yet, the context is woken by new parts, and
    /// at least once per second.
    pub(crate) fn peek<T>(
        &self,
        context: &Context<'_>,
        look: impl FnOnce(&Segmenter) -> Option<T>,
    ) -> Option<T> {
        let packed = lock(&self.packed);
        let found = look(&packed.segmenter);
        if found.is_none() {
            // Registered under the lock, so that no wake-up is lost.
            lock(&self.wakers).push(context.waker().clone());
        }
        found
    }

    /// Calls `look` with the segmenter.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Segmenter) -> T) -> T {
        look(&lock(&self.packed).segmenter)
    }
}

/// The outlets, by stream and tracks.
#[derive(Debug, Default)]
pub struct Outlets(Mutex<HashMap<OutletKey, Arc<Outlet>>>);

/// Name of a stream, and the packaged tracks.
type OutletKey = (String, TrackSelection);

impl Outlets {
    /// Returns the outlet of this name and these tracks, unless it belongs to an earlier stream of
    /// that name.
    pub(crate) fn get(
        &self,
        streams: &Registry,
        name: &str,
        tracks: TrackSelection,
    ) -> Option<Arc<Outlet>> {
        let outlet = lock(&self.0).get(&(name.to_owned(), tracks))?.clone();
        let now = streams.get(name);
        if now.is_some_and(|stream| !Arc::ptr_eq(&outlet.stream, &stream)) {
            return None;
        }
        outlet.touch();
        Some(outlet)
    }

    /// Returns the outlet of the stream, started on `runtime` if necessary. With `shared`, media
    /// URLs are the same for all viewers. `None` if the stream is full.
    pub(crate) fn of(
        &self,
        stream: &Arc<Stream>,
        config: &config::Hls,
        shared: bool,
        runtime: &Handle,
    ) -> Option<Arc<Outlet>> {
        let config = segmenter_config(config, shared);
        self.open(stream, config, runtime, Viewer::packager, |_| true)
    }

    /// As [`Outlets::of`], for a rendition of a ladder. A new publisher, or a slot unlike that of
    /// the ladder, starts packaging again, so that segments stay aligned with other renditions.
    pub(crate) fn of_rendition(
        &self,
        stream: &Arc<Stream>,
        config: &config::Hls,
        Timing { slot, date_offset_ms, shared, tracks }: Timing,
        runtime: &Handle,
    ) -> Option<Arc<Outlet>> {
        let publisher = stream.stats().publishers;
        let config = segmenter_config(config, shared);
        let config = SegmenterConfig { slot, date_offset_ms, tracks, ..config };
        self.open(stream, config, runtime, Viewer::packager_of_publisher, |outlet| {
            let own = outlet.look(Segmenter::slot);
            let is_aligned = slot.is_none() || own.is_none() || own == slot;
            outlet.publisher == publisher && is_aligned
        })
    }

    /// Returns the outlet of the stream if `is_current`. Otherwise starts a new one, which joins
    /// the stream by `join`, with the viewers of the previous one.
    fn open(
        &self,
        stream: &Arc<Stream>,
        config: SegmenterConfig,
        runtime: &Handle,
        join: fn(Arc<Stream>) -> Option<Viewer>,
        is_current: impl FnOnce(&Outlet) -> bool,
    ) -> Option<Arc<Outlet>> {
        let mut outlets = lock(&self.0);
        let key = (stream.name().to_owned(), config.tracks);
        let previous = outlets.get(&key).filter(|o| Arc::ptr_eq(&o.stream, stream));
        let previous = previous.cloned();
        if let Some(outlet) = previous.as_ref().filter(|outlet| is_current(outlet)) {
            return Some(outlet.clone());
        }
        let viewer = join(stream.clone())?;
        let viewers = previous.as_ref().map_or_else(Arc::default, |outlet| outlet.viewers.clone());
        let outlet = Arc::new(Outlet {
            stream: stream.clone(),
            publisher: stream.stats().publishers,
            packed: Mutex::new(AccountedSegmenter::new(stream, config)),
            wakers: Mutex::default(),
            last_request: Mutex::new(Instant::now()),
            over: AtomicBool::new(false),
            viewers,
            gzipped: Mutex::default(),
        });
        runtime.spawn(outlet.clone().pack(viewer));
        outlets.insert(key, outlet.clone());
        drop(outlets);
        if let Some(previous) = previous {
            previous.stop();
        }
        Some(outlet)
    }

    /// Whether these tracks of the stream are being packaged.
    pub(crate) fn has(&self, stream: &Arc<Stream>, tracks: TrackSelection) -> bool {
        let outlets = lock(&self.0);
        let outlet = outlets.get(&(stream.name().to_owned(), tracks));
        outlet.is_some_and(|outlet| Arc::ptr_eq(&outlet.stream, stream))
    }

    /// Returns the stream of an outlet. It may be over, while players still request its end.
    pub(crate) fn ended(&self, name: &str) -> Option<Arc<Stream>> {
        let key = (name.to_owned(), TrackSelection::All);
        Some(lock(&self.0).get(&key)?.stream.clone())
    }

    /// Removes idle viewers and outlets. Called once per second.
    pub(crate) fn tidy(&self) {
        let all: Vec<_> = lock(&self.0).values().cloned().collect();
        for outlet in all {
            outlet.viewers.forget_idle();
            outlet.wake();
        }
        self.drop_idle(IDLE, |_| ());
    }

    /// Removes outlets without recent requests, under memory pressure.
    pub(crate) fn drop_unwatched(&self) {
        let memory = |outlet: &Outlet| outlet.stream.memory().memory().count(Event::Unpacked);
        self.drop_idle(VIEWER_IDLE, memory);
    }

    /// Removes all outlets, and ends their sessions, at process exit.
    pub(crate) fn close(&self) {
        self.drop_idle(Duration::ZERO, |_| ());
    }

    fn drop_idle(&self, idle: Duration, note: impl Fn(&Outlet)) {
        // Outlets and sessions end after the lock is released.
        let mut dropped = Vec::new();
        lock(&self.0).retain(|_, outlet| {
            let is_idle = lock(&outlet.last_request).elapsed() >= idle;
            if is_idle {
                outlet.stop();
                note(outlet);
                dropped.push((outlet.clone(), outlet.viewers.take()));
            }
            !is_idle
        });
    }

    /// Evicts segments beyond each stream's share.
    pub(crate) fn trim(&self) {
        let all: Vec<_> = lock(&self.0).values().cloned().collect();
        for outlet in all {
            lock(&outlet.packed).update_account();
        }
    }
}

#[cfg(test)]
mod tests {
    use media::{Kind, Tag};
    use relay::{Publisher, Settings};

    use super::*;
    use crate::config::Config;
    use crate::passes::ViewerId;
    use crate::sessions::{Opening, Sessions};
    use crate::viewer::Protocol;

    const HEADER: &[u8] = &[0xaf, 0, 0x12, 0x10];

    struct Setup {
        streams: Registry,
        outlets: Outlets,
        hls: config::Hls,
    }

    impl Setup {
        fn new(max_memory: u64) -> Self {
            let streams = Registry::new(10);
            streams.memory().set_limit(max_memory);
            let hls = config::Hls { window: 30, ..Config::default().hls };
            Self { streams, outlets: Outlets::default(), hls }
        }

        /// Publishes 60 s of audio at 40 kB/s, packaged as HLS.
        async fn publish(&self, name: &str) -> (Publisher, Arc<Outlet>) {
            let publisher = self.streams.publish(name, Settings::default()).expect("room");
            let tag = |time, payload: &[u8]| Tag::new(Kind::Audio, time, payload).expect("short");
            publisher.push(tag(0, HEADER));
            let stream = publisher.stream();
            let runtime = Handle::current();
            let outlet = self.outlets.of(stream, &self.hls, false, &runtime).expect("room");
            let mut frame = vec![7; 1_000];
            frame[..2].copy_from_slice(&[0xaf, 1]);
            for number in 0..2_400 {
                publisher.push(tag(number * 25, &frame));
                // Let the packager keep up.
                tokio::task::yield_now().await;
            }
            (publisher, outlet)
        }

        fn outlet(&self, name: &str) -> Option<Arc<Outlet>> {
            self.outlets.get(&self.streams, name, TrackSelection::All)
        }

        fn look(&self) {
            self.outlets.tidy();
            if self.streams.memory().is_pressed() {
                self.outlets.drop_unwatched();
            }
            self.streams.enforce_memory_limit(|| self.outlets.trim());
        }
    }

    fn opening(viewer: ViewerId) -> Opening {
        Opening {
            stream: "live/a".into(),
            protocol: Protocol::Http1,
            format: "hls",
            remote: [192, 0, 2, 7].into(),
            viewer,
            granted: SystemTime::now(),
            until: None,
            unit: None,
            cohort: String::new(),
            scheme: "",
            tcp: None,
        }
    }

    fn bytes(outlet: &Outlet) -> usize {
        outlet.look(Segmenter::bytes)
    }

    fn set_idle(outlet: &Outlet, time: Duration) {
        *lock(&outlet.last_request) = Instant::now().checked_sub(time).expect("enough uptime");
    }

    #[tokio::test]
    async fn segments_count_as_stream_memory_until_packaging_stops() {
        let setup = Setup::new(1 << 30);
        let (publisher, outlet) = setup.publish("live/a").await;
        assert!(bytes(&outlet) > 2_000_000, "{}", bytes(&outlet));
        let cache = publisher.stream().with_cache(media::GopCache::memory);
        assert_eq!(publisher.stream().memory().held(), (cache + bytes(&outlet)) as u64);
        set_idle(&outlet, VIEWER_IDLE);
        setup.look();
        assert!(setup.outlet("live/a").is_some(), "no memory pressure");
        set_idle(&outlet, IDLE);
        setup.look();
        assert!(setup.outlet("live/a").is_none());
        assert_eq!(publisher.stream().memory().held(), cache as u64);
        assert_eq!(setup.streams.memory().count_of(Event::Unpacked), 0);
    }

    #[tokio::test]
    async fn unwatched_outlets_are_evicted_before_watched_ones_shrink() {
        let setup = Setup::new(4_800_000);
        let (_watched, kept) = setup.publish("live/watched").await;
        let (unwatched, evicted) = setup.publish("live/unwatched").await;
        let before = bytes(&kept);
        set_idle(&evicted, VIEWER_IDLE);
        assert!(setup.streams.memory().is_pressed());
        setup.look();
        assert_eq!((bytes(&kept), bytes(&evicted)), (before, 0));
        assert!(unwatched.stream().with_cache(media::GopCache::memory) > 0);
        let memory = setup.streams.memory();
        assert_eq!(memory.count_of(Event::Unpacked), 1);
        assert_eq!(memory.count_of(Event::Shrunk), 0);
        assert!(!memory.is_full() && !memory.is_pressed());
    }

    #[tokio::test]
    async fn memory_pressure_ends_only_the_sessions_of_dropped_outlets() {
        let setup = Setup::new(1 << 30);
        let sessions = Arc::new(Sessions::new(None));
        let (_a, watched) = setup.publish("live/watched").await;
        let (_b, unwatched) = setup.publish("live/unwatched").await;
        for outlet in [&watched, &unwatched] {
            let viewer = ViewerId::random();
            let open = || Some(sessions.open(opening(viewer)));
            outlet.viewers.enter(viewer, 1, open).expect("room");
            outlet.viewers.set_idle(viewer);
        }
        set_idle(&unwatched, VIEWER_IDLE);
        setup.outlets.drop_unwatched();
        assert_eq!((sessions.all().len(), watched.viewers.len()), (1, 1));
        setup.outlets.tidy();
        assert!(sessions.all().is_empty());
        assert!(setup.outlet("live/watched").is_some());
    }

    #[tokio::test]
    async fn watched_outlets_shrink_to_the_segments_players_need_to_start() {
        let setup = Setup::new(4_800_000);
        let (_a, first) = setup.publish("live/a").await;
        let (_b, second) = setup.publish("live/b").await;
        setup.look();
        let memory = setup.streams.memory();
        assert!(memory.held() <= memory.limit() / 4 * 3 + 100_000, "{}", memory.held());
        for outlet in [first, second] {
            assert!((1_000_000..2_200_000).contains(&bytes(&outlet)), "{}", bytes(&outlet));
            assert!(outlet.look(|segmenter| segmenter.playlist(false)).is_some());
        }
        assert_eq!(memory.count_of(Event::Unpacked), 0);
        assert!(memory.count_of(Event::Shrunk) > 0);
    }
}
