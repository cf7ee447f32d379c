//! Reasons to doubt a comparison: the split of viewers, dominant viewers, and changes during the
//! experiment.

use std::collections::HashMap;

use qoe::stats::chi_square_tail;
use serde::Serialize;

use crate::options::CompareOptions;
use crate::read::{CohortSeen, SessionTable};

/// p-value below which the split of viewers contradicts the configured weights.
const RATIO_ALARM: f64 = 0.001;
/// Minimum expected viewers per cohort for a valid test of the ratio.
const MIN_EXPECTED: f64 = 5.0;
/// Share of a cohort's sessions above which a single viewer dominates its statistics.
const DOMINANT_SHARE: f64 = 0.05;
/// Share of sessions with out-of-range reports above which reports are suspected to be forged.
const MAX_CLAMPED_SHARE: f64 = 0.01;

/// Minimum viewers in both cohorts for a difference.
pub(super) const MIN_UNITS: usize = 20;

/// Totals of a cohort.
#[derive(Clone, Debug, Serialize)]
pub struct CohortTotals {
    /// Name of the cohort.
    pub name: String,
    /// Sessions compared.
    pub sessions: u64,
    /// Viewers, including those with short sessions only.
    pub units: u64,
    /// Sessions excluded as too short.
    pub too_short: u64,
    /// Schemes of its sessions.
    pub schemes: Vec<String>,
}

/// Check of the split of viewers against the weights.
#[derive(Clone, Debug, Serialize)]
pub struct SampleRatio {
    /// Per cohort with a weight: name, weight, expected viewers, observed viewers.
    pub cohorts: Vec<(String, u32, f64, u64)>,
    /// Pearson's statistic.
    pub chi_square: f64,
    /// Probability of a statistic at least this large by chance; `None` if a cohort expects fewer
    /// than 5 viewers.
    pub p: Option<f64>,
    /// Whether that is below 0.001.
    pub mismatch: bool,
}

/// Applies Pearson's test to the viewers of each cohort.
pub(super) fn sample_ratio(
    cohorts: &[CohortSeen],
    weights: &[(String, u32)],
) -> Option<SampleRatio> {
    let seen = |name: &str| {
        cohorts.iter().find(|cohort| cohort.name == name).map_or(0, |cohort| cohort.assigned_units)
    };
    let total: f64 = weights.iter().map(|(_, weight)| f64::from(*weight)).sum();
    let all: u64 = weights.iter().map(|(name, _)| seen(name)).sum();
    if weights.len() < 2 || total <= 0.0 {
        return None;
    }
    let cohorts: Vec<_> = weights
        .iter()
        .map(|(name, weight)| {
            let expected = all as f64 * f64::from(*weight) / total;
            (name.clone(), *weight, expected, seen(name))
        })
        .collect();
    let enough = cohorts.iter().all(|(_, _, expected, _)| *expected >= MIN_EXPECTED);
    let chi_square =
        cohorts.iter().map(|(_, _, expected, seen)| (*seen as f64 - expected).powi(2) / expected);
    let chi_square = if enough { chi_square.sum() } else { 0.0 };
    let p = enough.then(|| chi_square_tail(chi_square, cohorts.len() as u32 - 1));
    Some(SampleRatio { cohorts, chi_square, p, mismatch: p.is_some_and(|p| p < RATIO_ALARM) })
}

pub(super) fn warnings(
    table: &SessionTable,
    cohorts: &[CohortTotals],
    ratio: Option<&SampleRatio>,
    days: f64,
    options: &CompareOptions,
) -> Vec<String> {
    let mut all = Vec::new();
    if let Some(ratio) = ratio
        && ratio.mismatch
    {
        let p = ratio.p.unwrap_or(0.0);
        all.push(format!(
            "sample ratio mismatch (p = {p:.2e}): the split of viewers does not match the \
             weights; find the cause before trusting any difference"
        ));
    }
    let unknown = |name: &str| !options.weights.iter().any(|(known, _)| known == name);
    if ratio.is_some() {
        for cohort in cohorts.iter().filter(|cohort| unknown(&cohort.name)) {
            all.push(format!(
                "cohort {} has no weight and is excluded from the check",
                cohort.name
            ));
        }
    }
    let clamped = table.counts.reports_left_out;
    let sessions: u64 = cohorts.iter().map(|cohort| cohort.sessions).sum();
    if clamped as f64 > MAX_CLAMPED_SHARE * sessions as f64 {
        all.push(format!(
            "players of {clamped} sessions reported more than their session's duration allows: \
             wrong clocks or counters, or forged reports"
        ));
    }
    if table.counts.units_in_several_cohorts > 0 {
        all.push(format!(
            "{} viewers were in more than one cohort: salt, weights or names may have changed \
             within these files",
            table.counts.units_in_several_cohorts
        ));
    }
    for (place, most) in most_of_one_viewer(table).into_iter().enumerate() {
        let seen = &table.cohorts[place];
        let share = most as f64 / (seen.assigned_sessions - seen.too_short).max(1) as f64;
        if seen.assigned_units >= MIN_UNITS as u64 && share > DOMINANT_SHARE {
            all.push(format!(
                "one viewer has {:.0} % of the sessions of cohort {}: that viewer, possibly a \
                 large network, dominates all its figures",
                100.0 * share,
                seen.name
            ));
        }
    }
    for cohort in cohorts.iter().filter(|cohort| cohort.schemes.len() > 1) {
        let schemes = cohort.schemes.join(", ");
        all.push(format!("cohort {} had several schemes: {schemes}", cohort.name));
    }
    if let [first, rest @ ..] = cohorts {
        if rest.is_empty() {
            all.push("only one cohort: nothing to compare".into());
        } else if first.schemes.len() == 1 && rest.iter().all(|c| c.schemes == first.schemes) {
            let scheme = &first.schemes[0];
            all.push(format!("all cohorts had the scheme {scheme}: this is an A/A comparison"));
        }
    }
    if days < 7.0 {
        all.push("less than a week of data; days of the week differ".into());
    }
    all
}

/// Returns the largest number of sessions of one viewer, by cohort index.
fn most_of_one_viewer(table: &SessionTable) -> Vec<u64> {
    let mut sessions: HashMap<(u16, u32), u64> = HashMap::new();
    for at in table.cohort.iter().copied().zip(table.unit.iter().copied()) {
        *sessions.entry(at).or_default() += 1;
    }
    let mut most = vec![0; table.cohorts.len()];
    for ((place, _), count) in sessions {
        let most = &mut most[usize::from(place)];
        *most = count.max(*most);
    }
    most
}
