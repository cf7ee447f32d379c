//! What session records say: cohorts compared ([`compare`]), the evaluation of an experiment in production, and
//! networks and viewers as the papers measure them ([`study`]).
//!
//! Chance divides viewers, not sessions, so that intervals come from drawing whole viewers
//! ([`qoe::stats::Clustered`]). Each metric's mean and median are tested, and the p-values corrected
//! for their number after Holm; other quantiles get intervals only. Whether the division itself
//! went as configured is tested first (Fabijan et al., "Diagnosing Sample Ratio Mismatch in Online
//! Controlled Experiments", KDD 2019): if not, nothing else is worth reading.

#![forbid(unsafe_code)]

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

use std::collections::BTreeSet;

use compare::analyse;
use metric::{METRICS, Metric};
use read::Table;
use records::Error;

pub use compare::{Comparison, Difference, MetricReport, OfCohort, Power, Report, Statistics};
pub use doubts::{SampleRatio, Totals};
pub use options::Options;
pub use plot::{Curve, Plot, Upwards};
pub use read::Counts;

/// Reads the records and compares their cohorts.
///
/// # Errors
/// One line: a path that does not exist, a metric or baseline that nobody knows, or no session
/// of any cohort.
pub fn compare(options: &Options) -> Result<Report, Error> {
    let named = options.metrics.iter().map(|name| Metric::named(name));
    let mut metrics = named.collect::<Result<Vec<_>, _>>()?;
    if metrics.is_empty() {
        metrics = METRICS.to_vec();
    }
    let columns: BTreeSet<_> = metrics.iter().flat_map(Metric::columns).collect();
    let table = Table::read(options, &columns)?;
    if table.cohort.is_empty() {
        return Err(Error::new(nothing(&table.counts)));
    }
    analyse(&table, &metrics, options)
}

/// Why there is nothing to compare.
fn nothing(counts: &Counts) -> String {
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
