//! The rows of `results.csv`.

use std::fmt::Write as _;
use std::path::Path;

use super::super::output::write_file;

/// A row of `results.csv`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Row {
    pub rtt_ms: u64,
    pub rate_mbps: u64,
    pub loss_percent: f64,
    pub queue_bdp: f64,
    pub congestion: String,
    pub client: String,
    pub seed: u64,
    pub completed: bool,
    pub intact: bool,
    pub same_log_twice: bool,
    pub fct_ms: f64,
    pub goodput_mbps: f64,
    /// Goodput over link rate × stream bytes ÷ wire bytes; without loss, and where the client's
    /// window is at least one and a half bandwidth-delay products.
    pub utilisation: Option<f64>,
    pub packets_lost: u64,
    pub event_log: String,
    /// Why the run did not complete; empty if it did.
    pub error: String,
}

const COLUMNS: &str = "rtt_ms,rate_mbps,loss_percent,queue_bdp,congestion,client,seed,completed,intact,\
same_log_twice,fct_ms,goodput_mbps,utilisation,packets_lost,event_log,error";

pub(crate) fn write_rows(path: &Path, rows: &[Row]) -> Result<(), String> {
    let mut text = format!("{COLUMNS}\n");
    for row in rows {
        let utilisation = row.utilisation.map_or(String::new(), |u| format!("{u:.4}"));
        let _ = writeln!(
            text,
            "{},{},{},{},{},{},{},{},{},{},{:.3},{:.4},{utilisation},{},{},{}",
            row.rtt_ms,
            row.rate_mbps,
            row.loss_percent,
            row.queue_bdp,
            row.congestion,
            row.client,
            row.seed,
            row.completed,
            row.intact,
            row.same_log_twice,
            row.fct_ms,
            row.goodput_mbps,
            row.packets_lost,
            row.event_log,
            row.error.replace([',', '\n'], ";"),
        );
    }
    write_file(path, &text)
}

pub(crate) fn read_rows(path: &Path) -> Result<Vec<Row>, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut lines = text.lines();
    if lines.next() != Some(COLUMNS) {
        return Err(format!("{}: not the results of this version", path.display()));
    }
    lines
        .enumerate()
        .map(|(index, line)| {
            parse(line).ok_or_else(|| format!("{}:{}: malformed", path.display(), index + 2))
        })
        .collect()
}

fn parse(line: &str) -> Option<Row> {
    let mut fields = line.split(',');
    let mut next = || fields.next();
    Some(Row {
        rtt_ms: next()?.parse().ok()?,
        rate_mbps: next()?.parse().ok()?,
        loss_percent: next()?.parse().ok()?,
        queue_bdp: next()?.parse().ok()?,
        congestion: next()?.to_owned(),
        client: next()?.to_owned(),
        seed: next()?.parse().ok()?,
        completed: next()?.parse().ok()?,
        intact: next()?.parse().ok()?,
        same_log_twice: next()?.parse().ok()?,
        fct_ms: next()?.parse().ok()?,
        goodput_mbps: next()?.parse().ok()?,
        utilisation: match next()? {
            "" => None,
            number => Some(number.parse().ok()?),
        },
        packets_lost: next()?.parse().ok()?,
        event_log: next()?.to_owned(),
        error: next()?.to_owned(),
    })
}
