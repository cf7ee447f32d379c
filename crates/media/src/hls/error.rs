//! Why something fetched from an HLS origin is of no use.

use core::fmt;

use crate::{fmp4, ts};

/// Why something fetched is of no use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// It is no playlist, or one that breaks RFC 8216.
    Playlist,
    /// It is larger than what was asked for may be.
    TooLarge,
    /// Segments are encrypted (EXT-X-KEY).
    Encrypted,
    /// It failed too often.
    Unreachable,
    /// A response to no request.
    Unasked,
    /// A segment is broken MP4.
    Mp4(fmp4::read::Error),
    /// A segment is a broken transport stream.
    Ts(ts::read::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Playlist => f.write_str("no HLS playlist"),
            Self::TooLarge => f.write_str("HLS resource over the limit"),
            Self::Encrypted => f.write_str("encrypted HLS segments"),
            Self::Unreachable => f.write_str("HLS playlist cannot be fetched"),
            Self::Unasked => f.write_str("response without an HLS request"),
            Self::Mp4(error) => error.fmt(f),
            Self::Ts(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}
