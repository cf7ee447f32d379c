//! Activity of a connection, for timeouts and evictions.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http3::Cancels;
use tokio::sync::Notify;
use tokio::time::Instant;
use units::Timestamp;

use crate::limits::Permit;
use crate::sync::lock;

/// Requests and last activity of a connection.
#[derive(Debug)]
pub(super) struct Activity {
    start: Instant,
    /// Last activity, in milliseconds after `start`.
    last: AtomicU64,
    /// Number of all requests, and of unfinished ones.
    requests: AtomicU64,
    open: AtomicU32,
    max_open: u32,
    /// Cancelled requests, and the signal that there are too many.
    cancels: Mutex<Cancels>,
    flooded: Notify,
    place: Permit,
}

impl Activity {
    /// Creates the state of a connection with at most `max_open` concurrent requests.
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

    /// Registers a new request.
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

    /// Waits until the client has cancelled more requests than players do. Each may cause wasted
    /// work.
    pub(super) async fn flooded(&self) {
        self.flooded.notified().await;
    }

    /// Notes progress of a response.
    pub(super) fn touch(&self) {
        let elapsed = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(elapsed, Ordering::Relaxed);
    }

    /// Whether no request has arrived yet.
    pub(super) fn is_unused(&self) -> bool {
        self.requests.load(Ordering::Relaxed) == 0
    }

    /// Returns when the connection times out: `first` after its start without any request,
    /// otherwise `idle` after the last activity.
    pub(super) fn deadline(&self, first: Duration, idle: Duration) -> Instant {
        let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
        self.start + if self.is_unused() { first.min(idle) } else { last + idle }
    }

    /// Waits for the connection's eviction.
    pub(super) async fn evicted(&self) {
        self.place.evicted().await;
    }
}

/// An unfinished request. Dropping it before [`Open::complete`] counts as a cancellation.
#[derive(Debug)]
pub(super) struct Open {
    activity: Arc<Activity>,
    is_complete: bool,
}

impl Open {
    /// Notes progress of the response.
    pub(super) fn touch(&self) {
        self.activity.touch();
    }

    /// Notes that the whole response was passed on.
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
