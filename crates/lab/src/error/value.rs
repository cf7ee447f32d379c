//! Missing and invalid values.

use core::fmt;
use core::ops::RangeInclusive;

use config::Problem;
use units::Rate;

/// A missing or invalid value, or options that exclude or need each other.
#[derive(Debug)]
pub enum ValueError {
    /// A population lacks a key.
    Missing(String),
    /// A value has the wrong type or is out of range.
    NotAllowed {
        /// Key or option.
        key: String,
        /// Its value.
        value: String,
        /// Allowed values.
        allowed: String,
    },
    /// A distribution or a list of weights lacks a field, or has an unknown one.
    Field {
        /// Key of the distribution or list.
        key: String,
        /// Missing or unknown field.
        field: String,
        /// Allowed values of the field, or allowed fields.
        allowed: String,
    },
    /// All hours of a day have the weight 0.
    NoHour(String),
    /// All weights of a list are 0.
    NoWeight {
        /// Key of the list.
        key: String,
        /// Names that may have a weight.
        names: Vec<String>,
    },
    /// A run's key is unknown in its section, or has an invalid value.
    Key {
        /// Key with its section.
        key: String,
        /// Value as given.
        value: String,
        /// The problem, and the expectation.
        problem: Problem,
    },
    /// A value drawn for a session is not valid in the testbed.
    Drawn {
        /// Key without its section.
        key: &'static str,
        /// The value.
        value: String,
        /// Valid values.
        expected: String,
    },
    /// Audio takes the whole rate of a stream.
    Audio {
        /// Rate of the audio.
        audio: Rate,
        /// Rate of the stream, which includes the audio.
        rate: Rate,
    },
    /// A parameter of a scheme has no value. Contains the scheme.
    SchemeForm(String),
    /// A cohort has no name, no scheme or no valid weight. Contains its text.
    CohortForm(String),
    /// A scheme sets a key that sessions draw.
    SessionKey(String),
    /// Too many schemes, or none.
    SchemeCount {
        /// Number of schemes.
        count: usize,
        /// Maximum number.
        max: usize,
    },
    /// Too few or too many days or sessions per day.
    Days {
        /// Allowed number of days. Each has a seed.
        seeds: RangeInclusive<u32>,
        /// Allowed number of sessions per day.
        sessions: RangeInclusive<u32>,
    },
    /// Options or keys exclude or need each other. The message names both.
    Conflict(&'static str),
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(key) => write!(f, "`{key}` is missing"),
            Self::NotAllowed { key, value, allowed } => {
                write!(f, "`{key}` is {value}; it may be {allowed}")
            }
            Self::Field { key, field, allowed } => {
                write!(f, "`{key}` has no `{field}`; it may be {allowed}")
            }
            Self::NoHour(key) => write!(f, "`{key}` is 0 all day; at least one hour may not be"),
            Self::NoWeight { key, names } => {
                write!(f, "`{key}` has no weight above 0; it may have {}", names.join(", "))
            }
            Self::Key { key, value, problem } => {
                let name = key.split_once('.').map_or(&**key, |(_, name)| name);
                write!(f, "`{key}`: {}", problem.told(name, Some(value)))
            }
            Self::Drawn { key, value, expected } => {
                write!(f, "{key} `{value}`: expected {expected}")
            }
            Self::Audio { audio, rate } => {
                write!(f, "`source.audio` is {audio}; it is part of `source.rate`, {rate}")
            }
            Self::SchemeForm(scheme) => write!(f, "write {scheme}+KEY=VALUE"),
            Self::CohortForm(cohort) => write!(
                f,
                "cohort `{cohort}`: write NAME=SCHEME:WEIGHT, with a weight of 1 to 1000000"
            ),
            Self::SessionKey(key) => write!(f, "`{key}` is the session's, not the scheme's"),
            Self::SchemeCount { count, max } => {
                write!(f, "{count} schemes; there may be 1 to {max}")
            }
            Self::Days { seeds, sessions } => write!(
                f,
                "there may be {} to {} seeds and {} to {} sessions",
                seeds.start(),
                seeds.end(),
                sessions.start(),
                sessions.end()
            ),
            Self::Conflict(text) => f.write_str(text),
        }
    }
}

impl core::error::Error for ValueError {}
