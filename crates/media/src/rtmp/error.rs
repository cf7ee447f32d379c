//! Errors that end an RTMP connection.

use crate::amf0;

/// Maximum number of chunk streams, more than any encoder uses. Each costs some hundred bytes.
pub(super) const MAX_CHUNK_STREAMS: usize = 64;
/// Type of TLS records with a handshake (RFC 8446, section 5.1).
const TLS_HANDSHAKE: u8 = 22;

/// Reason for which a connection was ended. Its `Display` output is one line.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// The peer's handshake has a version other than 3. RTMPE has 6 and 8, and TLS looks like 22.
    #[error("RTMP version {0} is not supported{hint}", hint = hint(*.0))]
    Version(u8),
    /// A chunk size of 0, or above 2^31 - 1.
    #[error("RTMP chunk size {0} is not allowed")]
    ChunkSize(u32),
    /// Too many chunk streams.
    #[error("more than {MAX_CHUNK_STREAMS} RTMP chunk streams")]
    ChunkStreams,
    /// The first chunk of a chunk stream refers to an earlier header.
    #[error("RTMP chunk refers to an unknown header")]
    ChunkHeader,
    /// The message size in bytes exceeds the limit.
    #[error("RTMP message of {0} bytes is over the limit")]
    MessageTooLarge(usize),
    /// The incomplete messages are too large.
    #[error("incomplete RTMP messages exceed the limit")]
    Unfinished,
    /// A message is too short for its type, or its sizes are inconsistent.
    #[error("malformed RTMP message: {0}")]
    Malformed(&'static str),
    /// A command or its arguments cannot be parsed.
    #[error("invalid RTMP command: {0}")]
    Amf(#[from] amf0::Error),
    /// A command before `connect`.
    #[error("RTMP command before connect")]
    NotConnected,
    /// A second publish or play request on the connection.
    #[error("second RTMP stream on one connection")]
    SecondStream,
    /// The publisher sent too much media before `publish` was accepted.
    #[error("too much RTMP media before publishing was accepted")]
    EarlyMedia,
    /// Too many messages without media.
    #[error("too many RTMP messages without media")]
    MessageFlood,
    /// The peer causes responses but does not read them.
    #[error("RTMP peer does not read our responses")]
    UnreadResponses,
}

fn hint(version: u8) -> &'static str {
    if version == TLS_HANDSHAKE { " (a TLS handshake)" } else { "" }
}
