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

/// A chart for each rate of the links, with a line for each controller and each of `values`.
struct Plot<'a> {
    /// What stands in the title behind the rate.
    title: &'a str,
    x: &'a str,
    y: &'a str,
    scale: Scale,
    values: Vec<f64>,
    /// The value of a row, and its name in the legend.
    value: fn(&Row) -> f64,
    name: fn(f64) -> String,
    /// The place of a row, if it has one.
    place: fn(&Row) -> Option<(f64, f64)>,
}

impl Plot<'_> {
    fn charts(&self, spec: &Spec, rows: &[Row]) -> Result<String, String> {
        let mut all = String::new();
        for &rate in &spec.sweep.rate_mbps {
            let lines = spec.sweep.congestion.iter().flat_map(|congestion| {
                self.values.iter().map(move |&value| {
                    let rows = rows.iter().filter(|row| {
                        row.rate_mbps == rate
                            && row.congestion == *congestion
                            && (self.value)(row) == value
                    });
                    let points = means(rows.filter_map(self.place));
                    let name = format!("{congestion}, {}", (self.name)(value));
                    Series { points, ..Series::line(name) }
                })
            });
            let lines: Vec<Series> = lines.filter(|line| !line.points.is_empty()).collect();
            let title = format!("{rate} Mbps{}", self.title);
            let (x, y) = (self.x.to_owned(), self.y.to_owned());
            if !lines.is_empty() {
                all.push_str(&Chart { title, x, y, scale: self.scale }.svg(&lines)?);
            }
        }
        Ok(all)
    }
}

/// The mean of `y` at each `x`.
fn means(points: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut all: Vec<(f64, f64)> = points.collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mean = |same: &[(f64, f64)]| {
        (same[0].0, same.iter().map(|point| point.1).sum::<f64>() / same.len() as f64)
    };
    all.chunk_by(|a, b| a.0 == b.0).map(mean).collect()
}

pub(crate) fn write(out: &Path, spec: &Spec, rows: &[Row]) -> Result<(), String> {
    let mut body = claims_table(&verdicts(spec, rows));
    body.push_str("<h2>Utilisation without loss</h2>\n<p>Stream bytes that reached the application from \
         10 s on, over what the link carries. Data that waited behind a gap counts when it is handed \
         over, so a short span may show a little more than 1. Means over clients and seeds.</p>\n");
    let utilisation = Plot {
        title: "",
        x: "round-trip time (ms)",
        y: "utilisation after the start",
        scale: Scale::From(0.9),
        values: spec.sweep.queue_bdp.clone(),
        value: |row| row.queue_bdp,
        name: |queue| format!("queue {queue} BDP"),
        place: |row| Some((row.rtt_ms as f64, row.utilisation?)),
    };
    body.push_str(&utilisation.charts(spec, rows)?);
    body.push_str("<h2>Completion time of 1 MB with loss</h2>\n");
    let completion = Plot {
        title: ", mean over queues",
        x: "loss (%)",
        y: "completion time (s)",
        scale: Scale::Log,
        values: spec.sweep.rtt_ms.iter().map(|&rtt| rtt as f64).collect(),
        value: |row| row.rtt_ms as f64,
        name: |rtt| format!("{rtt} ms"),
        place: |row| (row.loss_percent > 0.0).then_some((row.loss_percent, row.fct_ms / 1e3)),
    };
    body.push_str(&completion.charts(spec, rows)?);
    write_page(out, &spec.title, &body)
}
