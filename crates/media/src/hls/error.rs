//! Why something fetched from an HLS origin is of no use.

use crate::{fmp4, ts};

/// Why something fetched is of no use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// It is no playlist, or one that breaks RFC 8216.
    #[error("no HLS playlist")]
    Playlist,
    /// The resource exceeds the limit of its kind.
    #[error("HLS resource over the limit")]
    TooLarge,
    /// Segments are encrypted (EXT-X-KEY).
    #[error("encrypted HLS segments, which are not supported")]
    Encrypted,
    /// Sound is in a rendition of its own (EXT-X-MEDIA).
    #[error(
        "HLS with the sound in a rendition of its own (EXT-X-MEDIA with a URI), which is \
         not supported: a variant with picture and sound is needed"
    )]
    Rendition,
    /// No variant has a codec that FLV can carry.
    #[error("HLS without a variant with supported codecs")]
    Codec,
    /// A playlist names a URL that a pull may not follow: a scheme other than `http` and `https`,
    /// or `http` in a playlist loaded by `https`.
    #[error("HLS playlist that leads from https to http, or to no HTTP")]
    Reference,
    /// It failed too often.
    #[error("HLS playlist cannot be fetched")]
    Unreachable,
    /// A response to no request.
    #[error("response without an HLS request")]
    Unasked,
    /// A segment is broken MP4.
    #[error(transparent)]
    Mp4(fmp4::read::Error),
    /// A segment is a broken transport stream.
    #[error(transparent)]
    Ts(ts::read::Error),
}

impl Error {
    /// Whether a retry would fail too: the origin's stream cannot be pulled.
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
