//! Speed of the testbed: simulated packets per second of CPU time, and the client's share of it.

use core::time::Duration;

use cpu_time::ThreadTime;
use links::{LinkConfig, PathConfig, Queue};
use units::Rate;

use crate::ends::Cipher;
use crate::error::{Error, RunError};
use crate::simulation::{Scenario, run};
use crate::traffic::Traffic;

/// Cost of a run.
#[derive(Clone, Copy, Debug)]
pub struct RunCost {
    /// Packets offered to the links in both directions.
    pub packets: u64,
    /// CPU time of the whole run: both ends, links and event loop.
    pub cpu: Duration,
    /// Part of [`RunCost::cpu`] spent in the client's code. It comes from a second run, because
    /// reading clocks around each call slows a run down.
    pub client: Duration,
}

impl RunCost {
    /// Packets per second of CPU time.
    pub fn packets_per_second(&self) -> f64 {
        self.packets as f64 / self.cpu.as_secs_f64()
    }

    /// The client's share of the CPU time, from 0 to 1.
    pub fn client_share(&self) -> f64 {
        self.client.as_secs_f64() / self.cpu.as_secs_f64()
    }
}

/// Downloads `bytes` over a clean path of 12 Mbps and 60 ms on the calling thread, which should
/// have a core of its own.
///
/// # Errors
/// The run fails, or the system has no CPU-time clock.
pub fn measure(cipher: Cipher, bytes: u64, seed: u64) -> Result<RunCost, Error> {
    let down = LinkConfig {
        rate: Some(Rate::from_mbps(12)),
        queue: Queue::drop_tail(128_000),
        delay: Some(Duration::from_millis(30)),
        ..LinkConfig::default()
    };
    let scenario = Scenario {
        path: PathConfig { up: LinkConfig { rate: None, ..down.clone() }, down },
        cipher,
        traffic: Traffic::Download { bytes },
        seed,
        log_events: false,
        ..Scenario::default()
    };
    let start = ThreadTime::try_now().map_err(RunError::NoClock)?;
    let outcome = run(&scenario)?;
    let cpu = start.try_elapsed().map_err(RunError::NoClock)?;
    let start = ThreadTime::try_now().map_err(RunError::NoClock)?;
    let timed = run(&Scenario { time_client: true, ..scenario })?;
    let share = timed.client_time.as_secs_f64()
        / start.try_elapsed().map_err(RunError::NoClock)?.as_secs_f64().max(f64::MIN_POSITIVE);
    if !(outcome.completed && outcome.intact) {
        return Err(RunError::Download(outcome.failed).into());
    }
    Ok(RunCost { packets: outcome.packets, cpu, client: cpu.mul_f64(share.min(1.0)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_counts_both_directions_and_the_clients_share() {
        let measured = measure(Cipher::Null, 1_000_000, 1).expect("it runs");
        // 1 MB is more than 800 datagrams, with at least one acknowledgement per ten.
        assert!(measured.packets > 880, "{measured:?}");
        // The share is measured in real time. On a busy machine it can reach 1.
        assert!(measured.client > Duration::ZERO && measured.client <= measured.cpu);
    }
}
