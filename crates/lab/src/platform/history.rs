//! Sessions of an operator's records as a population: round-trip time, loss with its correlation,
//! bit rate and duration of each session. Everything else comes from the specification.

use std::collections::BTreeMap;
use std::path::Path;

use records::{Column, Location, Row};
use recovery::Random;

use super::session::LossKind;
use crate::error::{Context as _, Error, FileError};

/// Minimum number of usable records.
const MIN_RECORDS: usize = 50;
/// Number of impossible values reported in full. All are counted.
const MAX_NAMED: usize = 20;
/// Columns read from each record.
const COLUMNS: [Column; 10] = [
    Column::unit,
    Column::prefix,
    Column::viewer,
    Column::rtt_min_ms,
    Column::rtt_ms,
    Column::loss_rate,
    Column::goodput_mbps,
    Column::duration_s,
    AFTER_SENT,
    AFTER_LOST,
];
/// Packets sent more than 5 and at most 20 ms after a lost one, and the lost ones among them.
const AFTER_SENT: Column = Column::after_20ms_sent;
const AFTER_LOST: Column = Column::after_20ms_lost;
/// Middle of this interval.
const AFTER_MS: f64 = 12.0;
/// Minimum packets in this interval for an estimate of the loss correlation.
const MIN_AFTER_PACKETS: f64 = 30.0;

/// A session from a record.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Past {
    /// Number of the viewer, the same for all sessions of a unit.
    pub viewer: u32,
    pub rtt_ms: f64,
    pub loss: f64,
    /// Loss correlation, if the record has enough packets.
    pub kind: Option<LossKind>,
    pub bitrate_mbps: f64,
    pub duration_s: f64,
}

/// Usable records, and counts of the others.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordHistory {
    pub title: String,
    all: Vec<Past>,
    /// Records read.
    pub records: u64,
    /// Malformed lines, and files with read errors.
    pub broken: u64,
    /// Records with a missing value.
    pub incomplete: u64,
    /// Records with an impossible value.
    pub impossible: u64,
    /// The first impossible values: file and row, column, value, and range.
    pub named: Vec<String>,
    units: BTreeMap<String, u32>,
}

/// Reason for rejecting a record.
enum Unusable {
    Incomplete,
    Impossible(String),
}

fn value(record: &Row, column: Column, low: f64, high: f64) -> Result<f64, Unusable> {
    let Some(value) = record.value(column) else { return Err(Unusable::Incomplete) };
    match value.as_f64().filter(|number| (low..=high).contains(number)) {
        Some(number) => Ok(number),
        None => {
            Err(Unusable::Impossible(format!("`{column}` is {value}; it may be {low} to {high}")))
        }
    }
}

impl RecordHistory {
    /// Reads the records in a directory or file.
    ///
    /// # Errors
    /// One line: the path does not exist, or has too few usable records.
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        let mut history =
            Self { title: format!("The records in {}", path.display()), ..Self::default() };
        let input = records::read(&[path.to_owned()], &COLUMNS, |place, record| {
            history.take(place, record);
            Ok(())
        });
        let input = input?;
        history.broken = input.broken_lines + input.unreadable_files;
        if history.all.len() < MIN_RECORDS {
            let few = FileError::FewRecords {
                used: history.all.len(),
                min: MIN_RECORDS,
                records: history.records,
                incomplete: history.incomplete,
                impossible: history.impossible,
                broken: history.broken,
                example: history.named.into_iter().next(),
            };
            return Err(few).at(path);
        }
        Ok(history)
    }

    fn take(&mut self, place: Location<'_>, record: &Row) {
        self.records += 1;
        match self.past(record) {
            Ok(past) => self.all.push(past),
            Err(Unusable::Incomplete) => self.incomplete += 1,
            Err(Unusable::Impossible(what)) => {
                self.impossible += 1;
                if self.named.len() < MAX_NAMED {
                    self.named.push(format!("{place}: {what}"));
                }
            }
        }
    }

    fn past(&mut self, record: &Row) -> Result<Past, Unusable> {
        let rtt = match value(record, Column::rtt_min_ms, 0.1, 60_000.0) {
            Err(Unusable::Incomplete) => value(record, Column::rtt_ms, 0.1, 60_000.0),
            known => known,
        };
        let loss = value(record, Column::loss_rate, 0.0, 1.0)?;
        let after = |column: Column| match value(record, column, 0.0, 1e15) {
            Err(Unusable::Incomplete) => Ok(0.0),
            known => known,
        };
        let (sent, lost) = (after(AFTER_SENT)?, after(AFTER_LOST)?);
        if lost > sent {
            let may = format!("`{AFTER_LOST}` is {lost}; it may be 0 to `{AFTER_SENT}`, {sent}");
            return Err(Unusable::Impossible(may));
        }
        let kind = if sent < MIN_AFTER_PACKETS { None } else { kind_of(loss, lost / sent) };
        let past = Past {
            viewer: 0,
            rtt_ms: rtt?,
            // Upper limit of streams and loss models.
            loss: loss.min(0.9),
            kind,
            bitrate_mbps: value(record, Column::goodput_mbps, 0.001, 10_000.0)?,
            duration_s: value(record, Column::duration_s, 0.001, 1e7)?.clamp(1.0, 900.0),
        };
        let text = |column| record.text(column).map(|text| format!("{column} {text}"));
        let names = [Column::unit, Column::prefix, Column::viewer];
        let name = names.into_iter().find_map(text);
        let name = name.unwrap_or_else(|| format!("record {}", self.records));
        let next = self.units.len() as u32;
        Ok(Past { viewer: *self.units.entry(name).or_insert(next), ..past })
    }

    /// Draws a session.
    pub(super) fn pick(&self, random: &mut Random) -> &Past {
        &self.all[random.below(self.all.len() as u32) as usize]
    }

    /// Returns the number of records used.
    pub(super) fn used(&self) -> usize {
        self.all.len()
    }
}

/// Returns the Gilbert chain where a packet about 12 ms after a lost one is lost with
/// probability `after`. A correlation of at most a tenth counts as independent loss.
fn kind_of(loss: f64, after: f64) -> Option<LossKind> {
    if loss == 0.0 {
        return None;
    }
    if after < loss * 1.1 {
        return Some(LossKind::Independent);
    }
    // Half of the packets in a bad state are lost, as in calls, or more if the measurement needs
    // it.
    let share = (after * 1.2).clamp(0.5, 1.0);
    // The bad state persists for that time with probability exp(−12 ÷ length).
    let remains = (after / share).clamp(0.02, 0.98);
    Some(LossKind::Gilbert { bad_ms: (-AFTER_MS / remains.ln()).max(5.0), share })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::draws::Draws;

    fn row(n: usize, rest: &str) -> String {
        format!("{{\"unit\":\"{:016x}\",\"rtt_min_ms\":{},{rest}}}\n", n / 2, 20 + n)
    }

    const GOOD: &str = "\"loss_rate\":0.03,\"goodput_mbps\":1.5,\"duration_s\":30";

    fn written(text: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(folder.path().join("sessions-1.jsonl"), text).expect("written");
        folder
    }

    #[test]
    fn a_records_directory_cut_in_its_middle_loses_only_its_last_row() {
        let whole: String = (0..100).map(|n| row(n, GOOD)).collect();
        let cut = whole.len() * 3 / 4 - 10;
        let rows = whole[..cut].matches('\n').count();
        let folder = written(&whole[..cut]);
        let history = RecordHistory::read(folder.path()).expect("enough");
        assert_eq!((history.used(), history.broken, history.records), (rows, 1, rows as u64));
        let past = history.pick(&mut Draws::new(1).of("record", 0));
        assert_eq!((past.loss, past.bitrate_mbps, past.duration_s), (0.03, 1.5, 30.0));
    }

    #[test]
    fn impossible_values_are_named_by_record_and_column_and_counted() {
        let mut text: String = (0..80).map(|n| row(n, GOOD)).collect();
        text += &row(80, "\"loss_rate\":1.7,\"goodput_mbps\":1.5,\"duration_s\":30");
        text += &row(81, "\"loss_rate\":0.1,\"goodput_mbps\":-2,\"duration_s\":30");
        text += &row(82, "\"loss_rate\":0.1,\"goodput_mbps\":\"much\",\"duration_s\":30");
        text += &row(83, "\"loss_rate\":null,\"goodput_mbps\":1.5,\"duration_s\":30");
        let folder = written(&text);
        let history = RecordHistory::read(folder.path()).expect("enough");
        assert_eq!((history.used(), history.impossible, history.incomplete), (80, 3, 1));
        let first = "sessions-1.jsonl:81: `loss_rate` is 1.7; it may be 0 to 1";
        assert!(history.named[0].ends_with(first), "{:?}", history.named);
        assert!(history.named[1].contains(":82: `goodput_mbps` is -2"), "{:?}", history.named);
        assert!(history.named[2].contains("\"much\""), "{:?}", history.named);
    }

    #[test]
    fn too_few_records_are_an_error_that_says_how_many_are_needed() {
        let text: String = (0..30).map(|n| row(n, GOOD)).collect();
        let folder = written(&(text + &row(30, "\"loss_rate\":2")));
        let line = RecordHistory::read(folder.path()).expect_err("too few").to_string();
        assert!(line.contains("30 of 31 records") && line.contains("at least 50"), "{line}");
        assert!(line.contains(":31: `loss_rate` is 2"), "{line}");
        assert!(RecordHistory::read(Path::new("/nowhere")).is_err());
    }

    #[test]
    fn measured_correlation_becomes_bad_states() {
        assert_eq!(kind_of(0.05, 0.05), Some(LossKind::Independent));
        assert_eq!(kind_of(0.0, 0.0), None);
        let Some(LossKind::Gilbert { bad_ms, share }) = kind_of(0.05, 0.43) else {
            panic!("bad times")
        };
        assert!((share * (-AFTER_MS / bad_ms).exp() - 0.43).abs() < 0.01, "{bad_ms} {share}");
    }
}
