//! Testbed in virtual time: the product's transport, an unmodified third-party client, and link
//! models between them, in one thread whose clock jumps from event to event.
//!
//! [`run`] makes one download, or one view of a live stream or a video, under a [`Scenario`].
//! [`experiments`] sweeps scenarios and writes results, plots and a report. [`platform`] runs the
//! sessions of a population of viewers and compares their playback. The same scenario gives the
//! same event log: see [`EventLog`].

#![forbid(unsafe_code)]

mod client;
mod dash;
mod ends;
pub mod error;
mod event_log;
pub mod experiments;
mod identity;
mod live;
pub mod platform;
mod recovered;
mod server;
mod setup;
mod simulation;
pub mod speed;
mod start_options;
mod traffic;
pub mod training;

pub use client::ClientKind;
pub use dash::{Adaptation, Dash, DashOutcome, DashPlayer, Ladder, SegmentArrival, Video};
pub use ends::Cipher;
pub use error::Error;
pub use event_log::{Digest, EventLog};
pub use live::{Encoder, LiveSource, Recording};
pub use live::{FrameArrival, Live, LiveOutcome, Skips};
pub use recovered::{
    AfterLoss, Diary, FinishedUnit, IntervalDecision, LossBursts, Pages, Recovered,
};
pub use simulation::Oracle;
pub use simulation::{ReceivedBytes, Rival, RunOutcome, Scenario, SchemeMaker, SenderSample, run};
pub use start_options::StartOptions;
pub use traffic::Traffic;
