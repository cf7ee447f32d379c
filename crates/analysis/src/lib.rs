//! Analysis of session records: comparison of cohorts ([`compare`]) in production experiments, a
//! study of networks and viewers with the papers' metrics ([`study`]), and the cause of one
//! viewer's freezes ([`why`]).
//!
//! Cohorts are assigned per viewer, not per session, so intervals come from a bootstrap over whole
//! viewers ([`qoe::stats::Clustered`]). Mean and median of each metric are tested, with p-values
//! corrected after Holm. Other quantiles get intervals only. The first test is whether the split of
//! viewers matches the weights (Fabijan et al., "Diagnosing Sample Ratio Mismatch in Online
//! Controlled Experiments", KDD 2019). If it does not, no other result is valid.

#![forbid(unsafe_code)]

mod chart;
mod compare;
mod doubts;
mod html;
mod metric;
mod options;
mod plot;
mod read;
mod robust;
pub mod study;
mod text;
pub mod why;

use std::collections::BTreeSet;

use compare::analyse;
use metric::{METRICS, Metric};
use read::SessionTable;
use records::Error;

pub use chart::{Chart, Series, Span, escaped};
pub use compare::{
    CohortMetric, CohortReport, Comparison, Difference, MetricReport, Power, Statistics,
};
pub use doubts::{CohortTotals, SampleRatio};
pub use options::CompareOptions;
pub use plot::{Curve, Plot, YAxis};
pub use read::ReadCounts;

/// Reads the records and compares their cohorts.
///
/// # Errors
/// One line: a path does not exist, a metric or the baseline is unknown, or no session has a
/// cohort.
pub fn compare(options: &CompareOptions) -> Result<CohortReport, Error> {
    let named = options.metrics.iter().map(|name| Metric::named(name));
    let mut metrics = named.collect::<Result<Vec<_>, _>>()?;
    if metrics.is_empty() {
        metrics = METRICS.to_vec();
    }
    let columns: BTreeSet<_> = metrics.iter().flat_map(Metric::columns).collect();
    let table = SessionTable::read(options, &columns)?;
    if table.cohort.is_empty() {
        return Err(Error::new(nothing(&table.counts)));
    }
    analyse(&table, &metrics, options)
}

/// Explains why there is nothing to compare.
fn nothing(counts: &ReadCounts) -> String {
    let mut why = format!("no session to compare (files: {}", counts.input.files);
    for (count, what) in [
        (counts.input.unreadable_files, "unreadable files"),
        (counts.input.broken_lines, "broken lines"),
        (counts.without_cohort, "sessions without a cohort"),
        (counts.other_protocol, "sessions of other protocols"),
        (counts.too_short, "sessions too short"),
    ] {
        if count > 0 {
            why += &format!(", {what}: {count}");
        }
    }
    why + ")"
}

#[cfg(test)]
mod tests;
