//! A mean that few sessions cannot decide. One poisoned or broken record moves the mean of
//! thousands by any amount, and widens the interval until no difference shows. Cut to the 99th
//! percentile, it moves the mean by little. Winsorizing: Tukey, "The future of data analysis",
//! Annals of Mathematical Statistics 33 (1962), section 14.

use qoe::stats::Observation;

/// The share of values that is cut at either end.
const CUT: f64 = 0.01;

/// The observations with values beyond the 1st and 99th percentile cut to these, and with weights
/// beyond the 99th: a session of a month outweighs all others of a pooled metric. At least the
/// largest and the smallest of three or more are cut: the percentiles are values that others reach
/// too.
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

/// The numbers that the extremes are cut to; `None` without any number.
fn ends(numbers: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    let last = numbers.len().checked_sub(1)?;
    let cut = ((numbers.len() as f64 * CUT).ceil() as usize).min(last / 2);
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
    fn the_extremes_are_cut_to_what_others_reach() {
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
