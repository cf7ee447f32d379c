//! Stateless seeded randomness: a stream is a key, and its n-th draw is a hash of the key and n
//! (the output function of SplitMix64 over a Weyl sequence: Steele, Lea and Flood, OOPSLA 2014).
//! Draws are independent of other nodes and of the order of access.

use core::fmt;
use core::str::FromStr;

use units::{GOLDEN_GAMMA, mix64};

use crate::text::ParseError;

/// An indexed stream of draws.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DrawStream(u64);

impl DrawStream {
    /// Creates the stream of a node by its role and the name of its link.
    pub(crate) fn new(seed: u64, link: &str, role: &str) -> Self {
        let absorb = |key: u64, name: &str| {
            name.bytes().fold(mix64(key ^ name.len() as u64), |key, byte| {
                mix64(key.wrapping_add(GOLDEN_GAMMA) ^ u64::from(byte))
            })
        };
        Self(absorb(absorb(mix64(seed.wrapping_add(GOLDEN_GAMMA)), link), role))
    }

    /// Returns the draw with this index, uniform over all 64-bit words.
    #[inline]
    pub(crate) const fn at(self, index: u64) -> u64 {
        mix64(self.0.wrapping_add(index.wrapping_mul(GOLDEN_GAMMA)))
    }

    /// Returns an approximately Gaussian draw in units of 2^-16 standard deviations, clamped to
    /// three of them: the sum of twelve uniform 16-bit numbers (mean 12 × 32767.5, standard
    /// deviation 2^16). Integers give identical results on all machines.
    pub(crate) fn gaussian(self, index: u64) -> i64 {
        let base = index.wrapping_mul(3);
        let sum: u64 = (0..3)
            .map(|i| self.at(base.wrapping_add(i)))
            .map(|d| (d & 0xffff) + (d >> 16 & 0xffff) + (d >> 32 & 0xffff) + (d >> 48))
            .sum();
        (sum as i64 - 12 * 65_535 / 2).clamp(-3 << 16, 3 << 16)
    }
}

/// A probability, 0 to 1, with a resolution of 2^-53. Parsed from `5%` or `0.05`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Probability(u64);

impl Probability {
    /// Never.
    pub const ZERO: Self = Self(0);
    /// Always.
    pub const ONE: Self = Self(1 << 53);

    /// Converts `p`; `None` outside 0 to 1.
    pub fn new(p: f64) -> Option<Self> {
        (0.0..=1.0).contains(&p).then(|| Self::clamped(p))
    }

    /// Converts `p`, clamped to 0 to 1; zero for NaN.
    pub(crate) fn clamped(p: f64) -> Self {
        Self((p.clamp(0.0, 1.0) * (1_u64 << 53) as f64).round() as u64)
    }

    /// Value from 0 to 1.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / (1_u64 << 53) as f64
    }

    /// Probability of the opposite event.
    pub(crate) const fn complement(self) -> Self {
        Self((1 << 53) - self.0)
    }

    /// Returns true if an event of this probability occurs at this draw.
    #[inline]
    pub(crate) const fn hit(self, draw: u64) -> bool {
        draw >> 11 < self.0
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.as_f64() * 100.0)
    }
}

impl fmt::Debug for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Probability {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let trimmed = text.trim();
        let (number, scale) = match trimmed.strip_suffix('%') {
            Some(number) => (number, 100.0),
            None => (trimmed, 1.0),
        };
        number.trim().parse().ok().and_then(|n: f64| Self::new(n / scale)).ok_or_else(|| {
            ParseError::new(text, "a probability: `5%`, or a number from 0 to 1 like `0.05`")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_by_seed_link_and_role() {
        let first = |seed, link, role| DrawStream::new(seed, link, role).at(0);
        let all = [
            first(1, "down", "loss"),
            first(2, "down", "loss"),
            first(1, "up", "loss"),
            first(1, "down", "jitter"),
            first(1, "downl", "oss"),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|b| a != b), "{all:?}");
        }
        assert_eq!(first(1, "down", "loss"), all[0]);
    }

    #[test]
    fn draws_are_uniform_and_gaussian_draws_have_unit_variance() {
        let stream = DrawStream::new(7, "test", "moments");
        let n = 200_000_u64;
        let mean = (0..n).map(|i| stream.at(i) as f64 / 2f64.powi(64)).sum::<f64>() / n as f64;
        assert!((mean - 0.5).abs() < 0.003, "{mean}");
        let bell: Vec<f64> = (0..n).map(|i| stream.gaussian(i) as f64 / 65_536.0).collect();
        let mean = bell.iter().sum::<f64>() / n as f64;
        let variance = bell.iter().map(|z| z * z).sum::<f64>() / n as f64;
        assert!(mean.abs() < 0.01, "{mean}");
        assert!((variance - 1.0).abs() < 0.02, "{variance}");
        let within = bell.iter().filter(|z| z.abs() < 1.0).count() as f64 / n as f64;
        assert!((within - 0.683).abs() < 0.01, "{within}");
    }

    #[test]
    fn certain_and_impossible_events_are_exact() {
        for draw in [0, 1, u64::MAX / 2, u64::MAX] {
            assert!(Probability::ONE.hit(draw));
            assert!(!Probability::ZERO.hit(draw));
        }
        assert_eq!("100%".parse(), Ok(Probability::ONE));
        assert_eq!("5%".parse(), Ok(Probability::clamped(0.05)));
        assert_eq!("0.05".parse::<Probability>(), "5 %".parse());
        for bad in ["101%", "-1%", "nan", "5", "", "%"] {
            let error = bad.parse::<Probability>().unwrap_err().to_string();
            assert!(error.contains("5%"), "{error}");
        }
    }
}
