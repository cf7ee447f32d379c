//! Wall clock of passes, tickets, tokens and keys.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use ::quic::crypto::{TimeProvider, UnixTime};

/// Returns whole seconds since 1970; 0 before that.
pub(crate) fn unix(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Returns the current time in whole seconds since 1970.
pub(crate) fn unix_now() -> u64 {
    unix(SystemTime::now())
}

/// Clock of QUIC session tickets and address tokens, shared by the whole process.
///
/// It follows the system clock, but never steps back: otherwise recorded early data could be
/// replayed when the clock reaches that time again (RFC 9001, section 9.2). If the system clock
/// steps back, this clock continues, so this process's tickets remain valid. Tickets of other nodes
/// may then count as too old until a restart; their clients make a full handshake.
#[derive(Debug)]
pub(crate) struct TicketClock {
    started: Instant,
    /// Unix time of the start in seconds, by the latest reading of the system clock.
    origin: AtomicU64,
}

impl TicketClock {
    /// Creates a clock.
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), origin: AtomicU64::new(unix_now()) }
    }

    /// Returns the Unix time in seconds.
    pub(crate) fn now(&self) -> u64 {
        self.at(self.started.elapsed(), unix_now())
    }

    /// Returns the time `elapsed` after the start, while the system clock shows `wall`.
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
    fn the_clock_follows_steps_forwards_and_never_steps_back() {
        let clock = TicketClock { started: Instant::now(), origin: AtomicU64::new(1_000_000) };
        let at = |elapsed, wall| clock.at(Duration::from_secs(elapsed), wall);
        assert_eq!(at(10, 1_000_010), 1_000_010);
        assert_eq!(at(20, 1_003_620), 1_003_620, "an hour forwards");
        assert_eq!(at(30, 900_000), 1_003_630, "a day back");
        assert_eq!(at(40, 1_000_040), 1_003_640);
        assert_eq!(at(50, 0), 1_003_650, "before 1970");
    }
}
