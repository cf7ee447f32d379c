//! The `transport` experiment: completeness, reproducibility and utilisation over a grid of paths.

mod grid;
mod page;
mod rows;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use units::Rate;

use super::claims::announce;
use super::options::Options;
use super::output::{Statistics, Summary, write_summary};
use super::parallel::in_parallel;
use crate::simulation::run as simulate;
use grid::{Point, Spec};
use page::verdicts;
use rows::{Row, read_rows, write_rows};

pub(super) const NAME: &str = "transport";

pub(super) fn title() -> String {
    Spec::built_in().title
}

/// Runs the grid and writes its results into `out`. Returns whether the claims hold.
pub(super) fn run(options: &Options<'_>, out: &Path) -> Result<bool, String> {
    let spec = options.spec.map_or_else(|| Ok(Spec::built_in()), Spec::parse)?;
    run_grid(&spec, options, out)
}

fn run_grid(spec: &Spec, options: &Options<'_>, out: &Path) -> Result<bool, String> {
    let points = spec.points(options.seed..options.seed + options.runs.unwrap_or(1))?;
    let rows = in_parallel(&points, options.jobs, |point| work(spec, point));
    write_rows(&out.join("results.csv"), &rows)?;
    write_lines(out, spec, &rows)?;
    page::write(out, spec, &rows)?;
    for row in rows.iter().filter(|row| !row.error.is_empty()) {
        eprintln!(
            "{} ms, {} Mbps, {} % loss, {} BDP, {}, {}, seed {}: {}",
            row.rtt_ms,
            row.rate_mbps,
            row.loss_percent,
            row.queue_bdp,
            row.congestion,
            row.client,
            row.seed,
            row.error
        );
    }
    Ok(announce(&verdicts(spec, &rows)))
}

/// Writes `report.html` again from the results in a folder.
pub(super) fn report(out: &Path) -> Result<(), String> {
    page::write(out, &Spec::built_in(), &read_rows(&out.join("results.csv"))?)
}

/// Two runs of a point. A run that fails is a row as well.
fn work(spec: &Spec, point: &Point) -> Row {
    let runs = spec.scenario(point).and_then(|scenario| {
        let outcome = simulate(&scenario)?;
        Ok((outcome, simulate(&scenario)?, scenario.window))
    });
    let row = Row {
        rtt_ms: point.rtt_ms,
        rate_mbps: point.rate_mbps,
        loss_percent: point.loss_percent,
        queue_bdp: point.queue_bdp,
        congestion: point.congestion.name().to_owned(),
        client: point.client.name().to_owned(),
        seed: point.seed,
        ..Row::default()
    };
    let (outcome, again, window) = match runs {
        Ok(runs) => runs,
        Err(error) => return Row { error, ..row },
    };
    let share = outcome.received as f64 / outcome.wire_bytes.max(1) as f64;
    // Where the client's window, not the path, is the limit, there is nothing to judge.
    let bdp = Rate::from_mbps(point.rate_mbps).bytes_in(Duration::from_millis(point.rtt_ms));
    let is_judged = point.loss_percent == 0.0 && window >= bdp + bdp / 2;
    let utilisation =
        is_judged.then(|| outcome.measured.rate().as_mbps_f64() / (point.rate_mbps as f64 * share));
    Row {
        completed: outcome.completed,
        intact: outcome.intact,
        same_log_twice: outcome.event_log == again.event_log,
        fct_ms: outcome.duration.as_secs_f64() * 1e3,
        goodput_mbps: Rate::from_bytes_in(outcome.received, outcome.duration).as_mbps_f64(),
        utilisation,
        packets_lost: outcome.stats.packets_lost,
        event_log: outcome.event_log.sha256,
        error: outcome.failed.unwrap_or_default(),
        ..row
    }
}

fn write_lines(out: &Path, spec: &Spec, rows: &[Row]) -> Result<(), String> {
    let mut groups: BTreeMap<String, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        let key = format!(
            "{} {} {} {} {} {}",
            row.rtt_ms, row.rate_mbps, row.loss_percent, row.queue_bdp, row.congestion, row.client
        );
        groups.entry(key).or_default().push(row);
    }
    let schemes: Vec<String> = groups
        .values()
        .map(|group| format!("{}, {} client", group[0].congestion, group[0].client))
        .collect();
    let mut all = Vec::new();
    for (group, scheme) in groups.values().zip(&schemes) {
        let first = group[0];
        let mut metric = |metric, unit, expected, value: fn(&Row) -> Option<f64>| {
            let Some(statistics) = Statistics::of(group.iter().filter_map(|row| value(row))) else {
                return;
            };
            all.push(Summary {
                experiment: &spec.name,
                sweep: None,
                scheme,
                point: BTreeMap::from([
                    ("rtt_ms", (first.rtt_ms as f64).into()),
                    ("rate_mbps", (first.rate_mbps as f64).into()),
                    ("loss_percent", first.loss_percent.into()),
                    ("queue_bdp", first.queue_bdp.into()),
                ]),
                metric,
                unit,
                statistics,
                paper: None,
                expected,
            });
        };
        metric("fct_ms", "ms", None, |row| Some(row.fct_ms));
        metric("goodput_mbps", "Mbps", None, |row| Some(row.goodput_mbps));
        metric("utilisation", "1", Some(spec.claim.utilisation), |row| row.utilisation);
    }
    write_summary(out, &all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ClientKind;

    /// A corner of the grid that takes seconds.
    #[test]
    fn a_small_grid_holds_its_claims_and_writes_its_files() {
        let mut spec = Spec::built_in();
        spec.sweep.rtt_ms = vec![30];
        spec.sweep.rate_mbps = vec![10];
        spec.sweep.loss_percent = vec![0.0, 5.0];
        spec.sweep.queue_bdp = vec![1.0];
        spec.sweep.congestion = vec!["cubic".to_owned()];
        spec.sweep.client = vec![ClientKind::Quinn, ClientKind::Noq];
        let out = std::env::temp_dir().join(format!("mendcast-lab-{}", std::process::id()));
        std::fs::create_dir_all(&out).expect("created");
        let options = Options { spec: None, set: &[], runs: Some(2), jobs: 2, seed: 1 };
        assert!(run_grid(&spec, &options, &out).expect("it runs"));
        let rows = read_rows(&out.join("results.csv")).expect("readable");
        assert_eq!(rows.len(), 8);
        assert!(rows.iter().all(|row| row.completed && row.same_log_twice));
        let summary = std::fs::read_to_string(out.join("summary.json")).expect("written");
        let summary: Vec<serde_json::Value> = serde_json::from_str(&summary).expect("JSON");
        assert!(summary.iter().any(|line| line["metric"] == "utilisation"));
        let html = std::fs::read_to_string(out.join("report.html")).expect("written");
        assert!(html.contains("<svg") && html.contains("PASS"));
        std::fs::remove_dir_all(&out).expect("removed");
    }

    #[test]
    fn a_claim_that_fails_is_seen() {
        let mut spec = Spec::built_in();
        spec.claim.utilisation = 1.01;
        spec.sweep.congestion = vec!["cubic".to_owned()];
        let row = Row {
            queue_bdp: 1.0,
            congestion: "cubic".to_owned(),
            completed: true,
            intact: true,
            same_log_twice: true,
            utilisation: Some(1.0),
            ..Row::default()
        };
        let verdicts = verdicts(&spec, &[row]);
        assert_eq!(verdicts.last().map(|verdict| (verdict.good, verdict.all)), Some((0, 1)));
    }
}
