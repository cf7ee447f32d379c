//! Copa on simulated paths: queue, oscillation, competitors and random loss.

use crate::sim::{App, MTU, Path, Sim};
use crate::{ms, path, secs, share, sim};
use links::LossPlace;
use mendcast_congestion::{Algorithm, Snapshot};
use units::Rate;

fn packets(bytes: u64) -> f64 {
    bytes as f64 / f64::from(MTU)
}

/// Runs for `seconds`, calling `look` every millisecond.
fn watch(s: &mut Sim, seconds: u64, mut look: impl FnMut(&Sim, &Snapshot)) {
    for _ in 0..seconds * 1_000 {
        s.run(ms(1));
        look(s, &s.controller.snapshot());
    }
}

/// Runs two flows for `seconds`. Returns their shares of the link, the fraction of time that the
/// first spends in competitive mode, and the mean queue in packets.
fn watch_two(a: &mut Sim, b: &mut Sim, seconds: u64) -> ([f64; 2], f64, f64) {
    let (before, looks) = ([a.delivered, b.delivered], seconds * 100);
    let (mut competitive, mut queue) = (0, 0.0);
    for _ in 0..looks {
        a.run_with(b, ms(10));
        competitive += u64::from(a.controller.snapshot().state == "competitive");
        queue += packets(a.queued()) / looks as f64;
    }
    let capacity = a.path.rate.bytes_in(secs(seconds)) as f64;
    let shares = [a.delivered - before[0], b.delivered - before[1]].map(|n| n as f64 / capacity);
    (shares, competitive as f64 / looks as f64, queue)
}

#[test]
fn a_single_flow_keeps_a_few_packets_in_the_queue_and_the_link_busy() {
    for (mbps, rtt) in [(12, 60), (50, 30), (5, 100), (100, 300)] {
        let mut s = sim(path(mbps, rtt, 1.0), Algorithm::Copa, 1);
        s.run(secs(15));
        let before = s.delivered;
        let (mut sum, mut most, mut fastest) = (0.0, 0.0f64, 0.0f64);
        watch(&mut s, 20, |s, now| {
            sum += packets(s.queued());
            most = most.max(packets(s.queued()));
            fastest = fastest.max(now.velocity.expect("Copa has one"));
        });
        let used = share(Rate::from_bytes_in(s.delivered - before, secs(20)), s.path.rate);
        assert!(used >= 0.97, "{mbps} Mbps {rtt} ms: {used}");
        // 1/δ is 2, and the paper's mean is 1.25/δ. The queue excludes the packet being sent, half
        // a packet on average.
        let mean = sum / 20_000.0;
        assert!((1.5..4.5).contains(&mean), "{mbps} Mbps {rtt} ms: {mean}");
        // The amplitude of its oscillation is 2.5/δ packets at any window.
        assert!(most <= 24.0, "{mbps} Mbps {rtt} ms: {most}");
        assert!(fastest <= 8.0, "{mbps} Mbps {rtt} ms: {fastest}");
    }
}

#[test]
fn the_queue_of_slow_start_is_drained_without_idling_the_link() {
    for (mbps, rtt) in [(12, 60), (50, 30), (100, 300)] {
        let mut s = sim(path(mbps, rtt, 4.0), Algorithm::Copa, 1);
        while s.controller.snapshot().state == "slow_start" && s.now.as_secs_f64() < 10.0 {
            s.run(ms(10));
        }
        assert_eq!(s.overflows(), 0, "{mbps} Mbps {rtt} ms");
        let used = share(s.run(secs(15)), s.path.rate);
        assert!(used >= 0.98, "{mbps} Mbps {rtt} ms: {used}");
        assert!(packets(s.queued()) < 24.0, "{mbps} Mbps {rtt} ms: {}", packets(s.queued()));
    }
}

#[test]
fn a_queue_filling_competitor_starts_competitive_mode_which_ends_with_it() {
    for (mbps, rtt, bdps, at_least) in
        [(12, 60, 1.0, 0.25), (12, 60, 2.0, 0.2), (50, 30, 1.0, 0.25), (5, 100, 2.0, 0.2)]
    {
        let place = format!("{mbps} Mbps {rtt} ms {bdps} BDP");
        let path = path(mbps, rtt, bdps);
        let (mut a, mut b) = (sim(path, Algorithm::Copa, 1), sim(path, Algorithm::Cubic, 2));
        a.run_with(&mut b, secs(5));
        let (shares, competitive, _) = watch_two(&mut a, &mut b, 60);
        assert!(competitive >= 0.7, "{place}: {competitive}");
        assert!(shares[0] >= at_least, "{place}: {shares:?}");
        assert!(shares[0] + shares[1] >= 0.97, "{place}: {shares:?}");

        // The competitor leaves.
        b.set_app(App::Frames { every: secs(100_000), bytes: 0 });
        a.run_with(&mut b, secs(20));
        let (shares, competitive, queue) = watch_two(&mut a, &mut b, 20);
        assert!(shares[0] >= 0.95 && competitive <= 0.1, "{place}: {shares:?} {competitive}");
        assert!(queue <= 5.5, "{place}: {queue}");
    }
}

#[test]
fn two_flows_share_fairly_and_need_no_competitive_mode() {
    for (mbps, rtt) in [(12, 60), (50, 30), (5, 100), (20, 100)] {
        let path = path(mbps, rtt, 2.0);
        let (mut a, mut b) = (sim(path, Algorithm::Copa, 1), sim(path, Algorithm::Copa, 2));
        a.run_with(&mut b, secs(5));
        let (shares, competitive, queue) = watch_two(&mut a, &mut b, 40);
        assert!(competitive <= 0.05, "{mbps} Mbps {rtt} ms: {competitive}");
        assert!(shares.iter().all(|n| *n >= 0.45), "{mbps} Mbps {rtt} ms: {shares:?}");
        assert!(queue <= 9.5, "{mbps} Mbps {rtt} ms: {queue}");
    }
}

#[test]
fn random_loss_costs_no_more_than_the_lost_packets() {
    for loss_place in [LossPlace::BeforeQueue, LossPlace::AfterQueue] {
        for loss in [0.05, 0.10] {
            for (mbps, rtt) in [(12, 60), (50, 60), (12, 200), (5, 30), (100, 20)] {
                let lossy = Path { loss, loss_place, ..path(mbps, rtt, 2.0) };
                let mut s = sim(lossy, Algorithm::Copa, 1);
                s.run(secs(10));
                let goodput = share(s.run(secs(30)), s.path.rate) / (1.0 - loss);
                assert!(goodput >= 0.98, "{loss_place:?} {loss} {mbps} Mbps {rtt} ms: {goodput}");
            }
        }
    }
}

#[test]
fn the_window_follows_a_link_that_becomes_slower_and_faster() {
    let first = path(12, 40, 2.0);
    let stages = [(5, 8), (13, 30), (21, 12)];
    let later = stages.map(|(at, mbps)| (secs(at), Path { rate: Rate::from_mbps(mbps), ..first }));
    let mut s = Sim::new(first, &later, Algorithm::Copa.build(MTU, 2), 2);
    s.run(secs(5));
    for (_, mbps) in stages {
        s.run(secs(5));
        let used = share(s.run(secs(3)), Rate::from_mbps(mbps));
        assert!((0.97..=1.01).contains(&used), "{mbps} Mbps: {used}");
        assert!(packets(s.queued()) < 14.0, "{mbps} Mbps: {}", packets(s.queued()));
    }
}

#[test]
fn an_application_limited_sender_does_not_grow_its_window() {
    let mut s = sim(path(12, 60, 1.0), Algorithm::Copa, 3);
    s.run(secs(5));
    s.set_app(App::Frames { every: ms(40), bytes: 8_000 });
    s.run(secs(1));
    let window = s.controller.window();
    watch(&mut s, 30, |s, now| {
        assert!(now.window <= window + 3 * u64::from(MTU), "{:?}: {}", s.now, now.window);
        assert_eq!(now.state, "default");
    });
}
