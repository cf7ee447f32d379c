//! Decision intervals (AutoRec, journal version, section V-A).

use crate::scheme::IntervalMetrics;
use crate::statistics::{Statistics, UnitTimes};
use core::time::Duration;
use units::Timestamp;

/// The decision interval in progress.
#[derive(Debug)]
pub(crate) struct DecisionInterval {
    start: Timestamp,
    /// Counts at its start.
    before: Counts,
    rounds_max: u32,
}

/// Counts of a connection that an interval's metrics need.
#[derive(Debug, Default)]
struct Counts {
    acked: u64,
    lost: u64,
    finished: u64,
    replicas: u64,
    sent_bytes: u64,
    goodput_bytes: u64,
    latencies: Duration,
    unit_times: UnitTimes,
}

impl Counts {
    fn of(sums: &Statistics) -> Self {
        let totals = &sums.totals;
        Self {
            acked: totals.acked,
            lost: totals.lost,
            finished: totals.finished,
            replicas: totals.replicas,
            sent_bytes: totals.first_bytes + totals.copy_bytes,
            goodput_bytes: totals.goodput_bytes,
            latencies: sums.losses.latencies.sum(),
            unit_times: sums.losses.unit_times,
        }
    }
}

impl DecisionInterval {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { start: now, before: Counts::default(), rounds_max: 0 }
    }

    /// Notes a unit finished in this round.
    pub(crate) fn on_finished(&mut self, round: u32) {
        self.rounds_max = self.rounds_max.max(round);
    }

    pub(crate) fn restart(&mut self, now: Timestamp, sums: &Statistics) {
        *self = Self { start: now, before: Counts::of(sums), rounds_max: 0 };
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
        let (counts, before) = (Counts::of(sums), &self.before);
        let finished = counts.finished - before.finished;
        let latency = counts.latencies.saturating_sub(before.latencies);
        let metrics = IntervalMetrics {
            now,
            span,
            acked: counts.acked - before.acked,
            // Losses and replicas may be taken back.
            lost: counts.lost.saturating_sub(before.lost),
            t_unit: counts.unit_times.since(&before.unit_times).mean(),
            finished,
            recovery_latency: (finished > 0).then(|| latency.div_f64(finished as f64)),
            rounds_max: self.rounds_max,
            sent_bytes: counts.sent_bytes - before.sent_bytes,
            goodput_bytes: counts.goodput_bytes - before.goodput_bytes,
            replicas: counts.replicas.saturating_sub(before.replicas),
        };
        self.restart(now, sums);
        Some(metrics)
    }
}
