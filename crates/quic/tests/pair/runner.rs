//! Cases of quic-interop-runner that its clients and ours cannot be had for here, against the
//! third-party client of the pair: handshakecorruption, multiplexing, rebind-addr.

use crate::common::{Dice, Fate, Pair, Setup, content};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn handshakes_survive_heavy_damage() {
    // 30 % both ways, at most three in a row.
    for seed in 0..50 {
        let mut setup = Setup::new(seed);
        setup.transport(|t| t.handshake_timeout = 60 * SECOND);
        let mut pair = Pair::new(&setup);
        let mut dice = Dice(seed + 2_000);
        let mut run = [0; 2];
        pair.fate = Box::new(move |to_client, _, _| {
            let run = &mut run[usize::from(to_client)];
            *run = if *run < 3 && dice.chance(30) { *run + 1 } else { 0 };
            if *run > 0 { Fate::Corrupt } else { Fate::Deliver }
        });
        pair.answer = content(1_000);
        pair.connect();
        assert_eq!(pair.download(60 * SECOND), pair.answer, "seed {seed}");
    }
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
    pair.delay = Duration::from_millis(15);
    // A datagram of 1,452 bytes takes 1.16 ms; what would wait for longer than 25 of them is lost.
    let mut free = [units::Timestamp::ZERO; 2];
    pair.fate = Box::new(move |to_client, _, now| {
        let free = &mut free[usize::from(to_client)];
        let wait = free.since(now);
        if wait > Duration::from_millis(29) {
            return Fate::Drop;
        }
        *free = (*free).max(now) + Duration::from_micros(if to_client { 1_162 } else { 60 });
        Fate::Late(wait)
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
