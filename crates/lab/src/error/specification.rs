//! Contradictions in the specification of an experiment.

use core::fmt;

/// A contradiction in the specification of an experiment.
#[derive(Debug)]
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
    /// No result could falsify a claim.
    Claim {
        /// Sentence of the claim.
        text: String,
        /// Reason.
        flaw: ClaimFlaw,
    },
    /// A figure of the papers has no or a wrong source, number or cause.
    Figure {
        /// Paper and figure.
        figure: String,
        /// Problem.
        flaw: FigureFlaw,
    },
}

/// Problem of a figure in the catalogue of papers.
#[derive(Debug)]
pub enum FigureFlaw {
    /// The cause is too long. Contains its number of words, and the maximum.
    Cause(usize, usize),
    /// It has no number.
    NoNumber,
    /// A number has both a source and a reason for having none, or neither. Contains its name.
    Source(String),
    /// Another figure has this experiment.
    Shared(String),
    /// An experiment has no run with this scheme and point. Contains number and experiment.
    NoRun(String, String),
    /// The source of a number is invalid.
    Number {
        /// Name of the number.
        of: String,
        /// Reason.
        source: Box<super::Error>,
    },
}

impl fmt::Display for FigureFlaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cause(words, most) => write!(f, "a cause of {words} words; at most {most}"),
            Self::NoNumber => f.write_str("no number"),
            Self::Source(of) => write!(f, "{of}: either `from` or `not_measured`"),
            Self::Shared(name) => write!(f, "`{name}` belongs to another figure"),
            Self::NoRun(of, name) => write!(f, "{of}: `{name}` has no such scheme and point"),
            Self::Number { of, source } => write!(f, "{of}: {source}"),
        }
    }
}

/// Reason why no result could falsify a claim.
#[derive(Clone, Debug, PartialEq)]
pub enum ClaimFlaw {
    /// A bound, margin or share is not finite.
    NotFinite,
    /// The bound allows every value that the metric can have.
    CannotFail,
    /// `near` with a share of 1 or more allows anything from nothing to double.
    WholeShare,
    /// The claim compares a metric with itself.
    Itself,
    /// No point, pair of schemes or line of points is under comparison.
    NoPoint,
    /// Another claim judges the same. Contains its sentence.
    Repeats(String),
}

impl fmt::Display for ClaimFlaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFinite => f.write_str("its bound is not finite"),
            Self::CannotFail => f.write_str("the metric cannot leave the bound"),
            Self::WholeShare => f.write_str("`near` needs a share below 1"),
            Self::Itself => f.write_str("it compares a metric with itself"),
            Self::NoPoint => f.write_str("it applies to no point"),
            Self::Repeats(other) => write!(f, "it judges the same as `{other}`"),
        }
    }
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
            Self::Claim { text, flaw } => {
                write!(f, "no result could falsify the claim `{text}`: {flaw}")
            }
            Self::Figure { figure, flaw } => write!(f, "{figure}: {flaw}"),
        }
    }
}

impl core::error::Error for SpecificationError {}
