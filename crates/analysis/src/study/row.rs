//! One record of a study: its columns, checked against their ranges. Impossible values are
//! reported, counted and treated as absent. The rest of the record is used.

use core::ops::{Index, IndexMut};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use records::{Column, Kind, Location, Range};
use serde::Serialize;

/// Maximum number of values reported in full.
const MAX_NAMED: usize = 20;

/// Number of columns.
const COLUMNS: usize = Column::ALL.len();

/// Values of one record; `None` if absent or impossible. Numbers are indexed by column.
#[derive(Clone, Debug)]
pub(super) struct StudyRow {
    numbers: [Option<f64>; COLUMNS],
    /// Hash of the stream's name.
    pub stream: Option<u64>,
    pub viewer: Option<u64>,
    pub prefix: Option<u64>,
    pub group: Option<u64>,
    /// Name of the user group: untrusted text of any length.
    pub group_name: Option<String>,
}

impl Default for StudyRow {
    fn default() -> Self {
        let (stream, viewer, prefix, group, group_name) = (None, None, None, None, None);
        Self { numbers: [None; COLUMNS], stream, viewer, prefix, group, group_name }
    }
}

impl Index<Column> for StudyRow {
    type Output = Option<f64>;

    fn index(&self, column: Column) -> &Option<f64> {
        &self.numbers[column as usize]
    }
}

impl IndexMut<Column> for StudyRow {
    fn index_mut(&mut self, column: Column) -> &mut Option<f64> {
        &mut self.numbers[column as usize]
    }
}

/// Impossible values.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Impossible {
    /// Number of values by column.
    pub columns: BTreeMap<&'static str, u64>,
    /// File, row and value of the first 20.
    pub named: Vec<String>,
}

impl Impossible {
    fn count(&mut self, column: &'static str, what: impl FnOnce() -> String) {
        *self.columns.entry(column).or_default() += 1;
        if self.named.len() < MAX_NAMED {
            self.named.push(what());
        }
    }
}

/// Parser of records.
#[derive(Clone, Debug)]
pub(super) struct RowReader {
    /// Columns to read, in the order of the schema.
    columns: Vec<Column>,
    /// Records with a valid value, by column.
    present: [u64; COLUMNS],
    pub impossible: Impossible,
}

impl RowReader {
    /// Reads these columns. Of a count and its part ([`Range::AtMost`]), reads both or none.
    pub(super) fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        let mut columns: BTreeSet<Column> = columns.into_iter().collect();
        for part in Column::ALL {
            if let Range::AtMost(whole) = part.range()
                && (columns.contains(&part) || columns.contains(&whole))
            {
                columns.extend([part, whole]);
            }
        }
        let columns = columns.into_iter().collect();
        Self { columns, present: [0; COLUMNS], impossible: Impossible::default() }
    }

    pub(super) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Returns the number of records with a valid value.
    pub(super) fn present(&self, column: Column) -> u64 {
        self.present[column as usize]
    }

    pub(super) fn row(&mut self, place: Location<'_>, record: &records::Row) -> StudyRow {
        let mut row = StudyRow::default();
        let columns = core::mem::take(&mut self.columns);
        // A player's report that contradicts the server's clock is excluded. The reader of the
        // records counts it.
        let is_clamped = record.is_clamped();
        for &column in columns.iter().filter(|column| column.kind() != Kind::Text) {
            let number = self.number(place, record, column);
            row[column] = number.filter(|_| !(is_clamped && records::is_claim(column)));
        }
        for &part in &columns {
            // If a part exceeds its whole, both are invalid.
            if let Range::AtMost(whole) = part.range()
                && let (Some(some), Some(all)) = (row[part], row[whole])
                && some > all
            {
                let what = || format!("{place}: {part} = {some} of {whole} = {all}");
                self.impossible.count(part.name(), what);
                (row[part], row[whole]) = (None, None);
            }
        }
        row.stream = record.text(Column::stream).map(number_of);
        row.viewer = record.text(Column::viewer).map(number_of);
        row.prefix = record.text(Column::prefix).map(number_of);
        row.group_name = record.text(Column::group).map(str::to_owned);
        row.group = row.group_name.as_deref().map(number_of);
        for &column in &columns {
            let is_present = match column.kind() {
                Kind::Text => record.text(column).is_some(),
                Kind::Int | Kind::Float => row[column].is_some(),
            };
            self.present[column as usize] += u64::from(is_present);
        }
        self.columns = columns;
        row
    }

    fn number(
        &mut self,
        place: Location<'_>,
        record: &records::Row,
        column: Column,
    ) -> Option<f64> {
        let value = record.value(column)?;
        let number = value.as_f64().filter(|number| column.range().contains(*number));
        if number.is_none() {
            let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            self.impossible.count(column.name(), || format!("{place}: {column} = {shown:.40}"));
        }
        number
    }
}

/// Hashes a text.
pub(super) fn number_of(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

impl StudyRow {
    /// Returns the hour of the day (UTC) at the start of the session.
    pub(super) fn hour(&self) -> Option<usize> {
        self[Column::started_ms].map(|ms| (ms / 3_600_000.0) as usize % 24)
    }

    /// Returns seconds of playback and freezes, if any.
    pub(super) fn watched_s(&self) -> Option<f64> {
        let (played, frozen) = self[Column::player_played_s].zip(self[Column::player_freeze_s])?;
        Some(played + frozen).filter(|watched| *watched > 0.0)
    }

    /// By class of lag: its upper end in ms, packets sent in this time after a lost one, and the
    /// lost ones among them.
    pub(super) fn after_loss(&self) -> [(u32, Option<(f64, f64)>); 6] {
        const CLASSES: [(u32, Column, Column); 6] = [
            (1, Column::after_1ms_sent, Column::after_1ms_lost),
            (5, Column::after_5ms_sent, Column::after_5ms_lost),
            (20, Column::after_20ms_sent, Column::after_20ms_lost),
            (50, Column::after_50ms_sent, Column::after_50ms_lost),
            (100, Column::after_100ms_sent, Column::after_100ms_lost),
            (200, Column::after_200ms_sent, Column::after_200ms_lost),
        ];
        CLASSES.map(|(end, sent, lost)| (end, self[sent].zip(self[lost])))
    }

    /// Returns the runs of lost packets by size: the class's upper limit in packets, and the number
    /// of its runs.
    pub(super) fn burst_lengths(&self) -> [(u32, Option<f64>); 8] {
        const CLASSES: [(u32, Column); 8] = [
            (1, Column::bursts_1),
            (2, Column::bursts_2),
            (4, Column::bursts_4),
            (8, Column::bursts_8),
            (16, Column::bursts_16),
            (32, Column::bursts_32),
            (64, Column::bursts_64),
            (128, Column::bursts_128),
        ];
        CLASSES.map(|(limit, column)| (limit, self[column]))
    }
}
