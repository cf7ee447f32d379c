//! Counters of a neighbour: attempts, attempts that reached the server, and outcomes.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Minimum share of due attempts that a neighbour or newcomer must have made.
const MIN_MADE_SHARE: f64 = 0.5;
/// Minimum number of attempts that prove anything.
const MIN_ATTEMPTS: u64 = 5;

/// Counters of a running neighbour.
#[derive(Debug, Default)]
pub(super) struct NeighbourTally(Mutex<NeighbourCounters>);

#[derive(Debug, Default)]
struct NeighbourCounters {
    attempted: u64,
    reached: u64,
    breaches: u64,
    ends: BTreeMap<String, u64>,
}

/// Counters of a finished neighbour.
#[derive(Clone, Debug)]
pub(crate) struct Count {
    /// Name of the neighbour.
    pub name: &'static str,
    /// Attempts due at its rate.
    pub due: f64,
    /// Attempts: connections or requests, as in its rate.
    pub attempted: u64,
    /// Attempts that the server answered or ended.
    pub reached: u64,
    /// Attempts that the server should have rejected or ended, but did not.
    pub breaches: u64,
    /// Outcomes with their counts: the server's answer, an end by the server, or an end by the
    /// neighbour.
    pub ends: Vec<(String, u64)>,
}

impl Count {
    /// Returns whether enough of the due attempts were made to prove anything.
    pub(crate) fn is_enough(&self) -> bool {
        self.attempted as f64 >= MIN_MADE_SHARE * self.due && self.attempted >= MIN_ATTEMPTS
    }
}

impl NeighbourTally {
    /// Counts attempts at their start.
    pub(super) fn attempt(&self, attempts: u64) {
        self.lock().attempted += attempts;
    }

    /// Counts attempts that the server reacted to.
    pub(super) fn reach(&self, attempts: u64) {
        self.lock().reached += attempts;
    }

    /// Counts an outcome of attempts.
    pub(super) fn end(&self, how: impl Into<String>, attempts: u64) {
        *self.lock().ends.entry(how.into()).or_default() += attempts;
    }

    /// Counts an answered attempt and its outcome.
    pub(super) fn answer(&self, how: impl Into<String>) {
        self.reach(1);
        self.end(how, 1);
    }

    /// Counts an attempt that succeeded but must not.
    pub(super) fn breach(&self, how: impl Into<String>) {
        self.lock().breaches += 1;
        self.answer(how);
    }

    /// Returns all counters, after `time` at `per_second`.
    pub(super) fn count(&self, name: &'static str, per_second: f64, time: Duration) -> Count {
        let NeighbourCounters { attempted, reached, breaches, ends } = &*self.lock();
        Count {
            name,
            due: per_second * time.as_secs_f64(),
            attempted: *attempted,
            reached: *reached,
            breaches: *breaches,
            ends: ends.iter().map(|(how, count)| (how.clone(), *count)).collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, NeighbourCounters> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_signs_and_ends_are_counted_apart() {
        let tally = NeighbourTally::default();
        tally.attempt(3);
        tally.answer("status 404");
        tally.breach("status 200");
        tally.end("left", 1);
        let count = tally.count("names", 0.5, Duration::from_secs(10));
        assert_eq!((count.name, count.due, count.attempted, count.reached), ("names", 5.0, 3, 2));
        assert_eq!(count.breaches, 1);
        let ends = [("left", 1), ("status 200", 1), ("status 404", 1)];
        assert!(count.ends.iter().map(|(how, n)| (how.as_str(), *n)).eq(ends));
    }
}
