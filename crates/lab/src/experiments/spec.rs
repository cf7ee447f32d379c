//! Specifications: `experiments/*.toml`. What is run, what the paper says of it, and what is claimed.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use toml::{Spanned, Value};

use super::metrics::Term;
use super::settings::Settings;

/// Keys and values of [`Settings`], as a specification writes them.
pub(crate) type Table = BTreeMap<Spanned<String>, Value>;

/// A specification as it stands in the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spec {
    /// Name of experiment and file.
    pub name: String,
    /// One line.
    pub title: String,
    /// What is measured and how, in a few sentences.
    pub about: String,
    /// Runs per point if the command does not say.
    pub runs: u64,
    /// Settings that the paper does not state, each with the value taken and why.
    #[serde(default)]
    pub not_stated: Vec<String>,
    /// Label of the scheme that paired differences are taken to.
    pub baseline: String,
    /// Label of the sender that knows the fates of its packets, the other end of the distance that `closed:` is
    /// about. Tables end with it.
    #[serde(default)]
    pub clairvoyant: Option<String>,
    /// What tables and plots show.
    #[serde(deserialize_with = "terms")]
    pub metrics: Vec<Term>,
    /// Settings of all runs.
    #[serde(default)]
    pub base: Table,
    /// The contestants.
    pub schemes: Vec<Contestant>,
    /// Grids of points.
    pub sweeps: Vec<Sweep>,
    /// Numbers of the paper.
    #[serde(default)]
    pub paper: Vec<Paper>,
    /// What is claimed.
    #[serde(default)]
    pub claims: Vec<Claim>,
    /// Takes the senders' state over time in the first run of each point.
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
    /// Runs, for paired differences, but has no place in tables and plots.
    #[serde(default)]
    pub hidden: bool,
}

/// A grid of points, or draws from a box.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sweep {
    pub title: String,
    #[serde(default)]
    pub set: Table,
    /// The first one with numbers is the plots' x axis.
    #[serde(default)]
    pub axes: Vec<Axis>,
    /// Instead of a grid: at most this number of draws of a Latin hypercube, three for each run asked for.
    #[serde(default)]
    pub draws: u64,
    #[serde(default)]
    pub ranges: Vec<AxisRange>,
    /// Labels of the schemes that take part; all if empty.
    #[serde(default)]
    pub schemes: Vec<String>,
}

/// Values that a setting takes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Axis {
    pub key: Spanned<String>,
    pub values: Vec<Value>,
    /// Whether plots and tables show the mean over all values.
    #[serde(default)]
    pub merged: bool,
}

/// From where to where a setting is drawn.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AxisRange {
    pub key: Spanned<String>,
    pub low: f64,
    pub high: f64,
}

/// Which points and schemes something is said of; what is left out is any.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Place {
    /// Title of the sweep.
    #[serde(default)]
    pub sweep: Option<String>,
    #[serde(default)]
    pub scheme: Option<String>,
    /// Values of axes; a list is any of them.
    #[serde(default)]
    pub at: BTreeMap<String, Value>,
}

/// What the paper states.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Paper {
    #[serde(default)]
    pub on: Place,
    #[serde(deserialize_with = "term")]
    pub metric: Term,
    /// One number, or both ends of a range.
    pub value: OneOrTwo,
    /// Where it is stated.
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
    /// Both ends.
    pub(crate) fn ends(self) -> (f64, f64) {
        match self {
            Self::One(value) => (value, value),
            Self::Two([low, high]) => (low, high),
        }
    }
}

/// A claim: a sentence, and the comparison that decides it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Claim {
    /// What is claimed, in one sentence.
    pub text: String,
    #[serde(default)]
    pub on: Place,
    #[serde(deserialize_with = "term")]
    pub metric: Term,
    pub is: Comparison,
    /// Only points whose mean of the first metric is at most the second bound.
    #[serde(default)]
    pub given: Option<Given>,
    /// Why it does not hold here, if that is known: shown when it fails.
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

/// A number, a setting's value times `factor` (`{ key, factor }`), or another metric's.
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
        /// Of this scheme, not of the one that is judged.
        #[serde(default)]
        of: Option<String>,
        #[serde(default = "one")]
        factor: f64,
    },
}

fn one() -> f64 {
    1.0
}

/// The forms of claims.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Comparison {
    /// At every point the mean is at most the bound and the margin.
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
    /// At every point the mean over pairs is smaller than that of the other scheme.
    Below { scheme: String },
    /// At every point the mean over pairs differs from the bound by no more than `share` of it, or
    /// `margin`, or with `ci` half the 95 % confidence interval of the difference. Without `ci` noise
    /// makes no claim hold.
    Near {
        bound: Bound,
        #[serde(default)]
        share: f64,
        #[serde(default)]
        margin: f64,
        #[serde(default)]
        ci: bool,
    },
    /// Along the sweep's first axis, this scheme is above the other at one end and below it at the
    /// other.
    Crosses { scheme: String },
    /// Along the sweep's first axis the means never rise by more than the margin.
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

/// The value as text, without quotes.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The value as a number.
pub(crate) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(n) => Some(*n as f64),
        Value::Float(x) => Some(*x),
        _ => None,
    }
}

/// Whether both are the same number or the same text.
pub(crate) fn same(a: &Value, b: &Value) -> bool {
    match (number(a), number(b)) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

impl Spec {
    /// Reads a specification, and checks all that its runs would be made of.
    ///
    /// # Errors
    /// What is wrong, with line and key.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut spec: Self = toml::from_str(text).map_err(|e| e.to_string())?;
        let last = spec.clairvoyant.clone();
        spec.schemes.sort_by_key(|scheme| Some(&scheme.label) == last.as_ref());
        spec.check_keys(text)?;
        spec.check()?;
        Ok(spec)
    }

    /// Whether a scheme has a place in tables and plots.
    pub(crate) fn is_shown(&self, label: &str) -> bool {
        !self.schemes.iter().any(|scheme| scheme.label == label && scheme.hidden)
    }

    /// The schemes that take part in a sweep.
    pub(crate) fn schemes_of<'a>(
        &'a self,
        sweep: &'a Sweep,
    ) -> impl Iterator<Item = &'a Contestant> {
        self.schemes
            .iter()
            .filter(|scheme| sweep.schemes.is_empty() || sweep.schemes.contains(&scheme.label))
    }

    /// The settings of a run: the sweep's win over the base's, the point's over these, and what a scheme
    /// sets itself over all.
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
            // A whole number is a number.
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
    /// The grid's points, the first axis slowest.
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

    /// The axis that plots have as x.
    pub(crate) fn x(&self) -> Option<&Axis> {
        let mut shown = self.axes.iter().filter(|axis| !axis.merged);
        shown.find(|axis| axis.values.iter().all(|value| number(value).is_some()))
    }
}

impl Place {
    /// Whether what is said of this place is said of the point.
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
