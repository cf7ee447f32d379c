//! The live edge end to end, on real programs: ffmpeg, nginx and curl where they are installed,
//! quinn and h3, and our own RTMP client. What is broken, hostile, slow or killed here is on purpose.
//!
//! A test that lacks a program says so on stderr and passes.

#![cfg(all(feature = "edge", feature = "tools"))]

mod access;
mod autoplex;
#[path = "../common/mod.rs"]
mod common;
mod control;
mod demo;
mod hostile;
mod limits;
mod losses;
mod nodes;
mod operations;
mod places;
mod playback;
mod pulls;
mod slow;
mod stalling;
mod support;
mod takeover;
