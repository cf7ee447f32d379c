//! Parameters of schemes that are out of range.

use core::fmt;

/// A parameter that makes no sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfRange {
    /// Its name: that of the field.
    pub key: &'static str,
    /// What it may be.
    pub allowed: &'static str,
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` must be {}", self.key, self.allowed)
    }
}

impl core::error::Error for OutOfRange {}
