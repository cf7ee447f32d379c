//! Properties of viewers: protocol, network prefix, and the unit that assigns them to cohorts.

pub use records::{Unit, prefix};

/// The protocol of a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Protocol {
    /// HTTP/0.9 over QUIC, for interoperability tests.
    Http09,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
    /// HTTP/3.
    Http3,
    /// RTMP.
    Rtmp,
}

impl Protocol {
    /// Returns the name in records and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http09 => "h09",
            Self::Http1 => "h1",
            Self::Http2 => "h2",
            Self::Http3 => "h3",
            Self::Rtmp => "rtmp",
        }
    }
}
