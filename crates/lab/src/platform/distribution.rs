//! Distribution of a number, as a population states it: text or a table.
//!
//! | text | table |
//! |---|---|
//! | `4.5` | `4.5` |
//! | `uniform:low=0,high=2` | `{ kind = "uniform", low = 0, high = 2 }` |
//! | `lognormal:median=50,sigma=1.1` | `{ kind = "lognormal", median = 50, sigma = 1.1 }` |
//! | `normal:mean=3,sd=1` | `{ kind = "normal", mean = 3, sd = 1 }` |
//! | `choice:0.6=30,1=70` | `{ kind = "choice", values = [0.6, 1], weights = [30, 70] }` |
//!
//! Values of keys with a unit have it: `uniform:low=0ms,high=2s`.
//!
//! Lognormal and normal also take `low` and `high`, by default the limits of the key. Values
//! outside are redrawn.

use core::fmt::Display;
use core::ops::RangeInclusive;

use recovery::Random;
use toml::Value;

use super::draws::normal;
use super::unit::NumberUnit;
use crate::error::{Error, ValueError};

/// Redraws before a value is clamped.
const MAX_REDRAWS: u32 = 1_000;

const EXPECTED: &str = "a number, or one of `uniform:low=0,high=2`, `lognormal:median=50,sigma=1.1,low=5,high=900`, \
    `normal:mean=3,sd=1,low=0,high=9`, `choice:0.6=30,1=70`, or a table with `kind`";

/// A distribution of values allowed for its key.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Distribution {
    /// A constant.
    Constant(f64),
    /// Uniform from `low` to `high`.
    Uniform { low: f64, high: f64 },
    /// Lognormal; `sigma` is the standard deviation of the logarithm.
    Lognormal { median: f64, sigma: f64, low: f64, high: f64 },
    /// Truncated normal.
    Normal { mean: f64, sd: f64, low: f64, high: f64 },
    /// Values with weights.
    Choice(Vec<(f64, f64)>),
}

/// Names and numbers of a table, or of the text after a colon.
struct DistributionFields<'a> {
    key: &'a str,
    unit: NumberUnit,
    fields: Vec<(String, f64)>,
}

impl DistributionFields<'_> {
    /// Takes a field with a value from `low` to `high`.
    fn take(&mut self, name: &str, low: f64, high: f64) -> Result<f64, Error> {
        let found = self.take_if(name, low, high)?;
        let range = range_text(&(low..=high), self.unit_of(name));
        found.ok_or_else(|| self.bad_field(name, range))
    }

    fn take_if(&mut self, name: &str, low: f64, high: f64) -> Result<Option<f64>, Error> {
        let Some(place) = self.fields.iter().position(|(known, _)| known == name) else {
            return Ok(None);
        };
        let (_, value) = self.fields.remove(place);
        let key = format!("{}.{name}", self.key);
        within(&key, value, &(low..=high), self.unit_of(name)).map(Some)
    }

    fn unit_of(&self, name: &str) -> NumberUnit {
        if name == SIGMA { NumberUnit::One } else { self.unit }
    }

    fn finish(&self) -> Result<(), Error> {
        match self.fields.first() {
            Some((name, _)) => Err(self.bad_field(name, EXPECTED.to_owned())),
            None => Ok(()),
        }
    }

    /// Returns the error of a missing or unknown field.
    fn bad_field(&self, field: &str, allowed: String) -> Error {
        ValueError::Field { key: self.key.to_owned(), field: field.to_owned(), allowed }.into()
    }
}

/// Field without the unit of its key.
const SIGMA: &str = "sigma";

/// Returns the value if it is allowed.
pub(super) fn within(
    key: &str,
    value: f64,
    allowed: &RangeInclusive<f64>,
    unit: NumberUnit,
) -> Result<f64, Error> {
    match allowed.contains(&value) {
        true => Ok(value),
        false => {
            let value = format_args!("{value}{}", unit.suffix());
            Err(not_allowed(key, &value, &range_text(allowed, unit)))
        }
    }
}

/// Returns the error of a value that is not allowed.
pub(super) fn not_allowed(key: &str, value: &dyn Display, allowed: &str) -> Error {
    let (key, value, allowed) = (key.to_owned(), value.to_string(), allowed.to_owned());
    ValueError::NotAllowed { key, value, allowed }.into()
}

/// Returns a range as text.
pub(super) fn range_text(range: &RangeInclusive<f64>, unit: NumberUnit) -> String {
    let suffix = unit.suffix();
    format!("{}{suffix} to {}{suffix}", range.start(), range.end())
}

/// Returns the value as a number in this unit.
pub(super) fn number(value: &Value, unit: NumberUnit) -> Option<f64> {
    match value {
        Value::Integer(n) if unit == NumberUnit::One => Some(*n as f64),
        Value::Float(x) if unit == NumberUnit::One => Some(*x),
        Value::String(text) if unit != NumberUnit::One => unit.parse(text),
        _ => None,
    }
}

impl Distribution {
    /// Parses the value of `key`. Every draw must be `allowed`.
    ///
    /// # Errors
    /// One line that names the key and the allowed values.
    pub(super) fn read(
        key: &str,
        value: &Value,
        allowed: &RangeInclusive<f64>,
        unit: NumberUnit,
    ) -> Result<Self, Error> {
        let bad = || {
            let with =
                if unit == NumberUnit::One { "" } else { ", each value with its unit, as in 1" };
            not_allowed(key, value, &format!("{EXPECTED}{with}{}", unit.suffix()))
        };
        if let Some(constant) = number(value, unit) {
            return within(key, constant, allowed, unit).map(Self::Constant);
        }
        let (kind, fields) = match value {
            Value::String(text) => of_text(text, unit).ok_or_else(bad)?,
            Value::Table(table) => of_table(table, unit).ok_or_else(bad)?,
            _ => return Err(bad()),
        };
        if kind == "choice" {
            return Self::choice(key, &fields, allowed, unit).ok_or_else(bad)?;
        }
        let (low, high) = (*allowed.start(), *allowed.end());
        let mut fields = DistributionFields { key, unit, fields };
        let read = match kind.as_str() {
            "constant" => Self::Constant(fields.take("value", low, high)?),
            "uniform" => {
                let from = fields.take("low", low, high)?;
                Self::Uniform { low: from, high: fields.take("high", from, high)? }
            }
            "lognormal" | "normal" => {
                let low = fields.take_if("low", low, high)?.unwrap_or(low);
                let high = fields.take_if("high", low, high)?.unwrap_or(high);
                match kind.as_str() {
                    "normal" => {
                        let mean = fields.take("mean", low, high)?;
                        Self::Normal { mean, sd: fields.take("sd", 0.0, 1e12)?, low, high }
                    }
                    _ => {
                        let median = fields.take("median", low.max(1e-9), high)?;
                        Self::Lognormal { median, sigma: fields.take(SIGMA, 0.0, 5.0)?, low, high }
                    }
                }
            }
            _ => return Err(bad()),
        };
        fields.finish()?;
        Ok(read)
    }

    fn choice(
        key: &str,
        fields: &[(String, f64)],
        allowed: &RangeInclusive<f64>,
        unit: NumberUnit,
    ) -> Option<Result<Self, Error>> {
        let mut all = Vec::new();
        for (value, weight) in fields {
            let value = unit.parse(value)?;
            let checked = within(key, value, allowed, unit).and_then(|value| {
                let key = format!("{key}: weight of {value}");
                Ok((value, within(&key, *weight, &(0.0..=1e9), NumberUnit::One)?))
            });
            match checked {
                Ok(one) => all.push(one),
                Err(line) => return Some(Err(line)),
            }
        }
        (all.iter().map(|(_, weight)| weight).sum::<f64>() > 0.0).then_some(Ok(Self::Choice(all)))
    }

    /// Draws a value.
    pub(super) fn draw(&self, random: &mut Random) -> f64 {
        match self {
            Self::Constant(value) => *value,
            Self::Uniform { low, high } => low + (high - low) * random.fraction(),
            Self::Lognormal { median, sigma, low, high } => {
                truncated(*low, *high, || median * (sigma * normal(random)).exp())
            }
            Self::Normal { mean, sd, low, high } => {
                truncated(*low, *high, || mean + sd * normal(random))
            }
            Self::Choice(all) => all[pick(random, all.iter().map(|(_, weight)| *weight))].0,
        }
    }
}

fn truncated(low: f64, high: f64, mut draw: impl FnMut() -> f64) -> f64 {
    let mut last = draw();
    for _ in 0..MAX_REDRAWS {
        if (low..=high).contains(&last) {
            return last;
        }
        last = draw();
    }
    last.clamp(low, high)
}

/// Draws an index with these weights; 0 if all weights are 0.
pub(super) fn pick(random: &mut Random, weights: impl Iterator<Item = f64> + Clone) -> usize {
    let total: f64 = weights.clone().sum();
    let mut point = random.fraction() * total;
    let mut last = 0;
    for (place, weight) in weights.enumerate().filter(|(_, weight)| *weight > 0.0) {
        if point < weight {
            return place;
        }
        (point, last) = (point - weight, place);
    }
    last
}

fn of_text(text: &str, unit: NumberUnit) -> Option<(String, Vec<(String, f64)>)> {
    let text = text.trim();
    let Some((kind, rest)) = text.split_once(':') else {
        let value = unit.parse(text)?;
        return Some(("constant".to_owned(), vec![("value".to_owned(), value)]));
    };
    let field = |item: &str| {
        let (name, value) = item.split_once('=')?;
        let is_plain = kind.trim() == "choice" || name.trim() == SIGMA;
        let unit = if is_plain { NumberUnit::One } else { unit };
        Some((name.trim().to_owned(), unit.parse(value)?))
    };
    Some((kind.trim().to_owned(), rest.split(',').map(field).collect::<Option<_>>()?))
}

fn of_table(table: &toml::Table, unit: NumberUnit) -> Option<(String, Vec<(String, f64)>)> {
    let kind = table.get("kind")?.as_str()?.to_owned();
    if kind != "choice" {
        let rest = table.iter().filter(|(name, _)| *name != "kind");
        let unit = |name: &str| if name == SIGMA { NumberUnit::One } else { unit };
        let fields = rest.map(|(name, value)| Some((name.clone(), number(value, unit(name))?)));
        return Some((kind, fields.collect::<Option<_>>()?));
    }
    let (values, weights) = (table.get("values")?.as_array()?, table.get("weights")?.as_array()?);
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let weight = |weight: &Value| number(weight, NumberUnit::One);
    let weights: Vec<f64> = weights.iter().map(weight).collect::<Option<_>>()?;
    let pairs = values.iter().map(text).zip(weights.iter().copied()).collect();
    (values.len() == weights.len() && table.len() == 3).then_some((kind, pairs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::draws::Draws;

    fn read(text: &str, low: f64, high: f64) -> Result<Distribution, Error> {
        let table: toml::Table = text.parse().expect("TOML");
        Distribution::read("key", &table["key"], &(low..=high), NumberUnit::One)
    }

    /// Mean and standard deviation of 100,000 draws.
    fn moments(text: &str) -> (f64, f64) {
        let distribution = read(text, -1e9, 1e9).expect("a distribution");
        let mut random = Draws::new(11).of("moments", 0);
        let all: Vec<f64> = (0..100_000).map(|_| distribution.draw(&mut random)).collect();
        let mean = all.iter().sum::<f64>() / 1e5;
        (mean, (all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 1e5).sqrt())
    }

    #[test]
    fn draws_have_the_moments_of_their_distribution() {
        // Distributions with mean and standard deviation. The error of a mean is the deviation ÷
        // √100,000.
        for (text, mean, sd) in [
            ("key = 4.5", 4.5, 0.0),
            ("key = '4.5'", 4.5, 0.0),
            ("key = 'uniform:low=2,high=8'", 5.0, 3f64.sqrt()),
            ("key = 'normal:mean=3,sd=2'", 3.0, 2.0),
            // exp(μ + σ²/2), and the same times √(exp(σ²) − 1).
            ("key = 'lognormal:median=50,sigma=0.5'", 56.66, 30.20),
            ("key = { kind = 'choice', values = [1, 5], weights = [3, 1] }", 2.0, 3f64.sqrt()),
            ("key = 'choice:1=3,5=1'", 2.0, 3f64.sqrt()),
            // A normal distribution truncated at one standard deviation: 0.5396 of the deviation
            // remains.
            ("key = { kind = 'normal', mean = 0, sd = 1, low = -1, high = 1 }", 0.0, 0.5396),
        ] {
            let (got, spread) = moments(text);
            assert!((got - mean).abs() <= 5.0 * sd / 1e5f64.sqrt() + 0.01, "{text}: mean {got}");
            assert!((spread - sd).abs() <= 0.02 * sd + 1e-9, "{text}: deviation {spread}");
        }
    }

    #[test]
    fn values_beyond_the_limits_are_redrawn() {
        let distribution = read("key = 'lognormal:median=50,sigma=2,low=40'", 1.0, 90.0);
        let distribution = distribution.expect("a distribution");
        let mut random = Draws::new(5).of("ends", 0);
        let all: Vec<f64> = (0..10_000).map(|_| distribution.draw(&mut random)).collect();
        assert!(all.iter().all(|x| (40.0..=90.0).contains(x)));
        // No mass at the limits.
        assert!(all.iter().filter(|x| **x == 90.0 || **x == 40.0).count() == 0);
    }

    #[test]
    fn invalid_distributions_are_rejected_with_key_and_range() {
        for (text, part) in [
            ("key = 11", "`key` is 11; it may be 0 to 10"),
            ("key = nan", "`key` is NaN; it may be 0 to 10"),
            ("key = 'uniform:low=0,high=11'", "`key.high` is 11; it may be 0 to 10"),
            ("key = 'uniform:low=4,high=3'", "`key.high` is 3; it may be 4 to 10"),
            ("key = 'uniform:low=4'", "`key` has no `high`"),
            ("key = 'lognormal:median=0,sigma=1'", "`key.median` is 0"),
            ("key = 'lognormal:median=1,sigma=-1'", "`key.sigma` is -1; it may be 0 to 5"),
            ("key = 'normal:mean=1,sd=1,mode=2'", "`key` has no `mode`"),
            ("key = 'choice:1=1,20=1'", "`key` is 20; it may be 0 to 10"),
            ("key = 'choice:1=0'", "choice:0.6=30"),
            ("key = 'choice:1=-2'", "`key: weight of 1` is -2"),
            ("key = { kind = 'choice', values = [1], weights = [1, 2] }", "choice:0.6=30"),
            ("key = 'poisson:mean=3'", "lognormal:median=50"),
            ("key = 'soon'", "lognormal:median=50"),
            ("key = true", "lognormal:median=50"),
        ] {
            let line = read(text, 0.0, 10.0).expect_err(text).to_string();
            assert!(line.contains(part) && line.contains("`key"), "{text}: {line}");
        }
    }
}
