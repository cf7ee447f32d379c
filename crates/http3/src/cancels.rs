//! Requests that come to nothing, at a rate that no player needs: each may have begun work that is thrown away
//! (CVE-2023-44487, for HTTP/3; RFC 9114, section 10.5).

use units::Timestamp;

/// Requests that may end so at once: twice as many as may be open, as when a page with all of them is left.
const BURST: u32 = 256;
/// What else may end so, each second.
const PER_SECOND: u64 = 10;

/// A token bucket over requests that were given up before their response was complete: 256 at once, and 10
/// more each second.
#[derive(Debug)]
pub struct Cancels {
    left: u32,
    /// When a token was added last.
    at: Timestamp,
}

impl Default for Cancels {
    fn default() -> Self {
        Self { left: BURST, at: Timestamp::ZERO }
    }
}

impl Cancels {
    /// Another one. Returns whether that is too many, and the connection should end.
    pub fn add(&mut self, now: Timestamp) -> bool {
        let interval = 1_000_000_000 / PER_SECOND;
        let due = now.as_nanos().saturating_sub(self.at.as_nanos()) / interval;
        if due > 0 {
            let room = u64::from(BURST - self.left);
            self.left += due.min(room) as u32;
            self.at = Timestamp::from_nanos(self.at.as_nanos() + due * interval);
        }
        match self.left.checked_sub(1) {
            Some(left) => self.left = left,
            None => return true,
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_free_and_then_each_tenth_of_a_second_one() {
        let mut cancels = Cancels::default();
        let at = Timestamp::from_millis;
        (0..BURST).for_each(|number| assert!(!cancels.add(at(1_000)), "{number}"));
        assert!(cancels.add(at(1_000)) && cancels.add(at(1_099)));
        assert!(!cancels.add(at(1_100)) && cancels.add(at(1_100)));
        // What is left of an interval counts for the next one.
        assert!(!cancels.add(at(1_250)) && !cancels.add(at(1_300)) && cancels.add(at(1_300)));
        // A month without any is one burst.
        let later = 30 * 86_400_000;
        (0..BURST).for_each(|number| assert!(!cancels.add(at(later)), "{number}"));
        assert!(cancels.add(at(later)));
    }
}
