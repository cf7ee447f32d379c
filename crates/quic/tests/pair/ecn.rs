//! ECN validation over paths that drop, erase or change marks.

use crate::common::{Dice, EcnNode, Pair, Setup, content, read};
use crate::live::{Live, setup};
use congestion::Algorithm;
use mendcast_quic::EcnFault;
use mendcast_quic::observer::{Event, Observer};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use units::{Ecn, Timestamp};

const SECOND: Duration = Duration::from_secs(1);

/// A node that drops every marked datagram from a time on.
fn hole(from: Timestamp) -> EcnNode {
    Box::new(move |now, ecn| (ecn == Ecn::NotEct || now < from).then_some(ecn))
}

/// A node that drops this share of marked datagrams.
fn leak(percent: u64, seed: u64) -> EcnNode {
    let mut dice = Dice(seed);
    Box::new(move |_, ecn| (ecn == Ecn::NotEct || !dice.chance(percent)).then_some(ecn))
}

/// A node that turns ECT(0) into something else.
fn changes(to: Ecn) -> EcnNode {
    Box::new(move |_, ecn| Some(if ecn == Ecn::Ect0 { to } else { ecn }))
}

fn failed(pair: &mut Pair) -> [u64; 4] {
    let stats = *pair.connection().stats();
    EcnFault::ALL.map(|fault| stats.ecn_failed[fault])
}

/// Whether the server marks nothing in the next second of the stream.
fn is_unmarked(live: &mut Live) -> bool {
    live.pair.ecn_to_client.clear();
    live.run(SECOND, |_| {});
    live.pair.ecn_to_client.iter().all(|&ecn| ecn == Ecn::NotEct)
}

#[test]
fn a_path_that_drops_every_marked_packet_shows_a_picture_within_half_a_second() {
    for algorithm in [Algorithm::Bbr, Algorithm::Cubic] {
        let mut setup = setup(1);
        setup.transport(|t| t.congestion = mendcast_quic::controller(algorithm));
        let mut pair = Pair::new(&setup);
        pair.ecn_down = hole(Timestamp::ZERO);
        let mut live = Live::new(pair);
        live.run(5 * SECOND, |_| {});
        println!("{algorithm:?}: first frame {:?}, stall {:?}", live.first_frame, live.stall);
        assert!(live.first_frame.is_some_and(|first| first < SECOND / 2), "{:?}", live.first_frame);
        assert!(live.stall < SECOND * 6 / 10, "{:?}", live.stall);
        assert_eq!(failed(&mut live.pair), [1, 0, 0, 0]);
        assert!(is_unmarked(&mut live));
        assert!(live.received + 20_000 > live.written, "{} of {}", live.received, live.written);
    }
}

#[test]
fn a_download_over_a_path_that_drops_every_marked_packet_arrives() {
    for delay in [10, 100] {
        let mut pair = Pair::new(&Setup::new(2));
        pair.both(|link| link.delay = Some(Duration::from_millis(delay)));
        pair.ecn_down = hole(Timestamp::ZERO);
        pair.answer = content(500_000);
        pair.connect();
        assert_eq!(pair.download(5 * SECOND), pair.answer);
        assert_eq!(failed(&mut pair), [1, 0, 0, 0]);
    }
}

#[test]
fn small_answers_alone_find_the_hole_too() {
    let mut pair = Pair::new(&Setup::new(3));
    pair.ecn_down = hole(Timestamp::ZERO);
    pair.answer = content(2_000);
    pair.connect();
    for _ in 0..40 {
        assert_eq!(pair.download(2 * SECOND), pair.answer);
    }
    assert_eq!(failed(&mut pair), [1, 0, 0, 0]);
}

#[test]
fn a_hole_that_opens_in_mid_stream_costs_less_than_a_second() {
    for algorithm in [Algorithm::Bbr, Algorithm::Cubic] {
        let mut setup = setup(4);
        setup.transport(|t| t.congestion = mendcast_quic::controller(algorithm));
        let mut live = Live::new(Pair::new(&setup));
        live.pair.ecn_down = hole(live.began + 5 * SECOND);
        live.run(10 * SECOND, |_| {});
        println!("{algorithm:?}: stall {:?}", live.stall);
        assert!(live.stall < SECOND * 7 / 10, "{:?}", live.stall);
        assert_eq!(failed(&mut live.pair), [1, 0, 0, 0]);
        assert!(is_unmarked(&mut live));
        assert!(live.received + 20_000 > live.written, "{} of {}", live.received, live.written);
    }
}

#[test]
fn a_hole_behind_a_large_window_is_found_before_the_window_is_full() {
    let mut setup = setup(12);
    setup.transport(|t| t.congestion = mendcast_quic::controller(Algorithm::Cubic));
    let mut pair = Pair::new(&setup);
    pair.answer = content(4_000_000);
    let mut live = Live::new(pair);
    let id = live.pair.request();
    assert_eq!(live.pair.receive(id, 10 * SECOND), live.pair.answer);
    assert!(live.pair.connection().window() > 400_000, "{}", live.pair.connection().window());
    live.run(SECOND, |_| {});
    live.forget_stalls();
    live.pair.ecn_down = hole(Timestamp::ZERO);
    live.run(4 * SECOND, |_| {});
    assert!(live.stall < SECOND / 2, "{:?}", live.stall);
    assert_eq!(failed(&mut live.pair), [1, 0, 0, 0]);
}

#[test]
fn a_hole_that_opens_after_a_trial_of_a_lossy_path_is_found_at_once() {
    let mut live = Live::new(Pair::new(&setup(13)));
    live.pair.down(|link| link.loss = Some(read("15%")));
    live.run(20 * SECOND, |_| {});
    assert_eq!(failed(&mut live.pair), [0; 4]);
    live.pair.ecn_down = hole(Timestamp::ZERO);
    live.run(2 * SECOND, |_| {});
    assert_eq!(failed(&mut live.pair), [1, 0, 0, 0]);
}

#[test]
fn probes_are_unmarked() {
    let mut pair = Pair::new(&Setup::new(14));
    pair.answer = content(500);
    pair.connect();
    assert_eq!(pair.download(SECOND), pair.answer);
    pair.run_until(SECOND, |_| false);
    pair.loses = Box::new(|| true);
    pair.request();
    let before = pair.connection().stats().pto_count;
    pair.ecn_to_client.clear();
    assert!(pair.run_until(SECOND, |pair| pair.connection().stats().pto_count > before));
    assert!(pair.ecn_to_client.iter().all(|&ecn| ecn == Ecn::Ect0), "{:?}", pair.ecn_to_client);
    pair.ecn_to_client.clear();
    pair.run_until(Duration::from_millis(1), |_| false);
    assert_eq!(pair.ecn_to_client, [Ecn::NotEct; 2]);
}

#[test]
fn a_path_that_drops_a_share_of_marked_packets_is_found() {
    for (percent, limit) in [(50, 3), (20, 12)] {
        for seed in 0..10 {
            let mut pair = Pair::new(&setup(seed));
            pair.ecn_down = leak(percent, seed);
            let mut live = Live::new(pair);
            let mut found = None;
            live.run(Duration::from_secs(limit), |live| {
                if found.is_none() && failed(&mut live.pair)[0] > 0 {
                    found = Some(live.pair.now.since(live.began));
                }
            });
            println!("{percent} %, seed {seed}: found after {found:?}, stall {:?}", live.stall);
            assert!(found.is_some(), "{percent} %, seed {seed}");
            assert!(live.stall < SECOND, "{percent} %, seed {seed}: {:?}", live.stall);
            assert!(is_unmarked(&mut live));
        }
    }
}

#[test]
fn a_share_of_marked_packets_is_missed_beside_ordinary_loss_too() {
    for seed in 0..5 {
        let mut pair = Pair::new(&setup(seed));
        pair.ecn_down = leak(30, seed);
        let mut live = Live::new(pair);
        live.pair.down(|link| link.loss = Some(read("5%")));
        live.run(15 * SECOND, |_| {});
        assert_eq!(failed(&mut live.pair), [1, 0, 0, 0], "seed {seed}");
    }
}

#[test]
fn ordinary_loss_keeps_ecn() {
    // Independent losses, bursts, and outages of 300 ms each 4 s.
    for loss in ["10%", "ge:p=0.02,r=0.2,bad=90%", "25%"] {
        for seed in 0..4 {
            let mut live = Live::new(Pair::new(&setup(seed)));
            live.pair.down(|link| link.loss = Some(read(loss)));
            live.run(30 * SECOND, |_| {});
            assert!(live.pair.connection().stats().packets_lost > 100);
            assert_eq!(failed(&mut live.pair), [0; 4], "{loss}, seed {seed}");
        }
    }
    for seed in 0..4 {
        let mut live = Live::new(Pair::new(&setup(seed)));
        let began = live.began;
        live.pair.ecn_down =
            Box::new(move |now, ecn| (now.since(began).as_millis() % 4_000 < 3_700).then_some(ecn));
        live.run(30 * SECOND, |_| {});
        assert_eq!(failed(&mut live.pair), [0; 4], "seed {seed}");
        live.pair.ecn_to_client.clear();
        live.run(SECOND, |_| {});
        assert!(live.pair.ecn_to_client.contains(&Ecn::Ect0));
    }
}

#[test]
fn marks_that_are_dropped_towards_the_server_alone_keep_ecn() {
    let mut live = Live::new(Pair::new(&setup(5)));
    live.pair.ecn_up = leak(50, 5);
    live.run(10 * SECOND, |_| {});
    assert_eq!(failed(&mut live.pair), [0; 4]);
}

#[test]
fn marks_that_are_erased_or_changed_end_ecn_and_cost_nothing() {
    for (to, expected) in [(Ecn::NotEct, [0, 0, 1, 0]), (Ecn::Ect1, [0, 0, 0, 1])] {
        let mut pair = Pair::new(&setup(6));
        pair.ecn_down = changes(to);
        let mut live = Live::new(pair);
        live.run(2 * SECOND, |_| {});
        assert_eq!(failed(&mut live.pair), expected, "{to:?}");
        assert!(is_unmarked(&mut live), "{to:?}");
        assert_eq!(live.pair.connection().stats().packets_lost, 0, "{to:?}");
    }
}

#[test]
fn a_path_that_marks_everything_congested_ends_ecn_after_a_few_events() {
    let mut pair = Pair::new(&setup(7));
    pair.ecn_down = changes(Ecn::Ce);
    let mut live = Live::new(pair);
    live.run(5 * SECOND, |_| {});
    assert_eq!(failed(&mut live.pair), [0, 1, 0, 0]);
    let events = live.pair.connection().stats().congestion_events;
    assert!(events <= 10, "{events}");
    assert!(is_unmarked(&mut live));
}

#[test]
fn a_path_that_marks_half_of_the_packets_congested_keeps_ecn() {
    let mut pair = Pair::new(&setup(8));
    let mut dice = Dice(8);
    pair.ecn_down = Box::new(move |_, ecn| {
        Some(if ecn == Ecn::Ect0 && dice.chance(50) { Ecn::Ce } else { ecn })
    });
    let mut live = Live::new(pair);
    live.run(5 * SECOND, |_| {});
    assert_eq!(failed(&mut live.pair), [0; 4]);
    assert!(live.pair.connection().stats().congestion_events > 0);
}

#[test]
fn a_hole_behind_a_new_address_is_found_and_the_old_path_stays_marked() {
    let mut live = Live::new(Pair::new(&setup(9)));
    live.run(3 * SECOND, |_| {});
    let home = live.pair.client_address;
    live.pair.ecn_down = hole(Timestamp::ZERO);
    live.pair.client_address = "10.7.0.2:4000".parse().expect("an address");
    live.run(4 * SECOND, |_| {});
    println!("stall {:?}", live.stall);
    assert!(live.stall < SECOND, "{:?}", live.stall);
    assert_eq!(failed(&mut live.pair), [1, 0, 0, 0]);
    assert!(is_unmarked(&mut live));
    live.pair.ecn_down = Box::new(|_, ecn| Some(ecn));
    live.pair.client_address = home;
    live.run(SECOND, |_| {});
    assert!(!is_unmarked(&mut live), "of the network with the hole alone");
}

#[test]
fn the_next_connection_from_the_network_starts_unmarked_and_a_path_into_it_as_well() {
    let setup = setup(10);
    let mut pair = Pair::new(&setup);
    pair.ecn_down = hole(Timestamp::ZERO);
    let mut live = Live::new(pair);
    live.run(3 * SECOND, |_| {});
    assert_eq!(failed(&mut live.pair), [1, 0, 0, 0]);
    let failing = live.pair.client_address;

    // The same network by another address, with the hole still there: nothing is lost.
    let mut pair = live.pair.again(&setup);
    pair.client_address = SocketAddr::new([10, 0, 0, 99].into(), 7_000);
    pair.ecn_down = hole(Timestamp::ZERO);
    let mut live = Live::new(pair);
    live.run(3 * SECOND, |_| {});
    assert_eq!(live.pair.connection().stats().packets_lost, 0);
    assert!(live.pair.ecn_to_client.iter().all(|&ecn| ecn == Ecn::NotEct));

    // Another network is tested, and a path from there into the failing one is not.
    let mut pair = live.pair.again(&setup);
    pair.client_address = SocketAddr::new([10, 9, 0, 9].into(), 7_000);
    let mut live = Live::new(pair);
    live.run(2 * SECOND, |_| {});
    assert!(!is_unmarked(&mut live));
    live.pair.client_address = failing;
    live.run(SECOND, |_| {});
    assert!(is_unmarked(&mut live));
}

/// Writes down the states of ECN.
#[derive(Clone, Default)]
struct States(Arc<Mutex<Vec<&'static str>>>);

impl Observer for States {
    fn on_event(&mut self, _: Timestamp, event: &Event<'_>) {
        if let Event::EcnState { new, .. } = event {
            self.0.lock().expect("one thread").push(new.name());
        }
    }
}

#[test]
fn the_observer_hears_of_each_state() {
    let states = States::default();
    let mut setup = setup(11);
    let observer = states.clone();
    setup.transport(|t| {
        t.observer = Some(Arc::new(move |_, _, _| Some(Box::new(observer.clone()))));
    });
    let mut live = Live::new(Pair::new(&setup));
    live.pair.ecn_down = hole(live.began + SECOND);
    live.run(4 * SECOND, |_| {});
    let heard = states.0.lock().expect("one thread").clone();
    assert_eq!(heard, ["testing", "capable", "unknown", "failed"]);
}
