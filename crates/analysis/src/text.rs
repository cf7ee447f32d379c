//! The report as text for terminals, and as JSON.

use core::fmt::Write as _;

use crate::compare::{
    ALPHA, CohortReport, Comparison, Difference, MetricReport, Power, STATISTICS,
};

impl CohortReport {
    /// Renders one JSON object in one line.
    pub fn json(&self) -> String {
        // Cannot fail: numbers that are not finite become null, and keys are text.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Renders aligned columns for people.
    pub fn text(&self) -> String {
        let mut out = self.summary().join("\n");
        out.push_str("\n\n");
        for warning in &self.warnings {
            let _ = writeln!(out, "! {warning}");
        }
        if !self.warnings.is_empty() {
            out.push('\n');
        }
        out.push_str(&aligned(&self.cohort_rows()));
        for metric in &self.metrics {
            let colon = if metric.meaning.is_empty() { "" } else { ": " };
            let _ = writeln!(out, "\n{}{colon}{}", metric.title(), metric.meaning);
            out.push_str(&aligned(&metric.rows()));
            for line in metric.remarks() {
                let _ = writeln!(out, "  {line}");
            }
        }
        out.push('\n');
        for line in self.verdict() {
            let _ = writeln!(out, "{line}");
        }
        out
    }

    /// Returns the counts of records read and excluded, one line each.
    pub(super) fn summary(&self) -> Vec<String> {
        let read = &self.read;
        let sessions: u64 = self.cohorts.iter().map(|cohort| cohort.sessions).sum();
        let units: u64 = self.cohorts.iter().map(|cohort| cohort.units).sum();
        let mut all = vec![format!(
            "sessions: {}, viewers: {}, cohorts: {}, days: {:.1}, files: {}",
            whole(sessions),
            whole(units),
            self.cohorts.len(),
            self.days,
            whole(read.input.files),
        )];
        for (count, what) in [
            (read.input.broken_lines, "broken lines"),
            (read.without_cohort, "sessions without a cohort (no scheme could act)"),
            (read.other_protocol, "sessions of other protocols"),
            (read.too_short, "sessions too short"),
            (read.reports_left_out, "player reports beyond their session's duration"),
            (read.impossible_values, "values below 0"),
        ] {
            if count > 0 {
                all.push(format!("excluded: {} {what}", whole(count)));
            }
        }
        if read.unit_from_network > 0 {
            let count = whole(read.unit_from_network);
            all.push(format!("{count} sessions have no unit; their network identifies the viewer"));
        }
        all.extend(read.input.unreadable.iter().map(|why| format!("unreadable: {why}")));
        if read.input.unreadable_files > read.input.unreadable.len() as u64 {
            all.push(format!("{} files unreadable altogether", whole(read.input.unreadable_files)));
        }
        all
    }

    pub(super) fn cohort_rows(&self) -> Vec<Vec<String>> {
        let mut rows = vec![
            ["cohort", "sessions", "viewers", "expected", "too short", "scheme"]
                .map(String::from)
                .to_vec(),
        ];
        for cohort in &self.cohorts {
            let expected = self.sample_ratio.as_ref().and_then(|ratio| {
                ratio.cohorts.iter().find(|(name, ..)| *name == cohort.name).map(|one| one.2)
            });
            rows.push(vec![
                cohort.name.clone(),
                whole(cohort.sessions),
                whole(cohort.units),
                expected.map_or("-".into(), |expected| whole(expected.round() as u64)),
                whole(cohort.too_short),
                cohort.schemes.join(", "),
            ]);
        }
        rows
    }

    /// Returns the conclusions, one line each.
    pub(super) fn verdict(&self) -> Vec<String> {
        let mut all = vec![match &self.sample_ratio {
            None => "Sample ratio: not checked (--weights).".to_owned(),
            Some(ratio) => match ratio.p {
                None => "Sample ratio: too few viewers to check.".to_owned(),
                Some(p) if ratio.mismatch => format!("Sample ratio: MISMATCH, p {}.", chance(p)),
                Some(p) => format!("Sample ratio: as configured, p {}.", chance(p)),
            },
        }];
        if !self.without_data.is_empty() {
            all.push(format!("No data: {}.", self.without_data.join(", ")));
        }
        all.push(format!(
            "{} comparisons (means, medians and robust means); by chance {:.1} of them would be \
             significant at 5 % without correction. {} resamples of viewers, seed {}.",
            self.comparisons,
            self.comparisons as f64 * ALPHA,
            whole(self.resamples as u64),
            self.seed,
        ));
        all.push("* The uncorrected 95 % interval of this difference excludes 0.".into());
        let before = all.len();
        for metric in &self.metrics {
            for comparison in &metric.comparisons {
                for one in comparison.differences.iter().filter(|one| one.differs) {
                    all.push(format!(
                        "DIFFERS: {} of {}, {}: {} ({}), Holm p {}",
                        one.statistic,
                        metric.name,
                        comparison.cohort,
                        with_unit(&signed(one.estimate), metric.unit),
                        percent(one.relative),
                        one.p_holm.map_or(String::new(), chance),
                    ));
                }
            }
        }
        if all.len() == before {
            all.push("No significant difference at 5 % after Holm's correction.".into());
        }
        all
    }
}

impl MetricReport {
    /// Returns the name with the unit.
    pub(super) fn title(&self) -> String {
        if self.unit.is_empty() {
            self.name.into()
        } else {
            format!("{} ({})", self.name, self.unit)
        }
    }

    /// Returns the table: a row per cohort, then three per comparison.
    pub(super) fn rows(&self) -> Vec<Vec<String>> {
        let mut rows = vec![
            ["", "sessions", "viewers"]
                .iter()
                .chain(&STATISTICS)
                .map(|s| (*s).to_owned())
                .collect::<Vec<_>>(),
        ];
        for cohort in &self.cohorts {
            let mut row = vec![
                cohort.cohort.clone(),
                whole(cohort.sessions as u64),
                whole(cohort.units as u64),
            ];
            row.extend(cohort.statistics.all().map(figure));
            rows.push(row);
        }
        for comparison in &self.comparisons {
            let row = |name: String, cell: &dyn Fn(&Difference) -> String| {
                let mut row = vec![name, String::new(), String::new()];
                row.extend(comparison.differences.iter().map(cell));
                row
            };
            let baseline = self.cohorts.first().map_or("", |cohort| &cohort.cohort);
            rows.push(row(format!("{} - {baseline}", comparison.cohort), &|one| {
                format!("{}{}", signed(one.estimate), if one.excludes_zero { "*" } else { "" })
            }));
            rows.push(row("  relative".into(), &|one| percent(one.relative)));
            let end = |end: Option<f64>| end.map_or("-".into(), signed);
            rows.push(row("  95 % from".into(), &|one| end(one.low)));
            rows.push(row("  95 % to".into(), &|one| end(one.high)));
        }
        rows
    }

    /// Returns verdicts and power, one line each.
    pub(super) fn remarks(&self) -> Vec<String> {
        let of = |comparison: &Comparison| {
            let tested = comparison.differences.iter().filter_map(|one| {
                let verdict = if one.differs { "differs" } else { "no difference shown" };
                let (p, holm) = (chance(one.p?), chance(one.p_holm?));
                Some(format!("{}: p {p}, Holm {holm}: {verdict}", one.statistic))
            });
            let tested = tested.collect::<Vec<_>>().join("; ");
            match &comparison.power {
                None => vec![format!("{}: too few viewers to compare", comparison.cohort)],
                Some(power) => vec![
                    format!("{}: {tested}", comparison.cohort),
                    format!("{}: {}", comparison.cohort, self.power(power)),
                ],
            }
        };
        self.comparisons.iter().flat_map(of).collect()
    }

    fn power(&self, power: &Power) -> String {
        let size = |size: f64| {
            let share = power.of.map(|of| format!(" ({:.1} %)", 100.0 * size / of));
            with_unit(&figure(size), self.unit) + &share.unwrap_or_default()
        };
        let mut text =
            format!("detectable difference of the mean (80 % power): {}", size(power.now));
        if let (Some(one), Some(four)) = (power.one_week_more, power.four_weeks_more) {
            let _ =
                write!(text, "; with 1 week more {}, with 4 weeks more {}", size(one), size(four));
        }
        text
    }
}

/// Aligns columns: the first one left, others right, except text in the last one.
pub(crate) fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| {
        rows.iter()
            .filter_map(|row| row.get(at))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = match at {
                0 => write!(line, "  {cell:<width$}"),
                _ => write!(line, "  {cell:>width$}"),
            };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Formats a number with four significant digits. Integers have no decimals.
pub(crate) fn figure(number: f64) -> String {
    let size = number.abs();
    if size < 999.5 && number.fract() == 0.0 {
        format!("{}", number as i64)
    } else if !(1e-4..1e15).contains(&size) {
        format!("{number:.2e}")
    } else if size >= 999.5 {
        let sign = if number < 0.0 { "-" } else { "" };
        format!("{sign}{}", whole(size.round() as u64))
    } else {
        let digits = (3 - size.log10().floor() as i32).clamp(0, 8) as usize;
        format!("{number:.digits$}")
    }
}

fn signed(number: f64) -> String {
    let sign = if number > 0.0 { "+" } else { "" };
    format!("{sign}{}", figure(number))
}

/// Formats an integer with thousands separators.
pub(crate) fn whole(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn percent(share: Option<f64>) -> String {
    share.map_or("-".into(), |share| format!("{:+.1} %", 100.0 * share))
}

/// Formats a p-value.
fn chance(p: f64) -> String {
    if p < 1e-4 { "< 0.0001".into() } else { format!("{p:.4}") }
}

fn with_unit(number: &str, unit: &str) -> String {
    if unit.is_empty() { number.to_owned() } else { format!("{number} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_significant_digits() {
        for (number, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (-250.0, "-250"),
            (1.000_01, "1.000"),
            (-12.3456, "-12.35"),
            (123.456, "123.5"),
            (999.96, "1,000"),
            (-1_234_567.8, "-1,234,568"),
            (0.012_345, "0.01235"),
            (0.000_012, "1.20e-5"),
        ] {
            assert_eq!(figure(number), text);
        }
        assert_eq!((signed(2.0), signed(-2.0)), ("+2".into(), "-2".into()));
        assert_eq!((percent(Some(-0.081)), percent(None)), ("-8.1 %".into(), "-".into()));
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [["a", "b"], ["long name", "1,000"]].map(|row| row.map(String::from).to_vec());
        assert_eq!(aligned(&rows), "  a              b\n  long name  1,000\n");
    }
}
