//! Tests for many comparisons and for counts: Holm's procedure (Holm, "A Simple Sequentially
//! Rejective Multiple Test Procedure", Scandinavian Journal of Statistics 6, 1979) and the tail of
//! the chi-square distribution (Abramowitz and Stegun 26.4.4 and 26.4.5).

use super::normal;

/// Adjusts the p-values of a family of tests after Holm, in the same order. Rejecting those up to α
/// rejects any true hypothesis with a probability of at most α.
///
/// ```
/// use mendcast_qoe::stats::holm;
///
/// // Three metrics of one experiment: the smallest p-value is multiplied by three.
/// let adjusted = holm(&[0.01, 0.04, 0.3]);
/// assert!((adjusted[0] - 0.03).abs() < 1e-12);
/// assert!((adjusted[1] - 0.08).abs() < 1e-12);
/// ```
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut indices: Vec<usize> = (0..p_values.len()).collect();
    indices.sort_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    let mut adjusted = vec![0.0; p_values.len()];
    let mut least: f64 = 0.0;
    for (rank, index) in indices.into_iter().enumerate() {
        let left = (p_values.len() - rank) as f64;
        least = least.max((left * p_values[index]).min(1.0));
        adjusted[index] = least;
    }
    adjusted
}

/// Returns the probability that a chi-square variable with `freedom` (at least 1) degrees of
/// freedom is at least `statistic`. 1 for values up to 0 and NaN. The error is below 2e-7.
pub fn chi_square_tail(statistic: f64, freedom: u32) -> f64 {
    if statistic.is_nan() || statistic <= 0.0 {
        return 1.0;
    }
    let root = statistic.sqrt();
    let density = (-statistic / 2.0).exp();
    // Odd: 2 Q(√x) + 2 Z(√x) (√x + √x³/3 + √x⁵/(3·5) + …). Even: e^(−x/2) (1 + x/2 + x²/(2·4) + …).
    let (mut sum, mut term, mut next) = match freedom % 2 {
        1 => (2.0 * normal::cdf(-root), density * root * (2.0 / core::f64::consts::PI).sqrt(), 3),
        _ => (0.0, density, 2),
    };
    while next < freedom + 2 {
        sum += term;
        term *= statistic / f64::from(next);
        next += 2;
    }
    sum.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holm_multiplies_by_the_remaining_tests_and_never_decreases() {
        // R: p.adjust(c(.01, .04, .03, .005), "holm")
        let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (got, expected) in adjusted.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((got - expected).abs() < 1e-12, "{adjusted:?}");
        }
        assert_eq!(holm(&[0.9, 0.8]), [1.0, 1.0]);
        assert_eq!(holm(&[]), [0.0; 0]);
    }

    #[test]
    fn chi_square_tails_match_tables() {
        for (statistic, freedom, p) in [
            (3.841_459, 1, 0.05),
            (10.827_566, 1, 0.001),
            (5.991_465, 2, 0.05),
            (7.814_728, 3, 0.05),
            (13.276_704, 4, 0.01),
            (11.070_498, 5, 0.05),
            (18.307_038, 10, 0.05),
        ] {
            let got = chi_square_tail(statistic, freedom);
            assert!((got - p).abs() < 1e-6, "{statistic} {freedom}: {got}");
        }
        assert_eq!((chi_square_tail(0.0, 3), chi_square_tail(1e6, 1)), (1.0, 0.0));
    }
}
