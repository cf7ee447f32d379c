//! Limit on unsent data in the transport.

use core::time::Duration;

use units::Rate;

/// Unsent data per connection, as time at its pacing rate.
const AHEAD: Duration = Duration::from_millis(50);
/// Two full packets. With less, a pacer that has just started would run out of data.
const MIN_BYTES: u64 = 2_400;

/// Returns how many unsent bytes the transport of a viewer may hold at `pacing_rate`.
///
/// With less unsent data, tags are chosen later and skips take effect sooner. Tags are handed over
/// whole, so the actual amount is up to one tag larger.
///
/// ```
/// use mendcast_relay::send_ahead;
/// use units::Rate;
///
/// assert_eq!(send_ahead(Rate::from_mbps(8)), 50_000);
/// ```
pub fn send_ahead(pacing_rate: Rate) -> u64 {
    pacing_rate.bytes_in(AHEAD).max(MIN_BYTES)
}
