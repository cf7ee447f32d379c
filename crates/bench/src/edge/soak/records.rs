//! Contents of the record files after a soak: their number, and the player reports in them.

use std::io::{BufRead as _, BufReader};
use std::path::Path;

use serde::Deserialize;

use crate::Failure;

/// Seconds that a player may report beyond its session: the server's tolerance for clocks.
const SLACK_S: f64 = 5.0;
/// Maximum freezes per second of a session. A freeze counted by a player takes 200 ms or more.
const FREEZES_PER_S: f64 = 5.0;

/// Sums over all rows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Records {
    /// Number of rows.
    pub rows: u64,
    /// Rows with a player report.
    pub reported: u64,
    /// Rows with a report beyond the duration of their session.
    pub beyond: u64,
    /// Total duration of sessions with reports, plus the tolerance of each: upper limit of time
    /// played and frozen, in seconds.
    pub room_s: f64,
}

#[derive(Deserialize)]
struct SessionRow {
    duration_s: f64,
    player_played_s: Option<f64>,
    player_freezes: Option<f64>,
    player_freeze_s: Option<f64>,
}

impl Records {
    /// Reads all JSON lines files in a directory.
    ///
    /// # Errors
    /// A file cannot be read, or a line is not a record.
    pub(super) fn read(directory: &Path) -> Result<Self, Failure> {
        let mut records = Self::default();
        for entry in std::fs::read_dir(directory)?.flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension == "jsonl") {
                let file = std::fs::File::open(&path)?;
                for line in BufReader::new(file).lines() {
                    records.add(&line?)?;
                }
            }
        }
        Ok(records)
    }

    /// Returns the maximum number of freezes that players can have had.
    pub(super) fn room_freezes(&self) -> f64 {
        self.room_s * FREEZES_PER_S
    }

    fn add(&mut self, line: &str) -> Result<(), Failure> {
        let row: SessionRow = serde_json::from_str(line).map_err(|e| format!("{e}: {line}"))?;
        self.rows += 1;
        let Some(played) = row.player_played_s else { return Ok(()) };
        let (freezes, frozen) =
            (row.player_freezes.unwrap_or(0.0), row.player_freeze_s.unwrap_or(0.0));
        let room = row.duration_s + SLACK_S;
        self.reported += 1;
        self.room_s += room;
        let is_possible = played >= 0.0
            && frozen >= 0.0
            && played + frozen <= room
            && (0.0..=room * FREEZES_PER_S).contains(&freezes);
        self.beyond += u64::from(!is_possible);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_beyond_their_session_are_counted() {
        let row = |played: &str, freezes: &str, frozen: &str| {
            format!(
                "{{\"viewer\":\"a\",\"duration_s\":10,\"player_played_s\":{played},\
                 \"player_freezes\":{freezes},\"player_freeze_s\":{frozen}}}"
            )
        };
        let mut records = Records::default();
        for (played, freezes, frozen) in [
            ("null", "null", "null"),
            ("9", "1", "0.5"),
            ("14", "1", "2"),
            ("0", "1000000000", "1"),
            ("-1", "0", "0"),
        ] {
            records.add(&row(played, freezes, frozen)).expect("a row");
        }
        let sums = Records { rows: 5, reported: 4, beyond: 3, room_s: 60.0 };
        assert_eq!(records, sums);
        assert!(records.add("{\"duration_s\":\"long\"}").is_err());
    }
}
