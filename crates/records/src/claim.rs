//! Bounds of player reports.
//!
//! Anybody can send reports, and a single one that claims 30 days frozen would outweigh a million
//! honest ones. The server bounds reports on arrival, and the reader bounds the rows of older
//! servers.

use crate::row::Row;
use crate::schema::Column;

/// Tolerated excess over the session's length, in seconds: media buffered at the start, clock
/// differences, and rounding.
pub const SLACK_S: f64 = 5.0;
/// Time after the end of a session during which reports are accepted, in seconds.
pub const REPORT_GRACE_S: f64 = 5.0;
/// Upper bound of the reported buffer, in milliseconds.
pub const MAX_BUFFER_MS: f64 = 60_000.0;
/// Maximum freezes per second of the session. A freeze takes at least 200 ms.
const FREEZES_PER_S: f64 = 4.0;
/// Maximum freezes per frozen second. A freeze takes at least 100 ms.
const FREEZES_PER_FROZEN_S: f64 = 10.0;
/// Maximum frames per second of the session.
const FRAMES_PER_S: f64 = 240.0;

/// Violated bound of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Excess {
    /// Played and frozen time exceed the length of the session.
    Time,
    /// More freezes than fit into the frozen time or the session.
    Freezes,
    /// First frame after the end of the session.
    FirstFrame,
    /// More frames than fit into the session.
    Frames,
    /// Buffer above [`MAX_BUFFER_MS`]. Does not mark the row, as no column stores the buffer.
    Buffer,
    /// The first report of a session includes counts of an earlier one.
    Earlier,
}

impl Excess {
    /// All violations.
    pub const ALL: [Self; 6] =
        [Self::Time, Self::Freezes, Self::FirstFrame, Self::Frames, Self::Buffer, Self::Earlier];

    /// Name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Freezes => "freezes",
            Self::FirstFrame => "first_frame",
            Self::Frames => "frames",
            Self::Buffer => "buffer",
            Self::Earlier => "earlier",
        }
    }
}

/// A player's claims about a session. Each is absent, or finite and not negative.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Claim {
    /// Time from the request to the first picture, in milliseconds.
    pub first_frame_ms: Option<f64>,
    /// Seconds played.
    pub played_s: Option<f64>,
    /// Number of freezes.
    pub freezes: Option<f64>,
    /// Seconds frozen.
    pub freeze_s: Option<f64>,
    /// Frames due.
    pub frames: Option<f64>,
    /// Late frames.
    pub late_frames: Option<f64>,
}

impl Claim {
    /// Clamps the claim to a session of `seconds`. Returns the violations.
    pub fn clamp(&mut self, seconds: f64) -> Vec<Excess> {
        let mut excess = Vec::new();
        let most_s = seconds.max(0.0) + SLACK_S;
        let mut cut = |cell: &mut Option<f64>, most: f64, why: Excess| {
            if let Some(number) = cell.as_mut().filter(|number| **number > most) {
                *number = most;
                excess.push(why);
            }
        };
        cut(&mut self.first_frame_ms, most_s * 1e3, Excess::FirstFrame);
        cut(&mut self.frames, (most_s * FRAMES_PER_S).floor(), Excess::Frames);
        cut(&mut self.late_frames, (most_s * FRAMES_PER_S).floor(), Excess::Frames);
        let watched = self.played_s.unwrap_or(0.0) + self.freeze_s.unwrap_or(0.0);
        if watched > most_s {
            // Scales both, as neither is more credible.
            for cell in [&mut self.played_s, &mut self.freeze_s] {
                *cell = cell.map(|number| (number / watched * most_s).min(most_s));
            }
            excess.push(Excess::Time);
        }
        let room = self.freeze_s.map_or(f64::INFINITY, |s| s * FREEZES_PER_FROZEN_S + 1.0);
        let most = (most_s * FREEZES_PER_S).min(room).floor();
        if let Some(freezes) = self.freezes.as_mut().filter(|freezes| **freezes > most) {
            *freezes = most;
            excess.push(Excess::Freezes);
        }
        excess
    }
}

/// Columns of a claim, in the order of [`cells`].
const COLUMNS: [Column; 6] = [
    Column::player_first_frame_ms,
    Column::player_played_s,
    Column::player_freezes,
    Column::player_freeze_s,
    Column::player_frames,
    Column::player_late_frames,
];

fn cells(claim: &mut Claim) -> [&mut Option<f64>; COLUMNS.len()] {
    [
        &mut claim.first_frame_ms,
        &mut claim.played_s,
        &mut claim.freezes,
        &mut claim.freeze_s,
        &mut claim.frames,
        &mut claim.late_frames,
    ]
}

/// Returns true if the column contains a player's claim.
pub fn is_claim(column: Column) -> bool {
    COLUMNS.contains(&column)
}

/// Columns that [`clamp_row`] needs to check any of `columns`.
pub(crate) fn needed(columns: &[Column]) -> impl Iterator<Item = Column> {
    let has_claims = columns.iter().any(|column| is_claim(*column));
    let needed = [Column::duration_s, Column::report_clamped].into_iter().chain(COLUMNS);
    needed.filter(move |_| has_claims)
}

/// Clamps the claims in a row to its duration, and marks the row if any was out of bounds. Leaves
/// values outside their columns' ranges to the caller, and all values of rows without a duration.
/// Returns true if the row is marked.
pub(crate) fn clamp_row(row: &mut Row) -> bool {
    let number = |row: &Row, column: Column| {
        row.number(column).filter(|number| column.range().contains(*number))
    };
    let Some(seconds) = number(row, Column::duration_s) else { return row.is_clamped() };
    let mut claim = Claim::default();
    for (column, cell) in COLUMNS.into_iter().zip(cells(&mut claim)) {
        *cell = number(row, column);
    }
    if !claim.clamp(seconds + REPORT_GRACE_S).is_empty() {
        for (column, cell) in COLUMNS.into_iter().zip(cells(&mut claim)) {
            let Some(number) = *cell else { continue };
            let is_whole = row.value(column).is_some_and(|value| !value.is_f64());
            row.set(column, if is_whole { (number as i64).into() } else { number.into() });
        }
        row.set(Column::report_clamped, 1.into());
    }
    row.is_clamped()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn claim(played: f64, freezes: f64, frozen: f64) -> Claim {
        Claim {
            first_frame_ms: Some(300.0),
            played_s: Some(played),
            freezes: Some(freezes),
            freeze_s: Some(frozen),
            ..Claim::default()
        }
    }

    #[test]
    fn plausible_claims_are_unchanged() {
        for (played, freezes, frozen, seconds) in [
            (118.0, 2.0, 0.8, 120.0),
            (0.0, 1.0, 60.0, 60.0),
            (0.0, 0.0, 0.0, 0.0),
            (9.0, 1.0, 0.0, 5.0),
        ] {
            let mut one = claim(played, freezes, frozen);
            let before = one;
            assert_eq!(one.clamp(seconds), []);
            assert_eq!(one, before);
        }
    }

    #[test]
    fn no_claim_exceeds_the_session() {
        let numbers = [0.0, 0.5, 1.0, 9.0, 3_600.0, 2_592_000.0, 2.5e9, 1e300];
        for seconds in [0.0, 1.0, 120.0, f64::NAN, -5.0] {
            let most = f64::max(seconds, 0.0) + SLACK_S;
            for played in numbers {
                for frozen in numbers {
                    for freezes in numbers {
                        let mut one = claim(played, freezes, frozen);
                        one.first_frame_ms = Some(freezes);
                        let beyond = one.clamp(seconds);
                        let (p, f) = (one.played_s.expect("kept"), one.freeze_s.expect("kept"));
                        assert!(p >= 0.0 && f >= 0.0 && p + f <= most * (1.0 + 1e-9), "{one:?}");
                        let freezes = one.freezes.expect("kept");
                        assert!(freezes <= most * 4.0 && freezes <= f * 10.0 + 1.0, "{one:?}");
                        assert!(one.first_frame_ms.expect("kept") <= most * 1e3);
                        let before = one;
                        assert_eq!(one.clamp(seconds), [], "idempotent");
                        assert_eq!((one, beyond.is_empty()), (before, beyond.is_empty()));
                    }
                }
            }
        }
    }

    fn row(values: Value) -> Row {
        let Value::Object(values) = values else { panic!("an object") };
        values.into()
    }

    #[test]
    fn a_row_is_clamped_to_its_duration_and_marked() {
        let mut one = row(json!({
            "duration_s": 100.0, "player_played_s": 0.0, "player_freezes": 2_500_000_000i64,
            "player_freeze_s": 2_592_000.0, "player_first_frame_ms": -1.0, "player_frames": "NaN",
        }));
        assert!(clamp_row(&mut one) && one.is_clamped());
        let value = |column| one.value(column).expect("kept");
        assert_eq!(value(Column::player_freeze_s), &json!(110.0));
        assert_eq!(value(Column::player_freezes), &json!(440));
        assert_eq!(value(Column::player_first_frame_ms), &json!(-1.0));
        assert_eq!(value(Column::player_frames), &json!("NaN"));
        let mut one = row(json!({
            "duration_s": 100.0, "player_played_s": 99.0,
            "player_freezes": 3, "player_freeze_s": 1.5,
        }));
        let before = one.clone();
        assert!(!clamp_row(&mut one) && one == before);
        let mut one = row(json!({"player_freeze_s": 1e9, "report_clamped": 1}));
        assert!(clamp_row(&mut one), "marked by the server");
    }

    #[test]
    fn every_player_column_except_the_mark_is_clamped() {
        let player = |column: &Column| {
            column.group() == Column::report_clamped.group() && *column != Column::report_clamped
        };
        assert!(Column::ALL.into_iter().filter(player).eq(COLUMNS));
    }
}
