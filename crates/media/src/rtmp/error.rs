//! Why a connection ends.

use core::fmt;

use crate::amf0;

/// More than any encoder uses; each costs some hundred bytes.
pub(super) const MAX_CHUNK_STREAMS: usize = 64;

/// Why a connection is over. Displays as one line for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// The peer's handshake has another version than 3: RTMPE is 6 and 8.
    Version(u8),
    /// A chunk size of 0, or above 2^31 - 1.
    ChunkSize(u32),
    /// More chunk streams than anybody needs.
    ChunkStreams,
    /// The first chunk of a chunk stream leaves out what only a chunk before it could tell.
    ChunkHeader,
    /// A message starts within another one of the same chunk stream.
    Interrupted,
    /// A message of this many bytes, which is above the limit.
    MessageTooLarge(usize),
    /// Too many bytes of messages that are not finished.
    Unfinished,
    /// A message that is shorter than its type demands, or has sizes that contradict.
    Malformed(&'static str),
    /// A command or its arguments cannot be read.
    Amf(amf0::Error),
    /// A command before `connect`.
    NotConnected,
    /// A second publish or play on a connection that has one.
    SecondStream,
    /// Too much media before we could answer `publish`.
    Early,
    /// The peer sends what demands answers and does not read them.
    Unread,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => write!(f, "RTMP version {version} is not supported"),
            Self::ChunkSize(size) => write!(f, "RTMP chunk size {size} is not allowed"),
            Self::ChunkStreams => {
                write!(f, "more than {} RTMP chunk streams", MAX_CHUNK_STREAMS)
            }
            Self::ChunkHeader => f.write_str("RTMP chunk refers to a message that never was"),
            Self::Interrupted => f.write_str("RTMP message starts within an unfinished one"),
            Self::MessageTooLarge(size) => {
                write!(f, "RTMP message of {size} bytes is over the limit")
            }
            Self::Unfinished => f.write_str("too many bytes of unfinished RTMP messages"),
            Self::Malformed(what) => write!(f, "malformed RTMP message: {what}"),
            Self::Amf(error) => write!(f, "RTMP command cannot be read: {error}"),
            Self::NotConnected => f.write_str("RTMP command before connect"),
            Self::SecondStream => f.write_str("second RTMP stream on one connection"),
            Self::Early => f.write_str("too much RTMP media before publishing was answered"),
            Self::Unread => f.write_str("RTMP peer does not read the answers to what it sends"),
        }
    }
}

impl std::error::Error for Error {}

impl From<amf0::Error> for Error {
    fn from(error: amf0::Error) -> Self {
        Self::Amf(error)
    }
}
