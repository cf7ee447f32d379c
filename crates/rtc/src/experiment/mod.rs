//! Specifications of experiments (`experiments/rtc-*.toml`, `experiments/block-*.toml`): set-up,
//! conditions, schemes, the paper's numbers, and claims.

mod judge;
mod setup;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::error::BadValue;

pub use judge::{Judged, Results, Verdict, metric_name};
pub use setup::{Metrics, Platform};
use setup::{SchemeTable, SetupKeys};

macro_rules! built_in {
    ($($name:literal),*) => {
        [$(($name, include_str!(concat!("../../../../experiments/", $name, ".toml")))),*]
    };
}

/// The built-in specifications, by name.
pub const BUILT_IN: [(&str, &str); 4] =
    built_in!["rtc-fig19", "rtc-fig20", "block-fig22", "block-fig6"];

/// A specification.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Name of the experiment and its file.
    pub name: String,
    /// One line.
    pub title: String,
    /// Measurement and method, in a few sentences.
    pub about: String,
    /// Default runs per point. 1 and above.
    pub runs: u64,
    /// Settings that the paper does not state.
    #[serde(default)]
    pub not_stated: Vec<String>,
    /// Platform of all runs.
    pub platform: Platform,
    #[serde(default)]
    setup: toml::Table,
    /// Conditions under comparison.
    pub conditions: Vec<Condition>,
    /// Schemes under comparison.
    pub schemes: Vec<Scheme>,
    /// Numbers of the paper.
    #[serde(default)]
    pub paper: Vec<Paper>,
    /// Claims to judge.
    #[serde(default)]
    pub claims: Vec<Claim>,
}

/// A condition: keys that override the set-up.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// Name in tables.
    pub label: String,
    #[serde(default)]
    set: toml::Table,
}

/// Part of a deployment that a scheme changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Changes {
    /// The sender alone.
    #[default]
    Sender,
    /// Sender and client.
    Client,
    /// No deployment: a bound.
    Bound,
}

/// A scheme.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scheme {
    /// Name in tables.
    pub label: String,
    /// Changed part of the deployment. Default: the sender.
    #[serde(default)]
    pub changes: Changes,
    set: toml::Table,
}

/// A number of the paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// Label of the condition.
    pub condition: String,
    /// Label of the scheme.
    pub scheme: String,
    /// Name of the metric.
    pub metric: String,
    /// Both ends of the stated range.
    pub value: [f64; 2],
}

/// A claim of the paper or ours, with the comparison that decides it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The claim in one sentence.
    pub text: String,
    /// Labels of the conditions; all if empty.
    #[serde(default)]
    pub conditions: Vec<String>,
    /// Label of the scheme.
    pub scheme: String,
    /// Name of the metric.
    pub metric: String,
    /// The comparison.
    pub is: Comparison,
    /// Reason of a failure.
    #[serde(default)]
    pub why: Option<String>,
}

/// Comparison of a claim. Means of paired differences over the runs decide, with their 95 %
/// intervals.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Comparison {
    /// Below another scheme's value.
    Below(String),
    /// At most this value.
    AtMost(f64),
    /// At least this value.
    AtLeast(f64),
    /// At most a multiple of another scheme's value.
    Within {
        /// Label of the other scheme.
        scheme: String,
        /// The multiple, above 0.
        factor: f64,
    },
}

/// A run of one scheme in one condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job {
    /// Index of the condition.
    pub condition: usize,
    /// Index of the scheme.
    pub scheme: usize,
    /// Number of the run, from 0.
    pub run: u64,
}

fn parsed<T: DeserializeOwned>(what: &str, table: toml::Table) -> Result<T, BadValue> {
    let shown = table.iter().map(|(key, value)| format!("{key} = {value}"));
    let shown = shown.collect::<Vec<_>>().join(", ");
    let why = |why: toml::de::Error| why.message().replace('\n', " ");
    toml::Value::Table(table)
        .try_into()
        .map_err(|error| BadValue::new(what, shown, format_args!("known keys ({})", why(error))))
}

impl Experiment {
    /// Parses a specification; `file` names it in errors.
    ///
    /// # Errors
    /// The text is no specification, a value is out of range, or a label is unknown.
    pub fn parse(file: &str, text: &str) -> Result<Self, BadValue> {
        let experiment: Self = toml::from_str(text).map_err(|why| {
            let line = why.span().map_or(1, |span| text[..span.start].lines().count().max(1));
            let message = why.message().replace('\n', " ");
            BadValue::new(format_args!("{file}, line {line}"), message, "a specification")
        })?;
        experiment.check()?;
        Ok(experiment)
    }

    /// Whether [`Experiment::add_trace`] applies: for calls.
    pub fn replays_traces(&self) -> bool {
        self.platform == Platform::Call
    }

    /// Adds a condition that replays this trace.
    ///
    /// # Errors
    /// The trace is invalid.
    pub fn add_trace(&mut self, file: &str, text: &str) -> Result<(), BadValue> {
        crate::trace::parse(file, text)?;
        let mut set = toml::Table::new();
        set.insert("trace".to_owned(), text.into());
        set.insert("trace_name".to_owned(), file.into());
        self.conditions.push(Condition { label: format!("trace {file}"), set });
        Ok(())
    }

    /// Overrides a key of the set-up in all conditions, such as `duration=10s`.
    pub fn set(&mut self, key: &str, value: &str) {
        let plain = value.parse::<toml::Value>().unwrap_or_else(|_| value.into());
        self.setup.insert(key.to_owned(), plain.clone());
        for condition in &mut self.conditions {
            condition.set.remove(key);
        }
    }

    fn check(&self) -> Result<(), BadValue> {
        BadValue::unless(self.runs > 0, "runs", self.runs, "1 and above")?;
        for condition in 0..self.conditions.len() {
            self.setup(condition)?;
        }
        for scheme in &self.schemes {
            self.scheme(scheme)?;
        }
        let labels = self.conditions.iter().map(|condition| &condition.label);
        let conditions: Vec<_> = labels.collect();
        let schemes: Vec<_> = self.schemes.iter().map(|scheme| &scheme.label).collect();
        let known = |key: &str, label: &String, all: &[&String]| match all.contains(&label) {
            true => Ok(()),
            false => Err(BadValue::new(key, label, "a label of this file")),
        };
        let metric = |name: &String| match self.platform.metrics().contains(&name.as_str()) {
            true => Ok(()),
            false => Err(BadValue::new("metric", name, self.platform.metrics().join(", "))),
        };
        for paper in &self.paper {
            known("paper.condition", &paper.condition, &conditions)?;
            known("paper.scheme", &paper.scheme, &schemes)?;
            metric(&paper.metric)?;
        }
        for claim in &self.claims {
            known("claims.scheme", &claim.scheme, &schemes)?;
            metric(&claim.metric)?;
            claim.conditions.iter().try_for_each(|c| known("claims.conditions", c, &conditions))?;
            match &claim.is {
                Comparison::Below(other) | Comparison::Within { scheme: other, .. } => {
                    known("claims.is", other, &schemes)?;
                }
                Comparison::AtMost(_) | Comparison::AtLeast(_) => {}
            }
        }
        Ok(())
    }

    fn setup(&self, condition: usize) -> Result<SetupKeys, BadValue> {
        let mut table = self.setup.clone();
        table.extend(self.conditions[condition].set.clone());
        let keys: SetupKeys = parsed(&format!("setup of {}", self.name), table)?;
        keys.check(self.platform)?;
        Ok(keys)
    }

    fn scheme(&self, scheme: &Scheme) -> Result<SchemeTable, BadValue> {
        let table: SchemeTable = parsed(&format!("scheme {}", scheme.label), scheme.set.clone())?;
        table.check(self.platform)?;
        Ok(table)
    }

    /// Returns all runs, paired by their number.
    pub fn jobs(&self, runs: u64) -> Vec<Job> {
        let mut jobs = Vec::new();
        for condition in 0..self.conditions.len() {
            for scheme in 0..self.schemes.len() {
                jobs.extend((0..runs).map(|run| Job { condition, scheme, run }));
            }
        }
        jobs
    }

    /// Runs a job. Runs with the same number and seed have the same path.
    ///
    /// # Errors
    /// A value is out of range.
    pub fn run(&self, job: Job, seed: u64) -> Result<Metrics, BadValue> {
        let setup = self.setup(job.condition)?;
        let scheme = self.scheme(&self.schemes[job.scheme])?;
        setup.run(self.platform, &scheme, units::mix64(seed.wrapping_add(job.run << 32)))
    }
}

#[cfg(test)]
mod tests;
