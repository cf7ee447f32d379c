//! Accumulators of a study: means over sessions, ratios of sums, and distributions.

use qoe::stats::Sample;

use super::section::Cell;

/// Steps of a curve.
const CURVE: u32 = 200;

/// Mean over sessions, each with weight 1.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mean {
    sum: f64,
    n: u64,
}

impl Mean {
    pub(super) fn add(&mut self, value: Option<f64>) {
        if let Some(value) = value {
            self.sum += value;
            self.n += 1;
        }
    }

    pub(super) fn cell(&self, times: f64) -> Cell {
        let value = (self.n > 0).then(|| times * self.sum / self.n as f64);
        Cell { value, n: self.n, paper: None }
    }
}

/// Ratio of sums over sessions, so that sessions are weighted by their denominators.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ratio {
    part: f64,
    whole: f64,
    n: u64,
}

impl Ratio {
    pub(super) fn add(&mut self, part: Option<f64>, whole: Option<f64>) {
        if let Some((part, whole)) = part.zip(whole) {
            self.part += part;
            self.whole += whole;
            self.n += 1;
        }
    }

    pub(super) fn value(&self) -> Option<f64> {
        (self.whole > 0.0).then(|| self.part / self.whole)
    }

    pub(super) fn cell(&self, times: f64) -> Cell {
        Cell { value: self.value().map(|value| times * value), n: self.n, paper: None }
    }
}

/// Values of all sessions, four bytes each.
#[derive(Clone, Debug, Default)]
pub(super) struct Values(Vec<f32>);

impl Values {
    pub(super) fn add(&mut self, value: Option<f64>) {
        self.0.extend(value.map(|value| value as f32));
    }

    /// Returns the joint distribution of these values and of `others`.
    pub(super) fn with(&self, others: &Self) -> Distribution {
        Distribution::new(self.0.iter().chain(&others.0))
    }

    pub(super) fn distribution(&self) -> Distribution {
        Distribution::new(&self.0)
    }
}

/// Sorted values.
#[derive(Clone, Debug)]
pub(super) struct Distribution(Option<Sample>);

impl Distribution {
    fn new<'a>(values: impl IntoIterator<Item = &'a f32>) -> Self {
        Self(Sample::new(values.into_iter().map(|value| f64::from(*value))))
    }

    fn cell(&self, of: impl FnOnce(&Sample) -> f64) -> Cell {
        let n = self.0.as_ref().map_or(0, |sample| sample.values().len() as u64);
        Cell { value: self.0.as_ref().map(of), n, paper: None }
    }

    /// Returns the mean, in units of 1 ÷ `times`.
    pub(super) fn mean(&self, times: f64) -> Cell {
        self.cell(|sample| times * sample.mean())
    }

    /// Returns a quantile.
    pub(super) fn quantile(&self, order: f64, times: f64) -> Cell {
        self.cell(|sample| times * sample.quantile(order))
    }

    /// Returns the share of values for which `is` holds, in per cent.
    pub(super) fn share(&self, is: impl Fn(f64) -> bool) -> Cell {
        self.cell(|sample| {
            let values = sample.values();
            100.0 * values.iter().filter(|value| is(**value)).count() as f64 / values.len() as f64
        })
    }

    /// Returns the distribution function up to the 99th percentile: value and share.
    pub(super) fn curve(&self, times: f64) -> Vec<(f64, f64)> {
        let shares = (0..=CURVE).map(|step| 0.99 * f64::from(step) / f64::from(CURVE));
        self.0.as_ref().map_or_else(Vec::new, |sample| {
            shares.map(|share| (times * sample.quantile(share), share)).collect()
        })
    }
}

/// Classes of a number. Each includes its lower limit; the last one also its upper limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Classes<const N: usize> {
    pub limits: [f64; N],
    pub labels: &'static [&'static str],
}

impl<const N: usize> Classes<N> {
    /// Returns the class of a number; `None` beyond the limits.
    pub(super) fn of(&self, number: f64) -> Option<usize> {
        let class = self.limits.iter().rposition(|limit| number >= *limit)?;
        match class + 1 < N {
            true => Some(class),
            false => (number == self.limits[N - 1]).then(|| N - 2),
        }
    }
}

/// The journal's classes of loss rates (table I).
pub(super) const LOSS: Classes<5> = Classes {
    limits: [0.0, 0.03, 0.1, 0.3, 0.5],
    labels: &["loss 0 to 3 %", "loss 3 to 10 %", "loss 10 to 30 %", "loss 30 to 50 %"],
};

/// The journal's classes of smoothed round-trip times, in ms (table I).
pub(super) const SRTT: Classes<5> = Classes {
    limits: [0.0, 50.0, 200.0, 500.0, 2_000.0],
    labels: &["SRTT 0 to 50 ms", "SRTT 50 to 200 ms", "SRTT 200 to 500 ms", "SRTT 500 to 2,000 ms"],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_begin_at_their_limit_and_the_last_one_ends_with_its_own() {
        let of = |loss| LOSS.of(loss);
        assert_eq!([of(0.0), of(0.029), of(0.03), of(0.1)], [0, 0, 1, 2].map(Some));
        assert_eq!([of(0.5), of(0.500_001), of(1.0)], [Some(3), None, None]);
        assert_eq!((SRTT.of(199.9), SRTT.of(2_000.0), SRTT.of(2_001.0)), (Some(1), Some(3), None));
    }

    #[test]
    fn a_ratio_of_sums_is_not_the_mean_of_ratios() {
        let (mut pooled, mut mean) = (Ratio::default(), Mean::default());
        for (part, whole) in [(1.0, 2.0), (0.0, 98.0)] {
            pooled.add(Some(part), Some(whole));
            mean.add(Some(part / whole));
        }
        pooled.add(None, Some(1_000.0));
        assert_eq!(pooled.cell(100.0), Cell { value: Some(1.0), n: 2, paper: None });
        assert_eq!(mean.cell(100.0), Cell { value: Some(25.0), n: 2, paper: None });
        assert_eq!(Ratio::default().value(), None);
    }
}
