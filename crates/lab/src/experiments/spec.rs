//! Specifications (`experiments/*.toml`): runs, the paper's numbers, and claims.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use toml::{Spanned, Value};

use super::metrics::Term;
use super::settings::Settings;

/// Keys and values of [`Settings`] in a specification.
pub(crate) type Table = BTreeMap<Spanned<String>, Value>;

/// Contents of a specification file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
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
    /// Settings of all runs.
    #[serde(default)]
    pub base: Table,
    /// Schemes under comparison.
    pub schemes: Vec<Contestant>,
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
}

/// A scheme with its parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contestant {
    pub label: String,
    #[serde(default)]
    pub set: Table,
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
    pub set: Table,
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

/// Values of one setting.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Axis {
    pub key: Spanned<String>,
    pub values: Vec<Value>,
    /// Whether plots and tables show the mean over all values.
    #[serde(default)]
    pub merged: bool,
}

/// Range of a drawn setting.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AxisRange {
    pub key: Spanned<String>,
    pub low: f64,
    pub high: f64,
}

/// Selection of points and schemes. Absent fields match anything.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Place {
    /// Title of the sweep.
    #[serde(default)]
    pub sweep: Option<String>,
    #[serde(default)]
    pub scheme: Option<String>,
    /// Axis values; a list matches any of its members.
    #[serde(default)]
    pub at: BTreeMap<String, Value>,
}

/// A number stated by the paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Paper {
    #[serde(default)]
    pub on: Place,
    #[serde(deserialize_with = "term")]
    pub metric: Term,
    /// One number, or both ends of a range.
    pub value: OneOrTwo,
    /// Where the paper states it.
    pub stated: String,
}

/// A number or a range.
#[derive(Clone, Copy, Debug, Deserialize)]
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

/// A claim: a sentence and the comparison that decides it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Claim {
    /// The claim in one sentence.
    pub text: String,
    #[serde(default)]
    pub on: Place,
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
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Given {
    #[serde(deserialize_with = "term")]
    pub metric: Term,
    #[serde(default)]
    pub at_most: Option<Bound>,
    #[serde(default)]
    pub at_least: Option<Bound>,
}

/// A number, a multiple of a setting (`{ key, factor }`), or another metric.
#[derive(Clone, Debug, Deserialize)]
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
#[derive(Clone, Debug, Deserialize)]
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

/// Adds `table` to `settings`.
fn apply<'a>(settings: &mut toml::Table, table: impl IntoIterator<Item = (&'a str, &'a Value)>) {
    for (key, value) in table {
        settings.insert(key.to_owned(), value.clone());
    }
}

fn entries(table: &Table) -> impl Iterator<Item = (&str, &Value)> {
    table.iter().map(|(key, value)| (key.get_ref().as_str(), value))
}

/// Returns the value as text without quotes.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns the value as a number.
pub(crate) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(n) => Some(*n as f64),
        Value::Float(x) => Some(*x),
        _ => None,
    }
}

/// Returns whether two values are the same number or text.
pub(crate) fn same(a: &Value, b: &Value) -> bool {
    match (number(a), number(b)) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

impl Spec {
    /// Parses a specification and validates all of its runs.
    ///
    /// # Errors
    /// The problem, with line and key.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut spec: Self = toml::from_str(text).map_err(|e| e.to_string())?;
        let last = spec.clairvoyant.clone();
        spec.schemes.sort_by_key(|scheme| Some(&scheme.label) == last.as_ref());
        spec.check_keys(text)?;
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
    ) -> impl Iterator<Item = &'a Contestant> {
        self.schemes
            .iter()
            .filter(|scheme| sweep.schemes.is_empty() || sweep.schemes.contains(&scheme.label))
    }

    /// Returns the settings of a run. Precedence, lowest first: base, sweep, point, scheme.
    pub(crate) fn settings(
        &self,
        sweep: &Sweep,
        point: &[(String, Value)],
        drawn: &[(String, Value)],
        scheme: &Contestant,
    ) -> Result<Settings, String> {
        let mut table = toml::Table::new();
        apply(&mut table, entries(&self.base));
        apply(&mut table, entries(&sweep.set));
        apply(&mut table, point.iter().chain(drawn).map(|(key, value)| (key.as_str(), value)));
        apply(&mut table, entries(&scheme.set));
        for (key, value) in &mut table {
            // Integers are valid floats.
            let is_float = serde_json::to_value(Settings::default())
                .is_ok_and(|all| all.get(key).is_some_and(serde_json::Value::is_f64));
            if let (true, Value::Integer(n)) = (is_float, &*value) {
                *value = Value::Float(*n as f64);
            }
        }
        let bad = |e: toml::de::Error| e.to_string().trim_end().replace('\n', " ");
        table.try_into().map_err(bad)
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

    /// Returns the axis on the plots' x axis.
    pub(crate) fn x(&self) -> Option<&Axis> {
        let mut shown = self.axes.iter().filter(|axis| !axis.merged);
        shown.find(|axis| axis.values.iter().all(|value| number(value).is_some()))
    }
}

impl Place {
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
