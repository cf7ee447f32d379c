//! The demo's table: drawn over itself on a terminal, line after line elsewhere.

use std::io::{IsTerminal as _, Write as _, stdout};
use std::time::Duration;

use super::outcome::Outcome;

/// Interval of lines where there is no terminal.
const SELDOM: u64 = 5;

pub(super) struct Table {
    is_terminal: bool,
    drawn: usize,
}

impl Table {
    pub(super) fn new() -> Self {
        Self { is_terminal: stdout().is_terminal(), drawn: 0 }
    }

    pub(super) fn show(&mut self, elapsed: Duration, outcomes: &[Outcome]) {
        if !self.is_terminal && !elapsed.as_secs().is_multiple_of(SELDOM) {
            return;
        }
        let lines = lines(elapsed, outcomes);
        let mut out = stdout().lock();
        if self.is_terminal && self.drawn > 0 {
            // Cursor up, erase to the end of the screen (ECMA-48: CUU, ED).
            let _ = write!(out, "\x1b[{}A\x1b[J", self.drawn);
        }
        self.drawn = lines.len();
        for line in lines {
            // Nobody may be reading any more.
            let _ = writeln!(out, "{line}");
        }
        let _ = out.flush();
    }
}

fn lines(elapsed: Duration, outcomes: &[Outcome]) -> Vec<String> {
    let mut rows = vec![
        [
            "cohort",
            "scheme",
            "first frame",
            "played",
            "freezes",
            "frozen",
            "received",
            "RTT",
            "loss",
            "recovery mean/p95/max",
            "redundancy",
        ]
        .map(str::to_owned),
    ];
    for outcome in outcomes {
        let (player, record) = (outcome.player(), outcome.record.as_ref());
        let dash = || "–".to_owned();
        let ms = |value: Option<f64>| value.map_or_else(dash, |ms| format!("{ms:.0} ms"));
        let seconds = |value: Option<Duration>| {
            value.map_or_else(dash, |time| format!("{:.1} s", time.as_secs_f64()))
        };
        let percent =
            |value: Option<f64>| value.map_or_else(dash, |v| format!("{:.1} %", v * 100.0));
        let recovery = record.and_then(|r| {
            let number = |value: Option<f64>| value.map(|ms| format!("{ms:.0}"));
            let (mean, p95) = (number(r.recovery_mean_ms)?, number(r.recovery_p95_ms)?);
            Some(format!("{mean} / {p95} / {} ms", number(r.recovery_max_ms)?))
        });
        rows.push([
            outcome.cohort.to_owned(),
            record.and_then(|r| r.scheme.clone()).unwrap_or_else(dash),
            ms(player.and_then(|p| p.first_frame).map(|time| time.as_secs_f64() * 1e3)),
            seconds(player.map(|p| p.played)),
            player.map_or_else(dash, |p| p.freezes[0].count.to_string()),
            seconds(player.map(|p| p.freezes[0].total)),
            outcome
                .seen
                .as_ref()
                .map_or_else(dash, |seen| format!("{:.1} MB", seen.bytes as f64 * 1e-6)),
            ms(record.and_then(|r| r.rtt_ms)),
            percent(record.and_then(|r| r.loss_rate)),
            recovery.unwrap_or_else(dash),
            percent(record.and_then(|r| r.redundancy_cost)),
        ]);
    }
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let mut lines = vec![format!("{} s", elapsed.as_secs())];
    lines.extend(rows.iter().map(|row| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    }));
    lines
}
