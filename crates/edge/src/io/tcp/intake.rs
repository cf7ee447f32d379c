//! Rate limit on bytes received from a TCP client.
//!
//! Requests for media are small, and frames without content cost time of the shared thread. Faster
//! senders are read more slowly, so TCP flow control slows them down.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// Token bucket: size in bytes, and rate in bytes/s. A connection carries about 100 requests of
/// 500 bytes.
const BURST: u64 = 128 << 10;
const RATE: u64 = 128 << 10;
/// Bytes written per additional byte of allowance, for requests and flow control of busy clients.
const WRITTEN_PER_BYTE: u64 = 8;
/// Maximum bytes per read, so that other connections of the thread get their turn.
const MAX_READ: u64 = 16 << 10;
/// Delay after the allowance is used up: one eighth of a second's bytes.
const PAUSE: Duration = Duration::from_millis(125);

/// Receive allowance of a connection.
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

    /// Returns how many bytes may be read now, at least 1.
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
        Poll::Ready(self.left.clamp(1, MAX_READ) as usize)
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.refilled);
        let bytes = (passed.as_secs_f64() * RATE as f64) as u64;
        if bytes > 0 {
            self.refilled = now;
            self.left = self.left.max((self.left + bytes).min(BURST));
        }
    }

    /// Consumes allowance for bytes read.
    pub(super) fn read(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes as u64);
    }

    /// Adds allowance for bytes written.
    pub(super) fn written(&mut self, bytes: usize) {
        self.left = self.left.max((self.left + bytes as u64 / WRITTEN_PER_BYTE).min(8 * BURST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::time::advance;

    /// Returns the bytes read from a constantly sending client during `time`.
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
    async fn flood_is_read_at_the_configured_rate() {
        let mut intake = Intake::new();
        let all = flood(&mut intake, Duration::from_secs(60)).await;
        let expected = BURST + 60 * RATE;
        assert!(all.abs_diff(expected) < expected / 50, "{all} of {expected}");
        // After an idle minute there is one burst, not a minute's bytes.
        advance(Duration::from_secs(60)).await;
        let all = flood(&mut intake, PAUSE).await;
        assert!(all <= BURST + RATE / 4, "{all}");
    }

    #[tokio::test(start_paused = true)]
    async fn allowance_grows_with_bytes_written() {
        let mut intake = Intake::new();
        flood(&mut intake, Duration::from_secs(1)).await;
        // 10 MB/s written, with 20 bytes read per 16 KiB.
        for _ in 0..640 {
            intake.written(16 << 10);
            let start = Instant::now();
            assert!(poll_fn(|context| intake.poll(context)).await >= 20);
            intake.read(20);
            assert_eq!(start.elapsed(), Duration::ZERO);
        }
    }
}
