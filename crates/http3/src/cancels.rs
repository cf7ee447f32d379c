//! Rate limit of cancelled requests, which waste the work already done for them (CVE-2023-44487,
//! for HTTP/3; RFC 9114, section 10.5).

use units::Timestamp;

/// Burst size per concurrent request: a page with the maximum number of requests may be left twice.
const BURST: u64 = 2;
/// Cancellations per second beyond the burst.
const PER_SECOND: u64 = 10;

/// Token bucket of requests that were cancelled before their response was complete: a burst of
/// twice the concurrent requests, and 10 per second.
#[derive(Debug, Default)]
pub struct Cancels {
    /// Tokens in use.
    taken: u64,
    /// Time of the last refill.
    at: Timestamp,
}

impl Cancels {
    /// Counts a cancellation, with up to `open` concurrent requests. Returns true if the rate
    /// exceeds the limit, so that the connection should be closed.
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
    fn cancellations_are_limited_to_a_burst_and_ten_per_second() {
        for (open, burst) in [(1, 2), (128, 256), (1_000, 2_000)] {
            let mut cancels = Cancels::default();
            let mut add = |ms| cancels.add(Timestamp::from_millis(ms), open);
            (0..burst).for_each(|number| assert!(!add(1_000), "{number}"));
            assert!(add(1_000) && add(1_099));
            assert!(!add(1_100) && add(1_100));
            // The rest of an interval carries over to the next one.
            assert!(!add(1_250) && !add(1_300) && add(1_300));
            // A month of idle time allows only one burst.
            let later = 30 * 86_400_000;
            (0..burst).for_each(|number| assert!(!add(later), "{number}"));
            assert!(add(later));
        }
    }
}
