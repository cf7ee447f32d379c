//! TLS handshakes take turns on their thread, and have half of its time at most: a key exchange and a
//! signature take longer than a second of anybody's media, and whoever says hello has them done. One at a time
//! has its turn; between two of them the thread turns to its viewers.
//!
//! A turn lasts until the handshake has to wait for its client, so those who never say hello hold nobody up.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::io::Measured;
use crate::sync::lock;

/// The part of a thread's time that is left to others is this many times what handshakes have.
const OTHERS: u32 = 1;
/// Handshakes make up for this much time without any, so that a few at once do not wait.
const CREDIT: Duration = Duration::from_millis(4);

/// The turns of one thread.
#[derive(Debug)]
pub(super) struct Turns {
    /// Who is next, in the order of arrival.
    queue: Semaphore,
    pace: Mutex<Pace>,
}

impl Turns {
    pub(super) fn new() -> Self {
        Self { queue: Semaphore::new(1), pace: Mutex::new(Pace { due: Instant::now() }) }
    }

    /// The handshake of a new connection.
    ///
    /// # Errors
    /// As of TLS, or of the socket.
    pub(super) async fn accept(
        &self,
        stream: Measured,
        config: Arc<ServerConfig>,
    ) -> io::Result<TlsStream<Measured>> {
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

/// Returns when the task is woken after it was polled.
async fn woken() {
    let mut was_polled = false;
    poll_fn(|_| match core::mem::replace(&mut was_polled, true) {
        true => Poll::Ready(()),
        // The socket has the task's waker since the handshake was polled.
        false => Poll::Pending,
    })
    .await;
}

/// When the next handshake may have its turn.
#[derive(Debug)]
struct Pace {
    due: Instant,
}

impl Pace {
    /// A handshake began at `began` and took this long.
    fn charge(&mut self, began: Instant, spent: Duration) {
        let earliest = began.checked_sub(CREDIT).unwrap_or(began);
        self.due = self.due.max(earliest) + spent * (1 + OTHERS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_have_half_of_the_time_and_a_few_at_once_do_not_wait() {
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
        // Whatever the pause was, the credit is the same.
        now += Duration::from_secs(86_400 * 30);
        pace.charge(now, each);
        assert!(pace.due < now && pace.due > now - CREDIT);
    }
}
