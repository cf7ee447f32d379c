//! Contradictions in the specification of an experiment.

use core::fmt;

/// A contradiction in the specification of an experiment.
#[derive(Clone, Debug)]
pub enum SpecificationError {
    /// A label has a character that separates fields of results. Contains the label.
    Label(String),
    /// A swept value has a character that separates fields of results. Contains the value.
    Value(String),
    /// A term needs a clairvoyant scheme. Contains the term.
    NoClairvoyant(String),
    /// A claim compares with a key that is unknown or has no number.
    NoNumber(String),
    /// A sweep has draws without ranges, or ranges without draws. Contains its title.
    NoRanges(String),
    /// The low end of a range is not below its high end, or has another unit. Contains the key.
    FallingRange(String),
}

impl fmt::Display for SpecificationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label(label) => write!(f, "no commas, quotes and new lines in `{label}`"),
            Self::Value(value) => {
                write!(f, "no commas, semicolons and quotes in the value `{value}`")
            }
            Self::NoClairvoyant(term) => {
                write!(f, "`{term}` needs a `clairvoyant` scheme, or `@LABEL`")
            }
            Self::NoNumber(key) => write!(f, "no number `{key}` to compare with"),
            Self::NoRanges(sweep) => write!(f, "sweep `{sweep}`: draws need ranges"),
            Self::FallingRange(key) => {
                write!(f, "`{key}`: low must be below high, in the same unit")
            }
        }
    }
}

impl core::error::Error for SpecificationError {}
