//! Study of session records: networks and viewers in the tables and figures of the papers, next to
//! the papers' own values. Records may come from the server or from the testbed.
//!
//! Records are summed up one by one. Only values with a distribution are kept, as `f32`, and 40 and
//! 32 bytes per session for comparisons between sessions: about 130 bytes per record in all.

mod bands;
mod loss;
mod measure;
mod overview;
mod page;
mod performance;
mod recovery;
mod row;
mod section;
mod similarity;
mod sums;
mod text;
mod user_groups;
mod viewing;

use std::path::PathBuf;

use records::{Column, Error, Input};
use serde::Serialize;

use measure::Measure;
pub use row::Impossible;
use row::RowReader;
pub use section::{Cell, StudyLine, StudySection, StudyTable};

/// Results of a study.
#[derive(Clone, Debug, Serialize)]
pub struct Study {
    /// Counts of records read and unreadable.
    #[serde(flatten)]
    pub input: Input,
    /// Impossible values, which are excluded from the results.
    pub impossible: Impossible,
    /// Subjects.
    pub sections: Vec<StudySection>,
}

/// Reads the records of `files`, which may be directories, and sums them up.
///
/// # Errors
/// One line: a path does not exist, or no record is found.
pub fn read(files: &[PathBuf]) -> Result<Study, Error> {
    let mut measures: [Box<dyn Measure>; 13] = [
        Box::<overview::Overview>::default(),
        Box::<loss::LossRates>::default(),
        Box::<loss::BurstLengths>::default(),
        Box::<recovery::Rounds>::default(),
        Box::<recovery::Deterioration>::default(),
        Box::<recovery::Latencies>::default(),
        Box::<recovery::OffMode>::default(),
        Box::<viewing::Freezes>::default(),
        Box::<viewing::FirstFrames>::default(),
        Box::<similarity::Similarity>::default(),
        Box::<user_groups::UserGroups>::default(),
        Box::<performance::Performance>::default(),
        Box::<loss::Hours>::default(),
    ];
    let mut reader = RowReader::new(measures.iter().flat_map(|measure| measure.columns()).copied());
    let columns = reader.columns().to_vec();
    let input = records::read(files, &columns, |place, record| {
        let row = reader.row(place, record);
        measures.iter_mut().for_each(|measure| measure.add(&row));
        Ok(())
    })?;
    if input.records == 0 {
        let Input { files, unreadable_files, broken_lines, .. } = input;
        return Err(Error::new(format!(
            "no record (files: {files}, unreadable: {unreadable_files}, broken lines: {broken_lines})"
        )));
    }
    let present = |column: &Column| (column.name(), reader.present(*column));
    let section = |measure: &dyn Measure| {
        let columns = measure.columns().iter().map(present).collect();
        StudySection { columns, ..measure.report() }
    };
    let sections = measures.iter().map(|measure| section(&**measure)).collect();
    Ok(Study { input, impossible: reader.impossible, sections })
}

#[cfg(test)]
mod tests;
