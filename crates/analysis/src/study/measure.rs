//! What all subjects of a study have in common.

use super::row::Row;
use super::section::Section;

/// One subject of the study.
pub(super) trait Measure {
    /// The columns that it needs.
    fn columns(&self) -> &'static [&'static str];
    /// Adds a record.
    fn add(&mut self, row: &Row);
    /// What it comes to.
    fn report(&self) -> Section;
}
