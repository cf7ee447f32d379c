//! Destinations for which segmentation offload (GSO) is paused.
//!
//! Whether a batch can be segmented depends on the outgoing device, which only the kernel knows,
//! but an error may also be caused by the destination. So GSO is paused per destination, and
//! retried after a pause that doubles with each failure. A device without GSO costs one failed call
//! per destination and pause.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Initial and maximum pause.
const MIN_PAUSE: Duration = Duration::from_secs(5);
const MAX_PAUSE: Duration = Duration::from_secs(600);
/// Maximum number of remembered destinations. Beyond it, expired entries are dropped, or all
/// entries if none has expired, at one failed call each.
const CAPACITY: usize = 4_096;

/// Destinations with paused GSO.
#[derive(Debug, Default)]
pub(super) struct PausedDestinations(HashMap<IpAddr, Pause>);

#[derive(Clone, Copy, Debug)]
struct Pause {
    until: Instant,
    length: Duration,
}

impl PausedDestinations {
    /// Returns true if batches to `ip` should not be segmented now.
    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        // Usually empty: skip reading the clock.
        !self.0.is_empty() && self.contains_at(ip, Instant::now())
    }

    fn contains_at(&self, ip: IpAddr, now: Instant) -> bool {
        self.0.get(&ip).is_some_and(|pause| now < pause.until)
    }

    /// Pauses GSO after a batch to `ip` failed but its single datagrams were sent.
    pub(super) fn insert(&mut self, ip: IpAddr, now: Instant) {
        if self.0.len() >= CAPACITY && !self.0.contains_key(&ip) {
            self.0.retain(|_, pause| now < pause.until);
            if self.0.len() >= CAPACITY {
                self.0.clear();
            }
        }
        let length = self.0.get(&ip).map_or(MIN_PAUSE, |pause| (pause.length * 2).min(MAX_PAUSE));
        self.0.insert(ip, Pause { until: now + length, length });
    }

    /// Resumes GSO after a segmented batch to `ip` was sent.
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
    fn pause_doubles_up_to_its_maximum() {
        let mut paused = PausedDestinations::default();
        let mut now = Instant::now();
        let mut expected = MIN_PAUSE;
        for _ in 0..12 {
            paused.insert(ip(1), now);
            assert!(paused.contains_at(ip(1), now + expected - Duration::from_millis(1)));
            now += expected;
            assert!(!paused.contains_at(ip(1), now));
            expected = (expected * 2).min(MAX_PAUSE);
        }
        assert_eq!(expected, MAX_PAUSE);
        paused.remove(ip(1));
        paused.insert(ip(1), now);
        assert!(!paused.contains_at(ip(1), now + MIN_PAUSE), "a success starts over");
    }

    #[test]
    fn destinations_are_independent_and_bounded() {
        let mut paused = PausedDestinations::default();
        let now = Instant::now();
        paused.insert(ip(1), now);
        assert!(!paused.contains_at(ip(2), now));
        for n in 0..3 * CAPACITY as u32 {
            paused.insert(ip(n), now);
            assert!(paused.contains_at(ip(n), now));
            assert!(paused.0.len() <= CAPACITY);
        }
    }
}
