//! Requests that come to nothing, at a rate that no player needs: each may have begun work that is
//! thrown away (CVE-2023-44487, for HTTP/3; RFC 9114, section 10.5).

use units::Timestamp;

/// Requests that may end so at once, for each that may be open: a page with all of them may be
/// left, twice.
const BURST: u64 = 2;
/// What else may end so, each second.
const PER_SECOND: u64 = 10;

/// A token bucket over requests that were given up before their response was complete: twice as
/// many at once as may be open, and 10 more each second.
#[derive(Debug, Default)]
pub struct Cancels {
    /// Tokens that are taken.
    taken: u64,
    /// When one was given back last.
    at: Timestamp,
}

impl Cancels {
    /// Another one, where `open` requests may be open. Returns whether that is too many, and the
    /// connection should end.
    pub fn add(&mut self, now: Timestamp, open: usize) -> bool {
        let interval = 1_000_000_000 / PER_SECOND;
        let due = now.as_nanos().saturating_sub(self.at.as_nanos()) / interval;
        self.taken = self.taken.saturating_sub(due);
        self.at = Timestamp::from_nanos(self.at.as_nanos() + due * interval);
        if self.taken >= BURST * open as u64 {
            return true;
        }
        self.taken += 1;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_free_and_then_ten_per_second() {
        for (open, burst) in [(1, 2), (128, 256), (1_000, 2_000)] {
            let mut cancels = Cancels::default();
            let mut add = |ms| cancels.add(Timestamp::from_millis(ms), open);
            (0..burst).for_each(|number| assert!(!add(1_000), "{number}"));
            assert!(add(1_000) && add(1_099));
            assert!(!add(1_100) && add(1_100));
            // The rest of an interval carries over to the next one.
            assert!(!add(1_250) && !add(1_300) && add(1_300));
            // A month without any is one burst.
            let later = 30 * 86_400_000;
            (0..burst).for_each(|number| assert!(!add(later), "{number}"));
            assert!(add(later));
        }
    }
}
