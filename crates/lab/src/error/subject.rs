//! Things at fault.

use core::fmt;
use std::path::PathBuf;

/// The thing at fault, which begins a message.
#[derive(Clone, Debug)]
pub enum Subject {
    /// A file or directory.
    Path(PathBuf),
    /// A key of a configuration, an experiment or a population.
    Key(String),
    /// An experiment, or a scheme in it by its label.
    Part(String),
    /// A scheme of a comparison, as written on the command line.
    Scheme(String),
    /// A session.
    Session {
        /// Number of the session.
        number: u32,
        /// Name of its scheme, if sessions run under several.
        scheme: Option<String>,
    },
    /// Two sessions that share a bottleneck.
    Sessions {
        /// Numbers of the sessions.
        numbers: [u32; 2],
        /// Name of their scheme.
        scheme: String,
    },
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Key(key) => write!(f, "`{key}`"),
            Self::Part(name) => f.write_str(name),
            Self::Scheme(name) => write!(f, "scheme `{name}`"),
            Self::Session { number, scheme: None } => write!(f, "session {number}"),
            Self::Session { number, scheme: Some(scheme) } => {
                write!(f, "session {number} under {scheme}")
            }
            Self::Sessions { numbers: [first, second], scheme } => {
                write!(f, "sessions {first} and {second} under {scheme}")
            }
        }
    }
}
