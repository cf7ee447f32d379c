//! Errors of resources fetched from an HLS origin.

use crate::{fmp4, ts};

/// Reason for which a fetched resource cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// Not a playlist, or a playlist that violates RFC 8216.
    #[error("no HLS playlist")]
    Playlist,
    /// The resource exceeds the size limit of its type.
    #[error("HLS resource over the limit")]
    TooLarge,
    /// Segments are encrypted (EXT-X-KEY).
    #[error("encrypted HLS segments are not supported")]
    Encrypted,
    /// The master playlist lacks the wanted variant or audio rendition.
    #[error("the HLS master playlist has no such variant or audio rendition")]
    Rendition,
    /// No variant has a codec that FLV can carry.
    #[error("no HLS variant with supported codecs")]
    Codec,
    /// The audio rendition has no codec that FLV can carry.
    #[error("no supported codec in the HLS audio rendition")]
    AudioCodec,
    /// A playlist names a URL that a pull may not follow: a scheme other than `http` and `https`,
    /// or `http` in a playlist loaded by `https`.
    #[error("HLS playlist refers from https to http, or to another scheme")]
    Reference,
    /// Too many fetches failed.
    #[error("HLS playlist unreachable")]
    Unreachable,
    /// A response without a pending request.
    #[error("response without an HLS request")]
    Unsolicited,
    /// Invalid MP4 in a segment.
    #[error(transparent)]
    Mp4(fmp4::read::Error),
    /// Invalid MPEG-TS in a segment.
    #[error(transparent)]
    Ts(ts::read::Error),
}

impl Error {
    /// Whether retries are pointless because the origin's stream is unsupported.
    pub fn is_final(self) -> bool {
        match self {
            Self::Encrypted | Self::Rendition | Self::Codec | Self::Reference => true,
            Self::Mp4(error) => {
                matches!(error, fmp4::read::Error::Encrypted | fmp4::read::Error::NoTrack)
            }
            Self::Ts(error) => matches!(error, ts::read::Error::Encrypted),
            Self::Playlist
            | Self::TooLarge
            | Self::AudioCodec
            | Self::Unreachable
            | Self::Unsolicited => false,
        }
    }
}
