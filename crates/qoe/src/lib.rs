//! Quality of experience: a player model ([`player`]), missed deadlines ([`deadline`]), and the
//! statistics used by reports ([`stats`]).
//!
//! This crate has no transport, no clock and no source of randomness: the caller passes the
//! completion time of each frame, and a seeded generator. The testbed, the headless viewer and the
//! production reports share these definitions, so their numbers are comparable.

#![forbid(unsafe_code)]

pub mod deadline;
pub mod player;
pub mod stats;

pub use deadline::Deadlines;
pub use player::{FrameKind, Player, Policy, Report, UnknownPlayer};
