//! Results of a virtual A/B test, the contents of `summary.json`. Reports and pages are rendered
//! from it.

use qoe::stats::Sample;
use serde::{Deserialize, Serialize};

use super::classes::DIMENSIONS;
use super::compare::{ArmResults, Dominance, SessionTrial, compare, dominance};
use super::metrics::{FROZEN, METRICS, PlaybackMetric};
use super::predictions::{Prediction, calibrated, predictions};
use super::session::Session;

/// Schemes over the sessions of one class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Part {
    /// Key and title of the dimension, and the class.
    pub dimension: String,
    pub title: String,
    pub class: String,
    /// Mean of the dimension's value over the class.
    pub x: f64,
    pub sessions: u64,
    pub arms: Vec<ArmResults>,
}

/// Name and settings of a scheme.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ArmSet {
    pub name: String,
    pub settings: String,
    pub weight: u32,
    /// Knows packet fates, which no product can.
    pub is_oracle: bool,
}

/// Statistics of the operator's records that were read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Read {
    pub records: u64,
    pub used: u64,
    pub incomplete: u64,
    pub broken: u64,
    pub impossible: u64,
    /// The first impossible values.
    pub named: Vec<String>,
}

/// Shares of sessions with at least this many seconds frozen per 100 s.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct FreezeCurve {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// 90th and 95th percentiles over sessions of each metric, where a session has a value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Percentiles {
    pub name: String,
    pub p90: Vec<Option<f64>>,
    pub p95: Vec<Option<f64>>,
}

/// The whole summary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PopulationSummary {
    pub command: String,
    pub population: String,
    pub read: Option<Read>,
    pub seeds: Vec<u64>,
    pub sessions: u64,
    pub viewers: u64,
    /// Planned viewing time in hours.
    pub hours: f64,
    /// Whether every session ran under every scheme.
    pub paired: bool,
    pub baseline: String,
    pub arms: Vec<ArmSet>,
    /// Keys of the metrics, in the order of all metric lists.
    pub metrics: Vec<String>,
    /// Sessions that failed in the testbed, with the reason. They are excluded from all numbers.
    pub faults: Vec<String>,
    pub overall: Vec<ArmResults>,
    pub parts: Vec<Part>,
    /// Present if paired.
    pub dominance: Vec<Dominance>,
    pub calibrated: Vec<Prediction>,
    pub predictions: Vec<Prediction>,
    pub frozen: Vec<FreezeCurve>,
    #[serde(default)]
    pub percentiles: Vec<Percentiles>,
}

/// Conditions of the test.
pub(super) struct Setting {
    pub command: String,
    pub population: String,
    pub read: Option<Read>,
    /// Random seeds. Sessions follow this order, equally many for each seed.
    pub seeds: Vec<u64>,
    pub paired: bool,
    pub arms: Vec<ArmSet>,
    /// Index of the baseline.
    pub baseline: usize,
    pub faults: Vec<String>,
}

/// Key of the division by random seed.
pub(super) const SEED: &str = "seed";
/// Points of the curves, in seconds frozen per 100 s.
const FROZEN_AT: [f64; 14] =
    [0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];

fn curve(trials: &[SessionTrial], arm: usize, name: &str) -> FreezeCurve {
    let values: Vec<f64> = trials
        .iter()
        .filter(|trial| trial.arm == arm)
        .filter_map(|trial| (METRICS[FROZEN].of)(&trial.row))
        .map(|(part, whole)| part / whole)
        .collect();
    let share = |least: f64| {
        let count = values.iter().filter(|value| **value >= least).count();
        100.0 * count as f64 / values.len().max(1) as f64
    };
    FreezeCurve { name: name.to_owned(), points: FROZEN_AT.map(|at| (at, share(at))).to_vec() }
}

fn percentiles(trials: &[SessionTrial], arm: usize, name: &str) -> Percentiles {
    let of = |metric: &PlaybackMetric, p: f64| {
        let own = trials.iter().filter(|trial| trial.arm == arm);
        let values = own.filter_map(|trial| (metric.of)(&trial.row));
        Sample::new(values.map(|(part, whole)| part / whole)).map(|sample| sample.quantile(p))
    };
    let [p90, p95] = [0.9, 0.95].map(|p| METRICS.iter().map(|metric| of(metric, p)).collect());
    Percentiles { name: name.to_owned(), p90, p95 }
}

/// Results of each seed, if there are several.
fn by_seed(
    seeds: &[u64],
    sessions: usize,
    trials: &[SessionTrial],
    of: &impl Fn(&[&SessionTrial]) -> Vec<ArmResults>,
) -> Vec<Part> {
    if seeds.len() < 2 {
        return Vec::new();
    }
    let each = sessions / seeds.len();
    let part = |(place, seed): (usize, &u64)| {
        let range = place * each..(place + 1) * each;
        let is_in = |trial: &&SessionTrial| range.contains(&(trial.session as usize));
        Part {
            dimension: SEED.to_owned(),
            title: "Random seed".to_owned(),
            class: format!("seed {seed}"),
            x: *seed as f64,
            sessions: each as u64,
            arms: of(&trials.iter().filter(is_in).collect::<Vec<_>>()),
        }
    };
    seeds.iter().enumerate().map(part).collect()
}

/// Summarises the trials of these sessions; `trials` refer to sessions by index.
pub(super) fn summarise(
    setting: Setting,
    sessions: &[Session],
    trials: &[SessionTrial],
) -> PopulationSummary {
    let Setting { command, population, read, seeds, paired, arms, baseline, faults } = setting;
    let names: Vec<String> = arms.iter().map(|arm| arm.name.clone()).collect();
    let clairvoyant = arms.iter().position(|arm| arm.is_oracle).filter(|_| paired);
    let of = |trials: &[&SessionTrial]| compare(trials, &names, baseline, clairvoyant);
    let overall = of(&trials.iter().collect::<Vec<_>>());
    let mut parts = by_seed(&seeds, sessions.len(), trials, &of);
    for dimension in &DIMENSIONS {
        for (class, x, places) in dimension.divide(sessions) {
            let mut is_in = vec![false; sessions.len()];
            places.iter().for_each(|place| is_in[*place] = true);
            let own: Vec<&SessionTrial> =
                trials.iter().filter(|t| is_in[t.session as usize]).collect();
            parts.push(Part {
                dimension: dimension.key.to_owned(),
                title: dimension.title.to_owned(),
                class: class.to_owned(),
                x,
                sessions: places.len() as u64,
                arms: of(&own),
            });
        }
    }
    let real: Vec<bool> = arms.iter().map(|arm| !arm.is_oracle).collect();
    let mut viewers: Vec<u32> = sessions.iter().map(|session| session.viewer.number).collect();
    viewers.sort_unstable();
    viewers.dedup();
    PopulationSummary {
        command,
        population,
        read,
        seeds,
        sessions: sessions.len() as u64,
        viewers: viewers.len() as u64,
        hours: sessions.iter().map(|session| session.stay_s).sum::<f64>() / 3_600.0,
        paired,
        baseline: names[baseline].clone(),
        metrics: METRICS.iter().map(|metric| metric.key.to_owned()).collect(),
        faults,
        parts,
        dominance: match paired {
            true => dominance(trials, &names, &real, baseline),
            false => Vec::new(),
        },
        calibrated: calibrated(trials, sessions, baseline),
        predictions: predictions(trials, &overall, baseline),
        frozen: names.iter().enumerate().map(|(arm, name)| curve(trials, arm, name)).collect(),
        percentiles: names
            .iter()
            .enumerate()
            .map(|(arm, name)| percentiles(trials, arm, name))
            .collect(),
        overall,
        arms,
    }
}
