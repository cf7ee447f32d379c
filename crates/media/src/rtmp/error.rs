//! Why a connection ends.

use crate::amf0;

/// More than any encoder uses; each costs some hundred bytes.
pub(super) const MAX_CHUNK_STREAMS: usize = 64;

/// Why a connection is over. Displays as one line for the log.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// The peer's handshake has another version than 3: RTMPE is 6 and 8.
    #[error("RTMP version {0} is not supported")]
    Version(u8),
    /// A chunk size of 0, or above 2^31 - 1.
    #[error("RTMP chunk size {0} is not allowed")]
    ChunkSize(u32),
    /// More chunk streams than anybody needs.
    #[error("more than {MAX_CHUNK_STREAMS} RTMP chunk streams")]
    ChunkStreams,
    /// The first chunk of a chunk stream refers to an earlier header.
    #[error("RTMP chunk refers to a message that never was")]
    ChunkHeader,
    /// A message of this many bytes, which is above the limit.
    #[error("RTMP message of {0} bytes is over the limit")]
    MessageTooLarge(usize),
    /// Too many bytes of messages that are not finished.
    #[error("too many bytes of unfinished RTMP messages")]
    Unfinished,
    /// A message that is shorter than its type demands, or has sizes that contradict.
    #[error("malformed RTMP message: {0}")]
    Malformed(&'static str),
    /// A command or its arguments cannot be read.
    #[error("RTMP command cannot be read: {0}")]
    Amf(#[from] amf0::Error),
    /// A command before `connect`.
    #[error("RTMP command before connect")]
    NotConnected,
    /// A second publish or play on a connection that has one.
    #[error("second RTMP stream on one connection")]
    SecondStream,
    /// Too much media before we could answer `publish`.
    #[error("too much RTMP media before publishing was answered")]
    Early,
    /// Too many messages without media.
    #[error("too many RTMP messages without media")]
    Idle,
    /// The peer sends what demands answers and does not read them.
    #[error("RTMP peer does not read our responses")]
    Unread,
}
