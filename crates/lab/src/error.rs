//! Errors of the testbed: causes, and the file, key or run at fault. Messages have one line and
//! include the message of their source.
//!
//! From the ground up: `name`, `value`, `specification`, `file`, `run` (causes by kind) ·
//! `subject` (things at fault).

mod file;
mod name;
mod run;
mod specification;
mod subject;
mod value;

use core::error::Error as StdError;
use core::fmt;
use std::path::Path;

use recovery::OutOfRange;
use recovery::art::dqn::BadNetwork;

pub use file::FileError;
pub use name::NameError;
pub use run::RunError;
pub use specification::{ClaimFlaw, FigureFlaw, SpecificationError};
pub use subject::Subject;
pub use value::ValueError;

/// Error of an experiment, a comparison of viewers, or a single run.
#[derive(Debug)]
pub enum Error {
    /// A failure with the thing at fault.
    At {
        /// File, key, scheme or run at fault.
        subject: Subject,
        /// Cause. I/O errors are `std::io::Error`.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// An unknown, ambiguous or repeated name.
    Name(NameError),
    /// A missing or invalid value, or options that exclude each other.
    Value(ValueError),
    /// An experiment's specification contradicts itself.
    Specification(SpecificationError),
    /// A file has unusable content.
    File(FileError),
    /// A run failed.
    Run(RunError),
    /// Several runs failed.
    Runs {
        /// Number of failed runs.
        count: usize,
        /// Kind of run and failure, such as "days could not be run".
        what: &'static str,
        /// The first failure.
        first: Box<Self>,
    },
    /// No session of a comparison could be run. Contains all failures.
    NoSession(Vec<Self>),
    /// An experiment is not TOML, or a part of it is missing or has the wrong type.
    Experiment(Box<toml::de::Error>),
    /// A population is not TOML.
    Population(Box<toml::de::Error>),
    /// A server's configuration or a directory of records. The message names the file.
    Records(records::Error),
    /// A parameter of a recovery scheme is out of range.
    Parameter(OutOfRange),
    /// The network of a recovery scheme is invalid.
    Network(BadNetwork),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At { subject, source } => write!(f, "{subject}: {source}"),
            Self::Name(error) => error.fmt(f),
            Self::Value(error) => error.fmt(f),
            Self::Specification(error) => error.fmt(f),
            Self::File(error) => error.fmt(f),
            Self::Run(error) => error.fmt(f),
            Self::Runs { count, what, first } => write!(f, "{count} {what}: {first}"),
            Self::NoSession(all) => {
                let all: Vec<String> = all.iter().map(Self::to_string).collect();
                write!(f, "no session could be run: {}", all.join("; "))
            }
            Self::Experiment(error) => f.write_str(&one_line(error, "; ")),
            Self::Population(error) => f.write_str(&one_line(error, " ")),
            Self::Records(error) => error.fmt(f),
            Self::Parameter(error) => error.fmt(f),
            Self::Network(error) => error.fmt(f),
        }
    }
}

impl Error {
    /// Returns an error if runs failed.
    pub(crate) fn of_runs(what: &'static str, faults: Vec<Self>) -> Result<(), Self> {
        let count = faults.len();
        match faults.into_iter().next() {
            Some(first) => Err(Self::Runs { count, what, first: Box::new(first) }),
            None => Ok(()),
        }
    }
}

/// Joins the lines of a message.
fn one_line(message: &impl fmt::Display, separator: &str) -> String {
    message.to_string().lines().collect::<Vec<_>>().join(separator)
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::At { source, .. } => Some(&**source),
            Self::Runs { first, .. } => Some(&**first),
            Self::NoSession(all) => all.first().map(|first| first as _),
            Self::Experiment(error) | Self::Population(error) => Some(&**error),
            Self::Name(error) => error.source(),
            Self::File(error) => error.source(),
            Self::Run(error) => error.source(),
            Self::Records(error) => Some(error),
            Self::Parameter(error) => Some(error),
            Self::Network(error) => Some(error),
            Self::Value(_) | Self::Specification(_) => None,
        }
    }
}

macro_rules! from {
    ($($variant:ident: $cause:ty;)+) => {
        $(impl From<$cause> for Error {
            fn from(cause: $cause) -> Self {
                Self::$variant(cause)
            }
        })+
    };
}

from! {
    Name: NameError;
    Value: ValueError;
    Specification: SpecificationError;
    File: FileError;
    Run: RunError;
    Records: records::Error;
    Parameter: OutOfRange;
    Network: BadNetwork;
}

/// Adds the thing at fault to an error.
pub(crate) trait Context<T>: Sized {
    /// Names the thing at fault.
    fn of(self, subject: impl FnOnce() -> Subject) -> Result<T, Error>;

    /// Names the file or directory at fault.
    fn at(self, path: &Path) -> Result<T, Error> {
        self.of(|| Subject::Path(path.to_owned()))
    }

    /// Names the key at fault.
    fn key(self, key: &str) -> Result<T, Error> {
        self.of(|| Subject::Key(key.to_owned()))
    }
}

impl<T, E: StdError + Send + Sync + 'static> Context<T> for Result<T, E> {
    fn of(self, subject: impl FnOnce() -> Subject) -> Result<T, Error> {
        self.map_err(|cause| Error::At { subject: subject(), source: Box::new(cause) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_all_things_at_fault_and_their_causes_are_the_sources() {
        let read = std::fs::read("/nowhere/a.flv");
        let error = read.at(Path::new("/nowhere/a.flv")).key("source.flv").expect_err("missing");
        assert!(error.to_string().starts_with("`source.flv`: /nowhere/a.flv: "), "{error}");
        let cause = error.source().expect("the file").source().expect("its error");
        let io = cause.downcast_ref::<std::io::Error>().expect("an I/O error");
        assert_eq!(io.kind(), std::io::ErrorKind::NotFound);
    }

    #[test]
    fn messages_have_one_line() {
        let toml = || Box::new("[a".parse::<toml::Table>().expect_err("open"));
        for error in [Error::Experiment(toml()), Error::Population(toml())] {
            let line = error.to_string();
            assert!(!line.contains('\n') && line.contains("line 1"), "{line}");
        }
    }
}
