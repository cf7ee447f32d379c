//! The grid of paths, and the run of each of its points.

use core::ops::Range;
use std::time::Duration;

use congestion::{Algorithm, ParseAlgorithmError};
use links::{LinkConfig, PathConfig, Queue};
use serde::Deserialize;
use units::Rate;

use crate::client::ClientKind;
use crate::simulation::Scenario;
use crate::traffic::Traffic;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spec {
    pub name: String,
    pub title: String,
    pub sweep: Sweep,
    pub transfer: Transfer,
    pub claim: Claim,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sweep {
    pub rtt_ms: Vec<u64>,
    pub rate_mbps: Vec<u64>,
    pub loss_percent: Vec<f64>,
    pub queue_bdp: Vec<f64>,
    pub congestion: Vec<String>,
    pub client: Vec<ClientKind>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Transfer {
    lossless_seconds: f64,
    lossy_bytes: u64,
    measure_from_seconds: f64,
    timer_granularity_us: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Claim {
    pub utilisation: f64,
    pub utilisation_queue_bdp: f64,
}

/// One run of the grid.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    pub rtt_ms: u64,
    pub rate_mbps: u64,
    pub loss_percent: f64,
    pub queue_bdp: f64,
    pub congestion: Algorithm,
    pub client: ClientKind,
    pub seed: u64,
}

impl Spec {
    /// The specification that belongs to this version of the testbed.
    pub(crate) fn built_in() -> Self {
        Self::parse(include_str!("../../../../../experiments/transport.toml"))
            .expect("a test reads the built-in specification")
    }

    /// Reads a specification.
    ///
    /// # Errors
    /// What is wrong, with line and key.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|e| e.to_string())
    }

    /// The grid, row by row.
    pub(crate) fn points(&self, seeds: Range<u64>) -> Result<Vec<Point>, String> {
        let sweep = &self.sweep;
        let algorithms = sweep.congestion.iter().map(|name| name.parse());
        let algorithms: Vec<Algorithm> =
            algorithms.collect::<Result<_, ParseAlgorithmError>>().map_err(|e| e.to_string())?;
        let mut points = Vec::new();
        for &rtt_ms in &sweep.rtt_ms {
            for &rate_mbps in &sweep.rate_mbps {
                for &loss_percent in &sweep.loss_percent {
                    for &queue_bdp in &sweep.queue_bdp {
                        for &congestion in &algorithms {
                            for &client in &sweep.client {
                                points.extend(seeds.clone().map(|seed| Point {
                                    rtt_ms,
                                    rate_mbps,
                                    loss_percent,
                                    queue_bdp,
                                    congestion,
                                    client,
                                    seed,
                                }));
                            }
                        }
                    }
                }
            }
        }
        Ok(points)
    }

    pub(crate) fn scenario(&self, point: &Point) -> Result<Scenario, String> {
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
}
