//! Standard normal distribution, with the precision that bootstrap intervals need.

/// Probability of a value below `x`: Abramowitz and Stegun 26.2.17, error below 7.5e-8.
pub(super) fn cdf(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * x.abs());
    let polynomial = [1.330_274_429, -1.821_255_978, 1.781_477_937, -0.356_563_782, 0.319_381_530]
        .iter()
        .fold(0.0, |sum, coefficient| (sum + coefficient) * t);
    let density = (-x * x / 2.0).exp() / (2.0 * core::f64::consts::PI).sqrt();
    let tail = density * polynomial;
    if x < 0.0 { tail } else { 1.0 - tail }
}

/// Inverse of [`cdf`] within ±8, by bisection.
pub(super) fn quantile(p: f64) -> f64 {
    let (mut low, mut high) = (-8.0, 8.0);
    for _ in 0..50 {
        let middle = (low + high) / 2.0;
        if cdf(middle) < p {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_points() {
        for (x, p) in
            [(0.0, 0.5), (1.0, 0.841_344_746), (1.959_963_985, 0.975), (3.0, 0.998_650_102)]
        {
            assert!((cdf(x) - p).abs() < 7.5e-8, "{x}");
            assert!((cdf(-x) - (1.0 - p)).abs() < 7.5e-8, "-{x}");
            assert!((quantile(p) - x).abs() < 2e-5, "{p}");
            assert!((quantile(1.0 - p) + x).abs() < 2e-5, "1 - {p}");
        }
    }
}
