//! What a study consists of: sections with tables and plots. Each number knows how many sessions it comes from
//! and, where a paper has it, the paper's own.

use serde::Serialize;

use crate::plot::Plot;

/// Numbers of fewer sessions are marked.
pub(super) const FEW: u64 = 20;

/// One subject of the study.
#[derive(Clone, Debug, Serialize)]
pub struct Section {
    /// Its name in JSON, and its place on the page.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// What is measured and how, and what it does not say.
    pub notes: Vec<String>,
    /// The columns that it needs, and how many records have each.
    pub columns: Vec<(&'static str, u64)>,
    /// The numbers.
    pub tables: Vec<Table>,
    /// Distributions and courses.
    #[serde(skip)]
    pub plots: Vec<Plot>,
}

/// Numbers side by side.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// Its name in JSON.
    pub name: &'static str,
    /// What the cells of a line are.
    pub head: Vec<&'static str>,
    /// What the cells' counts are; mostly "sessions".
    pub counted: &'static str,
    /// The lines.
    pub lines: Vec<Line>,
}

/// One line of a table.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Line {
    /// What it is, with the unit where the head does not have it.
    pub label: String,
    /// As many as the table's head has entries.
    pub cells: Vec<Cell>,
    /// Which paper and section the papers' values are from.
    pub source: &'static str,
}

/// One number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cell {
    /// Absent if no record says it.
    pub value: Option<f64>,
    /// How many sessions (or what the table counts) it comes from.
    pub n: u64,
    /// What the paper has.
    pub paper: Option<f64>,
}

impl Section {
    /// A section without tables yet.
    pub(super) fn new(name: &'static str, title: &'static str) -> Self {
        let (notes, columns) = (Vec::new(), Vec::new());
        Self { name, title, notes, columns, tables: Vec::new(), plots: Vec::new() }
    }

    pub(super) fn note(mut self, text: impl Into<String>) -> Self {
        self.notes.push(text.into());
        self
    }

    pub(super) fn table(mut self, table: Table) -> Self {
        self.tables.push(table);
        self
    }

    /// Adds a plot, if there is anything to see.
    pub(super) fn plot(mut self, plot: Plot) -> Self {
        if !plot.is_empty() {
            self.plots.push(plot);
        }
        self
    }
}

impl Table {
    /// A table whose lines have these cells.
    pub(super) fn new(name: &'static str, head: &[&'static str]) -> Self {
        Self { name, head: head.to_vec(), counted: "sessions", lines: Vec::new() }
    }

    /// A table of figures: a line has one value.
    pub(super) fn of_figures() -> Self {
        Self::new("figures", &["value"])
    }

    /// Adds a line.
    pub(super) fn line(mut self, label: impl Into<String>, cells: Vec<Cell>) -> Self {
        self.lines.push(Line { label: label.into(), cells, source: "" });
        self
    }

    /// Adds a line of one figure.
    pub(super) fn figure(self, label: impl Into<String>, cell: Cell) -> Self {
        self.line(label, vec![cell])
    }

    /// The papers' values of the last line, and where they stand.
    pub(super) fn papers(mut self, values: &[Option<f64>], source: &'static str) -> Self {
        if let Some(line) = self.lines.last_mut() {
            for (cell, value) in line.cells.iter_mut().zip(values) {
                cell.paper = *value;
            }
            line.source = source;
        }
        self
    }

    /// The paper's value of the last line's figure, and where it stands.
    pub(super) fn paper(self, value: f64, source: &'static str) -> Self {
        self.papers(&[Some(value)], source)
    }
}
