//! Clustered samples, such as the sessions of viewers, with bootstrap intervals that resample whole
//! clusters.
//!
//! Values of one cluster are similar, so they carry less information than independent ones.
//! Resampling single values would yield intervals that are too narrow. Clusters are drawn with
//! replacement and kept as they are (Davison and Hinkley, "Bootstrap Methods and their
//! Application", 1997, section 3.8).

use rand_chacha::rand_core::Rng;

use super::bootstrap::{Bootstrap, acceleration_of};

/// One value of a clustered sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// The value.
    pub value: f64,
    /// Weight in the mean, above 0; 1 for a plain mean. If values are ratios and weights their
    /// denominators, the mean is the ratio of the sums. Quantiles are unweighted.
    pub weight: f64,
    /// Cluster, as an arbitrary number.
    pub cluster: u32,
}

/// A sorted sample of at least one finite value, with clusters.
#[derive(Clone, Debug)]
pub struct Clustered {
    /// Ascending, never empty, all finite.
    values: Vec<f64>,
    /// Cluster of each value.
    clusters: Vec<u32>,
    /// Sums per cluster.
    sums: Vec<Sums>,
}

/// Sums over a cluster, for the mean.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    count: usize,
    weight: f64,
    weighted: f64,
}

impl Clustered {
    /// Creates a sample. `None` without observations, with a non-finite value, or with a weight
    /// that is not positive and finite.
    pub fn new(observations: impl IntoIterator<Item = Observation>) -> Option<Self> {
        let mut all: Vec<Observation> = observations.into_iter().collect();
        let sound =
            |one: &Observation| one.value.is_finite() && one.weight.is_finite() && one.weight > 0.0;
        if all.is_empty() || !all.iter().all(sound) {
            return None;
        }
        // Sorts by all fields, so that the input order does not matter.
        all.sort_by(|a, b| {
            let by_value = a.value.total_cmp(&b.value).then(a.weight.total_cmp(&b.weight));
            by_value.then(a.cluster.cmp(&b.cluster))
        });
        let mut names: Vec<u32> = all.iter().map(|one| one.cluster).collect();
        names.sort_unstable();
        names.dedup();
        let mut sums = vec![Sums::default(); names.len()];
        let (mut values, mut clusters) = (Vec::new(), Vec::new());
        for one in all {
            let index = names.partition_point(|name| *name < one.cluster);
            values.push(one.value);
            clusters.push(index as u32);
            let sum = &mut sums[index];
            sum.count += 1;
            sum.weight += one.weight;
            sum.weighted += one.weight * one.value;
        }
        Some(Self { values, clusters, sums })
    }

    /// The values, ascending; at least one.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// Number of clusters.
    pub fn clusters(&self) -> usize {
        self.sums.len()
    }

    /// The weighted mean.
    pub fn mean(&self) -> f64 {
        self.mean_of(&self.once())
    }

    /// Quantiles of the given orders (0 to 1, ascending), defined as in
    /// [`Sample`](super::Sample::quantile).
    pub fn quantiles(&self, orders: &[f64]) -> Vec<f64> {
        self.quantiles_of(&self.once(), orders)
    }

    /// Returns the difference of the means, `self` minus `baseline`, followed by the differences of
    /// the quantiles of the given orders (0 to 1, ascending), each with `resamples` bootstrap
    /// replicates. `None` with fewer than two clusters or without resamples.
    ///
    /// The two samples must not share clusters. A quantile needs several clusters' worth of values
    /// beyond it: otherwise no bootstrap interval is accurate.
    pub fn difference(
        &self,
        baseline: &Self,
        orders: &[f64],
        resamples: usize,
        rng: &mut impl Rng,
    ) -> Option<Vec<Bootstrap>> {
        if self.clusters().min(baseline.clusters()) < 2 {
            return None;
        }
        let less = |a: Vec<f64>, b: Vec<f64>| -> Vec<f64> {
            a.into_iter().zip(b).map(|(a, b)| a - b).collect()
        };
        let all = |part: &Self, times: &[u32]| {
            let mut all = vec![part.mean_of(times)];
            all.extend(part.quantiles_of(times, orders));
            all
        };
        let estimates = less(all(self, &self.once()), all(baseline, &baseline.once()));
        let mut replicates = vec![Vec::with_capacity(resamples); estimates.len()];
        for _ in 0..resamples {
            let (times, base) = (self.draw(rng), baseline.draw(rng));
            let drawn = less(all(self, &times), all(baseline, &base));
            replicates.iter_mut().zip(drawn).for_each(|(all, one)| all.push(one));
        }
        // The jackknife does not estimate the spread of quantiles (Efron and Tibshirani, chapter
        // 11). Their acceleration is 0.
        let of_means = acceleration_of([(self, 1.0), (baseline, -1.0)].map(|(part, sign)| {
            part.means_without_each().into_iter().map(|mean| sign * mean).collect()
        }));
        let accelerations = core::iter::once(of_means).chain(core::iter::repeat(0.0));
        let parts = estimates.into_iter().zip(replicates).zip(accelerations);
        parts.map(|((estimate, all), a)| Bootstrap::from_replicates(estimate, all, a)).collect()
    }

    /// Counts each cluster once.
    fn once(&self) -> Vec<u32> {
        vec![1; self.clusters()]
    }

    /// Draws as many clusters as there are, and returns the count of each.
    fn draw(&self, rng: &mut impl Rng) -> Vec<u32> {
        let mut times = vec![0; self.clusters()];
        for _ in 0..times.len() {
            // The upper half of the product is uniform below the length, with a relative bias of
            // 2^-64.
            let index = (u128::from(rng.next_u64()) * times.len() as u128) >> 64;
            times[index as usize] += 1;
        }
        times
    }

    /// Returns the mean with each cluster counted `times` times.
    fn mean_of(&self, times: &[u32]) -> f64 {
        let (mut weight, mut weighted) = (0.0, 0.0);
        for (sum, times) in self.sums.iter().zip(times) {
            weight += sum.weight * f64::from(*times);
            weighted += sum.weighted * f64::from(*times);
        }
        weighted / weight
    }

    fn means_without_each(&self) -> Vec<f64> {
        let weight: f64 = self.sums.iter().map(|sum| sum.weight).sum();
        let weighted: f64 = self.sums.iter().map(|sum| sum.weighted).sum();
        let without = |sum: &Sums| (weighted - sum.weighted) / (weight - sum.weight);
        self.sums.iter().map(without).collect()
    }

    /// Quantiles by definition 7 of Hyndman and Fan, with each cluster counted `times` times.
    fn quantiles_of(&self, times: &[u32], orders: &[f64]) -> Vec<f64> {
        let sums = self.sums.iter().zip(times);
        let last = sums.map(|(sum, times)| sum.count * *times as usize).sum::<usize>() - 1;
        let positions: Vec<f64> = orders.iter().map(|p| last as f64 * p.clamp(0.0, 1.0)).collect();
        // Values at the integer positions below and above each position.
        let (mut below, mut above) = (Vec::new(), Vec::new());
        let mut seen = 0;
        for (value, cluster) in self.values.iter().zip(&self.clusters) {
            seen += times[*cluster as usize] as usize;
            while positions.get(below.len()).is_some_and(|at| (at.floor() as usize) < seen) {
                below.push(*value);
            }
            while positions.get(above.len()).is_some_and(|at| (at.ceil() as usize) < seen) {
                above.push(*value);
            }
            if above.len() == positions.len() {
                break;
            }
        }
        let around = below.into_iter().zip(above).zip(positions);
        around.map(|((a, b), at)| a + (b - a) * at.fract()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Interval, Sample};
    use super::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    const ORDERS: [f64; 3] = [0.1, 0.5, 0.95];

    fn uniform(rng: &mut ChaCha8Rng) -> f64 {
        (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn clustered(values: &[(f64, u32)]) -> Clustered {
        let all =
            values.iter().map(|&(value, cluster)| Observation { value, weight: 1.0, cluster });
        Clustered::new(all).unwrap()
    }

    /// Clusters of 1 to 40 values each, close to the cluster's level.
    fn resembling(clusters: u32, first: u32, rng: &mut ChaCha8Rng) -> Vec<(f64, u32)> {
        let mut all = Vec::new();
        for cluster in first..first + clusters {
            let level = uniform(rng) + uniform(rng);
            let count = 1 + (40.0 * uniform(rng).powi(3)) as u32;
            all.extend((0..count).map(|_| (level + 0.2 * uniform(rng), cluster)));
        }
        all
    }

    #[test]
    fn statistics_equal_the_statistics_of_a_plain_sample() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for n in [1, 2, 7, 100] {
            let values: Vec<_> = (0..n).map(|i| (uniform(&mut rng), i % 5 * 1_000_000)).collect();
            let sample = Sample::new(values.iter().map(|(value, _)| *value)).unwrap();
            let clustered = clustered(&values);
            assert!((clustered.mean() - sample.mean()).abs() < 1e-12);
            let orders = [0.0, 0.1, 0.11, 0.5, 0.99, 1.0];
            for (p, got) in orders.iter().zip(clustered.quantiles(&orders)) {
                assert!((got - sample.quantile(*p)).abs() < 1e-12, "{n} {p}");
            }
            assert_eq!(clustered.clusters(), (n as usize).min(5));
        }
    }

    #[test]
    fn ratios_weighted_by_denominator_average_to_the_ratio_of_sums() {
        let ratio =
            |part: f64, whole: f64| Observation { value: part / whole, weight: whole, cluster: 0 };
        let all = Clustered::new([ratio(3.0, 4.0), ratio(1.0, 12.0)]).unwrap();
        assert!((all.mean() - 0.25).abs() < 1e-12);
    }

    #[test]
    fn a_draw_equals_a_sample_with_repeated_clusters() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let values = resembling(6, 0, &mut rng);
        let all = clustered(&values);
        let times = [2, 0, 1, 3, 0, 0];
        let repeated = values.iter().flat_map(|&(value, cluster)| {
            core::iter::repeat_n(value, times[cluster as usize] as usize)
        });
        let sample = Sample::new(repeated).unwrap();
        assert!((all.mean_of(&times) - sample.mean()).abs() < 1e-12);
        for (p, got) in ORDERS.iter().zip(all.quantiles_of(&times, &ORDERS)) {
            assert!((got - sample.quantile(*p)).abs() < 1e-12, "{p}");
        }
    }

    #[test]
    fn only_intervals_over_clusters_cover_the_truth() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let (mut whole, mut median, mut single) = (0, 0, 0);
        const EXPERIMENTS: u32 = 300;
        for _ in 0..EXPERIMENTS {
            let a = resembling(60, 0, &mut rng);
            let b = resembling(60, 60, &mut rng);
            let (a_all, b_all) = (clustered(&a), clustered(&b));
            let all = b_all.difference(&a_all, &ORDERS, 300, &mut rng).unwrap();
            whole += u32::from(all[0].bca(0.95).contains(0.0));
            median += u32::from(all[2].bca(0.95).contains(0.0));
            let apart = |values: &[(f64, u32)], first: u32| {
                clustered(
                    &values.iter().zip(first..).map(|((v, _), c)| (*v, c)).collect::<Vec<_>>(),
                )
            };
            let of_mean = apart(&b, 10_000).difference(&apart(&a, 0), &[], 100, &mut rng).unwrap();
            single += u32::from(of_mean[0].bca(0.95).contains(0.0));
        }
        // The expected coverage is 285 of 300, with a standard deviation of 3.8.
        assert!((272..=296).contains(&whole), "mean: {whole}");
        assert!((272..=297).contains(&median), "median: {median}");
        // Treating about ten similar values as independent makes intervals far too narrow.
        assert!(single < 200, "as if independent: {single}");
    }

    #[test]
    fn duplicated_values_do_not_narrow_the_interval() {
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        let values: Vec<_> = (0..200).map(|i| (uniform(&mut rng), i)).collect();
        let copies: Vec<_> = values.iter().flat_map(|value| [*value; 10]).collect();
        let width = |values: &[(f64, u32)]| {
            let (a, b): (Vec<_>, Vec<_>) = values.iter().partition(|(_, cluster)| cluster % 2 == 0);
            let mut rng = ChaCha8Rng::seed_from_u64(5);
            let all = clustered(&b).difference(&clustered(&a), &[0.5], 500, &mut rng).unwrap();
            all.iter().map(|one| one.bca(0.95)).map(|Interval { low, high }| high - low).collect()
        };
        let (once, ten): (Vec<f64>, Vec<f64>) = (width(&values), width(&copies));
        assert!((once[0] - ten[0]).abs() < 1e-9, "{once:?} {ten:?}");
        assert!((once[1] - ten[1]).abs() < 0.05 * once[1], "{once:?} {ten:?}");
    }

    #[test]
    fn the_p_value_is_the_normal_tail_at_that_many_standard_errors() {
        let mut rng = ChaCha8Rng::seed_from_u64(6);
        let mut draw = |first: u32, shift: f64| {
            let values: Vec<_> =
                (first..first + 300).map(|c| (uniform(&mut rng) + shift, c)).collect();
            clustered(&values)
        };
        // Means of 300 values, uniform in 0..1, on both sides: standard error √(2/12/300).
        let error = (2.0f64 / 12.0 / 300.0).sqrt();
        let (a, b) = (draw(0, 0.0), draw(300, 0.0));
        let shift = b.mean() - a.mean();
        for (errors, p) in [(1.0, 0.317), (1.96, 0.05), (3.0, 0.0027)] {
            let b = clustered(
                &b.values()
                    .iter()
                    .zip(300..)
                    .map(|(v, c)| (v - shift + errors * error, c))
                    .collect::<Vec<_>>(),
            );
            let mut rng = ChaCha8Rng::seed_from_u64(8);
            let got = b.difference(&a, &[0.5], 2_000, &mut rng).unwrap()[0].p_value();
            assert!((0.6..1.6).contains(&(got / p)), "{errors}: {got}");
        }
    }

    #[test]
    fn invalid_comparisons_are_none_and_constants_have_p_zero_or_one() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let one = clustered(&[(1.0, 1), (2.0, 1)]);
        let zeros = clustered(&[(0.0, 1), (0.0, 2), (0.0, 3)]);
        let ones = clustered(&[(1.0, 4), (1.0, 5), (1.0, 6)]);
        assert!(one.difference(&zeros, &[0.5], 10, &mut rng).is_none());
        assert!(ones.difference(&zeros, &[0.5], 0, &mut rng).is_none());
        let p = |b: &Clustered, rng: &mut _| {
            let all = b.difference(&zeros, &[0.5], 200, rng).unwrap();
            all.iter().map(Bootstrap::p_value).collect::<Vec<_>>()
        };
        assert_eq!(p(&ones, &mut rng), [0.0, 0.0]);
        assert_eq!(p(&clustered(&[(0.0, 7), (0.0, 8)]), &mut rng), [1.0, 1.0]);
        for (value, weight) in [(f64::NAN, 1.0), (1.0, 0.0), (1.0, f64::INFINITY)] {
            assert!(Clustered::new([Observation { value, weight, cluster: 0 }]).is_none());
        }
        assert!(Clustered::new([]).is_none());
    }
}
