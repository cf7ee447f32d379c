//! Common interface of a study's subjects.

use records::Column;

use super::row::Row;
use super::section::Section;

/// A subject of the study.
pub(super) trait Measure {
    /// Returns the columns that it needs.
    fn columns(&self) -> &'static [Column];
    /// Adds a record.
    fn add(&mut self, row: &Row);
    /// Returns the results.
    fn report(&self) -> Section;
}
