//! How much a client may send on a connection over TCP: little is needed to ask for media, and frames that carry nothing
//! cost the thread that serves all others.
//!
//! A client that sends more is read more slowly; TCP's flow control tells it to wait.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// Bytes that a client may send at once, and each second. A request has some 500 bytes, and a connection 100 of them.
const BURST: u64 = 128 << 10;
const RATE: u64 = 128 << 10;
/// Bytes written that allow one more byte to be read: requests and flow-control frames of clients that receive much.
const WRITTEN_PER_BYTE: u64 = 8;
/// Most bytes of one read: the other connections of the thread wait meanwhile.
const TURN: u64 = 16 << 10;
/// Wait once the allowance is used up: for an eighth of a second's bytes.
const PAUSE: Duration = Duration::from_millis(125);

/// The allowance of a connection.
#[derive(Debug)]
pub(super) struct Intake {
    left: u64,
    refilled: Instant,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Intake {
    pub(super) fn new() -> Self {
        Self { left: BURST, refilled: Instant::now(), pause: None }
    }

    /// Returns how many bytes may be read now, at least one.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<usize> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(context));
            self.pause = None;
        }
        self.refill(Instant::now());
        if self.left == 0 {
            let pause = self.pause.insert(Box::pin(sleep(PAUSE)));
            // The first poll sets the timer.
            ready!(pause.as_mut().poll(context));
        }
        Poll::Ready(self.left.clamp(1, TURN) as usize)
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.refilled);
        let bytes = (passed.as_secs_f64() * RATE as f64) as u64;
        if bytes > 0 {
            self.refilled = now;
            self.left = self.left.max((self.left + bytes).min(BURST));
        }
    }

    /// Counts bytes that were read.
    pub(super) fn read(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes as u64);
    }

    /// Counts bytes that were written.
    pub(super) fn written(&mut self, bytes: usize) {
        self.left = self.left.max((self.left + bytes as u64 / WRITTEN_PER_BYTE).min(8 * BURST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::time::advance;

    /// Bytes that a client that never pauses gets through in this time.
    async fn flood(intake: &mut Intake, time: Duration) -> u64 {
        let (end, mut all) = (Instant::now() + time, 0);
        while Instant::now() < end {
            let bytes = poll_fn(|context| intake.poll(context)).await;
            intake.read(bytes);
            all += bytes as u64;
        }
        all
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_read_at_the_rate() {
        let mut intake = Intake::new();
        let all = flood(&mut intake, Duration::from_secs(60)).await;
        let expected = BURST + 60 * RATE;
        assert!(all.abs_diff(expected) < expected / 50, "{all} of {expected}");
        // After a pause there is one burst, not a minute's bytes.
        advance(Duration::from_secs(60)).await;
        let all = flood(&mut intake, PAUSE).await;
        assert!(all <= BURST + RATE / 4, "{all}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_receives_much_may_send_more() {
        let mut intake = Intake::new();
        flood(&mut intake, Duration::from_secs(1)).await;
        // Ten megabytes a second, and 20 bytes for each 16 KiB of them.
        for _ in 0..640 {
            intake.written(16 << 10);
            let start = Instant::now();
            assert!(poll_fn(|context| intake.poll(context)).await >= 20);
            intake.read(20);
            assert_eq!(start.elapsed(), Duration::ZERO);
        }
    }
}
