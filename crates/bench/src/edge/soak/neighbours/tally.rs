//! What a kind of neighbour did: how often it tried, how often that reached the server, and how it
//! ended.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The least share of the attempts that were due that a neighbour or newcomer must have made.
const MADE: f64 = 0.5;
/// The fewest attempts that prove anything.
const FEWEST: u64 = 5;

/// The counters of a neighbour while it runs.
#[derive(Debug, Default)]
pub(super) struct Tally(Mutex<Counters>);

#[derive(Debug, Default)]
struct Counters {
    attempted: u64,
    reached: u64,
    breaches: u64,
    ends: BTreeMap<String, u64>,
}

/// The counters of a neighbour that has left.
#[derive(Clone, Debug)]
pub(crate) struct Count {
    /// Which one.
    pub name: &'static str,
    /// Attempts that its rate makes of the time.
    pub due: f64,
    /// Attempts: connections or requests, as its rate has it.
    pub attempted: u64,
    /// Attempts that the server has answered, or ended itself.
    pub reached: u64,
    /// Attempts that the server should have refused, or ended, and has not.
    pub breaches: u64,
    /// How they ended: what the server answered, or that it ended the connection, or that the
    /// neighbour left by itself; and how often.
    pub ends: Vec<(String, u64)>,
}

impl Count {
    /// Returns whether enough of the attempts that were due were made to prove anything.
    pub(crate) fn is_enough(&self) -> bool {
        self.attempted as f64 >= MADE * self.due && self.attempted >= FEWEST
    }
}

impl Tally {
    /// Attempts that are made from here on.
    pub(super) fn attempt(&self, attempts: u64) {
        self.lock().attempted += attempts;
    }

    /// The server has given a sign that these attempts reached it.
    pub(super) fn reach(&self, attempts: u64) {
        self.lock().reached += attempts;
    }

    /// How attempts ended.
    pub(super) fn end(&self, how: impl Into<String>, attempts: u64) {
        *self.lock().ends.entry(how.into()).or_default() += attempts;
    }

    /// An attempt was answered, and ended so.
    pub(super) fn answer(&self, how: impl Into<String>) {
        self.reach(1);
        self.end(how, 1);
    }

    /// An attempt had what no neighbour may have.
    pub(super) fn breach(&self, how: impl Into<String>) {
        self.lock().breaches += 1;
        self.answer(how);
    }

    /// All of it, after `time` at `per_second`.
    pub(super) fn count(&self, name: &'static str, per_second: f64, time: Duration) -> Count {
        let Counters { attempted, reached, breaches, ends } = &*self.lock();
        Count {
            name,
            due: per_second * time.as_secs_f64(),
            attempted: *attempted,
            reached: *reached,
            breaches: *breaches,
            ends: ends.iter().map(|(how, count)| (how.clone(), *count)).collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counters> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_signs_and_ends_are_counted_apart() {
        let tally = Tally::default();
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
