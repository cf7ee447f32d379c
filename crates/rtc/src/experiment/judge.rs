//! Results of an experiment: means with intervals, the paper's numbers, and verdicts of claims.

use core::fmt::Write as _;
use std::collections::BTreeMap;

use qoe::stats::Estimate;
use serde::Serialize;

use super::{Claim, Comparison, Experiment, Metrics};

/// Metrics of all runs.
#[derive(Debug)]
pub struct Results<'a> {
    experiment: &'a Experiment,
    runs: usize,
    /// By condition, scheme and run.
    all: Vec<Metrics>,
}

/// A line of `summary.json`, in the form of the testbed's other commands. The pages of the papers
/// read it.
#[derive(Clone, Debug, Serialize)]
pub struct SummaryLine<'a> {
    /// Name of the experiment.
    pub experiment: &'a str,
    /// Label of the scheme.
    pub scheme: &'a str,
    /// Label of the condition, under the key `condition`.
    pub point: BTreeMap<&'static str, &'a str>,
    /// Name of a metric; `late_per_10000`; or `ratio:METRIC@SCHEME`, the ratio of this scheme's
    /// mean to the other scheme's, for pairs that a claim compares.
    pub metric: String,
    /// `1` for shares.
    pub unit: &'static str,
    /// Mean over the runs.
    pub mean: f64,
    /// Half the 95 % interval. `None` for a single run.
    pub ci95: Option<f64>,
    /// Number of runs.
    pub runs: usize,
}

/// Verdict of a claim in a condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The whole interval agrees.
    Holds,
    /// The whole interval disagrees.
    Fails,
    /// The interval contains both.
    Undecided,
}

/// A claim in a condition.
#[derive(Debug)]
pub struct Judged<'a> {
    /// The claim.
    pub claim: &'a Claim,
    /// Label of the condition.
    pub condition: &'a str,
    /// Verdict.
    pub verdict: Verdict,
}

/// Returns the title of a metric, with its unit.
pub fn metric_name(metric: &str) -> &str {
    match metric {
        "late" => "late frames, %",
        "redundancy" => "redundancy, %",
        "overhead" => "with retransmissions, %",
        "frozen" => "frozen time, %",
        "unshown" => "frames not shown, %",
        "key_frames" => "key frames",
        "completion_ms" => "completion, ms",
        "failing" => "connections with a failure, %",
        other => other,
    }
}

fn unit(metric: &str) -> &'static str {
    match metric {
        "key_frames" => "",
        "completion_ms" => "ms",
        _ => "1",
    }
}

/// Returns the factor from a metric's value to the unit in tables.
pub fn scale(metric: &str) -> f64 {
    match metric {
        "key_frames" | "completion_ms" => 1.0,
        _ => 100.0,
    }
}

fn shown(metric: &str, value: f64) -> String {
    let value = value * scale(metric);
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

impl<'a> Results<'a> {
    /// Creates results of [`Experiment::jobs`], in their order.
    pub fn new(experiment: &'a Experiment, runs: u64, all: Vec<Metrics>) -> Self {
        Self { experiment, runs: runs as usize, all }
    }

    fn values(&self, condition: usize, scheme: usize, metric: &str) -> Vec<f64> {
        let first = (condition * self.experiment.schemes.len() + scheme) * self.runs;
        let runs = &self.all[first..first + self.runs];
        let value = |run: &Metrics| run.iter().find(|(name, _)| *name == metric).map(|m| m.1);
        runs.iter().filter_map(value).collect()
    }

    /// Returns mean and interval of a metric. `None` if a run has no finite value.
    pub fn estimate(&self, condition: usize, scheme: usize, metric: &str) -> Option<Estimate> {
        Estimate::of(self.values(condition, scheme, metric))
    }

    /// The experiment.
    pub fn experiment(&self) -> &'a Experiment {
        self.experiment
    }

    /// Number of runs per point.
    pub fn runs(&self) -> usize {
        self.runs
    }

    /// Returns the lines of `summary.json`. Points without a finite value have none.
    pub fn summary(&self) -> Vec<SummaryLine<'a>> {
        let experiment = self.experiment;
        let mut lines = Vec::new();
        for (at, condition) in experiment.conditions.iter().enumerate() {
            for (index, scheme) in experiment.schemes.iter().enumerate() {
                let mut push = |metric: String, unit, value: Option<Estimate>| {
                    lines.extend(value.map(|Estimate { mean, half }| SummaryLine {
                        experiment: &experiment.name,
                        scheme: &scheme.label,
                        point: [("condition", &*condition.label)].into(),
                        metric,
                        unit,
                        mean,
                        ci95: half,
                        runs: self.runs,
                    }));
                };
                for metric in experiment.platform.metrics() {
                    push((*metric).to_owned(), unit(metric), self.estimate(at, index, metric));
                }
                let late = self.values(at, index, "late").into_iter().map(|late| late * 1e4);
                push("late_per_10000".to_owned(), "", Estimate::of(late));
                for (claim, other) in self.compared(&scheme.label) {
                    let metric = format!("ratio:{}@{other}", claim.metric);
                    push(metric, "", self.ratio(at, claim, other));
                }
            }
        }
        lines
    }

    /// Claims that compare the scheme with another, and that other scheme.
    fn compared(&self, scheme: &str) -> impl Iterator<Item = (&'a Claim, &'a str)> {
        let own = self.experiment.claims.iter().filter(move |claim| claim.scheme == scheme);
        own.filter_map(|claim| match &claim.is {
            Comparison::Below(other) | Comparison::Within { scheme: other, .. } => {
                Some((claim, other.as_str()))
            }
            Comparison::AtMost(_) | Comparison::AtLeast(_) => None,
        })
    }

    /// Ratio of means, with the interval of its linearization. `None` if the other mean is 0.
    fn ratio(&self, condition: usize, claim: &Claim, other: &str) -> Option<Estimate> {
        let of = |label| self.values(condition, self.index(label), &claim.metric);
        let (own, other) = (of(&claim.scheme), of(other));
        let mean = Estimate::of(other.iter().copied())?.mean;
        let ratio = Estimate::of(own.iter().copied())?.mean / mean;
        let rest = own.iter().zip(&other).map(|(own, other)| (own - ratio * other) / mean);
        Estimate::of(rest).map(|rest| Estimate { mean: ratio, half: rest.half })
    }

    fn index(&self, label: &str) -> usize {
        let found = self.experiment.schemes.iter().position(|scheme| scheme.label == label);
        found.expect("checked by the parser")
    }

    fn cell(&self, condition: usize, scheme: usize, metric: &str) -> String {
        let Some(Estimate { mean, half }) = self.estimate(condition, scheme, metric) else {
            return "never".to_owned();
        };
        let half = half.map_or(String::new(), |half| format!(" ± {}", shown(metric, half)));
        format!("{}{half}", shown(metric, mean))
    }

    /// Returns the tables as Markdown, with the paper's numbers and the claims.
    pub fn table(&self) -> String {
        let experiment = self.experiment;
        let metrics = experiment.platform.metrics();
        let mut out = format!("{}\n\n{}\n", experiment.title, experiment.about);
        for (at, condition) in experiment.conditions.iter().enumerate() {
            // Writing to a string does not fail, here and below.
            let _ = write!(out, "\n{}\n\n| scheme |", condition.label);
            metrics.iter().for_each(|metric| {
                let _ = write!(out, " {} |", metric_name(metric));
            });
            let _ = writeln!(out, " paper |\n|---|{}---|", "---|".repeat(metrics.len()));
            for (index, scheme) in experiment.schemes.iter().enumerate() {
                let cells = metrics.iter().map(|metric| self.cell(at, index, metric));
                let cells = cells.collect::<Vec<_>>().join(" | ");
                let paper = self.stated(&condition.label, &scheme.label);
                let _ = writeln!(out, "| {} | {cells} | {paper} |", scheme.label);
            }
        }
        self.claims(&mut out);
        out
    }

    fn stated(&self, condition: &str, scheme: &str) -> String {
        let all = self.experiment.paper.iter();
        let of = all.filter(|paper| paper.condition == condition && paper.scheme == scheme);
        let text = of.map(|paper| {
            let [low, high] = paper.value.map(|value| shown(&paper.metric, value));
            let range = if low == high { low } else { format!("{low} to {high}") };
            format!("{}: {range}", metric_name(&paper.metric))
        });
        text.collect::<Vec<_>>().join("; ")
    }

    fn claims(&self, out: &mut String) {
        let judged = self.judged();
        if judged.is_empty() {
            return;
        }
        out.push_str("\n| claim | condition | verdict |\n|---|---|---|\n");
        for Judged { claim, condition, verdict } in judged {
            let verdict = match verdict {
                Verdict::Holds => "holds".to_owned(),
                Verdict::Undecided => "undecided".to_owned(),
                Verdict::Fails => match &claim.why {
                    Some(why) => format!("does not hold: {why}"),
                    None => "does not hold".to_owned(),
                },
            };
            let _ = writeln!(out, "| {} | {condition} | {verdict} |", claim.text);
        }
    }

    /// Judges all claims in all their conditions.
    pub fn judged(&self) -> Vec<Judged<'a>> {
        let experiment = self.experiment;
        let mut judged = Vec::new();
        for claim in &experiment.claims {
            for (at, condition) in experiment.conditions.iter().enumerate() {
                let is_meant =
                    claim.conditions.is_empty() || claim.conditions.contains(&condition.label);
                if is_meant {
                    let verdict = self.verdict(claim, at);
                    judged.push(Judged { claim, condition: &condition.label, verdict });
                }
            }
        }
        judged
    }

    fn verdict(&self, claim: &Claim, condition: usize) -> Verdict {
        let of = |label: &str| self.values(condition, self.index(label), &claim.metric);
        let own = of(&claim.scheme);
        let (other, factor, sign) = match &claim.is {
            Comparison::Below(scheme) => (of(scheme), 1.0, 1.0),
            Comparison::Within { scheme, factor } => (of(scheme), *factor, 1.0),
            Comparison::AtMost(bound) => (vec![*bound; own.len()], 1.0, 1.0),
            Comparison::AtLeast(bound) => (vec![*bound; own.len()], 1.0, -1.0),
        };
        let excess = own.iter().zip(&other).map(|(own, other)| sign * (own - factor * other));
        let Some(Estimate { mean, half }) = Estimate::of(excess) else { return Verdict::Undecided };
        let half = half.unwrap_or(0.0);
        let is_strict = matches!(claim.is, Comparison::Below(_));
        if mean + half < 0.0 || !is_strict && mean + half <= 0.0 {
            Verdict::Holds
        } else if mean - half > 0.0 || is_strict && mean == 0.0 && half == 0.0 {
            Verdict::Fails
        } else {
            Verdict::Undecided
        }
    }
}
