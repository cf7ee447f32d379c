//! Decision intervals (AutoRec, journal version, section V-A).

use crate::scheme::IntervalMetrics;
use crate::statistics::{Statistics, Totals, UnitTimes};
use core::time::Duration;
use units::Timestamp;

/// The decision interval in progress.
#[derive(Debug)]
pub(crate) struct DecisionInterval {
    start: Timestamp,
    /// Totals at its start.
    totals: Totals,
    latencies: Duration,
    unit_times: UnitTimes,
    rounds_max: u32,
}

impl DecisionInterval {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            start: now,
            totals: Totals::default(),
            latencies: Duration::ZERO,
            unit_times: UnitTimes::default(),
            rounds_max: 0,
        }
    }

    /// Notes a unit finished in this round.
    pub(crate) fn on_finished(&mut self, round: u32) {
        self.rounds_max = self.rounds_max.max(round);
    }

    pub(crate) fn restart(&mut self, now: Timestamp, sums: &Statistics) {
        *self = Self {
            start: now,
            totals: sums.totals,
            latencies: sums.latencies.sum(),
            unit_times: sums.unit_times,
            rounds_max: 0,
        };
    }

    /// Returns the metrics and starts a new interval, if this one has lasted for `length`.
    pub(crate) fn close(
        &mut self,
        now: Timestamp,
        length: Duration,
        sums: &Statistics,
    ) -> Option<IntervalMetrics> {
        let span = now.since(self.start);
        if span < length {
            return None;
        }
        let counted = sums.totals.since(&self.totals);
        let finished = counted.finished;
        let latency = sums.latencies.sum().saturating_sub(self.latencies);
        let metrics = IntervalMetrics {
            now,
            span,
            acked: counted.acked,
            lost: counted.lost,
            t_unit: sums.unit_times.since(&self.unit_times).mean(),
            finished,
            recovery_latency: (finished > 0).then(|| latency.div_f64(finished as f64)),
            rounds_max: self.rounds_max,
            sent_bytes: counted.first_bytes + counted.copy_bytes,
            goodput_bytes: counted.goodput_bytes,
            replicas: counted.replicas,
        };
        self.restart(now, sums);
        Some(metrics)
    }
}
