//! Recent newcomers per network, in bounded memory: a count-min sketch. Networks share counters by
//! keyed hashes, unpredictable from outside; the smallest counter of a network estimates its count.

use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

use crate::config::Network;

/// Counters per row, and number of rows.
const COUNTERS_PER_ROW: usize = 4_096;
const ROWS: usize = 2;
/// Counting period. Newcomers count for one to two periods.
const PERIOD: Duration = Duration::from_secs(10);

/// Counters of the previous and the current period.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    hasher: RandomState,
    counters: Vec<[u32; 2]>,
    /// Start of the current period.
    since: Option<Instant>,
}

impl Arrivals {
    /// Counts a newcomer.
    pub(super) fn count(&mut self, now: Instant, network: Network) {
        let passed = self.since.map_or(PERIOD * 2, |since| now.saturating_duration_since(since));
        if passed >= PERIOD {
            let is_old = passed >= PERIOD * 2;
            self.counters.resize(ROWS * COUNTERS_PER_ROW, [0; 2]);
            self.counters.iter_mut().for_each(|[old, new]| {
                *old = if is_old { 0 } else { *new };
                *new = 0;
            });
            self.since = Some(now);
        }
        for place in self.places(network) {
            if let Some([_, new]) = self.counters.get_mut(place) {
                *new = new.saturating_add(1);
            }
        }
    }

    /// Returns the recent newcomers of a network; an overestimate if all its counters are shared.
    pub(super) fn of(&self, network: Network) -> u32 {
        let counters = self.places(network).map(|place| self.counters.get(place));
        let counts = counters.map(|c| c.map_or(0, |[old, new]| old.saturating_add(*new)));
        counts.into_iter().min().unwrap_or(0)
    }

    fn places(&self, network: Network) -> [usize; ROWS] {
        let hash = self.hasher.hash_one(network) as usize;
        [hash % COUNTERS_PER_ROW, COUNTERS_PER_ROW + hash / COUNTERS_PER_ROW % COUNTERS_PER_ROW]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newcomers_count_for_one_to_two_periods() {
        let (start, mut arrivals) = (Instant::now(), Arrivals::default());
        let network = Network::parse("192.0.2.0/24").expect("a network");
        let seconds = Duration::from_secs;
        assert_eq!(arrivals.of(network), 0);
        (0..5).for_each(|n| arrivals.count(start + seconds(n), network));
        arrivals.count(start + seconds(12), network);
        assert_eq!(arrivals.of(network), 6);
        arrivals.count(start + seconds(25), network);
        assert_eq!(arrivals.of(network), 2);
        arrivals.count(start + seconds(60), network);
        assert_eq!(arrivals.of(network), 1);
    }
}
