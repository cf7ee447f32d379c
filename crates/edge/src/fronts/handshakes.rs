//! Scheduling of TLS handshakes on a thread.
//!
//! The key exchange and signature of one handshake take longer than one second of a viewer's media,
//! and any ClientHello causes them. So handshakes run one at a time and use at most half of the
//! thread's time; in between, the thread serves viewers. A turn ends when the handshake waits for
//! its client, so silent clients delay nobody.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::sync::lock;

/// Time left to other work, as a multiple of the time for handshakes.
const OTHERS_SHARE: u32 = 1;
/// Maximum credit for time without handshakes, so that a small burst does not wait.
const MAX_CREDIT: Duration = Duration::from_millis(4);

/// Scheduler of one thread.
#[derive(Debug)]
pub(crate) struct Turns {
    /// Admits one handshake at a time, in order of arrival.
    queue: Semaphore,
    pace: Mutex<Pace>,
}

impl Turns {
    pub(crate) fn new() -> Self {
        Self { queue: Semaphore::new(1), pace: Mutex::new(Pace { due: Instant::now() }) }
    }

    /// Performs the handshake of a new connection.
    ///
    /// # Errors
    /// Errors of TLS or of the socket.
    pub(super) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        config: Arc<ServerConfig>,
    ) -> io::Result<TlsStream<S>> {
        let mut handshake = pin!(TlsAcceptor::from(config).accept(stream));
        loop {
            {
                let _turn = self.queue.acquire().await.map_err(io::Error::other)?;
                let due = lock(&self.pace).due;
                if due > Instant::now() {
                    sleep_until(due).await;
                }
                let polled = poll_fn(|context| {
                    let began = Instant::now();
                    let polled = handshake.as_mut().poll(context);
                    lock(&self.pace).charge(began, began.elapsed());
                    Poll::Ready(polled)
                });
                if let Poll::Ready(done) = polled.await {
                    return done;
                }
            }
            woken().await;
        }
    }
}

/// Waits until the task is woken again.
async fn woken() {
    let mut was_polled = false;
    poll_fn(|_| match core::mem::replace(&mut was_polled, true) {
        true => Poll::Ready(()),
        // The socket has held the task's waker since the handshake was polled.
        false => Poll::Pending,
    })
    .await;
}

/// Time of the next handshake turn.
#[derive(Debug)]
struct Pace {
    due: Instant,
}

impl Pace {
    /// Accounts for a turn that started at `began`.
    fn charge(&mut self, began: Instant, spent: Duration) {
        let earliest = began.checked_sub(MAX_CREDIT).unwrap_or(began);
        self.due = self.due.max(earliest) + spent * (1 + OTHERS_SHARE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_get_half_of_the_time_and_small_bursts_do_not_wait() {
        let start = Instant::now();
        let (mut pace, mut now) = (Pace { due: start }, start + Duration::from_secs(1));
        let (each, mut busy) = (Duration::from_micros(500), Duration::ZERO);
        let begun = now;
        let mut waits = Vec::new();
        for _ in 0..1_000 {
            let wait = pace.due.saturating_duration_since(now);
            waits.push(wait);
            now += wait;
            pace.charge(now, each);
            now += each;
            busy += each;
        }
        let free = waits.iter().take_while(|wait| wait.is_zero()).count();
        assert!((5..=9).contains(&free), "{free}");
        let share = busy.as_secs_f64() / (now - begun).as_secs_f64();
        assert!((0.5..0.505).contains(&share), "{share}");
        // A longer pause does not increase the credit.
        now += Duration::from_secs(86_400 * 30);
        pace.charge(now, each);
        assert!(pace.due < now && pace.due > now - MAX_CREDIT);
    }
}
