//! Errors for scheme parameters out of range.

use core::fmt;

/// A scheme parameter out of its range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfRange {
    /// Name of the parameter's field.
    pub key: &'static str,
    /// Allowed values.
    pub allowed: &'static str,
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` must be {}", self.key, self.allowed)
    }
}

impl core::error::Error for OutOfRange {}
