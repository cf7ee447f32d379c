//! Who watches, as far as the server knows: the protocol, the network, and the number that divides viewers
//! into cohorts.

use core::fmt;
use std::net::IpAddr;

use aws_lc_rs::hmac;

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

/// A viewer, as far as cohorts are concerned.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Unit(pub u64);

/// The version of what our tokens carry.
const VERSION: u8 = 1;

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Unit {
    /// The unit of a viewer who brings no token.
    pub fn of_network(address: IpAddr) -> Self {
        Self(hash(b"mendcast network", prefix(address).as_bytes()))
    }

    /// The unit that a token carried here.
    pub fn from_token(own: &[u8]) -> Option<Self> {
        match own {
            [VERSION, unit @ ..] => Some(Self(u64::from_be_bytes(unit.try_into().ok()?))),
            _ => None,
        }
    }

    /// What a token carries.
    pub fn to_token(self) -> Vec<u8> {
        [&[VERSION][..], &self.0.to_be_bytes()].concat()
    }
}

/// The network of an address: its first 24 or 48 bits, which say where somebody is and not who.
pub fn prefix(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let [a, b, c, _] = v4.octets();
            format!("{a}.{b}.{c}.0/24")
        }
        IpAddr::V6(v6) => {
            let [a, b, c, ..] = v6.segments();
            format!("{}/48", std::net::Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0))
        }
    }
}

/// A keyed hash.
pub(crate) fn hash(key: &[u8], data: &[u8]) -> u64 {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), data);
    tag.as_ref().iter().take(8).fold(0, |hash, byte| hash << 8 | u64::from(*byte))
}
