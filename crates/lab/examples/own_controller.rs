//! A congestion controller of your own in one file, compared with BBR and CUBIC.
//!
//! Run it: `cargo run --release -p mendcast-lab --example own_controller`
//!
//! It is the textbook AIMD controller (RFC 5681): one additional packet per round trip, half the
//! window after a loss. Servers take a controller as `TransportConfig::congestion`, the testbed as
//! `Scenario::congestion`.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use congestion::{
    AckBatch, Algorithm, Cap, CongestionEvent, Controller, Snapshot, Start, initial_window,
};
use links::{LinkConfig, PathConfig, Queue};
use mendcast_lab::{Scenario, Traffic, run};
use quic::ControllerFactory;
use units::{PacketNumber, Rate, Timestamp};

#[derive(Debug)]
struct Aimd {
    mtu: u64,
    window: u64,
    /// Bytes acknowledged since the window last grew.
    acked: u64,
    in_slow_start: bool,
    /// Losses of packets sent before this time belong to the episode already handled.
    recovery_start: Timestamp,
    rtt: Option<Duration>,
    cap: Option<u64>,
}

impl Aimd {
    fn new(mtu: u16) -> Self {
        Self {
            mtu: mtu.into(),
            window: initial_window(mtu),
            acked: 0,
            in_slow_start: true,
            recovery_start: Timestamp::ZERO,
            rtt: None,
            cap: None,
        }
    }
}

impl Controller for Aimd {
    fn on_sent(&mut self, _: Timestamp, _: PacketNumber, _bytes: u64, _in_flight_before: u64) {}

    fn on_ack(&mut self, ack: &AckBatch) {
        self.rtt = Some(ack.rtt.smoothed);
        if !ack.cwnd_limited {
            return;
        }
        if self.in_slow_start {
            self.window += ack.acked_bytes;
            return;
        }
        self.acked += ack.acked_bytes;
        if self.acked >= self.window {
            self.acked -= self.window;
            self.window += self.mtu;
        }
    }

    fn on_packets_lost(&mut self, _: Timestamp, _bytes: u64, _in_flight: u64) {}

    fn on_congestion_event(&mut self, event: &CongestionEvent) {
        if event.largest_lost_sent_time < self.recovery_start {
            return;
        }
        self.recovery_start = event.now;
        self.in_slow_start = false;
        self.window = (self.window / 2).max(2 * self.mtu);
    }

    fn window(&self) -> u64 {
        self.cap.map_or(self.window, |cap| self.window.min(cap))
    }

    fn pacing_rate(&self) -> Option<Rate> {
        // A quarter above the window per round trip, so that pacing does not hold the window back.
        self.rtt.map(|rtt| Rate::from_bytes_in(self.window() * 5 / 4, rtt))
    }

    fn send_quantum(&self) -> u64 {
        2 * self.mtu
    }

    fn start(&mut self, _: Start) {}

    fn resume(&mut self, window: u64, _threshold: u64) {
        self.in_slow_start = false;
        self.window = window.max(2 * self.mtu);
    }

    fn cap(&mut self, cap: Cap) {
        self.cap = cap.in_flight;
    }

    fn on_mtu(&mut self, mtu: u16) {
        self.mtu = mtu.into();
    }

    fn name(&self) -> &'static str {
        "aimd"
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            state: if self.in_slow_start { "slow_start" } else { "congestion_avoidance" },
            window: self.window(),
            pacing_rate: self.pacing_rate(),
            ..Snapshot::default()
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let down = LinkConfig {
        rate: Some(Rate::from_mbps(20)),
        queue: Queue::drop_tail(150_000),
        delay: Some(Duration::from_millis(20)),
        ..LinkConfig::default()
    };
    let up = LinkConfig { delay: down.delay, ..LinkConfig::default() };
    let controllers: [(&str, ControllerFactory); 3] = [
        ("bbr", quic::controller(Algorithm::Bbr)),
        ("cubic", quic::controller(Algorithm::Cubic)),
        ("aimd", Arc::new(|mtu, _| Box::new(Aimd::new(mtu)))),
    ];
    println!("20 MB over 20 Mbps, 40 ms, a queue of 150 kB.");
    println!("controller  seconds  lost");
    for (name, congestion) in controllers {
        let outcome = run(&Scenario {
            path: PathConfig { down: down.clone(), up: up.clone() },
            congestion,
            traffic: Traffic::Download { bytes: 20_000_000 },
            ..Scenario::default()
        })?;
        let seconds = outcome.recovery.time.as_secs_f64();
        println!("{name:10}  {seconds:7.2}  {:4}", outcome.recovery.totals.lost);
    }
    Ok(())
}
