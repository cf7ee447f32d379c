//! A mean that few sessions cannot dominate. One forged or corrupt record can move the mean of
//! thousands arbitrarily and widen the interval until no difference is significant. Clipped to the
//! 99th percentile, its influence is small. Winsorizing: Tukey, "The future of data analysis",
//! Annals of Mathematical Statistics 33 (1962), section 14.

use qoe::stats::Observation;

/// Share of values clipped at each end.
const CLIPPED_SHARE: f64 = 0.01;

/// Clips values to the 1st and 99th percentile, and weights to the 99th, because a month-long
/// session outweighs all others of a pooled metric. With three or more observations, at least the
/// largest and the smallest are clipped: the percentiles are values that others reach too.
pub(super) fn winsorized(all: &[Observation]) -> Vec<Observation> {
    let Some((low, high)) = ends(all.iter().map(|one| one.value)) else { return Vec::new() };
    let Some((_, heavy)) = ends(all.iter().map(|one| one.weight)) else { return Vec::new() };
    let cut = |one: &Observation| Observation {
        value: one.value.max(low).min(high),
        weight: one.weight.min(heavy),
        ..*one
    };
    all.iter().map(cut).collect()
}

/// Returns the limits for clipping; `None` without numbers.
fn ends(numbers: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    let last = numbers.len().checked_sub(1)?;
    let cut = ((numbers.len() as f64 * CLIPPED_SHARE).ceil() as usize).min(last / 2);
    Some((numbers[cut], numbers[last - cut]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(values: &[f64]) -> Vec<f64> {
        let all = values.iter().map(|&value| Observation { value, weight: 2.0, cluster: 7 });
        let cut = winsorized(&all.collect::<Vec<_>>());
        assert!(cut.iter().all(|one| (one.weight, one.cluster) == (2.0, 7)));
        cut.into_iter().map(|one| one.value).collect()
    }

    #[test]
    fn extremes_are_clipped_to_percentiles() {
        assert_eq!(cut(&[]), [0.0; 0]);
        assert_eq!(cut(&[5.0]), [5.0]);
        assert_eq!(cut(&[5.0, 1e9]), [5.0, 1e9], "neither of two is the odd one");
        assert_eq!(cut(&[1e9, 5.0, 4.0, -1e9]), [5.0, 5.0, 4.0, 4.0]);
        let many: Vec<f64> = (0..1_000).map(f64::from).collect();
        let cut = cut(&many);
        assert_eq!(
            (cut[0], cut[10], cut[11], cut[988], cut[999]),
            (10.0, 10.0, 11.0, 988.0, 989.0)
        );
    }
}
