//! Unusable content of files and directories.

use core::fmt;
use std::path::PathBuf;

use media::flv;

/// Unusable content of a file or directory.
#[derive(Clone, Debug)]
pub enum FileError {
    /// A directory has no results of experiments.
    NoResults,
    /// Results have the columns of another version.
    Version,
    /// A line of stored results is malformed.
    Malformed {
        /// File of the results.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
    },
    /// A directory for new records is not empty.
    HoldsRecords(PathBuf),
    /// Records could not be written. Contains their number.
    Dropped(u64),
    /// Too few records can be used as a population.
    FewRecords {
        /// Usable records.
        used: usize,
        /// Minimum number of usable records.
        min: usize,
        /// Records read.
        records: u64,
        /// Records with a missing value.
        incomplete: u64,
        /// Records with an impossible value.
        impossible: u64,
        /// Malformed lines, and files with read errors.
        broken: u64,
        /// The first impossible value.
        example: Option<String>,
    },
    /// A recording is not FLV.
    Flv(flv::Error),
    /// A recording has no frame for a start.
    NoFrame,
    /// A recording has a long gap between pictures.
    NoPicture {
        /// Time of the last picture before the gap, in seconds.
        from_s: f64,
        /// Time of the first picture after the gap, in seconds.
        to_s: f64,
    },
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoResults => f.write_str("no results of `mendcast lab run`"),
            Self::Version => f.write_str("not the results of this version"),
            Self::Malformed { path, line } => write!(f, "{}:{line}: malformed", path.display()),
            Self::HoldsRecords(path) => {
                write!(f, "{} already holds records; choose an empty directory", path.display())
            }
            Self::Dropped(count) => write!(f, "{count} records were not written"),
            Self::FewRecords { used, min, records, incomplete, impossible, broken, example } => {
                write!(
                    f,
                    "{used} of {records} records can be used; a population needs at least {min}"
                )?;
                for (count, what) in [
                    (incomplete, "lack round-trip time, loss rate, goodput or duration"),
                    (impossible, "have impossible values"),
                    (broken, "lines or files are broken"),
                ] {
                    if *count > 0 {
                        write!(f, "; {count} {what}")?;
                    }
                }
                match example {
                    Some(example) => write!(f, " ({example})"),
                    None => Ok(()),
                }
            }
            Self::Flv(error) => error.fmt(f),
            Self::NoFrame => f.write_str("it has no frame to start with"),
            Self::NoPicture { from_s, to_s } => {
                write!(f, "it has sound but no picture from {from_s} s to {to_s} s")
            }
        }
    }
}

impl core::error::Error for FileError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Flv(error) => Some(error),
            _ => None,
        }
    }
}
