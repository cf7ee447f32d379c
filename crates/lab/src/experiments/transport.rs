//! The `transport` experiment: completeness, reproducibility and utilisation over a grid of paths.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use links::{LinkConfig, PathConfig, Queue};
use serde::Deserialize;
use units::Rate;

use super::output::{Statistics, Summary, write_summary};
use super::{Options, Row, in_parallel, report};
use crate::client::ClientKind;
use crate::simulation::{Scenario, run as simulate};
use crate::traffic::Traffic;

pub(super) const NAME: &str = "transport";

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Spec {
    pub name: String,
    pub title: String,
    pub sweep: Sweep,
    pub transfer: Transfer,
    pub claim: Claim,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sweep {
    pub rtt_ms: Vec<u64>,
    pub rate_mbps: Vec<u64>,
    pub loss_percent: Vec<f64>,
    pub queue_bdp: Vec<f64>,
    pub congestion: Vec<String>,
    pub client: Vec<ClientKind>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Transfer {
    lossless_seconds: f64,
    lossy_bytes: u64,
    measure_from_seconds: f64,
    timer_granularity_us: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Claim {
    pub utilisation: f64,
    pub utilisation_queue_bdp: f64,
}

/// One run of the grid.
#[derive(Clone, Debug)]
struct Point {
    rtt_ms: u64,
    rate_mbps: u64,
    loss_percent: f64,
    queue_bdp: f64,
    congestion: congestion::Algorithm,
    client: ClientKind,
    seed: u64,
}

impl Spec {
    /// The specification that belongs to this version of the testbed.
    pub(super) fn built_in() -> Self {
        Self::parse(include_str!("../../../../experiments/transport.toml"))
            .expect("a test reads the built-in specification")
    }

    /// Reads a specification.
    ///
    /// # Errors
    /// What is wrong, with line and key.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|e| e.to_string())
    }

    /// The grid, row by row.
    fn points(&self, options: Options) -> Result<Vec<Point>, String> {
        let sweep = &self.sweep;
        let algorithms: Vec<congestion::Algorithm> = sweep
            .congestion
            .iter()
            .map(|name| name.parse().map_err(|e: congestion::ParseAlgorithmError| e.to_string()))
            .collect::<Result<_, String>>()?;
        let mut points = vec![Point {
            rtt_ms: 0,
            rate_mbps: 0,
            loss_percent: 0.0,
            queue_bdp: 0.0,
            congestion: congestion::Algorithm::Cubic,
            client: ClientKind::Quinn,
            seed: 0,
        }];
        fn cross<T: Copy>(points: &mut Vec<Point>, axis: &[T], set: impl Fn(&mut Point, T)) {
            *points = points
                .iter()
                .flat_map(|point| axis.iter().map(move |&value| (point.clone(), value)))
                .map(|(mut point, value)| {
                    set(&mut point, value);
                    point
                })
                .collect();
        }
        cross(&mut points, &sweep.rtt_ms, |point, value| point.rtt_ms = value);
        cross(&mut points, &sweep.rate_mbps, |point, value| point.rate_mbps = value);
        cross(&mut points, &sweep.loss_percent, |point, value| point.loss_percent = value);
        cross(&mut points, &sweep.queue_bdp, |point, value| point.queue_bdp = value);
        cross(&mut points, &algorithms, |point, value| point.congestion = value);
        cross(&mut points, &sweep.client, |point, value| point.client = value);
        let seeds: Vec<u64> = (options.seed..options.seed + options.runs).collect();
        cross(&mut points, &seeds, |point, value| point.seed = value);
        Ok(points)
    }

    fn scenario(&self, point: &Point) -> Result<Scenario, String> {
        let rate = Rate::from_mbps(point.rate_mbps);
        let rtt = Duration::from_millis(point.rtt_ms);
        let bdp = rate.bytes_in(rtt);
        // At least two packets fit into any queue.
        let queue = ((bdp as f64 * point.queue_bdp) as u64).max(3_000);
        let loss = if point.loss_percent > 0.0 {
            Some(format!("{}%", point.loss_percent).parse().map_err(|e| format!("{e}"))?)
        } else {
            None
        };
        let link = |loss| LinkConfig {
            rate: Some(rate),
            queue: Queue::drop_tail(queue),
            delay: Some(rtt / 2),
            loss,
            ..LinkConfig::default()
        };
        let lossless = point.loss_percent == 0.0;
        let seconds = Duration::from_secs_f64(self.transfer.lossless_seconds);
        let bytes = if lossless {
            rate.bytes_in(seconds).max(1_000_000)
        } else {
            self.transfer.lossy_bytes
        };
        Ok(Scenario {
            path: PathConfig { down: link(loss), up: link(None) },
            congestion: point.congestion.into(),
            traffic: Traffic::Download { bytes },
            window: (4 * bdp + 2 * queue).max(1 << 20).min(point.client.largest_window()),
            client: point.client,
            seed: point.seed,
            timer_granularity: Duration::from_micros(self.transfer.timer_granularity_us),
            measure_from: Duration::from_secs_f64(self.transfer.measure_from_seconds),
            ..Scenario::default()
        })
    }

    /// Two runs of a point. A run that fails is a row as well.
    fn work(&self, point: &Point) -> Row {
        let runs = self.scenario(point).and_then(|scenario| {
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
        let utilisation = is_judged
            .then(|| outcome.measured.rate().as_mbps_f64() / (point.rate_mbps as f64 * share));
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
}

pub(super) fn run(spec: &Spec, options: Options, out: &Path) -> Result<bool, String> {
    let points = spec.points(options)?;
    std::fs::create_dir_all(out).map_err(|e| format!("{}: {e}", out.display()))?;
    let rows = in_parallel(&points, options.jobs, |point| spec.work(point));
    report::write_rows(&out.join("results.csv"), &rows)?;
    write_lines(out, spec, &rows)?;
    report::write(out, spec, &rows)?;
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
    let verdicts = verdicts(spec, &rows);
    for (claim, good, all) in &verdicts {
        let word = if good == all { "PASS" } else { "FAIL" };
        eprintln!("{word}  {claim}: {good} of {all} runs");
    }
    Ok(verdicts.iter().all(|(_, good, all)| good == all))
}

/// Each claim, in how many runs it holds, and to how many it applies.
pub(super) fn verdicts(spec: &Spec, rows: &[Row]) -> Vec<(String, usize, usize)> {
    let count = |claim: &str, holds: &dyn Fn(&Row) -> Option<bool>| {
        let all: Vec<bool> = rows.iter().filter_map(holds).collect();
        (claim.to_owned(), all.iter().filter(|&&good| good).count(), all.len())
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
    verdicts
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
        let options = Options { runs: 2, jobs: 2, seed: 1 };
        assert!(run(&spec, options, &out).expect("it runs"));
        let rows = report::read_rows(&out.join("results.csv")).expect("readable");
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
        assert_eq!(verdicts.last().map(|(_, good, all)| (*good, *all)), Some((0, 1)));
    }
}
