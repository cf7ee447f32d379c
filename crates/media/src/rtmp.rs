//! RTMP, both sides, without IO: bytes of the peer in, events and bytes for the peer out.
//!
//! Adobe's RTMP specification 1.0 (December 2012), as spoken by OBS, ffmpeg, librtmp, nginx-rtmp
//! and SRS, and the connect negotiation of Veovera's Enhanced RTMP v2, whose codecs pass through.
//! A [`Server`] handles one publisher or player per connection; a [`Client`] plays from or
//! publishes to another server. The caller adds TLS (`rtmps`). RTMPE and RTMPT are not supported.
//!
//! A tag's payload is copied once, from the input into the buffer that all viewers share.

mod chunk;
mod client;
mod error;
mod handshake;
mod link;
mod server;
mod url;

pub use self::url::{Url, UrlError};
pub use client::{Client, Event as ClientEvent, Intent};
pub use error::Error;
pub use handshake::Random;
pub use server::{Event, Request, Server};

/// The port that URLs without one mean.
pub const DEFAULT_PORT: u16 = 1935;

/// Limits and sizes of one connection.
#[derive(Clone, Debug)]
pub struct Config {
    /// The largest message that is taken, in bytes: the largest frame of a publisher. At most
    /// [`crate::flv::MAX_PAYLOAD`]. All unfinished messages together may be twice as long.
    pub max_message: usize,
    /// How many bytes of a message we send between two chunk headers, 1 to 0xff_ffff.
    pub chunk_size: u32,
    /// How many bytes the peer may send between its acknowledgements.
    pub window_ack: u32,
}

impl Default for Config {
    /// 4 MiB of message, enough for key frames of 100 Mbit/s; chunks of 64 KiB, the largest that
    /// SRS takes without a warning; 2.5 MB of window, as everybody has.
    fn default() -> Self {
        Self { max_message: 4 << 20, chunk_size: 65_536, window_ack: 2_500_000 }
    }
}

#[cfg(test)]
mod tests;
