//! Files of results: `results.csv`, and `report.html` with its plots inside.

use std::fmt::Write as _;
use std::path::Path;

use super::Row;
use super::output::{write_file, write_page};
use super::transport::{Spec, verdicts};
use crate::plot::{Chart, Scale, Series};

const COLUMNS: &str = "rtt_ms,rate_mbps,loss_percent,queue_bdp,congestion,client,seed,completed,intact,\
same_log_twice,fct_ms,goodput_mbps,utilisation,packets_lost,event_log,error";

pub(super) fn write_rows(path: &Path, rows: &[Row]) -> Result<(), String> {
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

pub(super) fn read_rows(path: &Path) -> Result<Vec<Row>, String> {
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

/// Mean of `y` over the rows that `select` keeps, by `x`.
fn series(
    name: String,
    rows: &[Row],
    select: impl Fn(&Row) -> bool,
    x: impl Fn(&Row) -> f64,
    y: impl Fn(&Row) -> Option<f64>,
) -> Series {
    let mut points: Vec<(f64, f64, u32)> = Vec::new();
    for row in rows.iter().filter(|row| select(row)) {
        let Some(y) = y(row) else { continue };
        let x = x(row);
        match points.iter_mut().find(|point| point.0 == x) {
            Some(point) => *point = (x, point.1 + y, point.2 + 1),
            None => points.push((x, y, 1)),
        }
    }
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let points = points.into_iter().map(|(x, sum, n)| (x, sum / f64::from(n))).collect();
    Series { points, ..Series::line(name) }
}

/// The chart of the series that have points; nothing if there are none.
fn drawn(chart: &Chart, mut all: Vec<Series>) -> Result<String, String> {
    all.retain(|series| !series.points.is_empty());
    if all.is_empty() { Ok(String::new()) } else { chart.svg(&all) }
}

pub(super) fn write(out: &Path, spec: &Spec, rows: &[Row]) -> Result<(), String> {
    let mut body = "<h2>Claims</h2>\n<table>\n".to_owned();
    for (claim, good, all) in verdicts(spec, rows) {
        let word = if good == all { "PASS" } else { "FAIL" };
        let _ = writeln!(
            body,
            "<tr class=\"{word}\"><td>{word}</td><td>{claim}</td><td>{good} of {all}</td></tr>"
        );
    }
    body.push_str("</table>\n<h2>Utilisation without loss</h2>\n<p>Stream bytes that reached the application from \
         10 s on, over what the link carries. Data that waited behind a gap counts when it is handed \
         over, so a short span may show a little more than 1. Means over clients and seeds.</p>\n");
    for &rate in &spec.sweep.rate_mbps {
        let mut all = Vec::new();
        for congestion in &spec.sweep.congestion {
            for &queue in &spec.sweep.queue_bdp {
                all.push(series(
                    format!("{congestion}, queue {queue} BDP"),
                    rows,
                    |row| {
                        row.rate_mbps == rate
                            && row.queue_bdp == queue
                            && row.congestion == *congestion
                    },
                    |row| row.rtt_ms as f64,
                    |row| row.utilisation,
                ));
            }
        }
        let chart = Chart {
            title: format!("{rate} Mbps"),
            x: "round-trip time (ms)".to_owned(),
            y: "utilisation after the start".to_owned(),
            scale: Scale::From(0.9),
        };
        body.push_str(&drawn(&chart, all)?);
    }
    body.push_str("<h2>Completion time of 1 MB with loss</h2>\n");
    for &rate in &spec.sweep.rate_mbps {
        let mut all = Vec::new();
        for congestion in &spec.sweep.congestion {
            for &rtt in &spec.sweep.rtt_ms {
                all.push(series(
                    format!("{congestion}, {rtt} ms"),
                    rows,
                    |row| {
                        row.rate_mbps == rate
                            && row.rtt_ms == rtt
                            && row.congestion == *congestion
                            && row.loss_percent > 0.0
                    },
                    |row| row.loss_percent,
                    |row| Some(row.fct_ms / 1e3),
                ));
            }
        }
        let chart = Chart {
            title: format!("{rate} Mbps, mean over queues"),
            x: "loss (%)".to_owned(),
            y: "completion time (s)".to_owned(),
            scale: Scale::Log,
        };
        body.push_str(&drawn(&chart, all)?);
    }
    write_page(out, &spec.title, &body)
}
