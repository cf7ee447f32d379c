//! A stream packed as HLS, once for all viewers and only while somebody asks for it, by a task that is a
//! viewer of the stream itself.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant, SystemTime};

use media::hls::Segmenter;
use media::hls::segmenter::{self, Container};
use relay::{Registry, Stream, Viewer};
use tokio::runtime::Handle;

use crate::config;
use crate::passes::ViewerId;
use crate::sessions::Session;
use crate::sync::lock;

/// A stream is no longer packed when for this long nobody asked for it.
const IDLE: Duration = Duration::from_secs(60);
/// A viewer who asks for nothing for this long is gone.
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

/// A stream as HLS.
#[derive(Debug)]
pub struct Outlet {
    stream: Arc<Stream>,
    segmenter: Mutex<Segmenter>,
    wakers: Mutex<Vec<Waker>>,
    asked: Mutex<Instant>,
    over: AtomicBool,
    viewers: Mutex<HashMap<ViewerId, (Arc<Session>, Instant)>>,
}

impl Outlet {
    /// Packs the stream until it is over or nobody asks any more.
    async fn pack(self: Arc<Self>, mut viewer: Viewer) {
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
            if lock(&self.segmenter).push(&tag, now.saturating_sub(lag).as_millis() as u64) {
                self.wake();
            }
        }
        lock(&self.segmenter).end();
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
            let segmenter = lock(&self.segmenter);
            let found = look(&segmenter);
            if found.is_some() || self.over.load(Ordering::Relaxed) || Instant::now() >= until {
                return Poll::Ready(found);
            }
            // Before the lock goes: nothing is missed. Housekeeping wakes those who wait too long.
            lock(&self.wakers).push(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// The session of a viewer who asks, if it goes on.
    pub(crate) fn session(&self, viewer: ViewerId) -> Option<Arc<Session>> {
        let mut viewers = lock(&self.viewers);
        let (session, asked) = viewers.get_mut(&viewer).filter(|(s, _)| !s.stay().is_over())?;
        *asked = Instant::now();
        Some(session.clone())
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
        look(&lock(&self.segmenter))
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
        let outlet = Arc::new(Outlet {
            stream: stream.clone(),
            segmenter: Mutex::new(Segmenter::new(segmenter_config(config, shared))),
            wakers: Mutex::default(),
            asked: Mutex::new(Instant::now()),
            over: AtomicBool::new(false),
            viewers: Mutex::default(),
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
        let mut gone: Vec<Arc<Session>> = Vec::new();
        lock(&self.0).retain(|_, outlet| {
            lock(&outlet.viewers).retain(|_, (session, asked)| {
                let stays = asked.elapsed() < SESSION_IDLE && !session.stay().is_over();
                if !stays {
                    gone.push(session.clone());
                }
                stays
            });
            let idle = lock(&outlet.asked).elapsed() >= IDLE;
            if idle {
                outlet.over.store(true, Ordering::Relaxed);
            }
            outlet.wake();
            !idle
        });
    }
}
