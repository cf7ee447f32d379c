//! Runs with their measurements, and groups of runs that differ only in their seed.

use std::collections::BTreeMap;

use qoe::stats::Estimate;
use toml::Value;

use super::metrics::{How, Term};
use super::spec::{Point, Spec, plain};
use crate::error::{Error, NameError};
use crate::setup::Setup;
use crate::simulation::SenderSample;

/// A run: one row of `results.csv`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RunRow {
    /// Index of the sweep in the specification.
    pub sweep: usize,
    pub scheme: String,
    /// Axis values.
    pub point: Point,
    /// Values drawn for this seed.
    pub drawn: Point,
    pub seed: u64,
    /// Values of [`ALL`](super::metrics::ALL).
    pub values: Vec<Option<f64>>,
    /// Reason for missing values.
    pub error: String,
}

impl RunRow {
    /// Returns the set-up of the run.
    ///
    /// # Errors
    /// The specification lacks the scheme, or its keys are invalid.
    pub(crate) fn setup(&self, spec: &Spec) -> Result<Setup, Error> {
        let scheme = spec.schemes.iter().find(|scheme| scheme.label == self.scheme);
        let scheme = scheme.ok_or_else(|| NameError::Label(self.scheme.clone()))?;
        spec.setup(&spec.sweeps[self.sweep], &self.point, &self.drawn, scheme)
    }
}

/// State of a sender over time.
#[derive(Clone, Debug)]
pub(crate) struct SenderCurve {
    pub sweep: usize,
    pub scheme: String,
    pub point: Point,
    pub samples: Vec<SenderSample>,
}

/// Rows of one point and scheme, and the baseline's rows with the same seeds.
pub(crate) struct RunGroup<'a> {
    pub sweep: usize,
    pub point: &'a Point,
    pub scheme: &'a str,
    /// Rows without an error, by seed.
    pub rows: BTreeMap<u64, &'a RunRow>,
}

/// Returns all groups in row order.
pub(crate) fn groups(rows: &[RunRow]) -> Vec<RunGroup<'_>> {
    let mut all: Vec<RunGroup<'_>> = Vec::new();
    let mut places: BTreeMap<(usize, String, &str), usize> = BTreeMap::new();
    for row in rows {
        let key = (row.sweep, describe(&row.point), row.scheme.as_str());
        let place = *places.entry(key).or_insert_with(|| {
            let (point, scheme) = (&row.point, row.scheme.as_str());
            all.push(RunGroup { sweep: row.sweep, point, scheme, rows: BTreeMap::new() });
            all.len() - 1
        });
        if row.error.is_empty() {
            all[place].rows.insert(row.seed, row);
        }
    }
    all
}

/// Groups that differ only in merged axes. Plots and tables show them as one.
pub(crate) struct Bundle<'a, 'b> {
    /// The point without merged axes.
    pub point: Point,
    pub scheme: &'a str,
    groups: Vec<&'b RunGroup<'a>>,
}

/// Returns the bundles of a sweep's visible schemes, in row order.
pub(crate) fn bundles<'a, 'b>(
    spec: &Spec,
    groups: &'b [RunGroup<'a>],
    sweep: usize,
) -> Vec<Bundle<'a, 'b>> {
    let axes = &spec.sweeps[sweep].axes;
    let merged = |key: &str| axes.iter().any(|axis| axis.merged && axis.key.get_ref() == key);
    let mut all: Vec<Bundle<'_, '_>> = Vec::new();
    for group in groups.iter().filter(|g| g.sweep == sweep && spec.is_shown(g.scheme)) {
        let point: Point = group.point.iter().filter(|(key, _)| !merged(key)).cloned().collect();
        match all.iter_mut().find(|other| other.scheme == group.scheme && other.point == point) {
            Some(bundle) => bundle.groups.push(group),
            None => all.push(Bundle { point, scheme: group.scheme, groups: vec![group] }),
        }
    }
    all
}

impl Bundle<'_, '_> {
    /// Returns a term's mean over all runs.
    pub(crate) fn estimate(
        &self,
        spec: &Spec,
        groups: &[RunGroup<'_>],
        term: &Term,
    ) -> Option<Estimate> {
        let of = |group: &&RunGroup<'_>| values(spec, groups, group, term).into_values();
        Estimate::of(self.groups.iter().flat_map(of))
    }
}

/// Formats a point: `path.rtt=60ms;quic.congestion=bbr`.
pub(crate) fn describe(point: &[(String, Value)]) -> String {
    let parts: Vec<String> = point.iter().map(|(k, v)| format!("{k}={}", plain(v))).collect();
    parts.join(";")
}

/// Finds the group of another scheme at the same point.
pub(crate) fn other<'a, 'b>(
    groups: &'b [RunGroup<'a>],
    group: &RunGroup<'_>,
    scheme: &str,
) -> Option<&'b RunGroup<'a>> {
    groups.iter().find(|other| {
        other.sweep == group.sweep && other.scheme == scheme && *other.point == *group.point
    })
}

/// Returns a term's value in each run of a group, by seed. For [`How::Closed`]: the pseudo-values
/// of the jackknife, which have the share's mean and interval.
pub(crate) fn values(
    spec: &Spec,
    groups: &[RunGroup<'_>],
    group: &RunGroup<'_>,
    term: &Term,
) -> BTreeMap<u64, f64> {
    let of = |label: Option<&str>| {
        let group = label.and_then(|label| other(groups, group, label));
        move |seed: &u64| group.and_then(|group| group.rows.get(seed)?.values[term.metric])
    };
    if term.how == How::Closed {
        let baseline = of(Some(&spec.baseline));
        let clairvoyant = of(term.other.as_deref().or(spec.clairvoyant.as_deref()));
        let distance = |(seed, row): (&u64, &&RunRow)| {
            let (own, from) = (row.values[term.metric]?, baseline(seed)?);
            let distance = Distance { closed: from - own, whole: from - clairvoyant(seed)? };
            Some((*seed, distance))
        };
        return closed(&group.rows.iter().filter_map(distance).collect());
    }
    let baseline = of(Some(term.other.as_deref().unwrap_or(&spec.baseline)));
    let value = |(seed, row): (&u64, &&RunRow)| {
        Some((*seed, term.value(row.values[term.metric], baseline(seed))?))
    };
    group.rows.iter().filter_map(value).collect()
}

/// Distance of a run from the baseline, and of the clairvoyant sender from it.
#[derive(Clone, Copy, Debug, Default)]
struct Distance {
    closed: f64,
    whole: f64,
}

/// Share of the total distance closed, as pseudo-values of the jackknife (Tukey 1958): n times the
/// share over all n runs, less n − 1 times the share without this run. A share per run is
/// undefined, because many runs lose no relevant data and have distance zero.
///
/// Empty if the total distance is zero, or if removing one run makes it zero or changes its sign.
fn closed(runs: &BTreeMap<u64, Distance>) -> BTreeMap<u64, f64> {
    let sum = runs.values().fold(Distance::default(), |sum, run| Distance {
        closed: sum.closed + run.closed,
        whole: sum.whole + run.whole,
    });
    let share = |of: Distance| (of.whole * sum.whole > 0.0).then(|| of.closed / of.whole);
    let n = runs.len() as f64;
    let pseudo = |(seed, run): (&u64, &Distance)| {
        let all = share(sum)?;
        if runs.len() == 1 {
            return Some((*seed, all));
        }
        let rest = Distance { closed: sum.closed - run.closed, whole: sum.whole - run.whole };
        Some((*seed, n * all - (n - 1.0) * share(rest)?))
    };
    runs.iter().map(pseudo).collect::<Option<_>>().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use qoe::stats::Sample;

    fn runs(distances: &[(f64, f64)]) -> BTreeMap<u64, Distance> {
        let distance = |&(closed, whole): &(f64, f64)| Distance { closed, whole };
        (1..).zip(distances.iter().map(distance)).collect()
    }

    fn mean(distances: &[(f64, f64)]) -> Option<f64> {
        Some(Sample::new(closed(&runs(distances)).into_values())?.estimate().mean)
    }

    #[test]
    fn the_share_of_the_distance_is_a_ratio_of_sums() {
        // Runs without distance have no effect.
        let near = |share: Option<f64>, expected: f64| {
            let share = share.expect("a share");
            assert!((share - expected).abs() < 1e-9, "{share} {expected}");
        };
        near(mean(&[(1.0, 2.0), (2.0, 4.0), (0.0, 0.0), (4.0, 8.0)]), 0.5);
        near(mean(&[(0.0, 2.0), (0.0, 1.0), (0.0, 5.0)]), 0.0);
        near(mean(&[(2.0, 2.0), (1.0, 1.0), (5.0, 5.0)]), 1.0);
        near(mean(&[(1.0, 4.0)]), 0.25);
        // For metrics that should grow, distances are negative.
        near(mean(&[(-1.0, -2.0), (-2.0, -4.0)]), 0.5);
        // A harmful scheme is further away than the baseline.
        near(mean(&[(-1.0, 2.0), (-2.0, 4.0)]), -0.5);
    }

    #[test]
    fn the_interval_of_the_share_is_the_jackknifes() {
        // Two runs: 0.6 together, 1.0 without one, 0.2 without the other.
        let values = closed(&runs(&[(1.0, 5.0), (5.0, 5.0)]));
        let values: Vec<f64> = values.into_values().collect();
        assert!((values[0] - 0.2).abs() < 1e-9 && (values[1] - 1.0).abs() < 1e-9, "{values:?}");
    }

    #[test]
    fn zero_distance_has_no_share() {
        for none in [
            &[(0.0, 0.0), (1.0, 0.0)][..],
            &[(1.0, 3.0), (0.0, 0.0)],
            &[(1.0, 3.0), (1.0, -1.0)],
            &[],
        ] {
            assert_eq!(mean(none), None, "{none:?}");
        }
    }
}
