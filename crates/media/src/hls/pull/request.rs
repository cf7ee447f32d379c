//! Requests to an origin, and the steps between them.

use core::fmt;
use core::time::Duration;

use url::Url;

/// Type of the requested resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// A playlist.
    Playlist,
    /// An initialisation segment (EXT-X-MAP).
    Map,
    /// A media segment.
    Segment,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Playlist => "playlist",
            Self::Map => "initialisation segment",
            Self::Segment => "segment",
        })
    }
}

/// A request to the origin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OriginRequest {
    /// An `http` or `https` URL.
    pub url: Url,
    /// First byte and number of bytes of the requested range.
    pub range: Option<(u64, u64)>,
    /// Size limit of the response. Larger responses are rejected and need not be read completely.
    pub max_bytes: usize,
    /// Type of the requested resource.
    pub kind: Subject,
}

/// Consequence of a failed request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureOutcome {
    /// The request will be repeated after a wait.
    Retry,
    /// The segment is skipped.
    Skipped,
}

/// Next step of a pull.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Perform this request, then call [`Pull::on_response`](super::Pull::on_response) or
    /// [`Pull::on_failure`](super::Pull::on_failure).
    Fetch(OriginRequest),
    /// Call [`Pull::next`](super::Pull::next) again after this time.
    Wait(Duration),
    /// The stream has ended and was pulled completely. [`Pull::finish`](super::Pull::finish)
    /// returns its last tags.
    End,
}
