//! The live edge end to end, with real programs: ffmpeg, nginx and curl where installed, quinn and
//! h3, and our own RTMP client. Broken, hostile, slow and killed peers are intended.
//!
//! A test without its program reports so on stderr and passes.

#![cfg(all(feature = "edge", feature = "tools"))]

mod access;
mod acme;
mod autoplex;
mod certificates;
#[path = "../common/mod.rs"]
mod common;
mod control;
mod demo;
mod hostile;
mod hosts;
mod ladder;
mod ladder_flv;
mod languages;
mod limits;
mod losses;
mod multitrack;
mod nodes;
mod operations;
mod outputs;
mod places;
mod playback;
mod pulls;
mod rtmps;
mod slow;
mod stalling;
mod support;
mod takeover;
mod tokens;
