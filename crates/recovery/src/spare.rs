//! A spare copy of what was lost, in spare time: "spare", the scheme that servers begin with.
//!
//! A copy that leaves while new data waits takes that data's place. Where the network is hardly wider
//! than the stream, that costs more freezes than the copy prevents. [`Scheme::when_idle()`] makes any scheme
//! one whose replicas leave only when nothing else waits, or while a viewer catches up on a path wider than the stream.
//!
//! Real losses come in bursts: what is sent at the moment of the retransmission shares its fate. The
//! replicas of this scheme are due [`APART`]: each 20 ms after the copy before it, and later on long
//! paths. Later still, and a copy comes hardly earlier than the next round (experiments/live-default.toml
//! measures it). Each lost round is a loss of its own and gets as many replicas again.

use crate::Scheme;
use crate::art::{Replicas, Spread};
use crate::fixed::{Fixed, Reading};
use crate::range::OutOfRange;
use core::time::Duration;

/// The most replicas of a round.
pub const MAX_COPIES: u32 = 10;

/// How far the copies of a round are apart when they become due.
pub const APART: Spread = Spread::Apart { least: Duration::from_millis(20), rtts: 0.25 };

/// "spare": `copies` replicas of each round, 0 to [`MAX_COPIES`], spread like this, for example [`APART`],
/// and only [when nothing else waits](Scheme::when_idle()). With 0 copies it is plain retransmission.
///
/// # Errors
/// When `copies` is out of range.
pub fn scheme(copies: u32, spread: Spread) -> Result<Scheme, OutOfRange> {
    if copies > MAX_COPIES {
        return Err(OutOfRange { key: "copies", allowed: "0 to 10" });
    }
    let fixed = Fixed { slope: 0, offset: copies.cast_signed(), reading: Reading::Extra };
    // Nothing is drawn: the seed decides nothing.
    Ok(Scheme::new("spare", fixed, Replicas::new(spread, 0)).when_idle())
}

#[cfg(test)]
mod tests;
