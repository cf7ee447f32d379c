//! RTMP client and server without I/O: they map bytes from the peer to events and bytes for the
//! peer.
//!
//! Implements Adobe's RTMP specification 1.0 (December 2012), as used by OBS, ffmpeg, librtmp,
//! nginx-rtmp and SRS, and the connect negotiation of Veovera's Enhanced RTMP v2, whose codecs pass
//! through. A [`Server`] handles one publisher or player per connection. A [`Client`] plays from or
//! publishes to another server. The caller adds TLS (`rtmps`). RTMPE and RTMPT are not supported.
//!
//! The payload of a tag is copied once, from the input to the buffer that all viewers share.

mod chunk;
mod client;
mod error;
mod handshake;
mod link;
mod server;
mod url;

pub use self::url::{Url, UrlError};
pub use client::{Client, ClientEvent, Intent};
pub use error::Error;
pub use handshake::Random;
pub use server::{Event, Request, Server};

/// Default port of `rtmp` URLs.
pub const DEFAULT_PORT: u16 = 1935;

/// Property of `connect` with the servers that a published stream passed, in the form of a CDN-Loop
/// field (RFC 8586). Other servers ignore it.
pub const CDN_LOOP: &str = "cdnLoop";

/// Limits and sizes of a connection.
#[derive(Clone, Debug)]
pub struct Config {
    /// Maximum size of a received message, and thereby of a frame, in bytes. At most
    /// [`crate::flv::MAX_PAYLOAD`], default 4 MiB. All incomplete messages together may be twice as
    /// large.
    pub max_message: usize,
    /// Maximum size of sent chunks, in bytes, without headers. 1 to 0xff_ffff, default 64 KiB.
    pub chunk_size: u32,
    /// Number of bytes that the peer may send between acknowledgements. Default 2.5 MB.
    pub window_ack: u32,
    /// Whether the server announces that it takes several tracks (Enhanced RTMP v2, `capsEx`).
    /// Default false. Publishers may send them anyway.
    pub multitrack: bool,
}

impl Default for Config {
    /// 4 MiB are enough for key frames at 100 Mbit/s. Chunks of 64 KiB are the largest that SRS
    /// accepts without a warning. A window of 2.5 MB is common.
    fn default() -> Self {
        Self { max_message: 4 << 20, chunk_size: 65_536, window_ack: 2_500_000, multitrack: false }
    }
}

#[cfg(test)]
mod tests;
