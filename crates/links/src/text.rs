//! Parsing of settings, with errors that state the expected format.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use units::Rate;

/// An invalid setting: the given text and the expected format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError(pub(crate) String);

impl ParseError {
    pub(crate) fn new(given: &str, expected: &str) -> Self {
        Self(format!("`{given}`: expected {expected}"))
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for ParseError {}

/// Longest time of a setting: a year.
const MAX_DURATION: Duration = Duration::from_secs(365 * 86_400);

/// Parses a time as [`units::parse_duration`] does: `60ms`, `1.5s`, `250us`, or `0`.
///
/// # Errors
/// For a missing unit, negative times, and times above one year.
///
/// ```
/// use mendcast_links::parse_duration;
/// use std::time::Duration;
///
/// assert_eq!(parse_duration("1.5s").unwrap(), Duration::from_millis(1_500));
/// assert!(parse_duration("1.5").is_err(), "without a unit");
/// ```
pub fn parse_duration(text: &str) -> Result<Duration, ParseError> {
    let span = units::parse_duration(text).ok().filter(|span| *span <= MAX_DURATION);
    span.ok_or_else(|| ParseError::new(text, "a time like `60ms`, `5s` or `250us`"))
}

/// Parses a size in bytes: `500kB` (1,000 each), `64KiB` (1,024 each), `2MB`, `1MiB`, `1500B`, or
/// `unlimited`.
///
/// # Errors
/// For a missing unit, negative sizes, and sizes above 2^53.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, ParseError> {
    const UNITS: [(&str, f64); 5] =
        [("kib", 1024.0), ("mib", 1_048_576.0), ("kb", 1e3), ("mb", 1e6), ("b", 1.0)];
    if text.trim() == "unlimited" {
        return Ok(u64::MAX / 2);
    }
    let bytes = quantity(&text.to_ascii_lowercase(), &UNITS).filter(|bytes| *bytes <= 9e15);
    bytes
        .map(|bytes| bytes.round() as u64)
        .ok_or_else(|| ParseError::new(text, "a size like `500kB`, `64KiB` or `1500B`"))
}

/// Parses a rate as [`Rate`] does, or `unlimited`.
///
/// # Errors
/// For a missing unit and negative rates.
pub fn parse_rate(text: &str) -> Result<Rate, ParseError> {
    match text.trim() {
        "unlimited" => Ok(Rate::MAX),
        rate => {
            rate.parse().map_err(|_| ParseError::new(text, "a rate like `12mbps` or `unlimited`"))
        }
    }
}

/// Parses a non-negative number with a unit. Zero needs no unit.
fn quantity(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim();
    if text == "0" {
        return Some(0.0);
    }
    let (number, unit) =
        units.iter().find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, unit)))?;
    let number: f64 = number.trim().parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number * unit)
}

/// The `key=value` pairs of a setting.
pub(crate) struct Fields<'a> {
    whole: &'a str,
    expected: &'a str,
    pairs: Vec<(&'a str, &'a str)>,
}

impl<'a> Fields<'a> {
    /// Splits `pairs`, part of the setting `whole` with the format `expected`.
    pub(crate) fn new(
        whole: &'a str,
        pairs: &'a str,
        expected: &'a str,
    ) -> Result<Self, ParseError> {
        let pairs = pairs
            .split(',')
            .filter(|pair| !pair.trim().is_empty())
            .map(|pair| pair.split_once('=').map(|(key, value)| (key.trim(), value.trim())))
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| ParseError::new(whole, expected))?;
        Ok(Self { whole, expected, pairs })
    }

    /// Takes the value of `key`, parsed by `read`, if present.
    pub(crate) fn optional_with<V, E: fmt::Display>(
        &mut self,
        key: &str,
        read: impl FnOnce(&str) -> Result<V, E>,
    ) -> Result<Option<V>, ParseError> {
        let Some(at) = self.pairs.iter().position(|(k, _)| *k == key) else { return Ok(None) };
        let (_, value) = self.pairs.swap_remove(at);
        let whole = self.whole;
        read(value).map(Some).map_err(|e| ParseError(format!("`{key}` in `{whole}`: {e}")))
    }

    /// Takes the value of `key` if present.
    pub(crate) fn optional<V: FromStr<Err: fmt::Display>>(
        &mut self,
        key: &str,
    ) -> Result<Option<V>, ParseError> {
        self.optional_with(key, V::from_str)
    }

    /// Takes the value of `key`, which is required.
    pub(crate) fn required<V: FromStr<Err: fmt::Display>>(
        &mut self,
        key: &str,
    ) -> Result<V, ParseError> {
        self.optional(key)?.ok_or_else(|| ParseError::new(self.whole, self.expected))
    }

    /// Rejects keys that were not taken.
    pub(crate) fn finish(self) -> Result<(), ParseError> {
        match self.pairs.is_empty() {
            true => Ok(()),
            false => Err(ParseError::new(self.whole, self.expected)),
        }
    }
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;
