//! Files that every experiment writes: `summary.json` and `report.html`.

use core::fmt::Display;
use std::collections::BTreeMap;
use std::io::{Write as _, stderr};
use std::path::Path;

use qoe::stats::{Estimate, Sample};
use serde::Serialize;
use toml::Value;

use crate::error::{Context as _, Error};

/// Name of the file of statistics.
pub(crate) const SUMMARY: &str = "summary.json";

/// A line of `summary.json`. Scripts rely on its names.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SummaryLine<'a> {
    pub experiment: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sweep: Option<&'a str>,
    pub scheme: &'a str,
    pub point: BTreeMap<&'a str, Value>,
    pub metric: &'a str,
    pub unit: &'a str,
    #[serde(flatten)]
    pub statistics: RunStatistics,
    /// The paper's number, or both ends of its range.
    pub paper: Option<Vec<f64>>,
    /// Verdict on the mean against the paper's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<&'static str>,
    pub expected: Option<f64>,
}

/// Statistics over the runs of a point.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct RunStatistics {
    pub mean: f64,
    /// Median, as the nearest run's value.
    pub p50: f64,
    /// 95th percentile, as the nearest run's value.
    pub p95: f64,
    /// Half the width of the 95 % confidence interval of the mean; null for a single run.
    pub ci95: Option<f64>,
    pub runs: usize,
}

impl RunStatistics {
    /// Computes the statistics; `None` without values.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let sample = Sample::new(values)?;
        let Estimate { mean, half } = sample.estimate();
        let runs = sample.values().len();
        let at = |q: f64| sample.values()[((runs - 1) as f64 * q).round() as usize];
        Some(Self { mean, p50: at(0.5), p95: at(0.95), ci95: half, runs })
    }
}

/// Prints a line of progress on stderr. A closed stderr ends nothing.
pub(crate) fn note(line: impl Display) {
    // The test harness captures the macro's output only.
    if cfg!(test) {
        eprintln!("{line}");
    } else {
        let _ = writeln!(stderr(), "{line}");
    }
}

/// Writes `summary.json`.
pub(crate) fn write_summary(out: &Path, lines: &[SummaryLine<'_>]) -> Result<(), Error> {
    write_json(&out.join(SUMMARY), lines)
}

pub(crate) fn write_json<T: Serialize + ?Sized>(path: &Path, value: &T) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(value).at(path)?;
    write_file(path, &text)
}

pub(crate) fn write_file(path: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(path, text).at(path)
}

/// Writes `report.html` with `body` as its content.
pub(crate) fn write_page(out: &Path, title: &str, body: &str) -> Result<(), Error> {
    let html = format!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n<style>\
         body{{font:16px system-ui;max-width:60em;margin:2em auto;padding:0 1em}}\
         table{{border-collapse:collapse}}td,th{{padding:.2em .8em;border-bottom:1px solid #ddd;\
         text-align:left}}\
         .PASS td:first-child{{color:#197a2b}}.FAIL td:first-child{{color:#b3261e;font-weight:bold}}\
         svg{{max-width:100%;height:auto}}</style>\n<h1>{title}</h1>\n{body}"
    );
    write_file(&out.join("report.html"), &html)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_known_values() {
        let all = RunStatistics::of([1.0, 2.0, 3.0, 4.0, 10.0]).expect("values");
        assert_eq!((all.mean, all.p50, all.p95, all.runs), (4.0, 3.0, 10.0, 5));
        // Student's t of 2.776, times √(12.5 / 5).
        assert!((all.ci95.expect("several values") - 4.390).abs() < 0.001, "{all:?}");
        assert_eq!(RunStatistics::of([7.0]).expect("a value").ci95, None);
        assert_eq!(RunStatistics::of([]), None);
    }
}
