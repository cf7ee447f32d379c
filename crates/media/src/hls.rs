//! HTTP Live Streaming: FLV tags into segments, parts and playlists, and an origin's segments into
//! FLV tags.
//!
//! RFC 8216 (HLS), and draft-pantos-hls-rfc8216bis for Low-Latency HLS: partial segments, blocking
//! reload, preload hints, delta updates. Players without Low-Latency HLS play the same playlist.
//! Our own code reads and writes playlists: the writer is short, and the reader must bound the
//! cost of untrusted playlists.

mod bounds;
mod clock;
mod config;
mod cut;
mod error;
#[cfg(test)]
pub(crate) mod fixture;
mod flv_tags;
mod grid;
mod kept;
mod lookup;
mod manifest;
pub mod name;
mod pace;
mod parts;
mod playlist;
pub mod pull;
mod reference;
pub mod segmenter;
mod unpacked;
mod variant;

pub use lookup::When;
pub use name::Name;
pub use pull::Pull;
pub use reference::follow;
pub use segmenter::Segmenter;
