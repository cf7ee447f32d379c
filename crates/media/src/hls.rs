//! HTTP Live Streaming: packages FLV tags into segments, parts and playlists, and converts an
//! origin's segments into FLV tags.
//!
//! Implements RFC 8216 (HLS) and draft-pantos-hls-rfc8216bis (Low-Latency HLS): partial segments,
//! blocking reload, preload hints and delta updates. Players without Low-Latency HLS use the same
//! playlist. Playlists are written and parsed without a library: the writer is short, and the
//! parser must bound the cost of untrusted playlists.

mod bounds;
mod clock;
mod config;
mod cut;
mod error;
#[cfg(test)]
pub(crate) mod fixture;
mod flv_tags;
mod grid;
mod lookup;
mod manifest;
pub mod name;
mod pace;
mod parts;
mod playlist;
pub mod pull;
mod reference;
mod rendition;
mod retained;
pub mod segmenter;
mod unsupported;
mod variant;

pub use lookup::{Availability, WholeSegment};
pub use name::Name;
pub use pull::Pull;
pub use reference::follow;
pub use rendition::{AudioRendition, Rendition, master};
pub use segmenter::Segmenter;
