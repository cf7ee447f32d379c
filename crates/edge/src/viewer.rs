//! Who watches, as far as the server knows: the protocol, the network, and the number that divides viewers
//! into cohorts.

use records::Record;
pub use records::{Unit, prefix};
use startup::Carrier;
use startup::decision::Mode;
use units::Rate;

/// How a viewer's connection started.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Started {
    /// The way of its cohort.
    pub mode: Mode,
    /// What brought the path's past along, if it was of use.
    pub carrier: Option<Carrier>,
    /// The window that was decided on, in bytes; `None` for the controller's own.
    pub window: Option<u64>,
    /// The pacing rate that was decided on.
    pub rate: Option<Rate>,
}

impl Started {
    /// Fills the columns of `record` that say how the connection started.
    pub fn write_to(&self, record: &mut Record) {
        record.start = Some(self.mode.name().into());
        record.start_cookie = self.carrier.map(|carrier| carrier.name().into());
        record.start_window = self.window.and_then(|window| i64::try_from(window).ok());
        record.start_rate_mbps = self.rate.map(Rate::as_mbps_f64);
    }
}

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
    /// As it stands in records and metrics.
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
