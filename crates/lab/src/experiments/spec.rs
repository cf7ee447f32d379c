//! Specifications: `experiments/*.toml`. What is run, what the paper says of it, and what is claimed.

use std::collections::BTreeMap;
use std::ops::Range;

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
        let spec: Self = toml::from_str(text).map_err(|e| e.to_string())?;
        spec.check_keys(text)?;
        spec.check()?;
        Ok(spec)
    }

    /// Settings that win over the base's, as `key` and a TOML value (or plain text).
    ///
    /// # Errors
    /// There is no such key, or its value makes no sense.
    pub(crate) fn set(&mut self, settings: &[(String, String)]) -> Result<(), String> {
        for (key, text) in settings {
            if !Settings::keys().contains(key) {
                return Err(format!("no setting `{key}`"));
            }
            let line = format!("value = {text}");
            let value = toml::from_str::<toml::Table>(&line).ok();
            let value = value.and_then(|mut table| table.remove("value"));
            let value = value.unwrap_or_else(|| Value::String(text.clone()));
            self.base.retain(|known, _| known.get_ref() != key);
            self.base.insert(Spanned::new(0..0, key.clone()), value);
        }
        self.check()
    }

    fn check_keys(&self, text: &str) -> Result<(), String> {
        let known = Settings::keys();
        let check = |key: &str, span: Range<usize>| {
            if known.iter().any(|name| name == key) {
                return Ok(());
            }
            let line = text[..span.start.min(text.len())].matches('\n').count() + 1;
            Err(format!("{}:{line}: no setting `{key}`", self.name))
        };
        let tables = [&self.base].into_iter();
        let tables = tables.chain(self.schemes.iter().map(|scheme| &scheme.set));
        for table in tables.chain(self.sweeps.iter().map(|sweep| &sweep.set)) {
            table.keys().try_for_each(|key| check(key.get_ref(), key.span()))?;
        }
        for sweep in &self.sweeps {
            let axes = sweep.axes.iter().map(|axis| &axis.key);
            let ranges = sweep.ranges.iter().map(|range| &range.key);
            axes.chain(ranges).try_for_each(|key| check(key.get_ref(), key.span()))?;
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        let at = |what: String| format!("{}: {what}", self.name);
        let label = |name: &str| {
            if self.schemes.iter().any(|scheme| scheme.label == name) {
                Ok(())
            } else {
                Err(at(format!("no scheme has the label `{name}`")))
            }
        };
        if let Some(scheme) = self.schemes.iter().find(|s| s.label.contains([',', '"', '\n'])) {
            return Err(at(format!("no commas, quotes and new lines in `{}`", scheme.label)));
        }
        label(&self.baseline)?;
        let claims = self.claims.iter().map(|claim| (&claim.on, &claim.metric));
        let paper = self.paper.iter().map(|paper| (&paper.on, &paper.metric));
        for (place, metric) in claims.chain(paper) {
            place.scheme.as_deref().map_or(Ok(()), label)?;
            metric.baseline.as_deref().map_or(Ok(()), label)?;
            if let Some(title) = &place.sweep
                && !self.sweeps.iter().any(|sweep| sweep.title == *title)
            {
                return Err(at(format!("no sweep has the title `{title}`")));
            }
        }
        for metric in &self.metrics {
            metric.baseline.as_deref().map_or(Ok(()), label)?;
        }
        for claim in &self.claims {
            if let Comparison::Below { scheme } | Comparison::Crosses { scheme } = &claim.is {
                label(scheme)?;
            }
            if let Comparison::AtMost { bound, .. }
            | Comparison::AtLeast { bound, .. }
            | Comparison::Near { bound, .. } = &claim.is
            {
                match bound {
                    Bound::Key { key, .. } if !Settings::keys().contains(key) => {
                        return Err(at(format!("no setting `{key}` to compare with")));
                    }
                    Bound::Metric { of: Some(name), .. } => label(name)?,
                    _ => {}
                }
            }
        }
        for sweep in &self.sweeps {
            if (sweep.draws > 0) == sweep.ranges.is_empty() {
                return Err(at(format!("sweep `{}`: draws need ranges", sweep.title)));
            }
            sweep.schemes.iter().try_for_each(|name| label(name))?;
            // Points are a field of results.csv.
            let values = sweep.axes.iter().flat_map(|axis| &axis.values).map(plain);
            if let Some(value) = values.into_iter().find(|v| v.contains([',', ';', '"', '\n'])) {
                return Err(at(format!("no commas, semicolons and quotes in the value `{value}`")));
            }
            for range in &sweep.ranges {
                if range.low.partial_cmp(&range.high) != Some(core::cmp::Ordering::Less) {
                    return Err(at(format!("`{}`: low must be below high", range.key.get_ref())));
                }
            }
            let ends = |pick: fn(&AxisRange) -> f64| {
                let value =
                    |range: &AxisRange| (range.key.get_ref().clone(), Value::Float(pick(range)));
                sweep.ranges.iter().map(value).collect::<Point>()
            };
            for scheme in self.schemes_of(sweep) {
                for point in sweep.points() {
                    for drawn in [ends(|range| range.low), ends(|range| range.high)] {
                        let settings = self.settings(sweep, &point, &drawn, scheme).map_err(at)?;
                        settings.scenario(1).map_err(|e| at(format!("{}: {e}", scheme.label)))?;
                    }
                }
            }
        }
        Ok(())
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
        table.try_into().map_err(|e: toml::de::Error| e.message().to_owned())
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
        self.axes.iter().find(|axis| axis.values.iter().all(|value| number(value).is_some()))
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
