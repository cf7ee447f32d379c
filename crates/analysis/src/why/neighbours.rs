//! Sessions at the same time: of the same stream, the same network, and all others. They tell the
//! publisher, the viewer's network and the server apart.

use std::path::PathBuf;

use records::{Column, Error, Row};
use serde::Serialize;

use super::facts::Facts;

/// Minimum time for which sessions overlap, in ms.
const MIN_OVERLAP_MS: f64 = 5_000.0;

/// Sessions of a class, with a player that reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Seen {
    /// Number of sessions.
    pub sessions: u64,
    /// Number with at least one freeze.
    pub frozen: u64,
}

impl Seen {
    fn add(&mut self, is_frozen: bool) {
        self.sessions += 1;
        self.frozen += u64::from(is_frozen);
    }

    /// Share of frozen sessions; `None` below `least` sessions.
    pub(super) fn share(self, least: u64) -> Option<f64> {
        (self.sessions >= least).then(|| self.frozen as f64 / self.sessions as f64)
    }
}

/// Other viewers' sessions that overlap by 5 s or more, with player reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Neighbours {
    /// Viewers of the same stream in other networks.
    pub same_stream: Seen,
    /// Viewers of other streams in other networks.
    pub other_streams: Seen,
    /// Viewers in the same network.
    pub same_network: Seen,
}

const NEEDED: [Column; 9] = [
    Column::viewer,
    Column::session,
    Column::stream,
    Column::prefix,
    Column::started_ms,
    Column::duration_s,
    Column::player_freezes,
    Column::player_freeze_s,
    Column::report_clamped,
];

/// Counts the sessions beside this one.
///
/// # Errors
/// A path does not exist.
pub(super) fn of(facts: &Facts, paths: &[PathBuf]) -> Result<Neighbours, Error> {
    let mut all = Neighbours::default();
    let Some(span) = facts.span_ms() else { return Ok(all) };
    let [viewer, stream, prefix] =
        [Column::viewer, Column::stream, Column::prefix].map(|column| facts.raw(column));
    records::read(paths, &NEEDED, |_, row| {
        let text = |column| row.text(column).unwrap_or("");
        if let Some(is_frozen) = frozen_beside(row, span)
            && text(Column::viewer) != viewer
        {
            match (text(Column::prefix) == prefix, text(Column::stream) == stream) {
                (true, _) => all.same_network.add(is_frozen),
                (false, true) => all.same_stream.add(is_frozen),
                (false, false) => all.other_streams.add(is_frozen),
            }
        }
        Ok(())
    })?;
    Ok(all)
}

/// Returns whether an overlapping session froze; `None` without a plausible report or overlap.
fn frozen_beside(row: &Row, (start, end): (f64, f64)) -> Option<bool> {
    let number =
        |column: Column| row.number(column).filter(|number| column.range().contains(*number));
    let (began, seconds) = number(Column::started_ms).zip(number(Column::duration_s))?;
    let overlap = end.min(began + seconds * 1e3) - start.max(began);
    let freezes = number(Column::player_freezes)?;
    (!row.is_clamped() && overlap >= MIN_OVERLAP_MS).then_some(freezes > 0.0)
}
