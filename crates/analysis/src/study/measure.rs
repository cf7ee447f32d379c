//! Common interface of a study's subjects.

use records::Column;

use super::row::StudyRow;
use super::section::StudySection;

/// A subject of the study.
pub(super) trait Measure {
    /// Returns the columns that it needs.
    fn columns(&self) -> &'static [Column];
    /// Adds a record.
    fn add(&mut self, row: &StudyRow);
    /// Returns the results.
    fn report(&self) -> StudySection;
}
