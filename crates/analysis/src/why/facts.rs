//! The session's record, with impossible values removed.

use core::ops::Index;

use records::{Column, Kind, Location, Range, Row};

/// Maximum characters of an untrusted text in reports.
const MAX_TEXT: usize = 80;
const COLUMNS: usize = Column::ALL.len();

/// Valid values of a record.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    numbers: [Option<f64>; COLUMNS],
    row: Row,
    /// Location of the record.
    pub place: String,
    /// Impossible values: column and value.
    pub impossible: Vec<String>,
    /// Whether the player's report contradicts the server's clock. Its claims are absent here.
    pub is_clamped: bool,
}

impl Index<Column> for Facts {
    type Output = Option<f64>;

    fn index(&self, column: Column) -> &Option<f64> {
        &self.numbers[column as usize]
    }
}

impl Facts {
    pub(super) fn new(place: Location<'_>, row: &Row) -> Self {
        let mut facts = Self {
            numbers: [None; COLUMNS],
            row: row.clone(),
            place: place.to_string(),
            impossible: Vec::new(),
            is_clamped: row.is_clamped(),
        };
        for column in Column::ALL.into_iter().filter(|column| column.kind() != Kind::Text) {
            let Some(value) = row.value(column) else { continue };
            let number = value.as_f64().filter(|number| column.range().contains(*number));
            if number.is_none() {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                facts.impossible.push(format!("{column} = {}", plain(&value)));
            }
            let is_claim = facts.is_clamped && records::is_claim(column);
            facts.numbers[column as usize] = number.filter(|_| !is_claim);
        }
        // If a part exceeds its whole, both are invalid.
        for part in Column::ALL {
            if let Range::AtMost(whole) = part.range()
                && let (Some(some), Some(all)) = (facts[part], facts[whole])
                && some > all
            {
                facts.impossible.push(format!("{part} = {some} of {whole} = {all}"));
                facts.numbers[part as usize] = None;
                facts.numbers[whole as usize] = None;
            }
        }
        facts
    }

    /// Returns a text without control characters, at most [`MAX_TEXT`] characters.
    pub(super) fn text(&self, column: Column) -> Option<String> {
        self.row.text(column).map(plain)
    }

    /// Returns an untrusted text as it is.
    pub(super) fn raw(&self, column: Column) -> &str {
        self.row.text(column).unwrap_or("")
    }

    /// Returns true if the session came over TCP, where no recovery scheme acts.
    pub(super) fn is_tcp(&self) -> bool {
        self.row.text(Column::protocol).is_some_and(|protocol| protocol != "h3")
    }

    /// Returns true if the player requested segments.
    pub(super) fn is_hls(&self) -> bool {
        self.row.text(Column::format) == Some("hls")
    }

    /// Returns start and end in ms since 1970.
    pub(super) fn span_ms(&self) -> Option<(f64, f64)> {
        let (start, seconds) = self[Column::started_ms].zip(self[Column::duration_s])?;
        Some((start, start + seconds * 1e3))
    }

    /// Frozen time in s; 0 if unknown.
    pub(super) fn frozen_s(&self) -> f64 {
        self[Column::player_freeze_s].unwrap_or(0.0)
    }
}

/// Replaces control characters of an untrusted text, and cuts it off.
pub(super) fn plain(text: &str) -> String {
    let shown = text.chars().take(MAX_TEXT).map(|c| if c.is_control() { '\u{fffd}' } else { c });
    shown.collect()
}

/// Time in UTC, to the second, such as `2026-11-28T09:48:47Z`.
pub(super) fn utc(ms: f64) -> String {
    let text = units::date_time(ms as i64);
    text.split('.').next().unwrap_or_default().to_owned() + "Z"
}
