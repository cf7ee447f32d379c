//! A policer: a token bucket without a queue, as used by access networks to enforce a plan (Flach
//! et al., "An Internet-Wide Analysis of Traffic Policing", SIGCOMM 2016).
//!
//! Uses only integers, like [`crate::rate`]: tokens are bit-nanoseconds of work at the policer's
//! rate.

use core::str::FromStr;

use units::{Rate, Timestamp};

use crate::rate::WORK_PER_BYTE;
use crate::text::{Fields, ParseError, parse_bytes};

/// Minimum burst in bytes: a packet of the usual MTU must pass.
const MIN_BURST: u64 = 1_500;

/// A token bucket that drops packets beyond `rate` and `burst`.
///
/// As text: `2mbps,burst=20kB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policer {
    /// Token rate. Above zero.
    pub rate: Rate,
    /// Bucket size in bytes, at least 1,500. The bucket is full at the start.
    pub burst: u64,
}

impl FromStr for Policer {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        const EXPECTED: &str =
            "a rate above zero and a burst of at least 1500 B: `2mbps,burst=20kB`";
        let (rate, settings) = text.split_once(',').unwrap_or((text, ""));
        let rate: Option<Rate> = rate.trim().parse().ok().filter(|rate| *rate > Rate::ZERO);
        let rate = rate.ok_or_else(|| ParseError::new(text, EXPECTED))?;
        let mut fields = Fields::new(text, settings, EXPECTED)?;
        let burst = fields.optional_with("burst", parse_bytes)?;
        fields.finish()?;
        let burst = burst.filter(|burst| *burst >= MIN_BURST);
        burst.map(|burst| Self { rate, burst }).ok_or_else(|| ParseError::new(text, EXPECTED))
    }
}

/// The bucket of one link.
#[derive(Debug)]
pub(crate) struct Bucket {
    bps: u128,
    /// Maximum tokens, and tokens at `at`, in bit-nanoseconds.
    size: u128,
    tokens: u128,
    at: Timestamp,
}

impl Bucket {
    pub(crate) fn new(policer: Policer) -> Self {
        let size = u128::from(policer.burst) * u128::from(WORK_PER_BYTE);
        Self { bps: policer.rate.as_bps().into(), size, tokens: size, at: Timestamp::ZERO }
    }

    /// Returns true if a packet of `size` bytes passes at `now`, and takes its tokens.
    #[inline]
    pub(crate) fn passes(&mut self, now: Timestamp, size: u32) -> bool {
        let earned = now.since(self.at).as_nanos().saturating_mul(self.bps);
        self.tokens = self.tokens.saturating_add(earned).min(self.size);
        self.at = now;
        let cost = u128::from(size) * u128::from(WORK_PER_BYTE);
        let passes = cost <= self.tokens;
        if passes {
            self.tokens -= cost;
        }
        passes
    }
}

#[cfg(test)]
#[path = "policer_tests.rs"]
mod tests;
