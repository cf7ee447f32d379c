//! Specifications (`experiments/*.toml`): runs, the paper's numbers, and claims.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use toml::{Spanned, Value};

use config::{File, Sections};

use super::metrics::Term;
use crate::error::Error;
use crate::setup::Setup;

/// Keys in a specification, by section.
pub(crate) type Keys = BTreeMap<Spanned<String>, BTreeMap<Spanned<String>, Value>>;

/// Contents of a specification file. Its sections, such as `[recovery]` and `[path]`, are the
/// set-up of all runs.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Spec {
    /// Name of the experiment and its file.
    pub name: String,
    /// One line.
    pub title: String,
    /// Measurement and method, in a few sentences.
    pub about: String,
    /// Default runs per point.
    pub runs: u64,
    /// Settings that the paper does not state, each with our value and reason.
    #[serde(default)]
    pub not_stated: Vec<String>,
    /// Label of the scheme that paired differences refer to.
    pub baseline: String,
    /// Label of the clairvoyant sender, the upper end of the distance in `closed:`. Last in tables.
    #[serde(default)]
    pub clairvoyant: Option<String>,
    /// Metrics in tables and plots.
    #[serde(deserialize_with = "terms")]
    pub metrics: Vec<Term>,
    /// Set-up of all runs.
    #[serde(skip)]
    pub base: Setup,
    /// Schemes under comparison.
    pub schemes: Vec<ComparedScheme>,
    /// Grids of points.
    pub sweeps: Vec<Sweep>,
    /// Numbers of the paper.
    #[serde(default)]
    pub paper: Vec<Paper>,
    /// Claims to judge.
    #[serde(default)]
    pub claims: Vec<Claim>,
    /// Records the senders' state over time in the first run of each point.
    #[serde(default)]
    pub curves: bool,
    /// Keeps the recovery times of all runs, to pool them ([`super::waits`]).
    #[serde(default)]
    pub waits: bool,
    /// Sections, and unknown names.
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

/// A scheme with its parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ComparedScheme {
    pub label: String,
    #[serde(default)]
    pub set: Keys,
    /// Runs for paired differences only, hidden from tables and plots.
    #[serde(default)]
    pub hidden: bool,
}

/// A grid of points, or random draws from a box.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sweep {
    pub title: String,
    #[serde(default)]
    pub set: Keys,
    /// Axes. The first numeric one is the x axis of plots.
    #[serde(default)]
    pub axes: Vec<Axis>,
    /// Maximum number of draws of a Latin hypercube, in place of a grid: three per requested run.
    #[serde(default)]
    pub draws: u64,
    #[serde(default)]
    pub ranges: Vec<AxisRange>,
    /// Labels of participating schemes; all if empty.
    #[serde(default)]
    pub schemes: Vec<String>,
}

/// Values of one key.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Axis {
    pub key: Spanned<String>,
    pub values: Vec<Value>,
    /// Whether plots and tables show the mean over all values.
    #[serde(default)]
    pub merged: bool,
}

/// Range of a drawn key. Both ends are numbers, or have the same unit.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AxisRange {
    pub key: Spanned<String>,
    pub low: Value,
    pub high: Value,
}

/// Selection of points and schemes. Absent fields match anything.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Selection {
    /// Title of the sweep.
    #[serde(default)]
    pub sweep: Option<String>,
    #[serde(default)]
    pub scheme: Option<String>,
    /// Axis values; a list matches any of its members.
    #[serde(default, deserialize_with = "points")]
    pub at: BTreeMap<String, Value>,
}

/// A number stated by the paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Paper {
    #[serde(default)]
    pub on: Selection,
    #[serde(deserialize_with = "term")]
    pub metric: Term,
    /// One number, or both ends of a range.
    pub value: OneOrTwo,
    /// Where the paper states it.
    pub stated: String,
}

/// A number or a range.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub(crate) enum OneOrTwo {
    One(f64),
    Two([f64; 2]),
}

impl OneOrTwo {
    /// Returns both ends.
    pub(crate) fn ends(self) -> (f64, f64) {
        match self {
            Self::One(value) => (value, value),
            Self::Two([low, high]) => (low, high),
        }
    }
}

/// A claim: a sentence and the comparison that decides it. Some result must be able to falsify it
/// (`falsifiable`).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Claim {
    /// The claim in one sentence.
    pub text: String,
    #[serde(default)]
    pub on: Selection,
    #[serde(deserialize_with = "term")]
    pub metric: Term,
    pub is: Comparison,
    /// Restricts the claim to points with a mean of the first metric of at most the second bound.
    #[serde(default)]
    pub given: Option<Given>,
    /// Known reason for a failure, shown with it.
    #[serde(default)]
    pub why: Option<String>,
}

/// A condition on a point.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Given {
    #[serde(deserialize_with = "term")]
    pub metric: Term,
    #[serde(default)]
    pub at_most: Option<Bound>,
    #[serde(default)]
    pub at_least: Option<Bound>,
}

/// A number, a multiple of a key's value (`{ key, factor }`; milliseconds, bytes or Mbps), or
/// another metric.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub(crate) enum Bound {
    Number(f64),
    Key {
        key: String,
        #[serde(default = "one")]
        factor: f64,
    },
    Metric {
        #[serde(deserialize_with = "term")]
        metric: Term,
        /// Scheme to take the metric from; the judged one by default.
        #[serde(default)]
        of: Option<String>,
        #[serde(default = "one")]
        factor: f64,
    },
}

fn one() -> f64 {
    1.0
}

/// Comparisons that decide claims.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Comparison {
    /// At every point the mean is at most the bound plus the margin.
    AtMost {
        bound: Bound,
        #[serde(default)]
        margin: f64,
    },
    /// At every point the mean is at least the bound less the margin.
    AtLeast {
        bound: Bound,
        #[serde(default)]
        margin: f64,
    },
    /// At every point the paired mean is below the other scheme's.
    Below { scheme: String },
    /// At every point the paired mean is within `share` of the bound, or `margin`, or with `ci`
    /// half the 95 % confidence interval of the difference. Without `ci`, noise cannot make a claim
    /// hold.
    Near {
        bound: Bound,
        #[serde(default)]
        share: f64,
        #[serde(default)]
        margin: f64,
        #[serde(default)]
        ci: bool,
    },
    /// Along the first axis, this scheme is above the other at one end and below it at the other
    /// end.
    Crosses { scheme: String },
    /// Along the first axis, means never rise by more than the margin.
    Falls {
        #[serde(default)]
        margin: f64,
    },
}

fn term<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Term, D::Error> {
    let text = String::deserialize(deserializer)?;
    Term::parse(&text).map_err(D::Error::custom)
}

fn terms<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Term>, D::Error> {
    let all = Vec::<String>::deserialize(deserializer)?;
    all.iter().map(|text| Term::parse(text).map_err(D::Error::custom)).collect()
}

/// A point of a sweep: axes and their values.
pub(crate) type Point = Vec<(String, Value)>;

/// Reads `section.key = value` of a nested table.
fn points<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, Value>, D::Error> {
    let sections = BTreeMap::<String, BTreeMap<String, Value>>::deserialize(deserializer)?;
    let keys = |(section, keys): (String, BTreeMap<String, Value>)| {
        keys.into_iter().map(move |(key, value)| (format!("{section}.{key}"), value))
    };
    Ok(sections.into_iter().flat_map(keys).collect())
}

/// Returns the keys of a table as `section.key`, with their positions.
pub(super) fn entries(table: &Keys) -> impl Iterator<Item = (String, Range<usize>, &Value)> {
    table.iter().flat_map(|(section, keys)| {
        keys.iter().map(move |(key, value)| {
            (format!("{}.{}", section.get_ref(), key.get_ref()), key.span(), value)
        })
    })
}

/// Returns the value as text without quotes.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns the number that a value starts with, and its unit: 60 and `ms` of `"60ms"`.
pub(crate) fn quantity(value: &Value) -> Option<(f64, &str)> {
    match value {
        Value::Integer(n) => Some((*n as f64, "")),
        Value::Float(x) => Some((*x, "")),
        Value::String(text) => {
            let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
            let (number, unit) = text.split_at(end);
            let is_unit = unit == "%" || unit.chars().all(|c| c.is_ascii_alphabetic());
            Some((number.parse().ok()?, unit)).filter(|_| is_unit)
        }
        _ => None,
    }
}

/// Returns the value as a number, without its unit.
pub(crate) fn number(value: &Value) -> Option<f64> {
    quantity(value).map(|(number, _)| number)
}

/// Returns whether two values are the same quantity or text.
pub(crate) fn same(a: &Value, b: &Value) -> bool {
    match (quantity(a), quantity(b)) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

impl Spec {
    /// Parses a specification and validates all of its runs.
    ///
    /// # Errors
    /// The problem, with line and key.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let mut spec: Self = toml::from_str(text).map_err(|e| Error::Experiment(Box::new(e)))?;
        let last = spec.clairvoyant.clone();
        spec.schemes.sort_by_key(|scheme| Some(&scheme.label) == last.as_ref());
        let file = File::parse(&spec.name, text)?;
        let names = spec.base.names();
        if let Some(name) = spec.others.keys().find(|name| !names.contains(&name.as_str())) {
            let sections: Vec<String> = names.iter().map(|name| format!("[{name}]")).collect();
            let what = format!("no `{name}` in experiments; sections: {}", sections.join(", "));
            return Err(file.error(file.position(name, ""), &what).into());
        }
        let is_other = |name: &str| !names.contains(&name);
        file.read_into(&mut spec.base, is_other)?;
        spec.check_keys(&file)?;
        spec.check()?;
        Ok(spec)
    }

    /// Returns whether tables and plots show a scheme.
    pub(crate) fn is_shown(&self, label: &str) -> bool {
        !self.schemes.iter().any(|scheme| scheme.label == label && scheme.hidden)
    }

    /// Returns the schemes that take part in a sweep.
    pub(crate) fn schemes_of<'a>(
        &'a self,
        sweep: &'a Sweep,
    ) -> impl Iterator<Item = &'a ComparedScheme> {
        self.schemes
            .iter()
            .filter(|scheme| sweep.schemes.is_empty() || sweep.schemes.contains(&scheme.label))
    }

    /// Returns the set-up of a run. Precedence, lowest first: sections, sweep, point, scheme.
    pub(crate) fn setup(
        &self,
        sweep: &Sweep,
        point: &[(String, Value)],
        drawn: &[(String, Value)],
        scheme: &ComparedScheme,
    ) -> Result<Setup, Error> {
        let mut setup = self.base.clone();
        for (key, _, value) in entries(&sweep.set) {
            setup.set(&key, value)?;
        }
        for (key, value) in point.iter().chain(drawn) {
            setup.set(key, value)?;
        }
        for (key, _, value) in entries(&scheme.set) {
            setup.set(&key, value)?;
        }
        Ok(setup)
    }
}

impl Sweep {
    /// Returns the grid's points; the first axis varies slowest.
    pub(crate) fn points(&self) -> Vec<Point> {
        self.axes.iter().fold(vec![Vec::new()], |points, axis| {
            let with = |point: &Point, value: &Value| {
                let mut point = point.clone();
                point.push((axis.key.get_ref().clone(), value.clone()));
                point
            };
            let next = points.iter().flat_map(|point| axis.values.iter().map(|v| with(point, v)));
            next.collect()
        })
    }

    /// Returns the axis on the plots' x axis: the first one of numbers with the same unit.
    pub(crate) fn x(&self) -> Option<&Axis> {
        self.axes.iter().find(|axis| !axis.merged && axis.unit().is_some())
    }
}

impl Axis {
    /// Returns the unit that all values have; `None` if they are not numbers with the same unit.
    pub(crate) fn unit(&self) -> Option<&str> {
        let mut units = self.values.iter().map(|value| quantity(value).map(|(_, unit)| unit));
        let first = units.next()??;
        units.all(|unit| unit == Some(first)).then_some(first)
    }
}

impl Selection {
    /// Returns whether this selection matches a point.
    pub(crate) fn covers(&self, sweep: &Sweep, scheme: &str, point: &[(String, Value)]) -> bool {
        let fits = |key: &str, wanted: &Value| {
            point.iter().find(|(name, _)| name == key).is_some_and(|(_, value)| match wanted {
                Value::Array(any) => any.iter().any(|wanted| same(wanted, value)),
                wanted => same(wanted, value),
            })
        };
        self.sweep.as_ref().is_none_or(|title| *title == sweep.title)
            && self.scheme.as_ref().is_none_or(|label| *label == scheme)
            && self.at.iter().all(|(key, wanted)| fits(key, wanted))
    }
}
