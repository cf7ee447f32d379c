//! Metrics of playback and cost, as ratios of sums over sessions.

use serde::{Deserialize, Serialize};

use super::run::{SessionEnd, SessionRow};

/// Metric of a group of sessions: sum of numerators over sum of denominators.
pub(super) struct PlaybackMetric {
    pub key: &'static str,
    /// Column heading.
    pub title: &'static str,
    pub meaning: &'static str,
    /// Decimals, and display factor.
    pub digits: usize,
    /// Numerator and denominator of a session; `None` if it does not contribute.
    pub of: fn(&SessionRow) -> Option<(f64, f64)>,
}

fn late(row: &SessionRow, bound: usize) -> Option<(f64, f64)> {
    let watched = &row.watched;
    (watched.frames > 0).then_some((100.0 * watched.late[bound] as f64, watched.frames as f64))
}

fn per_100s(row: &SessionRow, amount: f64) -> Option<(f64, f64)> {
    let seconds = row.watched.seconds();
    (seconds > 0.0).then_some((100.0 * amount, seconds))
}

fn percent(is: bool) -> Option<(f64, f64)> {
    Some((if is { 100.0 } else { 0.0 }, 1.0))
}

/// Indices in [`METRICS`] used elsewhere.
pub(super) const LATE_400: usize = 1;
pub(super) const LATE_FOR_PLAYER: usize = 2;
pub(super) const FREEZES: usize = 3;
pub(super) const FROZEN: usize = 4;
pub(super) const FIRST_FRAME: usize = 5;
pub(super) const COST: usize = 8;
pub(super) const RECOVERY: usize = 9;
pub(super) const DETERIORATION: usize = 10;

/// All metrics in table order.
pub(super) const METRICS: [PlaybackMetric; 13] = [
    PlaybackMetric {
        key: "late_200ms",
        title: "> 200 ms, %",
        meaning: "frames that arrive more than 200 ms after capture, or never",
        digits: 2,
        of: |row| late(row, 1),
    },
    PlaybackMetric {
        key: "late_400ms",
        title: "> 400 ms, %",
        meaning: "the same for 400 ms",
        digits: 2,
        of: |row| late(row, 2),
    },
    PlaybackMetric {
        key: "late_for_player",
        title: "> buffer, %",
        meaning: "frames delayed, relative to the fastest one, by more than the player's buffer, \
                  or never arrived",
        digits: 2,
        of: |row| {
            let watched = &row.watched;
            let late = 100.0 * watched.late_for_player as f64;
            (watched.frames > 0).then_some((late, watched.frames as f64))
        },
    },
    PlaybackMetric {
        key: "freezes_per_100s",
        title: "freezes / 100 s",
        meaning: "freezes per 100 s of viewing",
        digits: 3,
        of: |row| per_100s(row, row.watched.freezes as f64),
    },
    PlaybackMetric {
        key: "frozen_s_per_100s",
        title: "frozen s / 100 s",
        meaning: "seconds frozen per 100 s of viewing",
        digits: 3,
        of: |row| per_100s(row, row.watched.frozen_s),
    },
    PlaybackMetric {
        key: "first_frame_ms",
        title: "first frame, ms",
        meaning: "from the request to the first picture, mean over sessions with a picture",
        digits: 0,
        of: |row| Some((row.watched.first_frame_ms?, 1.0)),
    },
    PlaybackMetric {
        key: "delay_p95_ms",
        title: "delay p95, ms",
        meaning: "95th percentile of a session's frame delays, mean over sessions; a frame that \
                  never arrived counts as 10 s",
        digits: 0,
        of: |row| (row.watched.frames > 0).then_some((row.watched.delay_ms[1], 1.0)),
    },
    PlaybackMetric {
        key: "delay_p99_ms",
        title: "delay p99, ms",
        meaning: "the same for the 99th percentile",
        digits: 0,
        of: |row| (row.watched.frames > 0).then_some((row.watched.delay_ms[2], 1.0)),
    },
    PlaybackMetric {
        key: "cost_percent",
        title: "cost, %",
        meaning: "bytes of replicas per byte of first transmissions",
        digits: 2,
        of: |row| {
            let first = row.first_bytes as f64;
            (first > 0.0).then_some((100.0 * row.replica_bytes as f64, first))
        },
    },
    PlaybackMetric {
        key: "recovery_ms",
        title: "recovery, ms",
        meaning: "mean recovery latency of data with a lost first retransmission, over sessions with such data",
        digits: 0,
        of: |row| Some((row.recovery_ms?.0, 1.0)),
    },
    PlaybackMetric {
        key: "deterioration_percent",
        title: "deterioration, %",
        meaning: "lost data that needed a second round, mean over sessions with losses",
        digits: 2,
        of: |row| {
            let finished = row.finished as f64;
            (finished > 0.0).then_some((100.0 * row.finished_late as f64 / finished, 1.0))
        },
    },
    PlaybackMetric {
        key: "left_percent",
        title: "left, %",
        meaning: "sessions that the viewer left because of freezes or a long wait",
        digits: 2,
        of: |row| percent(row.end == SessionEnd::Left),
    },
    PlaybackMetric {
        key: "failed_percent",
        title: "failed, %",
        meaning: "sessions in which the client gave up or missed part of the stream",
        digits: 2,
        of: |row| percent(row.end == SessionEnd::Failed),
    },
];

/// A number with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct MetricEstimate {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

impl MetricEstimate {
    /// Returns whether the interval excludes 0.
    pub(super) fn is_sure(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_indices_match_their_names() {
        for (place, key) in [
            (LATE_400, "late_400ms"),
            (LATE_FOR_PLAYER, "late_for_player"),
            (FREEZES, "freezes_per_100s"),
            (FROZEN, "frozen_s_per_100s"),
            (FIRST_FRAME, "first_frame_ms"),
            (COST, "cost_percent"),
            (RECOVERY, "recovery_ms"),
            (DETERIORATION, "deterioration_percent"),
        ] {
            assert_eq!(METRICS[place].key, key);
        }
    }
}
