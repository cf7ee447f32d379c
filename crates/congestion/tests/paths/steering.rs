//! Start values and caps on any controller at any time, after random histories of paths, loss,
//! queues, bulk transfers and frames.

use core::time::Duration;

use crate::ms;
use crate::sim::{App, MTU, Path, Sim};
use mendcast_congestion::{Algorithm, Cap, Halfway, Start, burst};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use units::Rate;

const SIZE: u64 = MTU as u64;

/// Returns a reproducible configuration of property tests.
fn properties(cases: u32) -> Config {
    Config { cases, rng_seed: RngSeed::Fixed(7), failure_persistence: None, ..Config::default() }
}

/// A sender's history: bulk transfers (or frames) of these durations in milliseconds.
#[derive(Clone, Debug)]
struct History {
    algorithm: Algorithm,
    path: Path,
    seed: u64,
    stages: Vec<(bool, u64)>,
}

impl History {
    /// Returns the sender at its end, on a path that changes to the `later` ones.
    fn run(&self, later: &[(Duration, Path)]) -> Sim {
        let controller = self.algorithm.build(MTU, self.seed);
        let mut s = Sim::new(self.path, later, controller, self.seed);
        for &(bulk, millis) in &self.stages {
            let frames = App::Frames { every: ms(40), bytes: 8_000 };
            s.set_app(if bulk { App::Bulk } else { frames });
            s.run(ms(millis));
        }
        s
    }

    /// Returns the algorithm's minimum window.
    fn minimum(&self) -> u64 {
        SIZE * if matches!(self.algorithm, Algorithm::Bbr | Algorithm::BbrDraft) { 4 } else { 2 }
    }
}

fn history() -> impl Strategy<Value = History> {
    let path = (2u64..30, 10u64..100, 0.5f64..4.0, prop::sample::select(vec![0.0, 0.0, 0.02, 0.1]))
        .prop_map(|(mbps, rtt, bdps, loss)| Path { loss, ..crate::path(mbps, rtt, bdps) });
    let stages = prop::collection::vec((any::<bool>(), 0u64..6_000), 0..4);
    (prop::sample::select(Algorithm::ALL.to_vec()), path, any::<u64>(), stages)
        .prop_map(|(algorithm, path, seed, stages)| History { algorithm, path, seed, stages })
}

fn start_values() -> impl Strategy<Value = (u64, Rate)> {
    (1_000u64..300_000, 500u64..40_000).prop_map(|(window, kbps)| (window, Rate::from_kbps(kbps)))
}

fn caps() -> impl Strategy<Value = Cap> {
    let limits = || (prop::option::of(300u64..20_000), prop::option::of(1_000u64..100_000));
    (limits(), limits()).prop_map(|((kbps, in_flight), last)| Cap {
        rate: kbps.map(Rate::from_kbps),
        in_flight,
        halfway: Halfway { rate: last.0.map(Rate::from_kbps), in_flight: last.1 },
    })
}

proptest! {
    #![proptest_config(properties(96))]

    #[test]
    fn a_start_holds_at_once_and_paces_until_its_first_packet_is_acknowledged(
        history in history(),
        (window, rate) in start_values(),
    ) {
        let mut s = history.run(&[]);
        let rtt = s.path.min_rtt();
        s.set_app(App::Bulk);
        s.controller.start(Start { window: Some(window), rate: Some(rate), rtt: None });
        let window = window.max(history.minimum());
        prop_assert_eq!(s.controller.window(), window);
        prop_assert_eq!(s.controller.pacing_rate(), Some(rate));
        let (sent, delivered, in_flight) = (s.sent, s.delivered, s.in_flight);
        let begun = s.now;
        while s.now.since(begun) + ms(1) < rtt {
            s.run(ms(1));
            prop_assert_eq!(s.controller.pacing_rate(), Some(rate));
            let (sent, acked) = (s.sent - sent, s.delivered - delivered);
            let probes = 2 * SIZE;
            let paced = rate.bytes_in(s.now.since(begun)) + burst(Some(rate), MTU);
            prop_assert!(sent <= paced + probes, "{sent} of {paced}");
            // Arriving old packets open the window at most as in slow start; lost old packets make
            // room.
            let room = window.saturating_sub(in_flight) + 2 * acked + in_flight;
            prop_assert!(sent <= room + probes, "{sent} of {room}");
        }
    }

    #[test]
    fn after_a_pause_a_start_is_exactly_the_first_flight(
        history in history(),
        (window, rate) in start_values(),
    ) {
        let mut s = history.run(&[]);
        s.set_app(App::Frames { every: Duration::from_secs(1_000_000), bytes: 0 });
        while s.in_flight > 0 {
            s.run(ms(100));
        }
        s.controller.start(Start { window: Some(window), rate: Some(rate), rtt: None });
        s.set_app(App::Bulk);
        let window = window.max(history.minimum());
        let (begun, sent, rtt) = (s.now, s.sent, s.path.min_rtt());
        while s.now.since(begun) + ms(1) < rtt {
            s.run(ms(1));
            let (sent, paced) = (s.sent - sent, rate.bytes_in(s.now.since(begun)));
            let most = (paced + burst(Some(rate), MTU)).min(window);
            prop_assert!(sent <= most, "{sent} of {most}");
            let least = paced.min(window).saturating_sub(SIZE);
            prop_assert!(sent >= least, "{sent}, not {least}");
        }
    }

    #[test]
    fn no_cap_is_exceeded_and_a_start_does_not_lift_it(
        history in history(),
        cap in caps(),
        start in prop::option::of(start_values()),
    ) {
        let mut s = history.run(&[]);
        s.set_app(App::Bulk);
        s.controller.cap(cap);
        if let Some((window, rate)) = start {
            s.controller.start(Start { window: Some(window), rate: Some(rate), rtt: None });
        }
        let window = cap.in_flight.unwrap_or(u64::MAX).max(history.minimum());
        let mut log = vec![(s.now, s.sent)];
        let mut in_flight = s.in_flight;
        for _ in 0..2_000 {
            s.run(ms(1));
            prop_assert!(s.controller.window() <= window);
            // Bytes in flight beyond a new cap only shrink; probes exceed any window.
            let most = window.max(in_flight).saturating_add(SIZE);
            prop_assert!(s.in_flight <= most, "{}", s.in_flight);
            in_flight = s.in_flight;
            log.push((s.now, s.sent));
        }
        let Some(rate) = cap.rate else { return Ok(()) };
        prop_assert!(s.controller.pacing_rate().is_none_or(|own| own <= rate));
        for (i, (from, before)) in log.iter().enumerate().step_by(50) {
            for (to, after) in log[i..].iter().step_by(20) {
                let most = rate.bytes_in(to.since(*from)) + burst(Some(rate), MTU) + SIZE;
                prop_assert!(after - before <= most, "{} of {most}", after - before);
            }
        }
    }

    #[test]
    fn a_lifted_cap_has_no_further_effect(history in history(), cap in caps()) {
        // Random loss ends with the history.
        let end = ms(1 + history.stages.iter().map(|(_, millis)| millis).sum::<u64>());
        let mut s = history.run(&[(end, Path { loss: 0.0, ..history.path })]);
        s.set_app(App::Bulk);
        s.controller.cap(cap);
        s.run(ms(3_000));
        s.controller.cap(Cap::default());
        s.run(ms(30_000));
        let used = s.run(ms(5_000)).as_bps() as f64 / s.path.rate.as_bps() as f64;
        prop_assert!(used >= 0.9, "{used}");
    }
}
