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
    /// Sound is in a rendition of its own (EXT-X-MEDIA).
    Rendition,
    /// No variant has a codec that FLV can carry.
    Codec,
    /// A playlist names what a pull may not follow: no `http` or `https` URL, or an `http` one where
    /// the playlist came by `https`.
    Reference,
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
            Self::Encrypted => f.write_str("encrypted HLS segments, which are not supported"),
            Self::Rendition => f.write_str(
                "HLS with the sound in a rendition of its own (EXT-X-MEDIA with a URI), which is \
                 not supported: a variant with picture and sound is needed",
            ),
            Self::Codec => f.write_str("HLS without a variant whose codecs are supported"),
            Self::Reference => {
                f.write_str("HLS playlist that leads from https to http, or to no HTTP")
            }
            Self::Unreachable => f.write_str("HLS playlist cannot be fetched"),
            Self::Unasked => f.write_str("response without an HLS request"),
            Self::Mp4(error) => error.fmt(f),
            Self::Ts(error) => error.fmt(f),
        }
    }
}

impl Error {
    /// Whether asking again would give the same: what the origin has cannot be pulled.
    pub fn is_final(self) -> bool {
        match self {
            Self::Encrypted | Self::Rendition | Self::Codec | Self::Reference => true,
            Self::Mp4(error) => {
                matches!(error, fmp4::read::Error::Encrypted | fmp4::read::Error::NoTrack)
            }
            Self::Ts(error) => matches!(error, ts::read::Error::Encrypted),
            Self::Playlist | Self::TooLarge | Self::Unreachable | Self::Unasked => false,
        }
    }
}

impl std::error::Error for Error {}
