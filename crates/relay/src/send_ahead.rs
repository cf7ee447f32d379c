//! How much of a stream may wait inside the transport.

use core::time::Duration;

use units::Rate;

/// What a connection may hold unsent, as time at its pacing rate.
const AHEAD: Duration = Duration::from_millis(50);
/// Two full packets: with less, a pacer that has just started would stop for lack of data.
const MIN_BYTES: u64 = 2_400;

/// Bytes that may wait unsent in the transport of a viewer whose packets leave at `pacing_rate`.
///
/// The less waits there, the later it is decided what the viewer gets, and the sooner a skip shows.
/// A tag is always handed over whole, so the real amount is up to one tag more.
pub fn send_ahead(pacing_rate: Rate) -> u64 {
    pacing_rate.bytes_in(AHEAD).max(MIN_BYTES)
}
