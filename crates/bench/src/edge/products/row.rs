//! Scenarios, and the turns of a product in one.

use std::fmt;
use std::time::Duration;

use super::super::cost::Cost;
use super::super::media::RATE;
use super::super::turn;
use super::product::{Product, ProductPrograms};

/// Minimum share of the stream that every viewer must get for equal work.
pub(super) const EQUAL_WORK: f64 = 0.99;

/// Streams and viewers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scenario {
    pub streams: usize,
    /// Viewers of all streams together.
    pub viewers: usize,
}

/// A product's turns in one scenario.
pub(super) struct Row {
    pub product: Product,
    pub costs: Vec<Cost>,
    /// Reasons to doubt the costs, and failures of turns, without repetition.
    pub doubts: Vec<String>,
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { streams, viewers } = self;
        match streams {
            1 => write!(f, "1 stream, {viewers} viewers"),
            _ => write!(f, "{streams} streams, {viewers} viewers"),
        }
    }
}

impl Row {
    /// Runs a turn. A failure is a doubt, because the other products continue.
    pub(super) fn turn(&mut self, programs: &ProductPrograms, scenario: Scenario, time: Duration) {
        let product = self.product;
        let result = product.start(programs).and_then(|server| {
            let shape = (scenario.streams, scenario.viewers);
            let watch = product.watch(programs, server.address, shape)?;
            let publish = |ingest: &_| product.publish(programs, ingest, scenario.streams);
            turn::run(server, publish, watch, scenario.viewers, time)
        });
        let doubts = match result {
            Ok(cost) => {
                cost.tell(&product.title(), scenario.viewers, time);
                let doubts = doubts(&cost, scenario.viewers, time);
                self.costs.push(cost);
                doubts
            }
            Err(e) => {
                println!("      {}: a turn failed: {e}", product.title());
                vec![format!("a turn failed: {e}")]
            }
        };
        for doubt in doubts {
            if !self.doubts.contains(&doubt) {
                self.doubts.push(doubt);
            }
        }
    }
}

/// Returns reasons why a turn is not the cost of equal work.
fn doubts(cost: &Cost, viewers: usize, time: Duration) -> Vec<String> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut doubts = cost.doubts(viewers, time, cpus);
    let least = cost.seen.bytes[0] as f64 * 8.0 / (RATE * time.as_secs_f64());
    if least < EQUAL_WORK {
        doubts.push(format!("a viewer got {:.0} % of its stream", (least * 100.0).floor()));
    }
    doubts
}

#[cfg(test)]
mod tests {
    use super::super::super::tally::ViewMeasurement;
    use super::*;

    #[test]
    fn a_viewer_without_its_whole_stream_casts_doubt() {
        let time = Duration::from_secs(10);
        let all = (RATE * 10.0 / 8.0) as u64;
        let cost = |least: u64| Cost {
            viewers: 5,
            threads: vec![("main".to_owned(), 0.1)],
            wall: time,
            machine: 0.2,
            resident: 0.0,
            receive_errors: 0,
            seen: ViewMeasurement {
                stayed: 5,
                bytes: [least, all, all],
                total: 4 * all + least,
                ..ViewMeasurement::default()
            },
        };
        assert_eq!(doubts(&cost(all * 995 / 1_000), 5, time), Vec::<String>::new());
        let expected = ["a viewer got 98 % of its stream"];
        assert_eq!(doubts(&cost(all * 989 / 1_000), 5, time), expected);
        // 0.1 of a CPU for 10 s, and 0.1 Gbit.
        assert!((cost(all).per_gbit() - 10.0).abs() < 0.01);
    }
}
