//! Failures of runs.

use core::fmt;
use std::io;

use links::Imbalance;
use units::Timestamp;

/// Failure of a run.
#[derive(Debug)]
pub enum RunError {
    /// Received bytes differ from the requested ones.
    WrongBytes,
    /// The answer did not arrive completely. Contains the client's reason, or `None` if time ran
    /// out.
    Incomplete(Option<String>),
    /// The download of a speed measurement failed. Contains the client's reason, if it gave up.
    Download(Option<String>),
    /// An episode of a training did not end in time. Contains its seed.
    Episode(u64),
    /// The second session on a bottleneck did not run.
    NoRival,
    /// The ends keep triggering each other without progress of the clock.
    Stuck {
        /// Time of the clock.
        at: Timestamp,
        /// Seed of the run.
        seed: u64,
        /// Next event of the links.
        links: Option<Timestamp>,
        /// Next timer of the first server.
        server: Option<Timestamp>,
        /// Next timer of the first client.
        client: Option<Timestamp>,
    },
    /// Packets of a link are unaccounted for.
    Imbalance(Imbalance),
    /// The system has no CPU-time clock.
    NoClock(io::Error),
    /// A measured run took no CPU time.
    NoCpuTime,
    /// A comparison has too few sessions for its figures.
    FewSessions,
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongBytes => f.write_str("wrong bytes arrived"),
            Self::Incomplete(Some(reason)) => f.write_str(reason),
            Self::Incomplete(None) => f.write_str("not completed in time"),
            Self::Download(reason) => write!(f, "the download failed: {reason:?}"),
            Self::Episode(seed) => write!(f, "episode {seed} did not complete"),
            Self::NoRival => f.write_str("the second session did not run"),
            Self::Stuck { at, seed, links, server, client } => write!(
                f,
                "the clock is stuck at {at:?} (seed {seed}): links {links:?}, server {server:?}, \
                 client {client:?}"
            ),
            Self::Imbalance(imbalance) => imbalance.fmt(f),
            Self::NoClock(error) => write!(f, "no CPU-time clock: {error}"),
            Self::NoCpuTime => f.write_str("a run took no CPU time"),
            Self::FewSessions => f.write_str("too few sessions for figures"),
        }
    }
}

impl core::error::Error for RunError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Imbalance(imbalance) => Some(imbalance),
            Self::NoClock(error) => Some(error),
            _ => None,
        }
    }
}
