//! Seeded random streams by name. Each quantity of each viewer or session has its own stream, so a
//! new quantity or an additional draw does not change the others.

use recovery::Random;

/// Prime of the FNV-1a hash.
const PRIME: u64 = 0x0000_0100_0000_01b3;
/// Increment per index. Odd, so that every index has a distinct stream.
const STEP: u64 = 0xd129_0d3b_32cd_83a7;

/// All streams of a seed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draws(u64);

impl Draws {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the stream of quantity `name` for item `index`.
    pub(super) fn of(self, name: &str, index: u64) -> Random {
        let key = name.bytes().fold(self.0 ^ 0xcbf2_9ce4_8422_2325, |key, byte| {
            (key ^ u64::from(byte)).wrapping_mul(PRIME)
        });
        Random::new(key.wrapping_add(index.wrapping_mul(STEP)))
    }

    /// Returns a number unique to `name` and `index`, for seeds.
    pub(super) fn number(self, name: &str, index: u64) -> u64 {
        let mut random = self.of(name, index);
        u64::from(random.below(u32::MAX)) << 32 | u64::from(random.below(u32::MAX))
    }
}

/// Draws from the standard normal distribution (Box and Muller 1958).
pub(super) fn normal(random: &mut Random) -> f64 {
    let radius = (-2.0 * (1.0 - random.fraction()).ln()).sqrt();
    radius * (core::f64::consts::TAU * random.fraction()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_by_name_index_and_seed() {
        let first = |seed, name, index| Draws::new(seed).of(name, index).fraction();
        let one = first(1, "rtt", 0);
        assert_eq!(one, first(1, "rtt", 0));
        for other in [first(2, "rtt", 0), first(1, "rate", 0), first(1, "rtt", 1)] {
            assert!((one - other).abs() > 1e-9);
        }
        // Streams of adjacent indices are independent.
        let draws = Draws::new(7);
        let pairs: Vec<(f64, f64)> = (0..20_000)
            .map(|n| (draws.of("x", n).fraction() - 0.5, draws.of("x", n + 1).fraction() - 0.5))
            .collect();
        let covariance = pairs.iter().map(|(a, b)| a * b).sum::<f64>() / pairs.len() as f64;
        assert!((covariance * 12.0).abs() < 0.03, "{covariance}");
    }

    #[test]
    fn normal_draws_have_their_moments() {
        let mut random = Draws::new(3).of("normal", 0);
        let all: Vec<f64> = (0..100_000).map(|_| normal(&mut random)).collect();
        let mean = all.iter().sum::<f64>() / 1e5;
        let variance = all.iter().map(|z| z * z).sum::<f64>() / 1e5;
        assert!(mean.abs() < 0.015 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    }
}
