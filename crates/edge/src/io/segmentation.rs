//! Destinations to which the kernel does not segment (GSO), each for itself.
//!
//! Whether a batch can be segmented depends on the device that it leaves by, which only the kernel
//! knows, and a refusal may as well be the destination's fault. So what one destination brings about
//! holds for that one, and ends: after a pause the next batch is tried again, and the pause doubles
//! while that fails. A device that cannot segment at all costs one refused call per destination and
//! pause.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The first pause, and the longest.
const FIRST: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(600);
/// Destinations that are remembered. With more, those whose pause is over are forgotten, and at
/// worst all of them: that costs a refused call each.
const CAPACITY: usize = 4_096;

/// Who gets no segmented batches.
#[derive(Debug, Default)]
pub(super) struct Barred(HashMap<IpAddr, Pause>);

#[derive(Clone, Copy, Debug)]
struct Pause {
    until: Instant,
    length: Duration,
}

impl Barred {
    /// Whether batches to `ip` should not be segmented at this moment.
    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        // As a rule there is none, and the clock is not asked.
        !self.0.is_empty() && self.contains_at(ip, Instant::now())
    }

    fn contains_at(&self, ip: IpAddr, now: Instant) -> bool {
        self.0.get(&ip).is_some_and(|pause| now < pause.until)
    }

    /// A batch to `ip` was refused, its datagrams were not.
    pub(super) fn insert(&mut self, ip: IpAddr, now: Instant) {
        if self.0.len() >= CAPACITY && !self.0.contains_key(&ip) {
            self.0.retain(|_, pause| now < pause.until);
            if self.0.len() >= CAPACITY {
                self.0.clear();
            }
        }
        let length = self.0.get(&ip).map_or(FIRST, |pause| (pause.length * 2).min(LONGEST));
        self.0.insert(ip, Pause { until: now + length, length });
    }

    /// A segmented batch to `ip` has left.
    pub(super) fn remove(&mut self, ip: IpAddr) {
        if !self.0.is_empty() {
            self.0.remove(&ip);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(n: u32) -> IpAddr {
        std::net::Ipv4Addr::from(n).into()
    }

    #[test]
    fn a_pause_ends_and_doubles_up_to_its_bound() {
        let mut barred = Barred::default();
        let mut now = Instant::now();
        let mut expected = FIRST;
        for _ in 0..12 {
            barred.insert(ip(1), now);
            assert!(barred.contains_at(ip(1), now + expected - Duration::from_millis(1)));
            now += expected;
            assert!(!barred.contains_at(ip(1), now));
            expected = (expected * 2).min(LONGEST);
        }
        assert_eq!(expected, LONGEST);
        barred.remove(ip(1));
        barred.insert(ip(1), now);
        assert!(!barred.contains_at(ip(1), now + FIRST), "a success starts over");
    }

    #[test]
    fn one_destination_is_no_other_and_their_number_is_bounded() {
        let mut barred = Barred::default();
        let now = Instant::now();
        barred.insert(ip(1), now);
        assert!(!barred.contains_at(ip(2), now));
        for n in 0..3 * CAPACITY as u32 {
            barred.insert(ip(n), now);
            assert!(barred.contains_at(ip(n), now));
            assert!(barred.0.len() <= CAPACITY);
        }
    }
}
