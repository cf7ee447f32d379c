//! The demo's table: redrawn in place on a terminal, appended elsewhere. Columns that viewers
//! notice come first, highlighted on a terminal.

use std::io::{IsTerminal as _, stdout};
use std::time::Duration;

use super::outcome::DemoOutcome;

/// Interval of lines where there is no terminal.
const LINE_INTERVAL_S: u64 = 5;
/// Highlighted columns: freezes and seconds frozen.
const HIGHLIGHTED: core::ops::Range<usize> = 2..4;

const HEADINGS: [&str; 12] = [
    "cohort",
    "scheme",
    "FREEZES",
    "FROZEN",
    "late frames",
    "first frame",
    "redundancy",
    "played",
    "received",
    "RTT",
    "loss",
    "recovery mean/p95/max",
];

pub(super) struct LiveTable {
    is_terminal: bool,
    /// On a terminal, unless `NO_COLOR` is set (<https://no-color.org>).
    is_styled: bool,
    drawn: usize,
}

impl LiveTable {
    pub(super) fn new() -> Self {
        let is_terminal = stdout().is_terminal();
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { is_terminal, is_styled: is_terminal && !no_color, drawn: 0 }
    }

    /// Shows how they do; without a terminal each few seconds only.
    pub(super) fn show(&mut self, elapsed: Duration, outcomes: &[DemoOutcome]) {
        if self.is_terminal || elapsed.as_secs().is_multiple_of(LINE_INTERVAL_S) {
            self.end(elapsed, outcomes);
        }
    }

    /// Shows how they did.
    pub(super) fn end(&mut self, elapsed: Duration, outcomes: &[DemoOutcome]) {
        let lines = lines(elapsed, outcomes, self.is_styled);
        // Cursor up, erase to the end of the screen (ECMA-48: CUU, ED).
        let above = match self.is_terminal && self.drawn > 0 {
            true => format!("\x1b[{}A\x1b[J", self.drawn),
            false => String::new(),
        };
        self.drawn = lines.len();
        print_line!("{above}{}", lines.join("\n"));
    }
}

fn cells(outcome: &DemoOutcome) -> [String; HEADINGS.len()] {
    let (player, record) = (outcome.player(), outcome.record.as_ref());
    let dash = || "–".to_owned();
    let ms = |value: Option<f64>| value.map_or_else(dash, |ms| format!("{ms:.0} ms"));
    let seconds = |value: Option<Duration>| {
        value.map_or_else(dash, |time| format!("{:.1} s", time.as_secs_f64()))
    };
    let percent = |value: Option<f64>| value.map_or_else(dash, |v| format!("{:.1} %", v * 100.0));
    let recovery = record.and_then(|r| {
        let number = |value: Option<f64>| value.map(|ms| format!("{ms:.0}"));
        let recovery = &r.recovery;
        let (mean, p95) = (number(recovery.recovery_mean_ms)?, number(recovery.recovery_p95_ms)?);
        Some(format!("{mean} / {p95} / {} ms", number(recovery.recovery_max_ms)?))
    });
    let received = outcome.seen.as_ref().map(|seen| seen.bytes as f64 * 1e-6);
    [
        outcome.cohort.to_owned(),
        record.and_then(|r| r.session.scheme.clone()).unwrap_or_else(dash),
        player.map_or_else(dash, |p| p.noticed().count.to_string()),
        seconds(player.map(|p| p.noticed().total)),
        percent(player.and_then(qoe::Report::late_rate)),
        ms(player.and_then(|p| p.first_frame).map(|time| time.as_secs_f64() * 1e3)),
        percent(record.and_then(|r| r.recovery.redundancy_cost)),
        seconds(player.map(|p| p.played)),
        received.map_or_else(dash, |megabytes| format!("{megabytes:.1} MB")),
        ms(record.and_then(|r| r.path.rtt_ms)),
        percent(record.and_then(|r| r.path.loss_rate)),
        recovery.unwrap_or_else(dash),
    ]
}

fn lines(elapsed: Duration, outcomes: &[DemoOutcome], is_styled: bool) -> Vec<String> {
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    rows.extend(outcomes.iter().map(cells));
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEADINGS.len()).map(width).collect();
    let mut lines = vec![format!("{} s", elapsed.as_secs())];
    lines.extend(rows.iter().map(|row| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            let cell = format!("{cell:<width$}");
            // Bold, and back (ECMA-48: SGR).
            let is_large = is_styled && HIGHLIGHTED.contains(&column);
            if is_large { format!("\x1b[1m{cell}\x1b[0m") } else { cell }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    }));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn viewer_metrics_come_first_and_are_highlighted_on_a_terminal() {
        let outcome =
            DemoOutcome { cohort: "arq", policy: qoe::Policy::MOBILE, seen: None, record: None };
        let plain = lines(Duration::from_secs(7), core::slice::from_ref(&outcome), false);
        assert_eq!(plain[0], "7 s");
        assert!(plain[1].starts_with("cohort  scheme  FREEZES  FROZEN  late frames"), "{plain:?}");
        assert!(plain[2].starts_with("arq     –       –        –       –"), "{plain:?}");
        let bold = lines(Duration::from_secs(7), &[outcome], true);
        assert!(bold[1].contains("\x1b[1mFREEZES\x1b[0m  \x1b[1mFROZEN\x1b[0m"), "{bold:?}");
        assert_eq!(bold[1].replace("\x1b[1m", "").replace("\x1b[0m", ""), plain[1]);
    }
}
