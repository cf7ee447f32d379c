//! The wall clock as passes, tickets, tokens and keys write it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use ::quic::crypto::{TimeProvider, UnixTime};

/// Whole seconds since 1970; 0 before that.
pub(crate) fn unix(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The same of this moment.
pub(crate) fn unix_now() -> u64 {
    unix(SystemTime::now())
}

/// The clock of QUIC's session tickets and address tokens, the same for the whole process.
///
/// It follows the system's clock forwards and never goes back. If it went back, early data that was recorded before
/// could be replayed when the clock reaches that time again (RFC 9001, section 9.2). After a step back it goes on from
/// where it was, so that tickets of this process stay good. Tickets of other nodes may then count as too old until a
/// restart: their clients make a full handshake.
#[derive(Debug)]
pub(crate) struct TicketClock {
    began: Instant,
    /// Unix time in seconds when it began, by the system's clock at its furthest.
    origin: AtomicU64,
}

impl TicketClock {
    /// A clock that begins now.
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), origin: AtomicU64::new(unix_now()) }
    }

    /// Returns the Unix time in seconds.
    pub(crate) fn now(&self) -> u64 {
        self.at(self.began.elapsed(), unix_now())
    }

    /// Returns the time `elapsed` after the start, when the system's clock says `wall`.
    fn at(&self, elapsed: Duration, wall: u64) -> u64 {
        let elapsed = elapsed.as_secs();
        let origin = wall.saturating_sub(elapsed);
        self.origin.fetch_max(origin, Ordering::Relaxed).max(origin) + elapsed
    }
}

impl TimeProvider for TicketClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(self.now())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_follow_steps_forwards_and_never_go_back() {
        let clock = TicketClock { began: Instant::now(), origin: AtomicU64::new(1_000_000) };
        let at = |elapsed, wall| clock.at(Duration::from_secs(elapsed), wall);
        assert_eq!(at(10, 1_000_010), 1_000_010);
        assert_eq!(at(20, 1_003_620), 1_003_620, "an hour on");
        assert_eq!(at(30, 900_000), 1_003_630, "a day back");
        assert_eq!(at(40, 1_000_040), 1_003_640);
        assert_eq!(at(50, 0), 1_003_650, "before 1970");
    }
}
