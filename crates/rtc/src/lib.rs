//! Real-time calls in virtual time, and the loss recovery schemes that need a client of their own:
//! block codes, WebRTC's error correction, Hairpin, and Tambur's streaming code. They are compared
//! with schemes that change the sender alone, which run through the crate `recovery` as on
//! servers. An operator learns from the comparison how much changing all clients would gain.
//!
//! | module | scheme or platform | source |
//! |---|---|---|
//! | [`streaming_code`] | Tambur's streaming code, with bytes | NSDI 2023 |
//! | [`hairpin`] | Hairpin's decision process | NSDI 2024 |
//! | [`webrtc_fec`] | WebRTC's protection factors and masks | Holmer et al., ICIP 2013 |
//! | [`block`] | block codes below QUIC | ART, section 7.2 |
//! | [`calls`] | a call at 60 frames per second with a deadline | AutoRec, figure 19 |
//! | [`ringmaster`] | a video conference without congestion control | AutoRec, figure 20 |
//! | [`transfer`] | a file through block codes | ART, figures 6 and 22 |
//!
//! [`experiment`] reads specifications and judges their claims. The production server does not
//! contain this crate.

#![forbid(unsafe_code)]

pub mod block;
pub mod calls;
mod clock;
mod error;
pub mod experiment;
mod flight;
mod galois;
pub mod hairpin;
mod maker;
pub mod ringmaster;
mod sender;
pub mod source;
pub mod streaming_code;
pub mod trace;
pub mod transfer;
pub mod webrtc_fec;

pub use error::BadValue;
pub use maker::{Engine, SchemeKeys};
