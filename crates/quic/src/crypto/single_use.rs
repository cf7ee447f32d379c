//! Log of used session tickets and address tokens, in bounded memory.
//!
//! Protects against replayed 0-RTT (RFC 8446, section 8.2, "Client Hello Recording"; RFC 9001,
//! section 9.2) and enforces single-use tokens (RFC 9000, section 8.1.4). The log covers a limited
//! time window. That suffices for tickets: TLS rejects early data with a ticket age more than 60 s
//! off, so a recorded ClientHello can be replayed only within 120 s. A rejection costs the client
//! its early data or token, never its connection. Doubtful cases are therefore rejected.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// Recently used identifiers, shared by all threads of a server.
pub struct SingleUseLog {
    started: u64,
    window: u64,
    capacity: usize,
    generations: Mutex<Generations>,
}

/// Two generations: when the younger one is a window old, the older one is forgotten. An identifier
/// is thus remembered for one to two windows.
struct Generations {
    young_since: u64,
    young: BTreeSet<u64>,
    old: BTreeSet<u64>,
}

impl SingleUseLog {
    /// The window that keeps replayed early data out, in seconds.
    pub const REPLAY_WINDOW: u64 = 120;

    /// An empty log, started at `now` (Unix seconds), which remembers at least `window` seconds and
    /// at most `2 * capacity` identifiers (about 12 bytes each).
    pub fn new(now: u64, window: u64, capacity: usize) -> Self {
        let generations =
            Generations { young_since: now, young: BTreeSet::new(), old: BTreeSet::new() };
        Self { started: now, window, capacity, generations: Mutex::new(generations) }
    }

    /// Whether this is certainly the first use of the identifier `id`, which was issued at `issued`
    /// (Unix seconds); notes the use. The identifier must come from an authenticated ticket or
    /// token, so that only what we issued can fill the log.
    ///
    /// False also where the log cannot know: when it is full, and in its first window for
    /// identifiers that are older than itself (RFC 8446, section 8.2: after a start, 0-RTT is
    /// rejected until the recording window has passed).
    pub fn first_use(&self, id: u64, issued: u64, now: u64) -> bool {
        if issued < self.started && now < self.started.saturating_add(self.window) {
            return false;
        }
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        let Generations { young_since, young, old } = &mut *generations;
        let age = now.saturating_sub(*young_since);
        if age >= self.window {
            *old = core::mem::take(young);
            *young_since = now;
            if age >= self.window.saturating_mul(2) {
                old.clear();
            }
        }
        !old.contains(&id) && young.len() < self.capacity && young.insert(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_use_is_noticed_within_the_window() {
        let log = SingleUseLog::new(1000, 120, 100);
        assert!(log.first_use(1, 1000, 1010));
        assert!(!log.first_use(1, 1000, 1010));
        assert!(log.first_use(2, 1000, 1119));
        for now in [1120, 1130, 1238] {
            assert!(!log.first_use(2, 1000, now), "forgotten at {now}");
        }
    }

    #[test]
    fn a_use_is_forgotten_after_two_windows() {
        let log = SingleUseLog::new(1000, 120, 100);
        assert!(log.first_use(1, 1000, 1010));
        assert!(log.first_use(1, 1000, 1250));
    }

    #[test]
    fn a_full_log_trusts_nobody_until_the_window_moves_on() {
        let log = SingleUseLog::new(1000, 120, 2);
        assert!(log.first_use(1, 1000, 1000));
        assert!(log.first_use(2, 1000, 1000));
        assert!(!log.first_use(3, 1000, 1119));
        assert!(log.first_use(3, 1000, 1120));
    }

    #[test]
    fn what_is_older_than_the_log_is_refused_in_its_first_window() {
        let log = SingleUseLog::new(1000, 120, 100);
        assert!(!log.first_use(1, 999, 1119));
        assert!(log.first_use(1, 999, 1120));
    }

    #[test]
    fn a_clock_that_goes_back_makes_no_identifier_new() {
        let log = SingleUseLog::new(1000, 120, 100);
        assert!(log.first_use(1, 1000, 1100));
        assert!(!log.first_use(1, 1000, 500));
        assert!(!log.first_use(1, 1000, 1101));
    }
}
