//! Bunches on complete links: times, order, announced events and conservation.

use units::{Ecn, Rate};

use super::*;
use crate::{Delivered, Link, LinkConfig, Packet, Queue};

fn packet() -> Packet<()> {
    Packet { size: 1_250, ecn: Ecn::NotEct, payload: () }
}

/// Polls all packets, each at its announced event.
fn drain(link: &mut Link<()>) -> Vec<Delivered<()>> {
    let mut all = Vec::new();
    while let Some(now) = link.next_event() {
        while let Some(delivered) = link.poll(now) {
            assert_eq!(delivered.at, now, "unannounced arrival");
            all.push(delivered);
        }
    }
    all
}

/// A link with these bunches and a delay of 30 ms, and one packet per millisecond.
fn link(bunches: &str, packets: u64, seed: u64) -> Link<()> {
    let config = LinkConfig {
        bunches: Some(bunches.parse().unwrap()),
        delay: Some(Duration::from_millis(30)),
        rate: Some(Rate::from_mbps(100)),
        queue: Queue::drop_tail(1_000_000),
        ..LinkConfig::default()
    };
    let mut link = Link::new(&config, seed, "test");
    (0..packets).for_each(|n| link.send(Timestamp::from_millis(n), packet()));
    link
}

#[test]
fn packets_arrive_in_order_at_periodic_wake_ups() {
    for seed in 1..=5 {
        let mut link = link("200ms", 1_000, seed);
        let inside = link.in_flight().packets;
        assert_eq!(inside, 1_000, "before the first wake-up, seed {seed}");
        let all = drain(&mut link);
        link.check_conservation().unwrap();
        assert!(all.is_sorted_by_key(|delivered| (delivered.at, delivered.index)));
        let mut times: Vec<Timestamp> = all.iter().map(|delivered| delivered.at).collect();
        times.dedup();
        assert!((5..=6).contains(&times.len()), "seed {seed}: {times:?}");
        let gaps = times.windows(2).map(|pair| pair[1].since(pair[0]));
        assert!(gaps.into_iter().all(|gap| gap == Duration::from_millis(200)), "{times:?}");
        // 100 us of transmission, at most one period of waiting, and the delay.
        for (sent, delivered) in (0..).zip(&all) {
            let took = delivered.at.since(Timestamp::from_millis(sent));
            assert!(took >= Duration::from_micros(30_100), "{took:?}");
            assert!(took <= Duration::from_micros(230_100), "{took:?}");
        }
    }
}

#[test]
fn packets_pass_at_once_while_the_link_layer_is_awake() {
    let all = drain(&mut link("300ms,awake=30ms", 3_000, 7));
    let at_once = Duration::from_micros(30_100);
    let passed = (0..)
        .zip(&all)
        .filter(|(sent, delivered)| delivered.at.since(Timestamp::from_millis(*sent)) == at_once);
    // A tenth of each period, plus the packet at the wake-up itself.
    let passed = passed.count();
    assert!((295..=310).contains(&passed), "{passed} of 3000");
}

#[test]
fn the_seed_draws_the_phase() {
    let first = |seed| drain(&mut link("200ms", 1, seed))[0].at;
    assert_eq!(first(1), first(1));
    let all: Vec<Timestamp> = (1..=8).map(first).collect();
    assert!(all.iter().any(|at| *at != all[0]), "{all:?}");
}

#[test]
fn wake_ups_are_exact() {
    let wake_ups = WakeUps { every: 10, awake: 3, phase: 4 };
    let released = |at| wake_ups.release(Timestamp::from_nanos(at)).as_nanos();
    let all: Vec<u64> = (0..16).map(released).collect();
    assert_eq!(all, [4, 4, 4, 4, 4, 5, 6, 14, 14, 14, 14, 14, 14, 14, 14, 15]);
}

#[test]
fn bunches_parse_or_state_the_expected_format() {
    let ms = Duration::from_millis;
    assert_eq!("200ms".parse(), Ok(Bunches { every: ms(200), awake: ms(0) }));
    assert_eq!(" 300ms,awake=30ms".parse(), Ok(Bunches { every: ms(300), awake: ms(30) }));
    for bad in ["", "200", "0.9ms", "5001ms", "200ms,awake=200ms", "200ms,wake=3ms", "200ms,30ms"] {
        let error = bad.parse::<Bunches>().unwrap_err().to_string();
        assert!(error.contains("300ms,awake=30ms") && error.contains(bad), "{error}");
    }
}
