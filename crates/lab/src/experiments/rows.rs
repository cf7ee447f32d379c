//! Runs and what they measured, and groups of runs that differ in nothing but their seed.

use std::collections::BTreeMap;

use qoe::stats::Estimate;
use toml::Value;

use super::metrics::Term;
use super::settings::Settings;
use super::spec::{Point, Spec, plain};
use crate::simulation::Sample;

/// A run: a row of `results.csv`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    /// Place of the sweep in the specification.
    pub sweep: usize,
    pub scheme: String,
    /// Values of the axes.
    pub point: Point,
    /// Values that were drawn for this seed.
    pub drawn: Point,
    pub seed: u64,
    /// Of each of [`ALL`](super::metrics::ALL).
    pub values: Vec<Option<f64>>,
    /// Why there are none.
    pub error: String,
}

impl Row {
    /// The settings of the run.
    ///
    /// # Errors
    /// The specification has no such scheme, or not these settings.
    pub(crate) fn settings(&self, spec: &Spec) -> Result<Settings, String> {
        let scheme = spec.schemes.iter().find(|scheme| scheme.label == self.scheme);
        let scheme = scheme.ok_or_else(|| format!("no scheme has the label `{}`", self.scheme))?;
        spec.settings(&spec.sweeps[self.sweep], &self.point, &self.drawn, scheme)
    }
}

/// The state of a sender over time.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    pub sweep: usize,
    pub scheme: String,
    pub point: Point,
    pub samples: Vec<Sample>,
}

/// Rows of one point and scheme, and those of the baseline with the same seeds.
pub(crate) struct Group<'a> {
    pub sweep: usize,
    pub point: &'a Point,
    pub scheme: &'a str,
    /// Rows without an error, by seed.
    pub rows: BTreeMap<u64, &'a Row>,
}

/// All groups, in the order of the rows.
pub(crate) fn groups(rows: &[Row]) -> Vec<Group<'_>> {
    let mut all: Vec<Group<'_>> = Vec::new();
    let mut places: BTreeMap<(usize, String, &str), usize> = BTreeMap::new();
    for row in rows {
        let key = (row.sweep, describe(&row.point), row.scheme.as_str());
        let place = *places.entry(key).or_insert_with(|| {
            let (point, scheme) = (&row.point, row.scheme.as_str());
            all.push(Group { sweep: row.sweep, point, scheme, rows: BTreeMap::new() });
            all.len() - 1
        });
        if row.error.is_empty() {
            all[place].rows.insert(row.seed, row);
        }
    }
    all
}

/// What plots and tables show as one: groups that differ only in axes that are merged.
pub(crate) struct Bundle<'a, 'b> {
    /// The point without those axes.
    pub point: Point,
    pub scheme: &'a str,
    groups: Vec<&'b Group<'a>>,
}

/// The bundles of a sweep's schemes that are shown, in the order of the rows.
pub(crate) fn bundles<'a, 'b>(
    spec: &Spec,
    groups: &'b [Group<'a>],
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
    /// A term's mean over all runs.
    pub(crate) fn estimate(
        &self,
        spec: &Spec,
        groups: &[Group<'_>],
        term: &Term,
    ) -> Option<Estimate> {
        let of = |group: &&Group<'_>| values(spec, groups, group, term).into_values();
        Estimate::of(self.groups.iter().flat_map(of))
    }
}

/// A point as text: `alpha_ms=10;congestion=bbr`.
pub(crate) fn describe(point: &[(String, Value)]) -> String {
    let parts: Vec<String> = point.iter().map(|(k, v)| format!("{k}={}", plain(v))).collect();
    parts.join(";")
}

/// The group of another scheme at the same point.
pub(crate) fn other<'a, 'b>(
    groups: &'b [Group<'a>],
    group: &Group<'_>,
    scheme: &str,
) -> Option<&'b Group<'a>> {
    groups.iter().find(|other| {
        other.sweep == group.sweep && other.scheme == scheme && *other.point == *group.point
    })
}

/// A term's value in each run of a group, by seed.
pub(crate) fn values(
    spec: &Spec,
    groups: &[Group<'_>],
    group: &Group<'_>,
    term: &Term,
) -> BTreeMap<u64, f64> {
    let label = term.baseline.as_deref().unwrap_or(&spec.baseline);
    let baseline = other(groups, group, label);
    let value = |(seed, row): (&u64, &&Row)| {
        let base = baseline.and_then(|base| base.rows.get(seed)?.values[term.metric]);
        Some((*seed, term.value(row.values[term.metric], base)?))
    };
    group.rows.iter().filter_map(value).collect()
}
