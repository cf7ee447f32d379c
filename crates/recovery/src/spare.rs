//! "spare": copies of lost data in idle time.
//!
//! A copy that leaves while new data waits delays that data. On networks hardly wider than the
//! stream this causes more freezes than the copy prevents. [`Scheme::when_idle()`] makes the
//! replicas of any scheme wait until nothing else does, or until a viewer catches up on a path
//! wider than the stream.
//!
//! Real losses come in bursts that hit copies sent with the retransmission too. The replicas of
//! this scheme are spaced by [`DEFAULT_SPREAD`]: 20 ms, more on long paths. With wider spacing a
//! copy arrives hardly earlier than the next round (experiments/live-default.toml). Every lost
//! round gets the same number of replicas.

use crate::Scheme;
use crate::level::fixed::{Fixed, Reading};
use crate::range::OutOfRange;
use crate::schedule::{Replicas, Spread};
use core::time::Duration;

/// Maximum number of replicas per round.
pub const MAX_COPIES: u32 = 10;

/// Default spacing of the replicas of a round.
pub const DEFAULT_SPREAD: Spread = Spread::Apart { least: Duration::from_millis(20), rtts: 0.25 };

/// Builds the scheme: `copies` replicas per round (0 to [`MAX_COPIES`]), spaced by `spread`, sent
/// [when idle](Scheme::when_idle()). With 0 copies it is plain retransmission.
///
/// # Errors
/// If `copies` is out of range.
pub fn scheme(copies: u32, spread: Spread) -> Result<Scheme, OutOfRange> {
    if copies > MAX_COPIES {
        return Err(OutOfRange { key: "copies", allowed: "0 to 10" });
    }
    let fixed = Fixed { slope: 0, offset: copies.cast_signed(), reading: Reading::Extra };
    // The seed is irrelevant: nothing is drawn.
    Ok(Scheme::new("spare", fixed, Replicas::new(spread, 0)).when_idle())
}

#[cfg(test)]
mod tests;
