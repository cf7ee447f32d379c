//! Specifications of experiments (`experiments/rtc-*.toml`, `experiments/block-*.toml`): set-up,
//! conditions, schemes, the paper's numbers, and claims.

mod judge;
mod setup;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::error::BadValue;

pub use judge::{Judged, Results, SummaryLine, Verdict, metric_name, scale};
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

/// Highest number of runs.
const MAX_RUNS: u64 = 10_000;
/// Longest value in an error, in bytes.
const MAX_SHOWN: usize = 100;

/// A specification.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Name of the experiment and its file: letters, digits and hyphens.
    pub name: String,
    /// One line.
    pub title: String,
    /// Measurement and method, in a few sentences.
    pub about: String,
    /// Default runs per point. 1 to 10,000.
    pub runs: u64,
    /// Settings that the paper does not state.
    #[serde(default)]
    pub not_stated: Vec<String>,
    /// Sentences on results, for pages.
    #[serde(default)]
    pub findings: Vec<String>,
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
    let shown = table.iter().map(|(key, value)| match value.to_string() {
        // The content of a trace.
        text if text.len() > MAX_SHOWN => format!("{key} = …"),
        text => format!("{key} = {text}"),
    });
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
    /// The trace is invalid, or was added before.
    pub fn add_trace(&mut self, file: &str, text: &str) -> Result<(), BadValue> {
        crate::trace::parse(file, text)?;
        let mut set = toml::Table::new();
        set.insert("trace".to_owned(), text.into());
        set.insert("trace_name".to_owned(), file.into());
        self.conditions.push(Condition { label: format!("trace {file}"), set });
        self.check()
    }

    /// Overrides a key of the set-up in all conditions, such as `duration=10s`.
    ///
    /// # Errors
    /// The key is unknown, or the value is out of range.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), BadValue> {
        let plain = value.parse::<toml::Value>().unwrap_or_else(|_| value.into());
        self.setup.insert(key.to_owned(), plain.clone());
        for condition in &mut self.conditions {
            condition.set.remove(key);
        }
        self.check()
    }

    fn check(&self) -> Result<(), BadValue> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let is_name = !self.name.is_empty() && self.name.chars().all(is_plain);
        BadValue::unless(is_name, "name", &self.name, "letters, digits and hyphens")?;
        let is_allowed = (1..=MAX_RUNS).contains(&self.runs);
        BadValue::unless(is_allowed, "runs", self.runs, "1 to 10,000")?;
        for (key, count) in [("conditions", self.conditions.len()), ("schemes", self.schemes.len())]
        {
            BadValue::unless(count > 0, key, count, "at least one")?;
        }
        let schemes = self.schemes.iter().map(|scheme| self.scheme(scheme));
        let schemes = schemes.collect::<Result<Vec<_>, _>>()?;
        for condition in 0..self.conditions.len() {
            let setup = self.setup(condition)?;
            schemes.iter().try_for_each(|scheme| setup.check_with(scheme))?;
        }
        self.check_labels()?;
        self.check_numbers()
    }

    fn check_numbers(&self) -> Result<(), BadValue> {
        for Paper { value: [low, high], .. } in &self.paper {
            let is_range = low.is_finite() && high.is_finite() && low <= high;
            let value = format!("[{low}, {high}]");
            BadValue::unless(is_range, "paper.value", value, "a range of numbers")?;
        }
        for claim in &self.claims {
            let (number, is_allowed) = match claim.is {
                Comparison::Below(_) => continue,
                Comparison::AtMost(bound) | Comparison::AtLeast(bound) => {
                    (bound, bound.is_finite())
                }
                Comparison::Within { factor, .. } => (factor, factor.is_finite() && factor > 0.0),
            };
            BadValue::unless(is_allowed, "claims.is", number, "a number, a factor above 0")?;
        }
        Ok(())
    }

    fn check_labels(&self) -> Result<(), BadValue> {
        let labels = self.conditions.iter().map(|condition| &condition.label);
        let conditions: Vec<_> = labels.collect();
        let schemes: Vec<_> = self.schemes.iter().map(|scheme| &scheme.label).collect();
        for (key, labels) in [("conditions.label", &conditions), ("schemes.label", &schemes)] {
            let mut seen = labels.iter().enumerate().filter(|(at, l)| labels[..*at].contains(l));
            if let Some((_, label)) = seen.next() {
                return Err(BadValue::new(key, label, "a label of its own"));
            }
        }
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
