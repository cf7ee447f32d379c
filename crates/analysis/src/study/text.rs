//! A study as text for terminals, and as JSON.

use core::fmt::Write as _;

use super::Study;
use super::section::{Cell, MIN_COUNT, StudySection, StudyTable};
use crate::text::{aligned, figure, whole};

impl Study {
    /// Renders one JSON object in one line.
    pub fn json(&self) -> String {
        // Cannot fail: numbers that are not finite become null, and keys are text.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Renders aligned columns for people.
    pub fn text(&self) -> String {
        let mut out = self.summary().join("\n");
        out.push('\n');
        for section in &self.sections {
            let _ = writeln!(out, "\n{}", section.title);
            for remark in section.remarks(self.input.records) {
                let _ = writeln!(out, "  {remark}");
            }
            for table in &section.tables {
                let mut rows = table.rows();
                let sources = rows.iter_mut().filter_map(|row| row.last_mut());
                // Sources are aligned.
                sources.for_each(|source| *source = format!("{source:<80}"));
                out.push_str(&aligned(&rows));
            }
        }
        out.push('\n');
        for line in LEGEND {
            let _ = writeln!(out, "{line}");
        }
        out
    }

    /// Returns the counts of records read and excluded, one line each.
    pub(super) fn summary(&self) -> Vec<String> {
        let input = &self.input;
        let mut all =
            vec![format!("records: {}, files: {}", whole(input.records), whole(input.files))];
        if input.broken_lines > 0 {
            all.push(format!("excluded: {} broken lines", whole(input.broken_lines)));
        }
        if input.reports_clamped > 0 {
            let count = whole(input.reports_clamped);
            all.push(format!("excluded: {count} player reports beyond their session's duration"));
        }
        all.extend(input.unreadable.iter().map(|why| format!("unreadable: {why}")));
        if input.unreadable_files > input.unreadable.len() as u64 {
            all.push(format!("{} files unreadable altogether", whole(input.unreadable_files)));
        }
        let impossible = &self.impossible;
        if !impossible.columns.is_empty() {
            let counts = impossible.columns.iter();
            let counts: Vec<_> =
                counts.map(|(column, count)| format!("{column} {}", whole(*count))).collect();
            all.push(format!(
                "impossible values, excluded from the results: {}",
                counts.join(", ")
            ));
            all.extend(impossible.named.iter().map(|what| format!("impossible: {what}")));
        }
        all
    }
}

/// Legend of the numbers.
pub(super) const LEGEND: [&str; 2] = [
    "In brackets: the number of sessions (or sets); † fewer than 20. \"Sums\" are ratios of sums \
     over all sessions, means are over sessions.",
    "The papers' values describe their own fleets. They are references, not targets.",
];

impl StudySection {
    /// Returns missing columns, and how many records have partly missing ones.
    pub(super) fn remarks(&self, records: u64) -> Vec<String> {
        let missing: Vec<&str> =
            self.columns.iter().filter(|(_, count)| *count == 0).map(|(name, _)| *name).collect();
        let mut all = Vec::new();
        if !missing.is_empty() {
            all.push(format!("missing in all {} records: {}", whole(records), missing.join(", ")));
        }
        let mut counts: Vec<u64> = self.columns.iter().map(|(_, count)| *count).collect();
        counts.sort_unstable();
        counts.dedup();
        for count in counts.into_iter().filter(|count| *count > 0 && *count < records) {
            let with = self.columns.iter().filter(|(_, other)| *other == count);
            let names: Vec<&str> = with.map(|(name, _)| *name).collect();
            all.push(format!(
                "in {} of {} records: {}",
                whole(count),
                whole(records),
                names.join(", ")
            ));
        }
        all
    }
}

impl StudyTable {
    /// Returns the table as rows of text, head first. Each column of values is followed by the
    /// papers' values, if any; sources are last.
    pub(super) fn rows(&self) -> Vec<Vec<String>> {
        let papers =
            |at: usize| self.lines.iter().any(|line| cell(&line.cells, at).paper.is_some());
        let mut head = vec![if self.counted == "sessions" {
            String::new()
        } else {
            format!("({})", self.counted)
        }];
        for (at, name) in self.head.iter().enumerate() {
            head.push((*name).to_owned());
            head.extend(papers(at).then(|| "paper".to_owned()));
        }
        head.push(String::new());
        let mut rows = vec![head];
        for line in &self.lines {
            let mut row = vec![line.label.clone()];
            for at in 0..self.head.len() {
                let cell = cell(&line.cells, at);
                row.push(shown(&cell));
                row.extend(papers(at).then(|| cell.paper.map_or(String::new(), figure)));
            }
            row.push(line.source.to_owned());
            rows.push(row);
        }
        rows
    }
}

fn cell(cells: &[Cell], at: usize) -> Cell {
    cells.get(at).copied().unwrap_or_default()
}

/// Formats a number with its count.
fn shown(cell: &Cell) -> String {
    let few = if cell.n < MIN_COUNT { "†" } else { "" };
    match cell.value {
        Some(value) => format!("{}{few} ({})", figure(value), whole(cell.n)),
        None => "-".into(),
    }
}
