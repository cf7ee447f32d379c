//! Parameters shared by both ends of a connection: packet protection, idle timeout, and the content
//! of downloads.

use core::time::Duration;

use bytes::Bytes;

/// Idle timeout of both ends. Longer than any backed-off probe timeout on the worst random path.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// Path of a live stream in requests.
pub(crate) const LIVE_PATH: &str = "/live/lab.flv";
/// Length of the repeating pattern, in bytes.
pub(crate) const PATTERN: usize = 65_521;

config::words! {
    /// Protection of 1-RTT packets.
    Cipher {
        /// Negotiated by TLS.
        Real = "real",
        /// None, with a tag of the same length: identical packets for less CPU time.
        Null = "null",
    }
}

/// Returns the pattern. Its length is prime and it has no short period, so misplaced bytes are
/// detected.
pub(crate) fn pattern() -> Bytes {
    (0..PATTERN as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}
