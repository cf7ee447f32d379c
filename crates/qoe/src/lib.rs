//! What a viewer experiences, in numbers: a model of the player ([`player`]), missed deadlines
//! ([`deadline`]), and the statistics with which reports compare them ([`stats`]).
//!
//! Nothing in here knows how media travels, what time it is, or where randomness comes from: the
//! caller says when a frame was complete, and lends its seeded generator. The testbed, the headless
//! viewer and the production reports share these definitions, so that their numbers compare.

#![forbid(unsafe_code)]

pub mod deadline;
pub mod player;
pub mod stats;

pub use deadline::Deadlines;
pub use player::{FrameKind, Player, Policy, Report, UnknownPlayer};
