//! What both ends of a connection are set up with alike: the protection of packets, the idle time-out, and
//! the bytes of a download.

use core::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Idle time-out of both ends: probes that back off through the worst of random paths stay below.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// What a live stream is asked for by.
pub(crate) const LIVE_PATH: &str = "/live/lab.flv";
/// Bytes of the pattern; it repeats.
pub(crate) const PATTERN: usize = 65_521;

/// Protection of 1-RTT packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cipher {
    /// What TLS negotiated.
    Real,
    /// None, with a tag of the same length: same packets, less time.
    Null,
}

/// The pattern: a prime length and no short period, so that misplaced bytes show.
pub(crate) fn pattern() -> Bytes {
    (0..PATTERN as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}
