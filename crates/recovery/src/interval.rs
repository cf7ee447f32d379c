//! Decision intervals (AutoRec, journal version, section V-A: "usually set several Round-Trip Times
//! (RTTs), e.g., D = 5 RTTs"): what was counted since the last one.

use crate::{IntervalMetrics, Latencies, Totals, UnitTimes};
use ::units::Timestamp;
use core::time::Duration;

/// Length of an interval in smoothed round-trip times.
const RTTS: u32 = 5;

/// All sums that an interval takes its share of.
type Sums<'a> = (&'a Totals, &'a Latencies, &'a UnitTimes);

/// The interval that is under way.
#[derive(Debug)]
pub(crate) struct Interval {
    start: Timestamp,
    totals: Totals,
    latencies: (u64, Duration),
    unit_times: UnitTimes,
    rounds_max: u32,
}

impl Interval {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            start: now,
            totals: Totals::default(),
            latencies: (0, Duration::ZERO),
            unit_times: UnitTimes::default(),
            rounds_max: 0,
        }
    }

    /// A unit was finished in this round.
    pub(crate) fn on_finished(&mut self, round: u32) {
        self.rounds_max = self.rounds_max.max(round);
    }

    /// Forgets what was counted so far.
    pub(crate) fn restart(&mut self, now: Timestamp, (totals, latencies, times): Sums<'_>) {
        *self = Self {
            start: now,
            totals: *totals,
            latencies: (latencies.count(), latencies.sum()),
            unit_times: *times,
            rounds_max: 0,
        };
    }

    /// What the interval measured, if it lasted long enough; the next one begins.
    pub(crate) fn close(
        &mut self,
        now: Timestamp,
        smoothed_rtt: Duration,
        sums: Sums<'_>,
    ) -> Option<IntervalMetrics> {
        let span = now.since(self.start);
        if span < smoothed_rtt * RTTS {
            return None;
        }
        let (totals, latencies, times) = sums;
        let base = &self.totals;
        let since = |now: u64, then: u64| now.saturating_sub(then);
        let recoveries = since(latencies.count(), self.latencies.0);
        let units = UnitTimes {
            count: since(times.count, self.unit_times.count),
            sum: times.sum.saturating_sub(self.unit_times.sum),
        };
        let sent = |t: &Totals| t.first_bytes + t.copy_bytes;
        let metrics = IntervalMetrics {
            now,
            span,
            acked: since(totals.acked, base.acked),
            lost: since(totals.lost, base.lost),
            t_unit: units.mean(),
            finished: since(totals.finished, base.finished),
            recovery_latency: (recoveries > 0).then(|| {
                latencies.sum().saturating_sub(self.latencies.1).div_f64(recoveries as f64)
            }),
            rounds_max: self.rounds_max,
            sent_bytes: since(sent(totals), sent(base)),
            goodput_bytes: since(totals.goodput_bytes, base.goodput_bytes),
            replicas: since(totals.replicas, base.replicas),
        };
        self.restart(now, sums);
        Some(metrics)
    }
}
