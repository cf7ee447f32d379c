//! The time that some code takes.

use core::time::Duration;
use std::time::Instant;

/// Sums up the wall time of what runs under it.
pub(super) struct Stopwatch {
    /// Clocks are read only if it is on.
    pub is_on: bool,
    pub total: Duration,
}

impl Stopwatch {
    pub(super) fn time<R>(&mut self, work: impl FnOnce() -> R) -> R {
        if !self.is_on {
            return work();
        }
        let start = Instant::now();
        let result = work();
        self.total += start.elapsed();
        result
    }
}
