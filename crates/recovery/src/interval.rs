//! Decision intervals (AutoRec, journal version, section V-A): what was counted since the last one.

use crate::scheme::IntervalMetrics;
use crate::statistics::{Statistics, Totals, UnitTimes};
use core::time::Duration;
use units::Timestamp;

/// Of the totals, what an interval takes its share of.
#[derive(Clone, Copy, Debug, Default)]
struct Base {
    acked: u64,
    lost: u64,
    finished: u64,
    sent_bytes: u64,
    goodput_bytes: u64,
    replicas: u64,
}

impl Base {
    fn of(totals: &Totals) -> Self {
        Self {
            acked: totals.acked,
            lost: totals.lost,
            finished: totals.finished,
            sent_bytes: totals.first_bytes + totals.copy_bytes,
            goodput_bytes: totals.goodput_bytes,
            replicas: totals.replicas,
        }
    }
}

/// The interval that is under way.
#[derive(Debug)]
pub(crate) struct Interval {
    start: Timestamp,
    base: Base,
    latencies: Duration,
    unit_times: UnitTimes,
    rounds_max: u32,
}

impl Interval {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            start: now,
            base: Base::default(),
            latencies: Duration::ZERO,
            unit_times: UnitTimes::default(),
            rounds_max: 0,
        }
    }

    /// A unit was finished in this round.
    pub(crate) fn on_finished(&mut self, round: u32) {
        self.rounds_max = self.rounds_max.max(round);
    }

    /// Forgets what was counted so far.
    pub(crate) fn restart(&mut self, now: Timestamp, sums: &Statistics) {
        *self = Self {
            start: now,
            base: Base::of(&sums.totals),
            latencies: sums.latencies.sum(),
            unit_times: sums.unit_times,
            rounds_max: 0,
        };
    }

    /// What the interval measured, if it lasted for `length`; the next one begins.
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
        let (base, total) = (&self.base, Base::of(&sums.totals));
        let since = |now: u64, then: u64| now.saturating_sub(then);
        let finished = since(total.finished, base.finished);
        let latency = sums.latencies.sum().saturating_sub(self.latencies);
        let metrics = IntervalMetrics {
            now,
            span,
            acked: since(total.acked, base.acked),
            lost: since(total.lost, base.lost),
            t_unit: sums.unit_times.since(&self.unit_times).mean(),
            finished,
            recovery_latency: (finished > 0).then(|| latency.div_f64(finished as f64)),
            rounds_max: self.rounds_max,
            sent_bytes: since(total.sent_bytes, base.sent_bytes),
            goodput_bytes: since(total.goodput_bytes, base.goodput_bytes),
            replicas: since(total.replicas, base.replicas),
        };
        self.restart(now, sums);
        Some(metrics)
    }
}
