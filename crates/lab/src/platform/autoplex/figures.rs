//! Results of the days: the paper's metrics (sections 5.1 and 5.2), and playback metrics that the
//! paper lacks.

use std::collections::BTreeMap;

use qoe::stats::{Estimate, Sample, holm};

use super::policy::FREE;
use super::row::GroupRow;
use super::world::{PERIODS, STEP, step};

/// Quantiles that the paper reports.
pub(super) const ORDERS: [f64; 3] = [0.5, 0.75, 0.9];
/// Minimum sessions of a group in a day for a comparison within the group.
const MIN_GROUP_SESSIONS: usize = 50;
/// Significance level for groups that get worse, after Holm's correction for their number.
const LEVEL: f64 = 0.05;

/// A metric of the sessions of a day.
pub(super) struct GroupMetric {
    pub name: &'static str,
    pub unit: &'static str,
    pub of: fn(&[GroupRow]) -> Option<f64>,
}

fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    Some(Sample::new(values)?.mean())
}

fn share(rows: &[GroupRow], is: impl Fn(&GroupRow) -> bool) -> Option<f64> {
    mean(rows.iter().map(|row| if is(row) { 100.0 } else { 0.0 }))
}

/// Returns a sum per 100 s of playback.
fn per_100_s(rows: &[GroupRow], of: impl Fn(&GroupRow) -> f64) -> Option<f64> {
    let played: f64 = rows.iter().map(|row| row.played_s + row.frozen_s).sum();
    (played > 0.0).then(|| rows.iter().map(of).sum::<f64>() * 100.0 / played)
}

/// Playback metrics of a policy.
pub(super) const METRICS: [GroupMetric; 8] = [
    GroupMetric {
        name: "freezes per 100 s",
        unit: "",
        of: |rows| per_100_s(rows, |row| row.freezes as f64),
    },
    GroupMetric {
        name: "frozen per 100 s",
        unit: " s",
        of: |rows| per_100_s(rows, |row| row.frozen_s),
    },
    GroupMetric {
        name: "first frame, mean",
        unit: " ms",
        of: |rows| mean(rows.iter().map(|row| row.first_frame_ms).filter(|time| time.is_finite())),
    },
    GroupMetric {
        name: "sessions without a picture",
        unit: " %",
        of: |rows| share(rows, |row| !row.first_frame_ms.is_finite()),
    },
    GroupMetric {
        name: "frames later than 400 ms",
        unit: " %",
        of: |rows| {
            let frames: i64 = rows.iter().map(|row| row.frames).sum();
            let late: i64 = rows.iter().map(|row| row.late_frames).sum();
            (frames > 0).then(|| late as f64 * 100.0 / frames as f64)
        },
    },
    GroupMetric {
        name: "bit rate missed by skips",
        unit: " %",
        of: |rows| {
            let whole: f64 = rows.iter().map(|row| row.duration_s).sum();
            let skipped: f64 = rows.iter().map(|row| row.skipped_ms as f64 * 1e-3).sum();
            (whole > 0.0).then(|| skipped * 100.0 / whole)
        },
    },
    GroupMetric {
        name: "capped below the stream's rate",
        unit: " %",
        of: |rows| share(rows, GroupRow::is_starved),
    },
    GroupMetric {
        name: "capped below the path's rate",
        unit: " %",
        of: |rows| share(rows, |row| row.cap_mbps < row.rate_mbps),
    },
];

/// A policy's value over the days, and its difference from uncapped sessions.
pub(super) struct PolicyLine {
    pub value: Estimate,
    /// Absolute difference of the daily values.
    pub change: Option<Estimate>,
    /// Difference of the daily values relative to uncapped sessions, in per cent.
    pub relative: Option<Estimate>,
}

impl PolicyLine {
    fn new(own: &[f64], free: &[f64]) -> Option<Self> {
        let pairs = || own.iter().zip(free);
        Some(Self {
            value: Estimate::of(own.iter().copied())?,
            change: Estimate::of(pairs().map(|(own, free)| own - free)),
            relative: Estimate::of(pairs().map(|(own, free)| (own / free - 1.0) * 100.0)),
        })
    }
}

/// Results of a policy by group. Each group of a day is compared with itself, session by session.
#[derive(Clone, Debug, Default)]
pub(super) struct ByGroup {
    pub groups: usize,
    /// Changes of the mean retransmission ratio over the largest groups, in per cent: minimum,
    /// median, maximum.
    pub largest: Vec<f64>,
    /// Groups with significantly more, or less, freezing.
    pub worse: usize,
    pub better: usize,
}

/// Results of one policy.
pub(super) struct PolicyResults {
    pub name: String,
    /// Retransmission ratio in per cent: mean, then [`ORDERS`].
    pub retransmission: Vec<PolicyLine>,
    /// Goodput ÷ round-trip time, in Mbps/s: mean, then [`ORDERS`].
    pub goodput: Vec<PolicyLine>,
    /// Values of [`METRICS`].
    pub viewers: Vec<Option<PolicyLine>>,
    pub groups: ByGroup,
    /// Retransmission ratios of all sessions, in per cent.
    pub ratios: Sample,
    /// By factor of the step: median ratio of cap to path rate in each period, over capped
    /// sessions.
    pub follows: Vec<(f64, Vec<(f64, f64)>)>,
    /// Share of sessions capped below the stream's rate in each period, in per cent.
    pub starved: Vec<(f64, f64)>,
    /// By factor of the step: retransmission before and after it, relative to uncapped sessions, in
    /// per cent.
    pub steps: Vec<(f64, Option<Estimate>, Option<Estimate>)>,
}

/// Results of all policies.
pub(super) struct Figures {
    pub days: usize,
    pub sessions: usize,
    pub policies: Vec<PolicyResults>,
}

type Days<'a> = &'a [Vec<GroupRow>];

impl Figures {
    /// Computes the results; `None` without comparable sessions.
    pub(super) fn of(policies: &[(&str, Days<'_>)]) -> Option<Self> {
        let (_, free) = policies.iter().find(|(name, _)| *name == FREE)?;
        let all = policies.iter().map(|(name, days)| of_policy(name, days, free));
        Some(Self {
            days: free.len(),
            sessions: free.iter().map(Vec::len).sum(),
            policies: all.collect::<Option<_>>()?,
        })
    }
}

fn of_policy(name: &str, days: Days<'_>, free: Days<'_>) -> Option<PolicyResults> {
    let ratios =
        days.iter().flatten().filter_map(GroupRow::retransmission).map(|ratio| ratio * 100.0);
    let viewers = METRICS.iter().map(|metric| {
        let values = |days: Days<'_>| -> Option<Vec<f64>> {
            days.iter().map(|rows| (metric.of)(rows)).collect()
        };
        PolicyLine::new(&values(days)?, &values(free)?)
    });
    Some(PolicyResults {
        name: name.to_owned(),
        retransmission: quantiles(days, free, |row| row.retransmission().map(|r| r * 100.0))?,
        goodput: quantiles(days, free, |row| {
            Some(row.goodput_mbps / (row.rtt_ms * 1e-3)).filter(|value| value.is_finite())
        })?,
        viewers: viewers.collect(),
        groups: by_group(days, free),
        ratios: Sample::new(ratios)?,
        follows: follows(days),
        starved: starved(days),
        steps: steps(days, free),
    })
}

/// Returns the daily mean and quantiles of sessions.
fn quantiles(
    days: Days<'_>,
    free: Days<'_>,
    of: impl Fn(&GroupRow) -> Option<f64>,
) -> Option<Vec<PolicyLine>> {
    let samples = |days: Days<'_>| -> Option<Vec<Sample>> {
        days.iter().map(|rows| Sample::new(rows.iter().filter_map(&of))).collect()
    };
    let (own, free) = (samples(days)?, samples(free)?);
    let line = |of: &dyn Fn(&Sample) -> f64| {
        let values = |samples: &[Sample]| samples.iter().map(of).collect::<Vec<_>>();
        PolicyLine::new(&values(&own), &values(&free))
    };
    let means = core::iter::once(line(&Sample::mean));
    means.chain(ORDERS.map(|order| line(&|sample| sample.quantile(order)))).collect()
}

/// Pairs the sessions of two policies by day and group. Both list the same sessions in the same
/// order.
fn by_group(days: Days<'_>, free: Days<'_>) -> ByGroup {
    let mut groups: BTreeMap<(usize, u32), Vec<(&GroupRow, &GroupRow)>> = BTreeMap::new();
    for (day, (own, free)) in days.iter().zip(free).enumerate() {
        for pair in own.iter().zip(free) {
            groups.entry((day, pair.0.group)).or_default().push(pair);
        }
    }
    let mut all = ByGroup::default();
    let (mut p_values, mut directions) = (Vec::new(), Vec::new());
    for ((_, group), pairs) in groups.iter().filter(|(_, pairs)| pairs.len() >= MIN_GROUP_SESSIONS)
    {
        all.groups += 1;
        let change = |(own, free): &(&GroupRow, &GroupRow)| (own.freezes - free.freezes) as f64;
        if let Some(sample) = Sample::new(pairs.iter().map(change)) {
            let error = (sample.variance().unwrap_or(0.0) / pairs.len() as f64).sqrt();
            let p = if error > 0.0 { two_sided(sample.mean() / error) } else { 1.0 };
            p_values.push(p);
            directions.push(sample.mean());
        }
        // The four groups shown in the paper are among the largest; indices are by size.
        if *group < 4 {
            let mean = |pick: fn(&(&GroupRow, &GroupRow)) -> f64| {
                pairs.iter().map(pick).filter(|ratio| ratio.is_finite()).sum::<f64>()
            };
            let own = mean(|(own, _)| own.retransmission().unwrap_or(0.0));
            let free = mean(|(_, free)| free.retransmission().unwrap_or(0.0));
            all.largest.extend((free > 0.0).then(|| (own / free - 1.0) * 100.0));
        }
    }
    all.largest.sort_by(f64::total_cmp);
    for (p, direction) in holm(&p_values).into_iter().zip(directions) {
        all.worse += usize::from(p < LEVEL && direction > 0.0);
        all.better += usize::from(p < LEVEL && direction < 0.0);
    }
    all
}

/// Probability that a standard normal deviate exceeds `z` in absolute value (Abramowitz and Stegun
/// 7.1.26, error below 2e-7).
fn two_sided(z: f64) -> f64 {
    let x = z.abs() / core::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let series = [0.254_829_592, -0.284_496_736, 1.421_413_741, -1.453_152_027, 1.061_405_429];
    let sum = series.iter().rev().fold(0.0, |sum, a| (sum + a) * t);
    sum * (-x * x).exp()
}

fn follows(days: Days<'_>) -> Vec<(f64, Vec<(f64, f64)>)> {
    [0, 1, 2]
        .map(|kind| (step(kind), kind))
        .into_iter()
        .map(|(factor, kind)| {
            let of = |period: u32| {
                let rows = days.iter().flatten();
                let held = rows.filter(|row| row.period == period && row.group % 3 == kind);
                let ratios = held.map(|row| row.cap_mbps / row.rate_mbps).filter(|r| r.is_finite());
                Some((f64::from(period), Sample::new(ratios)?.median()))
            };
            (factor, (0..PERIODS).filter_map(of).collect())
        })
        .collect()
}

fn starved(days: Days<'_>) -> Vec<(f64, f64)> {
    let of = |period: u32| {
        let rows: Vec<GroupRow> =
            days.iter().flatten().filter(|row| row.period == period).copied().collect();
        Some((f64::from(period), share(&rows, GroupRow::is_starved)?))
    };
    (0..PERIODS).filter_map(of).collect()
}

fn steps(days: Days<'_>, free: Days<'_>) -> Vec<(f64, Option<Estimate>, Option<Estimate>)> {
    let change = |kind: u32, is_after: bool| {
        let of = |rows: &Vec<GroupRow>| {
            let rows =
                rows.iter().filter(|row| row.group % 3 == kind && (row.period >= STEP) == is_after);
            mean(rows.filter_map(GroupRow::retransmission))
        };
        Estimate::of(days.iter().zip(free).filter_map(|(own, free)| {
            let (own, free) = (of(own)?, of(free)?);
            (free > 0.0).then(|| (own / free - 1.0) * 100.0)
        }))
    };
    [0, 1, 2].map(|kind| (step(kind), change(kind, false), change(kind, true))).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_of_the_normal_distribution_is_the_tables() {
        for (z, p) in [(0.0, 1.0), (1.0, 0.317_31), (1.96, 0.049_996), (-3.0, 0.002_699_8)] {
            assert!((two_sided(z) - p).abs() < 1e-6, "{z}: {}", two_sided(z));
        }
    }
}
