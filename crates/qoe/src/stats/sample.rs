//! Samples: quantiles by definition 7 of Hyndman and Fan, "Sample quantiles in statistical
//! packages", The American Statistician 50(4), 1996 (the default of R and NumPy), moments, the
//! empirical distribution function, and Student's confidence interval of the mean.

/// A sorted sample of at least one finite number.
///
/// ```
/// use mendcast_qoe::stats::Sample;
///
/// let first_frames = Sample::new([310.0, 240.0, 290.0, 1_200.0]).unwrap();
/// assert_eq!(first_frames.median(), 300.0);
/// assert_eq!(first_frames.mean(), 510.0);
/// let interval = first_frames.estimate();
/// assert!(interval.half.is_some_and(|half| half > 400.0));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Ascending, never empty, all finite.
    values: Vec<f64>,
}

/// A closed interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Interval {
    /// Returns true if `value` is in the interval.
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// Mean with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Arithmetic mean.
    pub mean: f64,
    /// Half the width of Student's 95 % interval: t √(variance / n), where t is the 97.5 % quantile
    /// with n − 1 degrees of freedom. Exact for normal values. Few and skewed values have a lower
    /// coverage. `None` for a single value.
    pub half: Option<f64>,
}

impl Estimate {
    /// Estimates the mean. `None` without values, or if one is not finite.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        Sample::new(values).map(|sample| sample.estimate())
    }
}

impl Sample {
    /// Creates a sample. `None` without values, or if one is not finite.
    pub fn new(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        if values.is_empty() || !values.iter().all(|value| value.is_finite()) {
            return None;
        }
        values.sort_by(f64::total_cmp);
        Some(Self { values })
    }

    /// The values, ascending; at least one.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// Quantile of order `p`, clamped to 0 to 1: interpolates linearly between the values around
    /// position (n − 1) p, counted from 0.
    pub fn quantile(&self, p: f64) -> f64 {
        let last = self.values.len() - 1;
        let position = last as f64 * p.clamp(0.0, 1.0);
        let below = (position.floor() as usize).min(last);
        let above = (below + 1).min(last);
        let weight = position - below as f64;
        self.values[below] * (1.0 - weight) + self.values[above] * weight
    }

    /// Median.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Arithmetic mean.
    pub fn mean(&self) -> f64 {
        let n = self.values.len() as f64;
        let rough = self.values.iter().sum::<f64>() / n;
        // The second pass corrects the rounding error of the first.
        rough + self.values.iter().map(|value| value - rough).sum::<f64>() / n
    }

    /// Sample variance with n − 1 degrees of freedom. `None` for a single value.
    pub fn variance(&self) -> Option<f64> {
        let n = self.values.len();
        let mean = self.mean();
        let squares: f64 = self.values.iter().map(|value| (value - mean).powi(2)).sum();
        (n > 1).then(|| squares / (n - 1) as f64)
    }

    /// Mean with Student's interval.
    pub fn estimate(&self) -> Estimate {
        let n = self.values.len();
        let half = |variance: f64| student_t_975(n - 1) * (variance / n as f64).sqrt();
        Estimate { mean: self.mean(), half: self.variance().map(half) }
    }

    /// Empirical distribution function: each distinct value with the fraction of values up to it,
    /// ascending. The last fraction is 1.
    pub fn cdf(&self) -> impl Iterator<Item = (f64, f64)> {
        let n = self.values.len() as f64;
        let mut seen = 0;
        self.values.chunk_by(|a, b| a == b).map(move |equal| {
            seen += equal.len();
            (equal[0], seen as f64 / n)
        })
    }
}

/// 97.5 % quantile of Student's t with `freedom` (at least 1) degrees of freedom: a table, then the
/// expansion of Abramowitz and Stegun 26.7.5, with an error below 2e-5 in its range.
fn student_t_975(freedom: usize) -> f64 {
    const TABLE: [f64; 10] = [
        12.706_205, 4.302_653, 3.182_446, 2.776_445, 2.570_582, 2.446_912, 2.364_624, 2.306_004,
        2.262_157, 2.228_139,
    ];
    if let Some(point) = TABLE.get(freedom - 1) {
        return *point;
    }
    let z = 1.959_963_985_f64;
    let v = freedom as f64;
    z + (z.powi(3) + z) / (4.0 * v)
        + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * v.powi(2))
        + (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / (384.0 * v.powi(3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    fn sample(values: &[f64]) -> Sample {
        Sample::new(values.iter().copied()).unwrap()
    }

    #[test]
    fn quantiles_match_definition_7() {
        // R: quantile(c(1, 2, 4, 8), c(0, .1, .25, .5, .75, .95, 1), type = 7)
        let sample = sample(&[8.0, 1.0, 4.0, 2.0]);
        for (p, expected) in
            [(0.0, 1.0), (0.1, 1.3), (0.25, 1.75), (0.5, 3.0), (0.75, 5.0), (0.95, 7.4), (1.0, 8.0)]
        {
            assert!((sample.quantile(p) - expected).abs() < 1e-12, "{p}");
        }
        assert_eq!((sample.quantile(-1.0), sample.quantile(2.0)), (1.0, 8.0));
    }

    #[test]
    fn moments_of_a_known_sample() {
        let sample = sample(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert_eq!(sample.mean(), 5.0);
        assert!((sample.variance().unwrap() - 32.0 / 7.0).abs() < 1e-12);
        // 5 ± 2.364624 √(32/7/8)
        let estimate = sample.estimate();
        assert_eq!(estimate.mean, 5.0);
        assert!((estimate.half.unwrap() - 1.787_488).abs() < 1e-6, "{estimate:?}");
    }

    #[test]
    fn variance_survives_a_large_offset() {
        let sample = sample(&[1e9 + 4.0, 1e9 + 7.0, 1e9 + 13.0, 1e9 + 16.0]);
        assert_eq!(sample.variance(), Some(30.0));
    }

    #[test]
    fn statistics_of_too_few_values_are_none() {
        assert_eq!(Sample::new([]), None);
        assert_eq!(Sample::new([1.0, f64::NAN]), None);
        assert_eq!(Sample::new([f64::INFINITY]), None);
        let one = sample(&[3.0]);
        assert_eq!((one.mean(), one.quantile(0.3), one.variance()), (3.0, 3.0, None));
        assert_eq!(one.estimate(), Estimate { mean: 3.0, half: None });
        assert_eq!(Estimate::of([]), None);
    }

    #[test]
    fn the_distribution_function_has_one_step_per_distinct_value() {
        let steps: Vec<_> = sample(&[3.0, 1.0, 3.0, 2.0]).cdf().collect();
        assert_eq!(steps, [(1.0, 0.25), (2.0, 0.5), (3.0, 1.0)]);
    }

    #[test]
    fn quantiles_of_student_match_tables() {
        // 1 and 2 degrees of freedom have closed forms: tan(0.475 π), 0.95 √(2 / (1 - 0.95²)).
        assert!((student_t_975(1) - (0.475 * core::f64::consts::PI).tan()).abs() < 1e-6);
        assert!((student_t_975(2) - 0.95 * (2.0 / (1.0 - 0.95f64.powi(2))).sqrt()).abs() < 1e-6);
        for (freedom, point) in
            [(5, 2.571), (10, 2.228), (11, 2.201), (20, 2.086), (30, 2.042), (120, 1.980)]
        {
            assert!((student_t_975(freedom) - point).abs() < 5.1e-4, "{freedom}");
        }
        assert!((student_t_975(1_000_000) - 1.959_966).abs() < 1e-6);
        assert!(
            (1..200).map(student_t_975).is_sorted_by(|a, b| a > b),
            "no step between table and expansion"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            rng_seed: RngSeed::Fixed(20_261_121),
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        // The (k + 1)-th smallest of n values is the quantile of order k / (n - 1). Quantiles are
        // linear between these points.
        #[test]
        fn quantiles_equal_a_sorted_reference(
            values in proptest::collection::vec(-1e6..1e6f64, 2..50), between in 0.0..1.0f64,
        ) {
            let mut sorted = values.clone();
            sorted.sort_by(f64::total_cmp);
            let sample = sample(&values);
            let last = sorted.len() - 1;
            for k in 0..last {
                let expected = sorted[k] + between * (sorted[k + 1] - sorted[k]);
                let quantile = sample.quantile((k as f64 + between) / last as f64);
                prop_assert!((quantile - expected).abs() < 1e-6, "{quantile} {expected}");
            }
        }

        #[test]
        fn quantiles_rise_with_their_order(
            values in proptest::collection::vec(-1e3..1e3f64, 1..40),
            p in 0.0..1.0f64,
            q in 0.0..1.0f64,
        ) {
            let sample = sample(&values);
            prop_assert!(sample.quantile(p.min(q)) <= sample.quantile(p.max(q)) + 1e-9);
        }
    }
}
