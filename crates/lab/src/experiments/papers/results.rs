//! Results in directories, by name: experiments, and the `summary.json` of other commands.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use qoe::stats::Estimate;
use serde::{Deserialize, Serialize};
use toml::Value;

use super::super::figures::{StoredExperiment, with_results};
use super::super::metrics::Term;
use super::super::output::SUMMARY;
use super::super::rows::{bundles, groups};
use super::catalogue::{NumberSource, is_at};
use crate::error::{Context as _, Error};

/// All results in some directories.
#[derive(Default)]
pub(super) struct AllResults {
    experiments: BTreeMap<String, (PathBuf, StoredExperiment)>,
    /// Lines of other commands, by directory name.
    others: BTreeMap<String, Vec<ResultLine>>,
}

/// A line of the `summary.json` of `lab visits` or `lab groups`. Scripts rely on its names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ResultLine {
    /// Class of the sessions.
    #[serde(default)]
    pub sweep: Option<String>,
    pub scheme: String,
    /// Values of axes, by key.
    #[serde(default)]
    pub point: BTreeMap<String, Value>,
    /// `gain:METRIC` is a change as a share of the baseline's value.
    pub metric: String,
    pub unit: String,
    pub mean: f64,
    /// Half the 95 % interval, if known.
    pub ci95: Option<f64>,
}

impl ResultLine {
    /// A scheme's line of results without sweeps and points.
    fn of_scheme(scheme: &str, metric: String, unit: &str, value: Estimate) -> Self {
        Self {
            sweep: None,
            scheme: scheme.to_owned(),
            point: BTreeMap::new(),
            metric,
            unit: unit.to_owned(),
            mean: value.mean,
            ci95: value.half,
        }
    }
}

/// The `summary.json` of `lab population`.
#[derive(Clone, Debug, Deserialize)]
struct PopulationLines {
    baseline: String,
    metrics: Vec<String>,
    overall: Vec<PopulationArm>,
    #[serde(default)]
    percentiles: Vec<PopulationPercentiles>,
    #[serde(default)]
    predictions: Vec<PopulationPrediction>,
}

/// A number of a paper's fleet, of the baseline unless its name says otherwise.
#[derive(Clone, Debug, Deserialize)]
struct PopulationPrediction {
    what: String,
    unit: String,
    ours: Option<f64>,
}

#[derive(Clone, Debug, Deserialize)]
struct PopulationPercentiles {
    name: String,
    p90: Vec<Option<f64>>,
    p95: Vec<Option<f64>>,
}

#[derive(Clone, Debug, Deserialize)]
struct PopulationArm {
    name: String,
    means: Vec<Option<PopulationNumber>>,
    differences: Vec<Option<PopulationNumber>>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct PopulationNumber {
    value: f64,
    low: f64,
    high: f64,
}

impl PopulationNumber {
    /// The number as a multiple of `of`.
    fn over(self, of: f64) -> Estimate {
        Estimate { mean: self.value / of, half: Some((self.high - self.low) / (2.0 * of).abs()) }
    }
}

impl PopulationLines {
    /// A line per scheme and metric, and one for its difference from the baseline: `gain:METRIC`, a
    /// share of the baseline's value.
    fn lines(&self) -> Vec<ResultLine> {
        let mut all = Vec::new();
        let base = self.overall.iter().find(|arm| arm.name == self.baseline);
        for arm in &self.overall {
            for (place, metric) in self.metrics.iter().enumerate() {
                let mut push = |metric: String, unit: &str, value: Estimate| {
                    all.push(ResultLine::of_scheme(&arm.name, metric, unit, value));
                };
                let of =
                    |numbers: &[Option<PopulationNumber>]| numbers.get(place).copied().flatten();
                if let Some(mean) = of(&arm.means) {
                    push(metric.clone(), unit_of(metric), mean.over(1.0));
                }
                let base = base.and_then(|base| of(&base.means)).filter(|base| base.value != 0.0);
                if let (Some(base), Some(difference)) = (base, of(&arm.differences)) {
                    push(format!("gain:{metric}"), "1", difference.over(base.value));
                }
            }
        }
        self.add_percentiles(&mut all);
        all.extend(self.predictions.iter().filter_map(|prediction| {
            let value = Estimate { mean: prediction.ours?, half: None };
            let metric = format!("predicted:{}", prediction.what);
            Some(ResultLine::of_scheme(&self.baseline, metric, &prediction.unit, value))
        }));
        all
    }

    /// Adds `p90:METRIC` and `gain:p90:METRIC`, and the same of the 95th percentile.
    fn add_percentiles(&self, all: &mut Vec<ResultLine>) {
        let base = self.percentiles.iter().find(|arm| arm.name == self.baseline);
        for arm in &self.percentiles {
            for (place, metric) in self.metrics.iter().enumerate() {
                let pairs = [
                    ("p90", &arm.p90, base.map(|base| &base.p90)),
                    ("p95", &arm.p95, base.map(|base| &base.p95)),
                ];
                for (name, own, base) in pairs {
                    let Some(own) = own.get(place).copied().flatten() else { continue };
                    let line = |metric: String, unit: &str, mean| {
                        ResultLine::of_scheme(
                            &arm.name,
                            metric,
                            unit,
                            Estimate { mean, half: None },
                        )
                    };
                    all.push(line(format!("{name}:{metric}"), unit_of(metric), own));
                    let base = base.and_then(|base| base.get(place).copied().flatten());
                    if let Some(base) = base.filter(|base| *base != 0.0) {
                        let gain = own / base - 1.0;
                        all.push(line(format!("gain:{name}:{metric}"), "1", gain));
                    }
                }
            }
        }
    }
}

/// Unit of a population's metric, by the ending of its key.
fn unit_of(metric: &str) -> &'static str {
    match metric {
        _ if metric.ends_with("_ms") => "ms",
        _ if metric.ends_with("_percent") || metric.starts_with("late_") => "%",
        _ => "",
    }
}

/// Our number, with its unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct OurNumber {
    pub value: Estimate,
    /// Whether the value is a share, that is of unit 1.
    pub is_share: bool,
}

/// A line of `mendcast-bench`: `recovery_cpu_loss/deadline`, against plain retransmission.
#[derive(Clone, Debug, Deserialize)]
struct BenchLine {
    name: String,
    ratio: f64,
    /// First and third quartile of the ratio.
    pairs: Option<[f64; 2]>,
}

/// Name of the benchmarks' results, and their file.
const BENCH: &str = "bench";
const BENCH_FILE: &str = "bench.json";

impl AllResults {
    /// Results of a single command, under the name that the catalogue has for its directory.
    pub(super) fn of_lines(name: &str, lines: Vec<ResultLine>) -> Self {
        Self { others: [(name.to_owned(), lines)].into(), ..Self::default() }
    }

    /// Reads the results in these directories and their subdirectories.
    ///
    /// # Errors
    /// Results are malformed or of another version, or a claim in them cannot fail.
    pub(super) fn read(folders: &[&Path]) -> Result<Self, Error> {
        let mut all = Self::default();
        for folder in folders {
            for out in with_results(folder) {
                let stored = StoredExperiment::read(&out)?;
                all.experiments.insert(stored.spec.name.clone(), (out, stored));
            }
            let mut inside: Vec<PathBuf> = match std::fs::read_dir(folder) {
                Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
                Err(_) => Vec::new(),
            };
            inside.push((*folder).to_owned());
            inside.sort();
            for folder in inside {
                let path = folder.join(SUMMARY);
                let name = folder.file_name().and_then(|name| name.to_str()).map(str::to_owned);
                let is_other = path.is_file() && !folder.join("run.json").is_file();
                if let Some(name) = name.filter(|_| is_other) {
                    all.others.insert(name, other_lines(&path)?);
                }
                let path = folder.join(BENCH_FILE);
                if path.is_file() {
                    all.others.insert(BENCH.to_owned(), bench_lines(&path)?);
                }
            }
        }
        Ok(all)
    }

    /// Returns the results of an experiment, and their directory.
    pub(super) fn experiment(&self, name: &str) -> Option<(&Path, &StoredExperiment)> {
        self.experiments.get(name).map(|(out, stored)| (&**out, stored))
    }

    /// Returns our number from a source; `None` without results.
    pub(super) fn number(&self, from: &NumberSource) -> Option<OurNumber> {
        let Some((_, stored)) = self.experiment(&from.results) else {
            let line = self.others.get(&from.results)?.iter().find(|line| {
                let point: Vec<(String, Value)> = line.point.clone().into_iter().collect();
                line.scheme == from.scheme
                    && line.metric == from.metric
                    && (from.sweep.is_none() || from.sweep == line.sweep)
                    && is_at(&from.at, &point)
            })?;
            let value = Estimate { mean: line.mean, half: line.ci95 };
            return Some(OurNumber { value, is_share: line.unit == "1" });
        };
        if let Some(q) = from.pooled() {
            let saving = stored.pooled_saving(from.sweep.as_deref()?, &from.scheme, q)?;
            let value = Estimate { mean: saving, half: None };
            return Some(OurNumber { value, is_share: false });
        }
        let report = stored.report();
        let term = Term::parse(&from.metric).ok()?;
        let groups = groups(report.rows);
        let is_wanted = |title: &String| from.sweep.as_ref().is_none_or(|sweep| sweep == title);
        let sweeps = report.spec.sweeps.iter().enumerate();
        let value =
            sweeps.filter(|(_, sweep)| is_wanted(&sweep.title)).find_map(|(place, _)| {
                let all = bundles(report.spec, &groups, place);
                let bundle = all.iter().find(|bundle| {
                    bundle.scheme == from.scheme && is_at(&from.at, &bundle.point)
                })?;
                bundle.estimate(report.spec, &groups, &term)
            })?;
        Some(OurNumber { value, is_share: term.unit() == "1" })
    }
}

/// Returns the schemes' costs over plain retransmission: `over:recovery_cpu_loss`, a share.
fn bench_lines(path: &Path) -> Result<Vec<ResultLine>, Error> {
    let text = std::fs::read_to_string(path).at(path)?;
    let lines: Vec<BenchLine> = serde_json::from_str(&text).at(path)?;
    let line = |line: BenchLine| {
        let (benchmark, scheme) = line.name.split_once('/')?;
        let half = line.pairs.map(|[low, high]| (high - low) / 2.0);
        let more = Estimate { mean: line.ratio - 1.0, half };
        Some(ResultLine::of_scheme(scheme, format!("over:{benchmark}"), "1", more))
    };
    Ok(lines.into_iter().filter_map(line).collect())
}

fn other_lines(path: &Path) -> Result<Vec<ResultLine>, Error> {
    let text = std::fs::read_to_string(path).at(path)?;
    let value: serde_json::Value = serde_json::from_str(&text).at(path)?;
    if value.is_array() {
        return serde_json::from_value(value).at(path);
    }
    let population: PopulationLines = serde_json::from_value(value).at(path)?;
    Ok(population.lines())
}
