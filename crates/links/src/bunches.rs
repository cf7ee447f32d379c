//! A link layer that delivers packets in bunches: Wi-Fi stations in power saving (frames wait at
//! the access point for a beacon), DRX of LTE and 5G, request slots of DOCSIS and satellites.

use core::str::FromStr;
use core::time::Duration;

use units::Timestamp;

use crate::random::DrawStream;
use crate::text::{Fields, ParseError, parse_duration};

/// Valid periods.
const PERIODS: core::ops::RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(5);

/// Delivery in bunches: packets wait after the bottleneck until the link layer wakes up.
///
/// The seed draws the phase. As text: `200ms`; `300ms,awake=30ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bunches {
    /// Period of the wake-ups. 1 ms to 5 s.
    pub every: Duration,
    /// Time after each wake-up during which packets pass at once. Below `every`; default 0.
    pub awake: Duration,
}

impl FromStr for Bunches {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        const EXPECTED: &str =
            "a period of 1 ms to 5 s like `200ms`, also with a shorter `awake`: `300ms,awake=30ms`";
        let (every, settings) = text.split_once(',').unwrap_or((text, ""));
        let mut fields = Fields::new(text, settings, EXPECTED)?;
        let awake = fields.optional_with("awake", parse_duration)?.unwrap_or_default();
        fields.finish()?;
        let every = parse_duration(every).ok().filter(|every| PERIODS.contains(every));
        every
            .filter(|every| awake < *every)
            .map(|every| Self { every, awake })
            .ok_or_else(|| ParseError::new(text, EXPECTED))
    }
}

/// The wake-ups of one link, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WakeUps {
    every: u64,
    awake: u64,
    /// Time of the first wake-up. Below `every`.
    phase: u64,
}

impl WakeUps {
    pub(crate) fn new(bunches: Bunches, seed: u64, link: &str) -> Self {
        let every = (bunches.every.as_nanos() as u64).max(1);
        let draw = DrawStream::new(seed, link, "bunches").at(0);
        let phase = (u128::from(draw) * u128::from(every)) >> 64;
        Self { every, awake: bunches.awake.as_nanos() as u64, phase: phase as u64 }
    }

    /// Returns when a packet continues that left the bottleneck at `at`. Preserves the order of
    /// packets.
    #[inline]
    pub(crate) fn release(&self, at: Timestamp) -> Timestamp {
        let since = (at.as_nanos() % self.every + self.every - self.phase) % self.every;
        if since == 0 || since < self.awake {
            return at;
        }
        at + Duration::from_nanos(self.every - since)
    }
}

#[cfg(test)]
#[path = "bunches_tests.rs"]
mod tests;
