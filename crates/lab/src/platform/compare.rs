//! Comparison of schemes over a group of sessions: means, and differences from a baseline, with
//! intervals from a bootstrap over whole viewers (Davison and Hinkley, "Bootstrap Methods and their
//! Application", 1997, section 3.8). A resample has the same viewers for all schemes. Paired
//! comparisons thus keep what sessions have in common, and cohorts of different viewers stay
//! independent.
//! [`qoe::stats::Clustered`] cannot do this: it compares two samples that share no viewer.

use recovery::Random;
use serde::{Deserialize, Serialize};

use super::metrics::{FROZEN, LATE_400, LATE_FOR_PLAYER, METRICS, MetricEstimate};
use super::run::{SessionEnd, SessionRow};

/// Number of metrics of a scheme.
const M: usize = METRICS.len();
/// Bootstrap resamples.
pub(super) const RESAMPLES: usize = 1_000;

/// A session under a scheme.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionTrial {
    /// Index of the session.
    pub session: u32,
    /// Its viewer.
    pub viewer: u32,
    /// Index of the scheme.
    pub arm: usize,
    pub row: SessionRow,
}

/// Results of a scheme over a group of sessions, in the order of [`METRICS`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ArmResults {
    pub name: String,
    pub sessions: u64,
    pub left: u64,
    pub failed: u64,
    /// Sessions that never showed a picture.
    pub without_picture: u64,
    pub means: Vec<Option<MetricEstimate>>,
    /// Differences from the baseline.
    pub differences: Vec<Option<MetricEstimate>>,
    /// Share of the gap between baseline and clairvoyant sender that the scheme closes.
    pub closed: Vec<Option<f64>>,
}

/// Numerator and denominator of each metric of each scheme.
type Sums = Vec<(f64, f64)>;

fn mean((part, whole): (f64, f64)) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

fn interval(value: f64, mut draws: Vec<f64>) -> MetricEstimate {
    draws.sort_by(f64::total_cmp);
    let at = |p: f64| draws[((draws.len() - 1) as f64 * p).round() as usize];
    match draws.is_empty() {
        true => MetricEstimate { value, low: f64::MIN, high: f64::MAX },
        false => MetricEstimate { value, low: at(0.025), high: at(0.975) },
    }
}

/// Returns the sums of each viewer.
fn by_viewer(trials: &[&SessionTrial], arms: usize) -> Vec<Sums> {
    let mut viewers: Vec<u32> = trials.iter().map(|trial| trial.viewer).collect();
    viewers.sort_unstable();
    viewers.dedup();
    let mut all = vec![vec![(0.0, 0.0); arms * M]; viewers.len()];
    for trial in trials {
        let sums = &mut all[viewers.partition_point(|viewer| *viewer < trial.viewer)];
        for (place, metric) in METRICS.iter().enumerate() {
            if let Some((part, whole)) = (metric.of)(&trial.row) {
                let sum = &mut sums[trial.arm * M + place];
                (sum.0, sum.1) = (sum.0 + part, sum.1 + whole);
            }
        }
    }
    all
}

fn add(total: &mut Sums, one: &Sums) {
    for (total, one) in total.iter_mut().zip(one) {
        (total.0, total.1) = (total.0 + one.0, total.1 + one.1);
    }
}

/// Compares the schemes `names` over the trials with the scheme at index `baseline`. `clairvoyant`
/// is the index of the clairvoyant sender, if present.
pub(super) fn compare(
    trials: &[&SessionTrial],
    names: &[String],
    baseline: usize,
    clairvoyant: Option<usize>,
) -> Vec<ArmResults> {
    let cells = names.len() * M;
    let viewers = by_viewer(trials, names.len());
    let mut whole: Sums = vec![(0.0, 0.0); cells];
    viewers.iter().for_each(|one| add(&mut whole, one));
    let values: Vec<Option<f64>> = whole.iter().copied().map(mean).collect();
    let mut draws = vec![Vec::new(); cells];
    let mut differences = vec![Vec::new(); cells];
    let mut random = Random::new(viewers.len() as u64);
    let of_base = |cell: usize| baseline * M + cell % M;
    for _ in 0..RESAMPLES {
        let mut drawn: Sums = vec![(0.0, 0.0); cells];
        for _ in 0..viewers.len() {
            add(&mut drawn, &viewers[random.below(viewers.len() as u32) as usize]);
        }
        for cell in 0..cells {
            let value = mean(drawn[cell]);
            draws[cell].extend(value);
            differences[cell].extend(value.zip(mean(drawn[of_base(cell)])).map(|(a, b)| a - b));
        }
    }
    let mut means: Vec<Option<MetricEstimate>> = Vec::new();
    let mut apart: Vec<Option<MetricEstimate>> = Vec::new();
    for (cell, (draws, differences)) in draws.into_iter().zip(differences).enumerate() {
        means.push(values[cell].map(|value| interval(value, draws)));
        let difference = values[cell].zip(values[of_base(cell)]).map(|(a, b)| a - b);
        apart.push(difference.map(|value| interval(value, differences)));
    }
    let closed = |cell: usize| {
        let (best, base) = (values[clairvoyant? * M + cell % M]?, values[of_base(cell)]?);
        let distance = base - best;
        (distance > 1e-9).then_some((base - values[cell]?) / distance)
    };
    let of = |(arm, name): (usize, &String)| {
        let own = || trials.iter().filter(move |trial| trial.arm == arm);
        let ended = |end: SessionEnd| own().filter(|trial| trial.row.end == end).count() as u64;
        let cells = arm * M..(arm + 1) * M;
        ArmResults {
            name: name.clone(),
            sessions: own().count() as u64,
            left: ended(SessionEnd::Left),
            failed: ended(SessionEnd::Failed),
            without_picture: own().filter(|t| t.row.watched.first_frame_ms.is_none()).count()
                as u64,
            means: means[cells.clone()].to_vec(),
            differences: apart[cells.clone()].to_vec(),
            closed: cells.map(&closed).collect(),
        }
    };
    names.iter().enumerate().map(of).collect()
}

/// Share of sessions in which a scheme is not worse than the best realisable scheme, and its
/// comparison with the baseline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Dominance {
    pub name: String,
    /// Shares of sessions by each of [`JUDGED`], and by all of them together.
    pub not_worse: [f64; JUDGED.len() + 1],
    /// Shares of sessions with more, and with fewer, frames later than 400 ms than under the
    /// baseline.
    pub worse_than_baseline: f64,
    pub better_than_baseline: f64,
}

/// Metrics that judge a session, with the tolerance for "not worse": per cent of frames, and
/// seconds frozen per 100 s.
pub(super) const JUDGED: [(usize, f64); 3] =
    [(LATE_400, 0.1), (LATE_FOR_PLAYER, 0.1), (FROZEN, 0.1)];

/// Computes dominance over sessions that ran under every scheme. `is_real` marks schemes that a
/// product can use.
pub(super) fn dominance(
    trials: &[SessionTrial],
    names: &[String],
    is_real: &[bool],
    baseline: usize,
) -> Vec<Dominance> {
    type Judged = [f64; JUDGED.len()];
    let mut sessions = std::collections::BTreeMap::<u32, Vec<Judged>>::new();
    for trial in trials {
        let of = |metric: usize| (METRICS[metric].of)(&trial.row).and_then(mean).unwrap_or(0.0);
        let values = sessions.entry(trial.session);
        let values = values.or_insert_with(|| vec![[f64::NAN; JUDGED.len()]; names.len()]);
        values[trial.arm] = JUDGED.map(|(metric, _)| of(metric));
    }
    let whole = |values: &&Vec<Judged>| values.iter().flatten().all(|value| value.is_finite());
    let sessions: Vec<&Vec<Judged>> = sessions.values().filter(whole).collect();
    let best = |values: &[Judged], of: usize| {
        let real = values.iter().zip(is_real).filter(|(_, is_real)| **is_real);
        real.map(|(value, _)| value[of]).fold(f64::INFINITY, f64::min)
    };
    let share = |count: usize| count as f64 / sessions.len().max(1) as f64;
    let of = |(arm, name): (usize, &String)| {
        let not_worse =
            |values: &[Judged], of: usize| values[arm][of] <= best(values, of) + JUDGED[of].1;
        let count = |test: &dyn Fn(&[Judged]) -> bool| {
            share(sessions.iter().filter(|values| test(values)).count())
        };
        Dominance {
            name: name.clone(),
            not_worse: [
                count(&|values| not_worse(values, 0)),
                count(&|values| not_worse(values, 1)),
                count(&|values| not_worse(values, 2)),
                count(&|values| (0..JUDGED.len()).all(|of| not_worse(values, of))),
            ],
            worse_than_baseline: count(&|v| v[arm][0] > v[baseline][0] + JUDGED[0].1),
            better_than_baseline: count(&|v| v[arm][0] < v[baseline][0] - JUDGED[0].1),
        }
    };
    names.iter().enumerate().map(of).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::metrics::FREEZES;
    use super::super::watching::Watched;
    use super::*;

    /// Returns a row of 1,000 frames, `late` of them later than 400 ms, and of 100 s with `freezes`
    /// freezes of 1 s.
    pub(in crate::platform) fn row(late: u64, freezes: u64) -> SessionRow {
        SessionRow {
            end: SessionEnd::Stayed,
            watched: Watched {
                frames: 1_000,
                late: [late; 5],
                late_for_player: late,
                delay_ms: [50.0, 80.0, 90.0],
                first_frame_ms: Some(200.0),
                freezes,
                frozen_s: freezes as f64,
                played_s: 100.0 - freezes as f64,
                behind_ms: None,
            },
            replicas: 10,
            replica_bytes: 10,
            first_bytes: 1_000,
            finished: 10,
            finished_late: 2,
            recovery_ms: Some((200.0, 400.0)),
            rounds_max: 2,
            off_mode_ms_per_s: 400.0,
            off_mode_entries_per_s: 20.0,
            srtt_ms: 90.0,
            rtt_min_ms: 80.0,
            goodput_mbps: 1.0,
            loss_rate: Some(0.04),
            bursts: [4, 2, 1, 1, 0, 0, 0, 0, 0],
        }
    }

    fn names() -> Vec<String> {
        ["arq", "x", "clairvoyant"].map(str::to_owned).to_vec()
    }

    /// Sessions with a large variance. `x` has 1 % fewer late frames than `arq`, the clairvoyant
    /// sender 2 %.
    fn paired(sessions: u32) -> Vec<SessionTrial> {
        let mut random = Random::new(1);
        let mut trials = Vec::new();
        for session in 0..sessions {
            let base = 20 + u64::from(random.below(200));
            for (arm, late) in [base, base - 10, base - 20].into_iter().enumerate() {
                let row = row(late, base / 100);
                trials.push(SessionTrial { session, viewer: session / 2, arm, row });
            }
        }
        trials
    }

    #[test]
    fn pairs_tell_a_difference_that_is_far_smaller_than_what_sessions_differ_by() {
        let trials = paired(200);
        let all = compare(&trials.iter().collect::<Vec<_>>(), &names(), 0, Some(2));
        let (own, difference) = (all[1].means[LATE_400], all[1].differences[LATE_400]);
        let (own, difference) = (own.expect("known"), difference.expect("known"));
        assert!((difference.value + 1.0).abs() < 1e-9, "{difference:?}");
        assert!(difference.high - difference.low < 1e-6 && difference.is_sure());
        assert!(own.high - own.low > 0.5 && own.low < own.value && own.value < own.high, "{own:?}");
        assert!((all[1].closed[LATE_400].expect("a distance") - 0.5).abs() < 1e-9);
        assert_eq!(all[1].closed[FREEZES], None);
        assert_eq!((all[0].sessions, all[0].failed), (200, 0));
    }

    #[test]
    fn intervals_of_differences_between_cohorts_cover_the_truth() {
        let mut covered = 0;
        for seed in 0..200 {
            let mut random = Random::new(seed);
            // The two sessions of a viewer are identical. Each viewer is in one cohort.
            let mut trials = Vec::new();
            for viewer in 0..60 {
                let late = 20 + u64::from(random.below(200));
                for session in 0..2 {
                    let arm = viewer as usize % 2;
                    let row = row(late + 30 * arm as u64, 0);
                    trials.push(SessionTrial { session: 2 * viewer + session, viewer, arm, row });
                }
            }
            let all = compare(&trials.iter().collect::<Vec<_>>(), &names()[..2], 0, None);
            let difference = all[1].differences[LATE_400].expect("known");
            covered += u32::from(difference.low <= 3.0 && 3.0 <= difference.high);
        }
        assert!((180..=198).contains(&covered), "{covered} of 200 intervals hold the truth");
    }

    #[test]
    fn failed_sessions_stay_in_the_means_and_are_counted() {
        let mut trials = paired(10);
        trials[1].row.end = SessionEnd::Failed;
        trials[1].row.watched.late = [1_000; 5];
        trials[1].row.watched.first_frame_ms = None;
        let all = compare(&trials.iter().collect::<Vec<_>>(), &names(), 0, Some(2));
        assert_eq!((all[1].failed, all[1].without_picture, all[1].sessions), (1, 1, 10));
        let mean = |arm: usize| all[arm].means[LATE_400].expect("known").value;
        assert!(mean(1) > mean(0) + 5.0, "{} {}", mean(1), mean(0));
    }

    #[test]
    fn a_scheme_dominates_where_no_real_one_is_better_by_more_than_the_tolerance() {
        let mut trials = paired(10);
        let all = dominance(&trials, &names(), &[true, true, false], 0);
        assert_eq!((all[1].not_worse, all[0].not_worse[0]), ([1.0; 4], 0.0));
        assert_eq!((all[1].better_than_baseline, all[1].worse_than_baseline), (1.0, 0.0));
        // Far worse in one session.
        trials[1].row = row(900, 50);
        let all = dominance(&trials, &names(), &[true, true, false], 0);
        assert_eq!((all[1].not_worse, all[0].not_worse), ([0.9; 4], [0.1, 0.1, 1.0, 0.1]));
        assert_eq!(all[1].worse_than_baseline, 0.1);
    }
}
