//! A stream packed as HLS, once for all viewers and only while somebody asks for it, by a task that is a
//! viewer of the stream itself.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use media::hls::Segmenter;
use media::hls::segmenter::{self, Container};
use relay::memory::{Account, Event, Surplus};
use relay::{Registry, Stream, Viewer};
use tokio::runtime::Handle;

use crate::config;
use crate::gzip::gzip;
use crate::passes::ViewerId;
use crate::sessions::Session;
use crate::sync::lock;

/// A stream is no longer packed when for this long nobody asked for it.
const IDLE: Duration = Duration::from_secs(60);
/// A viewer who asks for nothing for this long is gone. Where memory is wanted, that is how long a stream
/// is packed that nobody asks for.
const SESSION_IDLE: Duration = Duration::from_secs(20);
/// Longest wait for what comes next. A new stream needs a whole segment first.
const MAX_WAIT: Duration = Duration::from_secs(12);

/// The settings of new outlets.
fn segmenter_config(config: &config::Hls, shared: bool) -> segmenter::Config {
    segmenter::Config {
        container: match config.container {
            config::Container::Fmp4 => Container::Fmp4,
            config::Container::Ts => Container::Ts,
        },
        segment: config.segment,
        part: config.part,
        window: config.window.into(),
        bytes: config.cache.as_usize(),
        shared,
    }
}

/// The segments of a stream, and what they take.
#[derive(Debug)]
struct Packed {
    segmenter: Segmenter,
    account: Account,
}

impl Packed {
    /// Counts what the segments take, and gives up what the stream has too much.
    fn settle(&mut self) {
        let Some(surplus) = self.account.set(self.segmenter.bytes()) else { return };
        match surplus {
            Surplus::Excess(bytes) => self.segmenter.shed(bytes),
            Surplus::Beyond(bytes) => self.segmenter.shrink_to(bytes),
        }
        self.account.shrink(self.segmenter.bytes());
    }

    fn give_up(&mut self) {
        self.segmenter.shrink_to(0);
        let _ = self.account.set(self.segmenter.bytes());
    }
}

/// A stream as HLS.
#[derive(Debug)]
pub struct Outlet {
    stream: Arc<Stream>,
    packed: Mutex<Packed>,
    wakers: Mutex<Vec<Waker>>,
    asked: Mutex<Instant>,
    over: AtomicBool,
    viewers: Mutex<HashMap<ViewerId, (Arc<Session>, Instant)>>,
    /// The newest playlists, whole and delta update, with their compressed form.
    gzipped: Mutex<[Option<(Bytes, Bytes)>; 2]>,
}

impl Outlet {
    /// A playlist compressed, which is done once for all viewers. `skip`: it is a delta update.
    pub(crate) fn gzip(&self, text: &Bytes, skip: bool) -> Bytes {
        let known = &mut lock(&self.gzipped)[usize::from(skip)];
        if let Some((_, packed)) = known.as_ref().filter(|(known, _)| known == text) {
            return packed.clone();
        }
        let packed = Bytes::from(gzip(text));
        *known = Some((text.clone(), packed.clone()));
        packed
    }

    /// Packs the stream until it is over or nobody asks any more.
    async fn pack(self: Arc<Self>, mut viewer: Viewer) {
        let mut told = false;
        while let Some(tag) = poll_fn(|context| {
            if self.over.load(Ordering::Relaxed) {
                return Poll::Ready(None);
            }
            viewer.poll_next(context)
        })
        .await
        {
            // What was there before packing began came earlier, by as much as it lies behind.
            let lag = Duration::from_millis(viewer.lag_ms().into());
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let mut packed = lock(&self.packed);
            let news = packed.segmenter.push(&tag, now.saturating_sub(lag).as_millis() as u64);
            packed.settle();
            let left_out = packed.segmenter.unsupported_codec().filter(|_| !told);
            drop(packed);
            if let Some(codec) = left_out {
                told = true;
                tracing::warn!("{}: HLS cannot carry {codec}: left out", self.stream.name());
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

    /// What `look` finds, as soon as it finds something; `None` when it is too late for that.
    pub(crate) async fn wait<T>(&self, look: impl Fn(&Segmenter) -> Option<T>) -> Option<T> {
        let until = Instant::now() + MAX_WAIT;
        poll_fn(|context: &mut Context<'_>| {
            let packed = lock(&self.packed);
            let found = look(&packed.segmenter);
            if found.is_some() || self.over.load(Ordering::Relaxed) || Instant::now() >= until {
                return Poll::Ready(found);
            }
            // Before the lock goes: nothing is missed. Housekeeping wakes those who wait too long.
            lock(&self.wakers).push(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Lets go of viewers who have asked for nothing for a while, or may not go on.
    fn forget_viewers(&self) {
        // Their sessions end after the lock.
        let mut gone = Vec::new();
        lock(&self.viewers).retain(|_, (session, asked)| {
            let stays = asked.elapsed() < SESSION_IDLE && !session.stay().is_over();
            if !stays {
                gone.push(session.clone());
            }
            stays
        });
    }

    /// The session of a viewer who asks, if it goes on.
    pub(crate) fn session(&self, viewer: ViewerId) -> Option<Arc<Session>> {
        let session = {
            let mut viewers = lock(&self.viewers);
            let (session, asked) = viewers.get_mut(&viewer).filter(|(s, _)| !s.stay().is_over())?;
            *asked = Instant::now();
            session.clone()
        };
        session.touch();
        Some(session)
    }

    /// A session for a viewer who gets media for the first time, opened by `open`; `None` if that refuses, or the
    /// stream has no room for another viewer.
    pub(crate) fn enter(
        &self,
        viewer: ViewerId,
        open: impl FnOnce() -> Option<Arc<Session>>,
    ) -> Option<Arc<Session>> {
        if lock(&self.viewers).len() as u64 >= self.stream.settings().max_viewers {
            return None;
        }
        let session = open()?;
        // One that was ended is dropped after the lock.
        let _ended = lock(&self.viewers).insert(viewer, (session.clone(), Instant::now()));
        Some(session)
    }

    /// What the segmenter has now.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Segmenter) -> T) -> T {
        look(&lock(&self.packed).segmenter)
    }
}

/// The outlets, by stream.
#[derive(Debug, Default)]
pub struct Outlets(Mutex<HashMap<String, Arc<Outlet>>>);

impl Outlets {
    /// The outlet of this name, unless it is an old one of a stream that began anew.
    pub(crate) fn known(&self, streams: &Registry, name: &str) -> Option<Arc<Outlet>> {
        let outlet = lock(&self.0).get(name)?.clone();
        let now = streams.get(name);
        if now.is_some_and(|stream| !Arc::ptr_eq(&outlet.stream, &stream)) {
            return None;
        }
        *lock(&outlet.asked) = Instant::now();
        Some(outlet)
    }

    /// The outlet of the stream, packed on `runtime` from now on, with `shared` URLs of media or not; `None` if the stream has no room for
    /// another viewer.
    pub(crate) fn of(
        &self,
        stream: &Arc<Stream>,
        config: &config::Hls,
        shared: bool,
        runtime: &Handle,
    ) -> Option<Arc<Outlet>> {
        let mut outlets = lock(&self.0);
        if let Some(outlet) = outlets.get(stream.name())
            && Arc::ptr_eq(&outlet.stream, stream)
        {
            return Some(outlet.clone());
        }
        let viewer = Viewer::packager(stream.clone())?;
        let segmenter = Segmenter::new(segmenter_config(config, shared));
        let account = stream.memory().account();
        let outlet = Arc::new(Outlet {
            stream: stream.clone(),
            packed: Mutex::new(Packed { segmenter, account }),
            wakers: Mutex::default(),
            asked: Mutex::new(Instant::now()),
            over: AtomicBool::new(false),
            viewers: Mutex::default(),
            gzipped: Mutex::default(),
        });
        runtime.spawn(outlet.clone().pack(viewer));
        outlets.insert(stream.name().to_owned(), outlet.clone());
        Some(outlet)
    }

    /// A stream that is over, as long as its players may still ask for its end.
    pub(crate) fn ended(&self, name: &str) -> Option<Arc<Stream>> {
        Some(lock(&self.0).get(name)?.stream.clone())
    }

    /// Forgets viewers who are gone, and streams that nobody asks for; to be called each second.
    pub(crate) fn tidy(&self) {
        let all: Vec<_> = lock(&self.0).values().cloned().collect();
        for outlet in all {
            outlet.forget_viewers();
            outlet.wake();
        }
        self.drop_idle(IDLE, |_| ());
    }

    /// Where memory is wanted: forgets streams that nobody has asked for lately.
    pub(crate) fn drop_unwatched(&self) {
        let memory = |outlet: &Outlet| outlet.stream.memory().memory().count(Event::Unpacked);
        self.drop_idle(SESSION_IDLE, memory);
    }

    /// The process ends: forgets all streams, and the sessions of their viewers end.
    pub(crate) fn close(&self) {
        self.drop_idle(Duration::ZERO, |_| ());
    }

    fn drop_idle(&self, idle: Duration, note: impl Fn(&Outlet)) {
        // What they held ends after the lock.
        let mut dropped = Vec::new();
        lock(&self.0).retain(|_, outlet| {
            let is_idle = lock(&outlet.asked).elapsed() >= idle;
            if is_idle {
                outlet.over.store(true, Ordering::Relaxed);
                // Its task sees that with the stream's next tag, which may take its time.
                lock(&outlet.packed).give_up();
                outlet.wake();
                note(outlet);
                dropped.push((outlet.clone(), core::mem::take(&mut *lock(&outlet.viewers))));
            }
            !is_idle
        });
    }

    /// Has all of them give up what their streams have too much.
    pub(crate) fn trim(&self) {
        let all: Vec<_> = lock(&self.0).values().cloned().collect();
        for outlet in all {
            lock(&outlet.packed).settle();
        }
    }
}

#[cfg(test)]
mod tests {
    use media::{Kind, Tag};
    use relay::{Publisher, Settings};

    use super::*;
    use crate::config::Config;
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

        /// A stream of 60 s of sound, 40 kB each second, packed as HLS.
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
                // The packager keeps up.
                tokio::task::yield_now().await;
            }
            (publisher, outlet)
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

    fn not_asked_for(outlet: &Outlet, time: Duration) {
        *lock(&outlet.asked) = Instant::now().checked_sub(time).expect("a clock that has run");
    }

    #[tokio::test]
    async fn segments_count_as_the_streams_memory_until_it_is_packed_no_more() {
        let setup = Setup::new(1 << 30);
        let (publisher, outlet) = setup.publish("live/a").await;
        assert!(bytes(&outlet) > 2_000_000, "{}", bytes(&outlet));
        let cache = publisher.stream().with_cache(media::GopCache::held);
        assert_eq!(publisher.stream().memory().held(), (cache + bytes(&outlet)) as u64);
        not_asked_for(&outlet, SESSION_IDLE);
        setup.look();
        assert!(setup.outlets.known(&setup.streams, "live/a").is_some(), "there is room");
        not_asked_for(&outlet, IDLE);
        setup.look();
        assert!(setup.outlets.known(&setup.streams, "live/a").is_none());
        assert_eq!(publisher.stream().memory().held(), cache as u64);
        assert_eq!(setup.streams.memory().count_of(Event::Unpacked), 0);
    }

    #[tokio::test]
    async fn what_nobody_watches_goes_first_and_viewers_of_others_lose_nothing() {
        let setup = Setup::new(4_800_000);
        let (_watched, kept) = setup.publish("live/watched").await;
        let (unwatched, given_up) = setup.publish("live/unwatched").await;
        let before = bytes(&kept);
        not_asked_for(&given_up, SESSION_IDLE);
        assert!(setup.streams.memory().is_pressed());
        setup.look();
        assert_eq!((bytes(&kept), bytes(&given_up)), (before, 0));
        assert!(unwatched.stream().with_cache(media::GopCache::held) > 0);
        let memory = setup.streams.memory();
        assert_eq!(memory.count_of(Event::Unpacked), 1);
        assert_eq!(memory.count_of(Event::Shrunk), 0);
        assert!(!memory.is_full() && !memory.is_pressed());
    }

    #[tokio::test]
    async fn want_of_memory_looks_at_no_viewers_and_ends_those_of_what_it_drops() {
        let setup = Setup::new(1 << 30);
        let sessions = Arc::new(Sessions::new(None));
        let (_a, watched) = setup.publish("live/watched").await;
        let (_b, unwatched) = setup.publish("live/unwatched").await;
        for outlet in [&watched, &unwatched] {
            let viewer = ViewerId::random();
            outlet.enter(viewer, || Some(sessions.open(opening(viewer)))).expect("room");
            let long_ago = Instant::now().checked_sub(SESSION_IDLE).expect("a clock that has run");
            lock(&outlet.viewers).get_mut(&viewer).expect("entered").1 = long_ago;
        }
        not_asked_for(&unwatched, SESSION_IDLE);
        setup.outlets.drop_unwatched();
        assert_eq!((sessions.all().len(), lock(&watched.viewers).len()), (1, 1));
        setup.outlets.tidy();
        assert!(sessions.all().is_empty());
        assert!(setup.outlets.known(&setup.streams, "live/watched").is_some());
    }

    #[tokio::test]
    async fn where_all_is_watched_the_larger_ones_shrink_to_what_players_need_to_begin() {
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
