//! The permitted duration of a session: until its permission expires, or the session is ended. The
//! sender of media checks it in every protocol, and is woken when the session is ended.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::SystemTime;

use crate::sync::lock;

/// The permitted duration of a session.
#[derive(Debug)]
pub struct Stay {
    until: Option<SystemTime>,
    is_ended: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Stay {
    /// Permits a session until a time; `None` permits it as long as the stream.
    pub(super) fn new(until: Option<SystemTime>) -> Self {
        Self { until, is_ended: AtomicBool::new(false), waker: Mutex::default() }
    }

    /// Ends the session. Its responses end cleanly.
    pub fn end(&self) {
        self.is_ended.store(true, Ordering::Release);
        let waker = lock(&self.waker).take();
        waker.into_iter().for_each(Waker::wake);
    }

    /// Returns true if the viewer gets no more media.
    pub fn is_over(&self) -> bool {
        let is_expired = |until| SystemTime::now() > until;
        self.is_ended.load(Ordering::Acquire) || self.until.is_some_and(is_expired)
    }

    /// Ready if the viewer gets no more media. [`Stay::end`] wakes the context of the last call. An
    /// expired permission is noticed at the next call.
    pub fn poll_over(&self, context: &Context<'_>) -> Poll<()> {
        {
            let mut waker = lock(&self.waker);
            if !waker.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
                *waker = Some(context.waker().clone());
            }
        }
        // Checked after the registration, so that no end is missed.
        if self.is_over() { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Eviction of the session's place ends the session.
impl Wake for Stay {
    fn wake(self: Arc<Self>) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    #[derive(Default)]
    struct WakeCounter(AtomicUsize);

    impl Wake for WakeCounter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn ending_wakes_the_sender_and_expiry_is_noticed_at_the_next_poll() {
        let wakes: Arc<WakeCounter> = Arc::default();
        let waker = wakes.clone().into();
        let context = Context::from_waker(&waker);
        let stay = Stay::new(None);
        assert!(stay.poll_over(&context).is_pending() && stay.poll_over(&context).is_pending());
        stay.end();
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert!(stay.poll_over(&context).is_ready() && stay.is_over());
        let now = SystemTime::now();
        let minute = Duration::from_secs(60);
        assert!(Stay::new(Some(now - minute)).poll_over(&context).is_ready());
        assert!(Stay::new(Some(now + minute)).poll_over(&context).is_pending());
    }
}
