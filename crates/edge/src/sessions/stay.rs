//! How long a viewer may stay: until its permission ends, or somebody ends its session. Whoever hands media out asks
//! for this, whatever the protocol, and is woken when the session is ended.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::SystemTime;

use crate::sync::lock;

/// How long the viewer of a session may stay.
#[derive(Debug)]
pub struct Stay {
    until: Option<SystemTime>,
    is_ended: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Stay {
    /// Until then, or as long as there is a stream.
    pub(super) fn new(until: Option<SystemTime>) -> Self {
        Self { until, is_ended: AtomicBool::new(false), waker: Mutex::default() }
    }

    /// Ends what the viewer plays: its responses end in good form.
    pub fn end(&self) {
        self.is_ended.store(true, Ordering::Release);
        let waker = lock(&self.waker).take();
        waker.into_iter().for_each(Waker::wake);
    }

    /// Whether the viewer gets no more.
    pub fn is_over(&self) -> bool {
        let is_expired = |until| SystemTime::now() > until;
        self.is_ended.load(Ordering::Acquire) || self.until.is_some_and(is_expired)
    }

    /// Ready when the viewer gets no more. The context of the last call is woken when the session is ended; that the
    /// permission has expired is found at the next call.
    pub fn poll_over(&self, context: &Context<'_>) -> Poll<()> {
        {
            let mut waker = lock(&self.waker);
            if !waker.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
                *waker = Some(context.waker().clone());
            }
        }
        // After that, so that no end is missed in between.
        if self.is_over() { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// An evicted place ends the stay.
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
    struct Bell(AtomicUsize);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn who_waits_is_woken_by_the_end_and_told_by_the_clock() {
        let bell: Arc<Bell> = Arc::default();
        let waker = bell.clone().into();
        let context = Context::from_waker(&waker);
        let stay = Stay::new(None);
        assert!(stay.poll_over(&context).is_pending() && stay.poll_over(&context).is_pending());
        stay.end();
        assert_eq!(bell.0.load(Ordering::Relaxed), 1);
        assert!(stay.poll_over(&context).is_ready() && stay.is_over());
        let now = SystemTime::now();
        let minute = Duration::from_secs(60);
        assert!(Stay::new(Some(now - minute)).poll_over(&context).is_ready());
        assert!(Stay::new(Some(now + minute)).poll_over(&context).is_pending());
    }
}
