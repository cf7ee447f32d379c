//! Catalogue of the papers' figures and tables, `experiments/papers.toml`: the number that each
//! states, the source of ours, and the cause of a difference.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Value;

use super::super::figures::built_in;
use super::super::metrics::Term;
use super::super::spec::{OneOrTwo, Spec, same};
use crate::error::{Error, FigureFlaw, SpecificationError};

/// Text of the catalogue.
const TEXT: &str = include_str!("../../../../../experiments/papers.toml");
/// Maximum number of words of a cause.
const MAX_CAUSE_WORDS: usize = 15;
/// Directories of results beside those of `lab run`: of commands that write a `summary.json`, of
/// the experiments of `lab rtc`, and of `mendcast-bench`. Crate `rtc` checks its own lines.
const COMMANDS: [&str; 6] = ["population", "visits", "groups", "rtc-", "block-", "bench"];

/// All papers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Catalogue {
    pub papers: Vec<CataloguedPaper>,
}

/// A paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CataloguedPaper {
    /// File name of its page, without ending.
    pub key: String,
    pub title: String,
    /// Three sentences: agreement, disagreement, and conditions.
    pub stands: String,
    pub fails: String,
    pub depends: String,
    /// Figures without numbers.
    pub diagrams: String,
    pub figures: Vec<Figure>,
}

/// A figure or table, or a part of one.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Figure {
    /// `Figure 18` or `Table 1`.
    pub name: String,
    pub subject: String,
    /// Experiment with the figure's numbers and claims. An experiment has at most one figure.
    #[serde(default)]
    pub experiment: Option<String>,
    /// Plots of the experiment to show: their file names.
    #[serde(default)]
    pub plots: Vec<String>,
    /// Stated numbers, the headline first.
    pub numbers: Vec<StatedNumber>,
    /// Whether a population was fitted to the numbers, which therefore do not count.
    #[serde(default)]
    pub fitted: bool,
    /// Cause of the difference.
    #[serde(default)]
    pub cause: String,
}

/// A number of a paper, and the source of ours.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StatedNumber {
    pub of: String,
    /// One number, or both ends of a range.
    pub paper: OneOrTwo,
    pub unit: String,
    /// Source of our number.
    #[serde(default)]
    pub from: Option<NumberSource>,
    /// Reason why there is no source.
    #[serde(default)]
    pub not_measured: Option<String>,
}

/// A line of results.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NumberSource {
    /// Name of an experiment, or of the directory of `lab population`, `visits`, `groups` or `rtc`.
    pub results: String,
    pub scheme: String,
    #[serde(default)]
    pub sweep: Option<String>,
    /// Values of axes, by key.
    #[serde(default)]
    pub at: BTreeMap<String, Value>,
    /// A metric with its prefix, or `pooled:wait_p95_ms`: a percentile of the recovery time saved,
    /// over the lost units of all runs.
    pub metric: String,
}

impl Catalogue {
    /// Reads the built-in catalogue.
    ///
    /// # Errors
    /// See [`Self::parse`].
    pub(crate) fn built_in() -> Result<Self, Error> {
        Self::parse(TEXT)
    }

    /// Parses and validates a catalogue.
    ///
    /// # Errors
    /// The catalogue is malformed; a cause is too long; a number has no source and no reason, or
    /// both; or a source does not exist.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let all: Self = toml::from_str(text).map_err(|e| Error::Experiment(Box::new(e)))?;
        let mut experiments = Vec::new();
        for paper in &all.papers {
            for figure in &paper.figures {
                let at = |flaw: FigureFlaw| {
                    let figure = format!("{}, {}", paper.title, figure.name);
                    SpecificationError::Figure { figure, flaw }
                };
                figure.check().map_err(at)?;
                if let Some(name) = &figure.experiment {
                    if experiments.contains(&name) {
                        return Err(at(FigureFlaw::Shared(name.clone())).into());
                    }
                    experiments.push(name);
                    built_in(name)?;
                }
            }
        }
        Ok(all)
    }
}

impl Figure {
    fn check(&self) -> Result<(), FigureFlaw> {
        let words = self.cause.split_whitespace().count();
        if words > MAX_CAUSE_WORDS {
            return Err(FigureFlaw::Cause(words, MAX_CAUSE_WORDS));
        }
        if self.numbers.is_empty() {
            return Err(FigureFlaw::NoNumber);
        }
        for number in &self.numbers {
            if number.from.is_some() == number.not_measured.is_some() {
                return Err(FigureFlaw::Source(number.of.clone()));
            }
            if let Some(from) = &number.from {
                let of = || number.of.clone();
                match from.has_run() {
                    Ok(true) => {}
                    Ok(false) => return Err(FigureFlaw::NoRun(of(), from.results.clone())),
                    Err(e) => return Err(FigureFlaw::Number { of: of(), source: Box::new(e) }),
                }
            }
        }
        Ok(())
    }
}

impl NumberSource {
    /// Returns the quantile of a pooled metric.
    pub(super) fn pooled(&self) -> Option<f64> {
        let percentile = self.metric.strip_prefix("pooled:wait_p")?.strip_suffix("_ms")?;
        let percentile: f64 = percentile.parse().ok()?;
        (0.0..=100.0).contains(&percentile).then_some(percentile / 100.0)
    }

    /// Returns whether the results have the number; results of other commands always have.
    fn has_run(&self) -> Result<bool, Error> {
        if COMMANDS.iter().any(|name| self.results.starts_with(name)) {
            return Ok(true);
        }
        let spec = Spec::parse(built_in(&self.results)?)?;
        match self.pooled() {
            Some(_) if !spec.waits || self.sweep.is_none() => return Ok(false),
            Some(_) => {}
            None => drop(Term::parse(&self.metric)?),
        }
        let is_wanted = |title: &String| self.sweep.as_ref().is_none_or(|sweep| sweep == title);
        let is_at = |point: &[(String, Value)]| is_at(&self.at, point);
        let mut sweeps = spec.sweeps.iter().filter(|sweep| is_wanted(&sweep.title));
        Ok(sweeps.any(|sweep| {
            spec.schemes_of(sweep).any(|scheme| scheme.label == self.scheme)
                && sweep.points().iter().any(|point| is_at(point))
        }))
    }
}

/// Returns whether a point has all of these values.
pub(super) fn is_at(at: &BTreeMap<String, Value>, point: &[(String, Value)]) -> bool {
    at.iter()
        .all(|(key, wanted)| point.iter().any(|(known, value)| known == key && same(wanted, value)))
}
