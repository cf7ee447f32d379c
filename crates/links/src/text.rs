//! Reading settings from text: one grammar for command-line options and for experiment files, with
//! errors that say what was expected.

use core::fmt;
use core::str::FromStr;

/// A setting that could not be read: what was given and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError(String);

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

/// The `key=value` pairs of a setting, taken one by one.
pub(crate) struct Fields<'a> {
    whole: &'a str,
    expected: &'a str,
    pairs: Vec<(&'a str, &'a str)>,
}

impl<'a> Fields<'a> {
    /// Splits `pairs`, a part of the setting `whole` that should look like `expected`.
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

    /// The value of `key` as `read` understands it, if the key is there.
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

    /// The value of `key`, if it is there.
    pub(crate) fn optional<V: FromStr<Err: fmt::Display>>(
        &mut self,
        key: &str,
    ) -> Result<Option<V>, ParseError> {
        self.optional_with(key, V::from_str)
    }

    /// The value of `key`, which must be there.
    pub(crate) fn required<V: FromStr<Err: fmt::Display>>(
        &mut self,
        key: &str,
    ) -> Result<V, ParseError> {
        self.optional(key)?.ok_or_else(|| ParseError::new(self.whole, self.expected))
    }

    /// Refuses keys that nobody asked for.
    pub(crate) fn finish(self) -> Result<(), ParseError> {
        match self.pairs.is_empty() {
            true => Ok(()),
            false => Err(ParseError::new(self.whole, self.expected)),
        }
    }
}

/// Makes a type with `FromStr` readable from a string in an experiment file.
macro_rules! deserialize_from_text {
    ($($type:ty),+) => {$(
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = String::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )+};
}
pub(crate) use deserialize_from_text;
