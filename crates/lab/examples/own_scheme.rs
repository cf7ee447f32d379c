//! A recovery scheme of your own in one file, compared with plain retransmission and AutoRec.
//!
//! Run it: `cargo run --release -p mendcast-lab --example own_scheme`
//!
//! A scheme answers two questions. *How many* replicas does a lost unit get? Here one, while the
//! last interval lost more than 1 % of its packets. *When* is each one sent? Here half a round trip
//! after the retransmission, even if other data waits. Servers take a scheme as
//! `TransportConfig::scheme`, the testbed as `Scenario::scheme`.

use std::collections::VecDeque;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use congestion::Algorithm;
use links::{LinkConfig, PathConfig, Queue};
use mendcast_lab::{Scenario, SchemeMaker, Traffic, run};
use recovery::autorec::{self, Tolerances};
use recovery::{
    Arq, IntervalMetrics, LostUnit, RecoveryEvent, RedundancyAdapter, ReplicaScheduler, Scheme,
    SendOpportunity, UnitKey, UnitTable, View,
};
use units::{Rate, Timestamp};

/// One replica while the loss rate is high.
#[derive(Debug, Default)]
struct OneWhileLossy {
    is_lossy: bool,
}

impl RedundancyAdapter for OneWhileLossy {
    fn on_event(&mut self, _: &RecoveryEvent) {}

    fn on_interval(&mut self, metrics: &IntervalMetrics, _: &View<'_>) {
        self.is_lossy = metrics.loss_rate() > 0.01;
    }

    fn on_new_path(&mut self) {
        self.is_lossy = false;
    }

    fn level(&mut self, _: UnitKey, _round: u32, _: &View<'_>) -> u32 {
        self.is_lossy.into()
    }

    fn explain(&self, tell: &mut dyn FnMut(&'static str, f64)) {
        tell("level", self.is_lossy.into());
    }
}

/// Replicas are sent half a round trip after their retransmission.
#[derive(Debug, Default)]
struct HalfRoundTrip {
    /// Ascending, because the round-trip time changes slowly.
    due: VecDeque<(Timestamp, UnitKey)>,
}

impl ReplicaScheduler for HalfRoundTrip {
    fn on_interval(&mut self, _: &IntervalMetrics, _ceiling: u32) {}

    fn on_retransmitted(
        &mut self,
        now: Timestamp,
        key: UnitKey,
        _: &LostUnit,
        level: u32,
        view: &View<'_>,
    ) {
        let at = now + view.path.smoothed_rtt / 2;
        (0..level).for_each(|_| self.due.push_back((at, key)));
    }

    fn on_replica_sent(&mut self, _: Timestamp, key: UnitKey, _: &LostUnit) {
        if let Some(place) = self.due.iter().position(|(_, due)| *due == key) {
            self.due.remove(place);
        }
    }

    fn on_finished(&mut self, key: UnitKey) {
        self.due.retain(|(_, due)| *due != key);
    }

    fn poll(&mut self, now: Timestamp, _: &SendOpportunity, _: &UnitTable) -> Option<UnitKey> {
        self.due.front().filter(|(at, _)| *at <= now).map(|(_, key)| *key)
    }

    fn next_timeout(&self) -> Option<Timestamp> {
        self.due.front().map(|(at, _)| *at)
    }
}

fn own(_seed: u64) -> Scheme {
    Scheme::new("half-round-trip", OneWhileLossy::default(), HalfRoundTrip::default())
}

fn main() -> Result<(), Box<dyn Error>> {
    let down = LinkConfig {
        rate: Some(Rate::from_mbps(12)),
        queue: Queue::drop_tail(200_000),
        delay: Some(Duration::from_millis(30)),
        loss: Some("5%".parse()?),
        ..LinkConfig::default()
    };
    let up = LinkConfig { delay: down.delay, ..LinkConfig::default() };
    let schemes: [(&str, SchemeMaker); 3] = [
        ("arq", Arc::new(|_| Arq::scheme())),
        ("autorec", Arc::new(|_| autorec::scheme(Tolerances::default()))),
        ("half-round-trip", Arc::new(own)),
    ];
    println!("A stream of 4 Mbps for 60 s; 12 Mbps, 60 ms, 5 % independent loss.");
    println!("scheme           lost  replicas  recovery latency, mean and worst");
    for (name, scheme) in schemes {
        let outcome = run(&Scenario {
            path: PathConfig { down: down.clone(), up: up.clone() },
            congestion: quic::controller(Algorithm::Bbr),
            scheme,
            traffic: Traffic::Frames {
                rate: Rate::from_mbps(4),
                fps: 30.0,
                cached: Duration::ZERO,
            },
            limit: Duration::from_secs(60),
            ..Scenario::default()
        })?;
        let recovery = &outcome.recovery;
        let ms = |time: Option<Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1e3);
        println!(
            "{name:16} {:4}  {:8}  {:6.1} ms  {:6.1} ms",
            recovery.totals.lost,
            recovery.totals.replicas,
            ms(recovery.latencies.mean()),
            ms(recovery.latencies.max()),
        );
    }
    Ok(())
}
