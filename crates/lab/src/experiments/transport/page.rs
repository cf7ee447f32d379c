//! The claims and the report.

use std::path::Path;

use super::super::claims::Verdict;
use super::super::output::write_page;
use super::super::page::claims_table;
use super::grid::Spec;
use super::rows::Row;
use crate::plot::{Chart, Scale, Series};

/// Each claim that applies to any run.
pub(crate) fn verdicts(spec: &Spec, rows: &[Row]) -> Vec<Verdict> {
    let count = |claim: &str, holds: &dyn Fn(&Row) -> Option<bool>| {
        let all: Vec<bool> = rows.iter().filter_map(holds).collect();
        Verdict {
            text: claim.to_owned(),
            good: all.iter().filter(|&&good| good).count(),
            all: all.len(),
            close: 0,
            detail: String::new(),
            why: None,
        }
    };
    let mut verdicts = vec![
        count("completed", &|row| Some(row.completed)),
        count("content intact", &|row| Some(row.intact)),
        count("same event log twice", &|row| Some(row.same_log_twice)),
    ];
    for congestion in &spec.sweep.congestion {
        let claim = format!("{congestion}: utilisation ≥ {}", spec.claim.utilisation);
        verdicts.push(count(&claim, &|row| {
            let applies =
                row.queue_bdp >= spec.claim.utilisation_queue_bdp && row.congestion == *congestion;
            row.utilisation.filter(|_| applies).map(|u| u >= spec.claim.utilisation)
        }));
    }
    verdicts.retain(|verdict| verdict.all > 0);
    verdicts
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

pub(crate) fn write(out: &Path, spec: &Spec, rows: &[Row]) -> Result<(), String> {
    let mut body = claims_table(&verdicts(spec, rows));
    body.push_str("<h2>Utilisation without loss</h2>\n<p>Stream bytes that reached the application from \
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
