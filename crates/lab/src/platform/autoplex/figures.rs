//! Results of the days: the paper's metrics (sections 3.4, 5.1 and 5.2), and playback metrics that
//! the paper lacks.

use std::collections::BTreeMap;

use qoe::stats::{Estimate, Sample, holm};

use super::paper::GoodputReading;
use super::policy::{CapPolicy, FREE};
use super::row::GroupRow;
use super::world::{PERIODS, STEP, step};
use groups::Arm;

/// Quantiles that the paper reports.
pub(super) const ORDERS: [f64; 3] = [0.5, 0.75, 0.9];
/// Minimum sessions of a group in a day for a comparison within the group.
const MIN_GROUP_SESSIONS: usize = 50;
/// Significance level for groups that get worse, after Holm's correction for their number.
const LEVEL: f64 = 0.05;

/// A metric of the sessions of a day.
pub(super) struct GroupMetric {
    /// Name in `summary.json`.
    pub key: &'static str,
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
        key: "freezes_per_100s",
        name: "freezes per 100 s",
        unit: "",
        of: |rows| per_100_s(rows, |row| row.freezes as f64),
    },
    GroupMetric {
        key: "frozen_s_per_100s",
        name: "frozen per 100 s",
        unit: " s",
        of: |rows| per_100_s(rows, |row| row.frozen_s),
    },
    GroupMetric {
        key: "first_frame_ms",
        name: "first frame, mean",
        unit: " ms",
        of: |rows| mean(rows.iter().map(|row| row.first_frame_ms).filter(|time| time.is_finite())),
    },
    GroupMetric {
        key: "no_picture",
        name: "sessions without a picture",
        unit: " %",
        of: |rows| share(rows, |row| !row.first_frame_ms.is_finite()),
    },
    GroupMetric {
        key: "late_400",
        name: "frames later than 400 ms",
        unit: " %",
        of: |rows| {
            let frames: i64 = rows.iter().map(|row| row.frames).sum();
            let late: i64 = rows.iter().map(|row| row.late_frames).sum();
            (frames > 0).then(|| late as f64 * 100.0 / frames as f64)
        },
    },
    GroupMetric {
        key: "skipped",
        name: "bit rate missed by skips",
        unit: " %",
        of: |rows| {
            let whole: f64 = rows.iter().map(|row| row.duration_s).sum();
            let skipped: f64 = rows.iter().map(|row| row.skipped_ms as f64 * 1e-3).sum();
            (whole > 0.0).then(|| skipped * 100.0 / whole)
        },
    },
    GroupMetric {
        key: "starved",
        name: "starved",
        unit: " %",
        of: |rows| share(rows, |row| row.is_starved),
    },
    GroupMetric {
        key: "below_path_rate",
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
    /// Goodput ÷ round-trip time by [`READINGS`], in Mbps/s: mean, then [`ORDERS`].
    pub goodput: [Vec<PolicyLine>; 2],
    /// Values of [`METRICS`].
    pub viewers: Vec<Option<PolicyLine>>,
    pub groups: ByGroup,
    /// Retransmission ratios of all sessions, in per cent.
    pub ratios: Sample,
    /// By factor of the step: median ratio of cap to path rate in each period, over capped
    /// sessions.
    pub follows: Vec<(f64, Vec<(f64, f64)>)>,
    /// Share of starved sessions in each period, in per cent.
    pub starved: Vec<(f64, f64)>,
    /// By factor of the step: retransmission before and after it, relative to uncapped sessions, in
    /// per cent.
    pub steps: Vec<(f64, Option<Estimate>, Option<Estimate>)>,
}

/// A metric of the better and worse sessions of the largest group, without caps.
pub(super) struct BandLine {
    pub name: &'static str,
    pub key: &'static str,
    pub unit: &'static str,
    pub better: Estimate,
    pub worse: Estimate,
}

/// Results of all policies with a number of user groups.
pub(super) struct Figures {
    /// Number of user groups; `None` for the population's.
    pub groups: Option<u32>,
    pub days: usize,
    pub sessions: usize,
    pub policies: Vec<PolicyResults>,
    /// Better and worse sessions (section 3.4).
    pub bands: Vec<BandLine>,
}

/// Readings of "goodput", in the order of [`PolicyResults::goodput`].
pub(super) const READINGS: [GoodputReading; 2] = [GoodputReading::Session, GoodputReading::Sending];

type Days<'a> = &'a [Vec<GroupRow>];

/// A policy's name and the rows of its days.
pub(super) type PolicyDays<'a> = (&'a str, CapPolicy, Days<'a>);

impl Figures {
    /// Computes the results; `None` without comparable sessions.
    pub(super) fn of(groups: Option<u32>, policies: &[PolicyDays<'_>]) -> Option<Self> {
        let (_, _, free) = policies.iter().find(|(name, ..)| *name == FREE)?;
        let all = policies.iter().map(|(name, policy, days)| {
            if !policy.is_partial() {
                return of_policy(name, days, free);
            }
            let [own, free] = capped_only(days, free);
            of_policy(name, &own, &free)
        });
        Some(Self {
            groups,
            days: free.len(),
            sessions: free.iter().map(Vec::len).sum(),
            policies: all.collect::<Option<_>>()?,
            bands: bands(free),
        })
    }
}

/// Returns the sessions that a partial deployment caps, and the same sessions without caps.
fn capped_only(days: Days<'_>, free: Days<'_>) -> [Vec<Vec<GroupRow>>; 2] {
    let is_capped = |row: &GroupRow| row.arm == Arm::Treated as usize;
    let pick = |of: Days<'_>| {
        let pairs = days.iter().zip(of);
        let day = |(own, of): (&Vec<GroupRow>, &Vec<GroupRow>)| -> Vec<GroupRow> {
            let rows = own.iter().zip(of).filter(|(own, _)| is_capped(own));
            rows.map(|(_, row)| *row).collect()
        };
        pairs.map(day).collect()
    };
    [pick(days), pick(free)]
}

fn of_policy(name: &str, days: Days<'_>, free: Days<'_>) -> Option<PolicyResults> {
    let ratios = days.iter().flatten().filter_map(retransmission_percent);
    let viewers = METRICS.iter().map(|metric| {
        let values = |days: Days<'_>| -> Option<Vec<f64>> {
            days.iter().map(|rows| (metric.of)(rows)).collect()
        };
        PolicyLine::new(&values(days)?, &values(free)?)
    });
    let goodput = |reading| quantiles(days, free, |row| row.goodput_per_rtt(reading));
    Some(PolicyResults {
        name: name.to_owned(),
        retransmission: quantiles(days, free, retransmission_percent)?,
        goodput: [goodput(READINGS[0])?, goodput(READINGS[1])?],
        viewers: viewers.collect(),
        groups: by_group(days, free),
        ratios: Sample::new(ratios)?,
        follows: follows(days),
        starved: starved(days),
        steps: steps(days, free),
    })
}

fn retransmission_percent(row: &GroupRow) -> Option<f64> {
    row.retransmission().map(|ratio| ratio * 100.0)
}

/// Returns the means of better sessions (5th to 20th percentile) and of worse ones (75th to 90th).
fn bands(days: Days<'_>) -> Vec<BandLine> {
    type Of = fn(&GroupRow) -> Option<f64>;
    let line = |name, key, unit, is_ascending: bool, of: Of| {
        let mean_between = |low: f64, high: f64| {
            let day = |rows: &Vec<GroupRow>| {
                let largest = rows.iter().filter(|row| row.group == 0);
                let sample = Sample::new(largest.filter_map(of))?;
                let values = sample.values();
                let at = |p: f64| (values.len() as f64 * p).round() as usize;
                mean(values[at(low)..at(high)].iter().copied())
            };
            Estimate::of(days.iter().filter_map(day))
        };
        let (better, worse) = match is_ascending {
            true => (mean_between(0.05, 0.2), mean_between(0.75, 0.9)),
            false => (mean_between(0.8, 0.95), mean_between(0.1, 0.25)),
        };
        Some(BandLine { name, key, unit, better: better?, worse: worse? })
    };
    let lines = [
        line("retransmission ratio", "retransmission", "%", true, retransmission_percent),
        line("goodput over the session ÷ RTT", "goodput_per_rtt", "Mbps/s", false, |row| {
            row.goodput_per_rtt(GoodputReading::Session)
        }),
        line("goodput while sending ÷ RTT", "sending_per_rtt", "Mbps/s", false, |row| {
            row.goodput_per_rtt(GoodputReading::Sending)
        }),
    ];
    lines.into_iter().flatten().collect()
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
        Some((f64::from(period), share(&rows, |row| row.is_starved)?))
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

    fn row(session: u32, group: u32, arm: Arm, retransmissions: i64) -> GroupRow {
        GroupRow {
            session,
            group,
            arm: arm as usize,
            packets: 1_000,
            retransmissions,
            goodput_mbps: 2.0,
            sending_mbps: 8.0,
            rtt_ms: 50.0,
            played_s: 20.0,
            duration_s: 20.0,
            cap_mbps: f64::INFINITY,
            rate_mbps: 10.0,
            ..GroupRow::default()
        }
    }

    fn figures(names: &[&str], days: &[Vec<Vec<GroupRow>>]) -> Figures {
        let policies: Vec<PolicyDays<'_>> = names
            .iter()
            .zip(days)
            .map(|(name, days)| (*name, CapPolicy::parse(name).expect("known"), &days[..]))
            .collect();
        Figures::of(Some(4), &policies).expect("comparable")
    }

    #[test]
    fn a_partial_deployment_is_judged_by_its_capped_sessions() {
        let day = |arms: [Arm; 2], lost: [i64; 2]| {
            let rows = (0..20).map(|n| row(n, 0, arms[n as usize % 2], lost[n as usize % 2]));
            vec![rows.collect::<Vec<_>>()]
        };
        let free = day([Arm::Holdout; 2], [40, 40]);
        let half = day([Arm::Treated, Arm::Explorer], [20, 50]);
        let all = [free, half.clone(), half];
        let found = figures(&["bbr", "paper-goodput-vip", "paper-goodput"], &all);
        let change = |place: usize| {
            let line = &found.policies[place].retransmission[0];
            line.relative.as_ref().map(|change| change.mean.round())
        };
        assert_eq!((change(1), change(2)), (Some(-50.0), Some(-13.0)));
    }

    #[test]
    fn both_readings_of_goodput_and_both_bands_are_reported() {
        let day = (0..100).map(|n| GroupRow {
            sending_mbps: 2.0 + f64::from(n),
            ..row(n, n % 2, Arm::Holdout, i64::from(n))
        });
        let found = figures(&["bbr"], &[vec![day.collect()]]);
        let mean = |place: usize| found.policies[0].goodput[place][0].value.mean.round();
        assert_eq!((mean(0), mean(1)), (40.0, 1_030.0));
        // Group 0 has the fifty sessions with even numbers.
        let ends = |line: &BandLine| [line.better.mean, line.worse.mean].map(f64::round);
        let found: Vec<[f64; 2]> = found.bands.iter().map(ends).collect();
        assert_eq!(found, [[1.0, 8.0], [40.0, 40.0], [1_780.0, 380.0]]);
    }

    #[test]
    fn the_tail_of_the_normal_distribution_is_the_tables() {
        for (z, p) in [(0.0, 1.0), (1.0, 0.317_31), (1.96, 0.049_996), (-3.0, 0.002_699_8)] {
            assert!((two_sided(z) - p).abs() < 1e-6, "{z}: {}", two_sided(z));
        }
    }
}
