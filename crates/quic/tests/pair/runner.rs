//! Cases of quic-interop-runner that its clients and ours cannot be had for here, against the
//! third-party client of the pair: handshakecorruption, multiplexing, rebind-addr.

use crate::common::{Pair, Setup, content, read};
use links::Queue;
use mendcast_quic::PacketDropReason;
use std::time::Duration;
use units::Rate;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn handshakes_survive_heavy_damage() {
    // 30 % both ways, as there, but without its limit of three in a row.
    let mut damaged = 0;
    for seed in 0..50 {
        let mut setup = Setup::new(seed);
        setup.transport(|t| t.handshake_timeout = 60 * SECOND);
        let mut pair = Pair::new(&setup);
        pair.both(|link| link.corrupt = read("30%"));
        pair.answer = content(1_000);
        pair.connect();
        assert_eq!(pair.download(60 * SECOND), pair.answer, "seed {seed}");
        damaged += pair.connection().stats().dropped[PacketDropReason::Decrypt];
    }
    assert!(damaged > 50, "{damaged} packets");
}

#[test]
fn two_thousand_small_answers_come_over_one_connection() {
    // The limit of streams has to grow: the client opens as many as it may, again and again.
    let mut pair = Pair::new(&Setup::new(41));
    pair.answer = content(32);
    pair.connect();
    let (mut open, mut asked, mut done) = (Vec::new(), 0, 0);
    let served = pair.run_until(120 * SECOND, |pair| {
        while asked < 1_999
            && let Some(id) = pair.try_request()
        {
            open.push((id, Vec::new()));
            asked += 1;
        }
        open.retain_mut(|(id, got)| {
            let finished = pair.read(*id, got);
            if finished {
                assert_eq!(*got, pair.answer);
                done += 1;
            }
            !finished
        });
        done == 1_999
    });
    assert!(served, "{done} of {asked}: {:?}", pair.server_events.last());
}

#[test]
fn a_client_whose_address_changes_every_five_seconds_gets_10_mb_at_10_mbit_s() {
    let setup = Setup::with_keep_alive(42, Some(Duration::from_millis(500)));
    let mut pair = Pair::new(&setup);
    // Its network: 15 ms each way, and a queue of 25 packets.
    pair.both(|link| {
        link.delay = Some(Duration::from_millis(15));
        link.rate = Some(Rate::from_mbps(10));
        link.queue = Queue::drop_tail(25 * 1_480);
    });
    pair.answer = content(10_000_000);
    pair.connect();
    let id = pair.request();
    let (mut got, mut moves) = (Vec::new(), 0);
    while !pair.run_until(5 * SECOND, |pair| pair.read(id, &mut got)) {
        moves += 1;
        assert!(moves < 12, "{} bytes after {moves} moves", got.len());
        pair.client_address =
            format!("10.0.1.{moves}:{}", 5_000 + moves).parse().expect("an address");
    }
    assert_eq!(got, pair.answer);
    assert!(moves > 0 && pair.connection().stats().migrations >= 1);
}
