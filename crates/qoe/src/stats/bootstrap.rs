//! Bootstrap intervals: the spread of a statistic over samples drawn with replacement from the
//! sample itself. [`clustered`](super::clustered) draws them.
//!
//! Sources: Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, for percentile
//! intervals (chapter 13), bias-corrected and accelerated (BCa) intervals (chapter 14), and
//! differences, for which both samples are resampled (chapter 8); Davison and Hinkley, "Bootstrap
//! Methods and their Application", 1997, chapter 5, for their acceleration.

use super::normal;
use super::sample::{Interval, Sample};

/// A statistic with its bootstrap distribution, created by
/// [`Clustered::difference`](super::Clustered::difference).
#[derive(Clone, Debug)]
pub struct Bootstrap {
    estimate: f64,
    replicates: Sample,
    acceleration: f64,
}

impl Bootstrap {
    /// Combines a statistic with its replicates. `None` without replicates, or if one is not
    /// finite.
    pub(super) fn from_replicates(
        estimate: f64,
        replicates: impl IntoIterator<Item = f64>,
        acceleration: f64,
    ) -> Option<Self> {
        Some(Self { estimate, replicates: Sample::new(replicates)?, acceleration })
    }

    /// The statistic.
    pub fn estimate(&self) -> f64 {
        self.estimate
    }

    /// Standard error: the standard deviation of the replicates.
    pub fn standard_error(&self) -> f64 {
        self.replicates.variance().unwrap_or(0.0).sqrt()
    }

    /// Two-sided p-value of the hypothesis that the statistic is 0: the normal tail beyond this
    /// number of standard errors. The fraction of replicates beyond 0 could not resolve small
    /// p-values, and BCa's correction underestimates them that far out.
    pub fn p_value(&self) -> f64 {
        if self.estimate == 0.0 {
            return 1.0;
        }
        2.0 * normal::cdf(-self.estimate.abs() / self.standard_error())
    }

    /// BCa interval at `level` (0 to 1): the percentile interval, corrected for the bias of the
    /// replicates and for a spread that depends on the statistic. Better than percentiles for
    /// skewed metrics such as durations.
    pub fn bca(&self, level: f64) -> Interval {
        let tail = normal::quantile((1.0 - level) / 2.0);
        let bias = self.bias();
        let order = |z: f64| {
            let shifted = bias + z;
            // As |a| <= 1/6, this is not positive only far out, where the order is 0 or 1.
            let stretch = (1.0 - self.acceleration * shifted).max(f64::EPSILON);
            normal::cdf(bias + shifted / stretch)
        };
        self.between(order(tail), order(-tail))
    }

    /// Efron and Tibshirani's z₀: the estimate's rank among the replicates. Ties, which are
    /// frequent for quantiles, count half.
    fn bias(&self) -> f64 {
        let replicates = self.replicates.values();
        let less = replicates.partition_point(|value| *value < self.estimate);
        let up_to = replicates.partition_point(|value| *value <= self.estimate);
        let n = replicates.len() as f64;
        let share = (less + up_to) as f64 / (2.0 * n);
        normal::quantile(share.clamp(0.5 / n, 1.0 - 0.5 / n))
    }

    fn between(&self, low: f64, high: f64) -> Interval {
        Interval { low: self.replicates.quantile(low), high: self.replicates.quantile(high) }
    }
}

/// Acceleration a of a sum over samples, from its values without each member.
///
/// With the influence l = (n − 1)(θ − θ without the member) of each member of each sample,
/// a = 1/6 · Σ (Σ l³ / n³) / (Σ (Σ l² / n²))^(3/2). The outer sums are over the samples.
pub(super) fn acceleration_of(left_out: impl IntoIterator<Item = Vec<f64>>) -> f64 {
    let (mut squares, mut cubes) = (0.0, 0.0);
    for left_out in left_out {
        let n = left_out.len() as f64;
        let mean = left_out.iter().sum::<f64>() / n;
        for value in left_out {
            let influence = (n - 1.0) / n * (mean - value);
            squares += influence.powi(2);
            cubes += influence.powi(3);
        }
    }
    if squares > 0.0 { cubes / (6.0 * squares.powf(1.5)) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{Clustered, Estimate, Observation};
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{Rng, SeedableRng};

    fn uniform(rng: &mut ChaCha8Rng) -> f64 {
        (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Exponential with mean 1, as skewed as durations.
    fn exponential(rng: &mut ChaCha8Rng) -> f64 {
        -(1.0 - uniform(rng)).ln()
    }

    fn draw(n: usize, rng: &mut ChaCha8Rng, one: impl Fn(&mut ChaCha8Rng) -> f64) -> Sample {
        Sample::new((0..n).map(|_| one(rng))).unwrap()
    }

    /// Differences of means and of 0.9 quantiles, b minus a. Each value is its own cluster.
    fn difference(
        a: &Sample,
        b: &Sample,
        resamples: usize,
        rng: &mut ChaCha8Rng,
    ) -> [Bootstrap; 2] {
        let apart = |sample: &Sample, first: u32| {
            let values = sample.values().iter().zip(first..);
            let each = values.map(|(&value, cluster)| Observation { value, weight: 1.0, cluster });
            Clustered::new(each).unwrap()
        };
        let all = apart(b, 10_000).difference(&apart(a, 0), &[0.9], resamples, rng).unwrap();
        all.try_into().unwrap()
    }

    /// Fraction of 500 intervals that contain `truth`.
    fn coverage(truth: f64, mut experiment: impl FnMut(&mut ChaCha8Rng) -> Interval) -> f64 {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let covered = (0..500).filter(|_| experiment(&mut rng).contains(truth)).count();
        covered as f64 / 500.0
    }

    // The standard deviation of the coverage is 1 % for 500 intervals at 95 %.
    #[test]
    fn intervals_of_a_skewed_mean_have_about_nominal_coverage() {
        let bootstrap = |rng: &mut ChaCha8Rng| {
            let (zero, sample) = (Sample::new([0.0; 2]).unwrap(), draw(60, rng, exponential));
            let [mean, _] = difference(&zero, &sample, 400, rng);
            mean
        };
        let bca = coverage(1.0, |rng| bootstrap(rng).bca(0.95));
        let percentile = coverage(1.0, |rng| bootstrap(rng).between(0.025, 0.975));
        let wide = coverage(1.0, |rng| bootstrap(rng).between(0.25, 0.75));
        let student = coverage(1.0, |rng| {
            let Estimate { mean, half } = draw(60, rng, exponential).estimate();
            let half = half.unwrap();
            Interval { low: mean - half, high: mean + half }
        });
        assert!((0.91..=0.98).contains(&bca), "BCa {bca}");
        assert!((0.90..=0.98).contains(&percentile), "percentile {percentile}");
        assert!((0.43..=0.57).contains(&wide), "50 % {wide}");
        assert!((0.90..=0.98).contains(&student), "Student {student}");
    }

    #[test]
    fn intervals_of_a_difference_of_quantiles_have_about_nominal_coverage() {
        // The 0.9 quantile of an exponential is ln 10. b is longer by one half.
        let truth = 0.5 * 10f64.ln();
        let bootstrap = |rng: &mut ChaCha8Rng| {
            let a = draw(150, rng, exponential);
            let b = draw(100, rng, |rng| 1.5 * exponential(rng));
            let [_, quantile] = difference(&a, &b, 400, rng);
            quantile
        };
        let percentile = coverage(truth, |rng| bootstrap(rng).between(0.025, 0.975));
        let bca = coverage(truth, |rng| bootstrap(rng).bca(0.95));
        assert!((0.90..=0.985).contains(&percentile), "percentile {percentile}");
        assert!((0.90..=0.985).contains(&bca), "BCa {bca}");
    }

    #[test]
    fn replicates_spread_like_the_standard_error() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let (zero, sample) = (Sample::new([0.0; 2]).unwrap(), draw(200, &mut rng, uniform));
        let [bootstrap, _] = difference(&zero, &sample, 4_000, &mut rng);
        let spread = bootstrap.replicates.variance().unwrap();
        let expected = sample.variance().unwrap() / 200.0;
        assert!((spread / expected - 1.0).abs() < 0.1, "{spread} {expected}");
        assert!((bootstrap.estimate() - sample.mean()).abs() < 1e-12);
        assert!((bootstrap.replicates.mean() - sample.mean()).abs() < 0.005);
    }

    #[test]
    fn the_acceleration_of_a_mean_is_one_sixth_of_its_skewness() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let sample = draw(500, &mut rng, exponential);
        let (n, mean) = (500.0, sample.mean());
        let moment = |k| sample.values().iter().map(|x| (x - mean).powi(k)).sum::<f64>() / n;
        let expected = moment(3) / moment(2).powf(1.5) / (6.0 * n.sqrt());
        let without_each = |sign: f64| -> Vec<f64> {
            sample.values().iter().map(|x| sign * (n * mean - x) / (n - 1.0)).collect()
        };
        let got = acceleration_of([without_each(1.0)]);
        assert!((got - expected).abs() < 1e-9, "{got} {expected}");
        // Equal samples on both sides cancel out.
        let balanced = acceleration_of([without_each(1.0), without_each(-1.0)]);
        assert!(balanced.abs() < 1e-9, "{balanced}");
    }

    #[test]
    fn bca_selects_the_replicates_given_by_its_formula() {
        let interval = |estimate, acceleration| {
            let replicates = Sample::new((0..=10_000).map(|i| f64::from(i) / 1e4)).unwrap();
            Bootstrap { estimate, replicates, acceleration }.bca(0.95)
        };
        // z₀ = Φ⁻¹(0.6) = 0.25335: Φ(2 z₀ ± 1.95996).
        let biased = interval(0.6, 0.0);
        assert!((biased.low - 0.07308).abs() < 2e-4, "{biased:?}");
        assert!((biased.high - 0.99318).abs() < 2e-4, "{biased:?}");
        // Φ(-1.95996 / 1.195996) and Φ(1.95996 / 0.804004).
        let accelerated = interval(0.5, 0.1);
        assert!((accelerated.low - 0.05063).abs() < 2e-4, "{accelerated:?}");
        assert!((accelerated.high - 0.99261).abs() < 2e-4, "{accelerated:?}");
        let extreme = interval(1.0, 1.0 / 6.0);
        assert!(extreme.low > 0.9 && extreme.high == 1.0, "{extreme:?}");
    }

    #[test]
    fn bca_moves_the_interval_of_a_mean_towards_the_long_tail() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let (zero, sample) = (Sample::new([0.0; 2]).unwrap(), draw(40, &mut rng, exponential));
        let [bootstrap, _] = difference(&zero, &sample, 4_000, &mut rng);
        let (percentile, bca) = (bootstrap.between(0.025, 0.975), bootstrap.bca(0.95));
        assert!(bca.low > percentile.low && bca.high > percentile.high);
    }

    #[test]
    fn the_same_seed_gives_the_same_interval() {
        let sample = Sample::new((0..50).map(f64::from)).unwrap();
        let run = |seed| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            difference(&sample, &sample, 200, &mut rng).map(|one| one.bca(0.9))
        };
        assert_eq!(run(5), run(5));
        assert_ne!(run(5), run(6));
    }

    #[test]
    fn constants_have_no_width() {
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        let same = Sample::new([2.0; 5]).unwrap();
        for bootstrap in difference(&same, &same, 10, &mut rng) {
            assert_eq!(bootstrap.bca(0.95), Interval { low: 0.0, high: 0.0 });
        }
    }
}
