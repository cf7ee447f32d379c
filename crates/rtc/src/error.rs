//! The error of specifications, traces and codes.

use core::fmt;

/// A value outside its range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadValue {
    /// The key, such as `schemes.repair`, or the position in a file.
    pub key: String,
    /// The rejected value.
    pub value: String,
    /// Allowed values.
    pub allowed: String,
}

impl BadValue {
    /// Creates the error.
    pub fn new(
        key: impl fmt::Display,
        value: impl fmt::Display,
        allowed: impl fmt::Display,
    ) -> Self {
        Self { key: key.to_string(), value: value.to_string(), allowed: allowed.to_string() }
    }

    /// Returns the value if `is_allowed`, otherwise the error.
    pub(crate) fn unless<T: fmt::Display>(
        is_allowed: bool,
        key: &str,
        value: T,
        allowed: &str,
    ) -> Result<T, Self> {
        if is_allowed { Ok(value) } else { Err(Self::new(key, value, allowed)) }
    }
}

impl fmt::Display for BadValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}: expected {}", self.key, self.value, self.allowed)
    }
}

impl core::error::Error for BadValue {}
