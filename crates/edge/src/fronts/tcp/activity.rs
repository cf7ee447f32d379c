//! Whether a connection does something, and when it last did: what deadlines and the fight for places
//! go by.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http3::Cancels;
use tokio::sync::Notify;
use tokio::time::Instant;
use units::Timestamp;

use crate::limits::Permit;
use crate::sync::lock;

/// What happens on a connection.
#[derive(Debug)]
pub(super) struct Activity {
    start: Instant,
    /// Milliseconds after `start`.
    last: AtomicU64,
    /// Requests so far, and those that are not answered to the end.
    requests: AtomicU64,
    open: AtomicU32,
    max_open: u32,
    /// Those that the client gave up, and who is told when these are too many.
    cancels: Mutex<Cancels>,
    flooded: Notify,
    place: Permit,
}

impl Activity {
    /// On a connection that may have `max_open` requests at a time.
    pub(super) fn new(place: Permit, max_open: u32) -> Self {
        Self {
            start: Instant::now(),
            last: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            open: AtomicU32::new(0),
            max_open,
            cancels: Mutex::default(),
            flooded: Notify::new(),
            place,
        }
    }

    /// A request came.
    pub(super) fn open(self: &Arc<Self>) -> Open {
        self.touch();
        self.requests.fetch_add(1, Ordering::Relaxed);
        if self.open.fetch_add(1, Ordering::Relaxed) == 0 {
            self.place.busy();
        }
        Open { activity: self.clone(), is_complete: false }
    }

    fn on_cancel(&self) {
        let now = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if lock(&self.cancels).add(Timestamp::from_nanos(now), self.max_open as usize) {
            self.flooded.notify_one();
        }
    }

    /// Returns when the client has given up more requests than players do: each may have begun work that
    /// is thrown away.
    pub(super) async fn flooded(&self) {
        self.flooded.notified().await;
    }

    /// A response went on.
    pub(super) fn touch(&self) {
        let elapsed = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(elapsed, Ordering::Relaxed);
    }

    /// Whether no request has come at all.
    pub(super) fn is_unused(&self) -> bool {
        self.requests.load(Ordering::Relaxed) == 0
    }

    /// When the connection has to end if nothing happens: `first` after its start as long as there was
    /// no request, `idle` after what happened last from then on.
    pub(super) fn deadline(&self, first: Duration, idle: Duration) -> Instant {
        let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
        self.start + if self.is_unused() { first.min(idle) } else { last + idle }
    }

    /// Returns when the connection's place is somebody else's.
    pub(super) async fn evicted(&self) {
        self.place.evicted().await;
    }
}

/// A request that is not answered to the end yet.
#[derive(Debug)]
pub(super) struct Open {
    activity: Arc<Activity>,
    is_complete: bool,
}

impl Open {
    /// The response went on.
    pub(super) fn touch(&self) {
        self.activity.touch();
    }

    /// The last of the response was handed over.
    pub(super) fn complete(&mut self) {
        self.is_complete = true;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.activity.open.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.activity.place.idle(true);
        }
        if !self.is_complete {
            self.activity.on_cancel();
        }
    }
}
