//! Set-up of a run: the sections of a server's configuration that the testbed simulates, and the
//! testbed's own ([`Laboratory`](keys::Laboratory)). Defaults are a server's.

mod access;
mod keys;
mod maybe;
mod scenario;
mod schemes;
mod words;

pub(crate) use access::{SIMULATED, Setup, mbps, round_trip};
pub(crate) use maybe::{Maybe, PlayerModel, Text};
pub(crate) use scenario::UNLIMITED;
pub(crate) use schemes::Learnt;
pub(crate) use words::{DetectionRules, Kind, Readings};
