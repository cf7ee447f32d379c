//! Building blocks of a study: sections with tables and plots. Each number has a count of sessions
//! and, where available, the paper's value.

use serde::Serialize;

use crate::plot::Plot;

/// Count below which numbers are marked.
pub(super) const MIN_COUNT: u64 = 20;

/// A subject of the study.
#[derive(Clone, Debug, Serialize)]
pub struct StudySection {
    /// Name in JSON, and anchor on the page.
    pub name: &'static str,
    /// Heading.
    pub title: &'static str,
    /// Method and limits of the measurement.
    pub notes: Vec<String>,
    /// Columns needed, and the number of records that have each.
    pub columns: Vec<(&'static str, u64)>,
    /// Tables.
    pub tables: Vec<StudyTable>,
    /// Plots of distributions and time series.
    #[serde(skip)]
    pub plots: Vec<Plot>,
}

/// A table of numbers.
#[derive(Clone, Debug, Serialize)]
pub struct StudyTable {
    /// Name in JSON.
    pub name: &'static str,
    /// Headings of the cells.
    pub head: Vec<&'static str>,
    /// Meaning of the cells' counts; usually "sessions".
    pub counted: &'static str,
    /// Lines.
    pub lines: Vec<StudyLine>,
}

/// One line of a table.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StudyLine {
    /// Label, with the unit where the head lacks it.
    pub label: String,
    /// One cell per heading.
    pub cells: Vec<Cell>,
    /// Paper and section of the reference values.
    pub source: &'static str,
}

/// One number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cell {
    /// Value; `None` if no record has it.
    pub value: Option<f64>,
    /// Number of sessions (or other counted items) in the value.
    pub n: u64,
    /// The paper's value.
    pub paper: Option<f64>,
}

impl StudySection {
    /// Creates a section without tables.
    pub(super) fn new(name: &'static str, title: &'static str) -> Self {
        let (notes, columns) = (Vec::new(), Vec::new());
        Self { name, title, notes, columns, tables: Vec::new(), plots: Vec::new() }
    }

    pub(super) fn note(mut self, text: impl Into<String>) -> Self {
        self.notes.push(text.into());
        self
    }

    pub(super) fn table(mut self, table: StudyTable) -> Self {
        self.tables.push(table);
        self
    }

    /// Adds a plot unless it is empty.
    pub(super) fn plot(mut self, plot: Plot) -> Self {
        if !plot.is_empty() {
            self.plots.push(plot);
        }
        self
    }
}

impl StudyTable {
    /// Creates a table with these headings.
    pub(super) fn new(name: &'static str, head: &[&'static str]) -> Self {
        Self { name, head: head.to_vec(), counted: "sessions", lines: Vec::new() }
    }

    /// Creates a table with one value per line.
    pub(super) fn of_figures() -> Self {
        Self::new("figures", &["value"])
    }

    /// Adds a line.
    pub(super) fn line(mut self, label: impl Into<String>, cells: Vec<Cell>) -> Self {
        self.lines.push(StudyLine { label: label.into(), cells, source: "" });
        self
    }

    /// Adds a line with one value.
    pub(super) fn figure(self, label: impl Into<String>, cell: Cell) -> Self {
        self.line(label, vec![cell])
    }

    /// Sets the papers' values of the last line, and their source.
    pub(super) fn papers(mut self, values: &[Option<f64>], source: &'static str) -> Self {
        if let Some(line) = self.lines.last_mut() {
            for (cell, value) in line.cells.iter_mut().zip(values) {
                cell.paper = *value;
            }
            line.source = source;
        }
        self
    }

    /// Sets the paper's value of the last line's number, and its source.
    pub(super) fn paper(self, value: f64, source: &'static str) -> Self {
        self.papers(&[Some(value)], source)
    }
}
