//! An experiment of your own in one file: recovery latency of a scheme by loss rate, as a table
//! with 95 % intervals over several runs.
//!
//! Run it: `cargo run --release -p mendcast-lab --example own_experiment`
//!
//! To let others repeat an experiment, write a file as in `experiments/`: `mendcast lab run --spec
//! FILE` sweeps it, judges its claims and writes results, plots and a page.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use congestion::Algorithm;
use links::{LinkConfig, ParseError, PathConfig, Queue};
use mendcast_lab::{Scenario, SchemeMaker, Traffic, run};
use recovery::catalog::{Parameters, SchemeSpec};
use units::Rate;

const RUNS: u64 = 10;

fn path(loss: &str) -> Result<PathConfig, ParseError> {
    let delay = Some(Duration::from_millis(30));
    let down = LinkConfig {
        rate: Some(Rate::from_mbps(12)),
        queue: Queue::drop_tail(200_000),
        delay,
        loss: Some(loss.parse()?),
        ..LinkConfig::default()
    };
    Ok(PathConfig { down, up: LinkConfig { delay, ..LinkConfig::default() } })
}

/// Returns the mean recovery latency of a run in milliseconds.
fn latency(scheme: &SchemeMaker, loss: &str, seed: u64) -> Result<f64, Box<dyn Error>> {
    let frames = Traffic::Frames { rate: Rate::from_mbps(4), fps: 30.0, cached: Duration::ZERO };
    let outcome = run(&Scenario {
        path: path(loss)?,
        congestion: quic::controller(Algorithm::Bbr),
        scheme: scheme.clone(),
        traffic: frames,
        limit: Duration::from_secs(30),
        seed,
        log_events: false,
        ..Scenario::default()
    })?;
    Ok(outcome.recovery.latencies.mean().map_or(0.0, |mean| mean.as_secs_f64() * 1e3))
}

fn main() -> Result<(), Box<dyn Error>> {
    println!(
        "Mean recovery latency in ms, {RUNS} runs of 30 s: 12 Mbps, 60 ms, a stream of 4 Mbps."
    );
    println!("loss  arq              spare            autorec");
    for loss in ["1%", "3%", "10%"] {
        print!("{loss:4}");
        for name in ["arq", "spare", "autorec"] {
            let spec = SchemeSpec::new(name.parse()?, Parameters::default())?;
            let scheme: SchemeMaker = Arc::new(move |seed| spec.build(seed));
            let runs = (1..=RUNS).map(|seed| latency(&scheme, loss, seed));
            let runs: Vec<f64> = runs.collect::<Result<_, _>>()?;
            let mean = runs.iter().sum::<f64>() / RUNS as f64;
            let squares: f64 = runs.iter().map(|run| (run - mean).powi(2)).sum();
            // Student's t for 9 degrees of freedom.
            let half = 2.262 * (squares / (RUNS - 1) as f64 / RUNS as f64).sqrt();
            print!("  {mean:6.1} +- {half:5.1}");
        }
        println!();
    }
    Ok(())
}
