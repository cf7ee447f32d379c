//! Clients that alternate between addresses: bonded links, NATs with two exits.

use crate::common::{Pair, Setup, content};
use crate::live::{Live, setup};
use congestion::Algorithm;
use links::Queue;
use std::net::SocketAddr;
use std::time::Duration;
use units::Rate;

const SECOND: Duration = Duration::from_secs(1);

fn addresses(list: &[&str]) -> Vec<SocketAddr> {
    list.iter().map(|text| text.parse().expect("an address")).collect()
}

/// Ways to flap, by name.
fn ways() -> Vec<(&'static str, Vec<SocketAddr>)> {
    vec![
        ("two ports", addresses(&["10.0.0.2:4000", "10.0.0.2:5000"])),
        ("two IPs", addresses(&["10.0.0.2:4000", "10.8.0.2:4000"])),
        ("three IPs", addresses(&["10.0.0.2:4000", "10.8.0.2:4000", "10.9.0.2:4000"])),
        ("mixed", addresses(&["10.0.0.2:4000", "10.8.0.2:4000", "10.8.0.2:4001"])),
    ]
}

/// Which of the addresses it is at this time.
fn turn(list: &[SocketAddr], since: Duration, period: Duration) -> SocketAddr {
    list[(since.as_micros() / period.as_micros()) as usize % list.len()]
}

#[test]
fn a_live_stream_flows_while_the_address_alternates() {
    for (name, list) in ways() {
        for period in [20, 40, 50, 130, 500].map(Duration::from_millis) {
            let mut live = Live::new(Pair::new(&setup(1)));
            live.pair.other_addresses = list.clone();
            let began = live.began;
            let mut flap = |live: &mut Live| {
                live.pair.client_address = turn(&list, live.pair.now.since(began), period);
            };
            live.run(2 * SECOND, &mut flap);
            let start = live.stall;
            live.forget_stalls();
            let (written, received) = (live.written, live.received);
            live.run(10 * SECOND, &mut flap);
            let (stats, stall) = (*live.pair.connection().stats(), live.stall);
            let (written, received) = (live.written - written, live.received - received);
            println!(
                "{name}, {period:?}: {received} of {written}, stalls {start:?} and {stall:?}, \
                 {} moves, {} of {} packets lost",
                stats.migrations, stats.packets_lost, stats.packets_sent
            );
            assert!(100 * received >= 95 * written, "{name}, {period:?}");
            assert!(
                start < SECOND && stall < SECOND / 5,
                "{name}, {period:?}: {start:?} {stall:?}"
            );
            assert!(stats.packets_lost * 100 <= stats.packets_sent, "{name}, {period:?}");
        }
    }
}

/// Bytes of a download over 10 Mbit/s that arrive in ten seconds, from two seconds on.
fn downloaded(algorithm: Algorithm, list: &[SocketAddr], period: Duration) -> usize {
    let mut setup = Setup::with_keep_alive(2, Some(Duration::from_millis(50)));
    setup.transport(|t| t.congestion = mendcast_quic::controller(algorithm));
    let mut pair = Pair::new(&setup);
    pair.both(|link| {
        link.delay = Some(Duration::from_millis(20));
        link.rate = Some(Rate::from_mbps(10));
        link.queue = Queue::drop_tail(100_000);
    });
    pair.answer = content(40_000_000);
    pair.other_addresses = list.to_vec();
    pair.connect();
    let (id, began, mut got) = (pair.request(), pair.now, Vec::new());
    let mut run = |time: Duration| {
        let end = pair.now + time;
        got.clear();
        while pair.now < end {
            pair.client_address = turn(list, pair.now.since(began), period);
            pair.run_until(Duration::from_millis(10), |_| false);
            pair.read(id, &mut got);
        }
        got.len()
    };
    run(2 * SECOND);
    run(10 * SECOND)
}

#[test]
fn a_download_keeps_its_rate_while_the_address_alternates() {
    for algorithm in [Algorithm::Bbr, Algorithm::Cubic] {
        let steady = downloaded(algorithm, &ways()[0].1[..1], SECOND);
        for (name, list) in ways() {
            for period in [20, 40, 50, 500].map(Duration::from_millis) {
                let got = downloaded(algorithm, &list, period);
                println!("{algorithm:?}, {name}, {period:?}: {got} bytes, {steady} without");
                let enough = 100 * got >= 95 * steady;
                assert!(enough, "{algorithm:?}, {name}, {period:?}: {got} of {steady}");
            }
        }
    }
}

#[test]
fn a_live_stream_flows_over_two_paths_of_different_length() {
    let list = &ways()[1].1;
    for period in [20, 50, 130, 500].map(Duration::from_millis) {
        let mut live = Live::new(Pair::new(&setup(3)));
        live.pair.other_addresses = list.clone();
        live.pair.split([list[0], list[1]], Duration::from_millis(60));
        let began = live.began;
        live.run(12 * SECOND, |live| {
            live.pair.client_address = turn(list, live.pair.now.since(began), period);
            if live.pair.now.since(began) < 2 * SECOND {
                live.forget_stalls();
            }
        });
        let stats = *live.pair.connection().stats();
        println!(
            "{period:?}: stall {:?}, {} of {} packets lost, {} in error",
            live.stall, stats.packets_lost, stats.packets_sent, stats.spurious_losses
        );
        assert!(100 * live.received >= 95 * live.written, "{period:?}");
        assert!(live.stall < SECOND / 4, "{period:?}: {:?}", live.stall);
        assert!(stats.packets_lost * 20 <= stats.packets_sent, "{period:?}: {stats:?}");
    }
}
