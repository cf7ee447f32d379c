//! Behaviours of the whole transport against an unmodified third-party client in virtual time.

#[path = "../common/mod.rs"]
mod common;
mod ecn;
mod flapping;
mod key_log;
mod live;
mod paths;
mod repair;
mod runner;

use common::{Dice, Pair, Setup, content, read};
use links::UDP_IPV4_HEADERS;
use mendcast_quic::{Counts, Event, RetryPolicy, TokenUse};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_download_arrives_whole() {
    let setup = Setup::new(1);
    let mut pair = Pair::new(&setup);
    pair.answer = content(1_000_000);
    pair.connect();
    assert_eq!(pair.download(60 * SECOND), pair.answer);
    let stats = *pair.connection().stats();
    assert_eq!(stats.packets_lost, 0);
    assert_eq!(pair.connection().mtu(), 1_452);
}

#[test]
fn a_download_arrives_whole_through_loss_both_ways() {
    for seed in 0..8 {
        let setup = Setup::new(seed);
        let mut pair = Pair::new(&setup);
        pair.both(|link| link.loss = Some(read("10%")));
        pair.answer = content(300_000);
        pair.connect();
        assert_eq!(pair.download(120 * SECOND), pair.answer, "seed {seed}");
        assert!(pair.connection().stats().packets_lost > 0, "seed {seed}");
    }
}

#[test]
fn retry_proves_the_address_first() {
    let mut setup = Setup::new(3);
    setup.server.retry = RetryPolicy::Always;
    let mut pair = Pair::new(&setup);
    pair.answer = content(10_000);
    pair.connect();
    assert_eq!(pair.download(10 * SECOND), pair.answer);
    assert_eq!(pair.connection().stats().token, TokenUse::Retry);
    assert_eq!(pair.server.stats().retries, 1);
}

#[test]
fn a_resumed_session_sends_its_request_in_0_rtt() {
    let setup = Setup::new(4);
    let mut pair = Pair::new(&setup);
    pair.answer = content(10_000);
    pair.on_connected = Some(Box::new(|server, handle, now| {
        server.release_ticket(handle, now, b"own bytes");
        server.send_new_token(handle, now, b"path history");
    }));
    pair.connect();
    assert_eq!(pair.download(10 * SECOND), pair.answer);
    pair.run_until(SECOND, |_| false);

    let mut pair = pair.again(&setup);
    pair.answer = content(10_000);
    let id = pair.request();
    let begin = pair.now;
    assert_eq!(pair.receive(id, 10 * SECOND), pair.answer);
    pair.connect();
    // One round trip of 20 ms: the token lifted the anti-amplification limit as well.
    assert!(pair.now.since(begin) < Duration::from_millis(45), "{:?}", pair.now.since(begin));
    let connection = pair.connection();
    assert!(connection.stats().resumed && connection.stats().early_data);
    let info = connection.take_handshake_info().expect("not taken yet");
    assert_eq!(info.returned_ticket.as_deref(), Some(&b"own bytes"[..]));
    assert_eq!(info.returned_token.as_deref(), Some(&b"path history"[..]));
}

#[test]
fn each_of_many_tokens_arrives_also_when_its_packet_was_lost() {
    let mut pair = Pair::new(&Setup::new(14));
    pair.connect();
    pair.run_until(SECOND, |_| false);
    let issue = |pair: &mut Pair, tokens| {
        let (handle, now) = (pair.handle.expect("a connection"), pair.now);
        (0..tokens).for_each(|_| pair.server.send_new_token(handle, now, b"own"));
        // They leave, and nothing has come back yet.
        pair.run_until(Duration::from_millis(5), |_| false);
    };
    issue(&mut pair, 4);
    // The fifth token reuses the slot of one in flight, whose acknowledgement must not affect it.
    pair.down(|link| link.loss = Some(read("100%")));
    issue(&mut pair, 1);
    pair.down(|link| link.loss = None);
    pair.run_until(5 * SECOND, |_| false);
    assert_eq!(pair.client.stats().frame_rx.new_token, 5);
}

#[test]
fn a_new_port_of_the_client_is_validated_and_served() {
    let setup = Setup::new(5);
    let mut pair = Pair::new(&setup);
    pair.answer = content(2_000_000);
    pair.connect();
    let id = pair.request();
    pair.run_until(Duration::from_millis(100), |_| false);
    pair.client_address.set_port(4_001);
    assert_eq!(pair.receive(id, 60 * SECOND), pair.answer);
    assert!(pair.server_events.contains(&Event::Migrated(pair.client_address)));
}

#[test]
fn a_new_address_of_the_client_starts_with_fresh_estimates() {
    let setup = Setup::new(6);
    let mut pair = Pair::new(&setup);
    pair.answer = content(2_000_000);
    pair.connect();
    let id = pair.request();
    pair.run_until(Duration::from_millis(100), |_| false);
    pair.client_address = "10.0.0.77:999".parse().expect("an address");
    assert_eq!(pair.receive(id, 60 * SECOND), pair.answer);
    assert_eq!(pair.connection().stats().migrations, 1);
}

#[test]
fn keys_are_updated_by_either_side() {
    let setup = Setup::new(7);
    let mut pair = Pair::new(&setup);
    pair.answer = content(500_000);
    pair.connect();
    pair.client.force_key_update();
    assert_eq!(pair.download(10 * SECOND), pair.answer);
    assert_eq!(pair.connection().stats().key_updates, 1);
    pair.run_until(SECOND, |_| false);
    pair.connection().update_keys();
    assert_eq!(pair.download(10 * SECOND), pair.answer);
    assert_eq!(pair.connection().stats().key_updates, 2);
}

#[test]
fn silence_ends_a_connection_after_the_idle_time_out() {
    let mut setup = Setup::new(8);
    setup.transport(|t| t.idle_timeout = Duration::from_secs(5));
    let mut pair = Pair::new(&setup);
    pair.connect();
    let begin = pair.now;
    pair.run_until(60 * SECOND, |pair| pair.server.is_empty());
    assert!(pair.server.is_empty());
    assert!(pair.now.since(begin) < 7 * SECOND, "{:?}", pair.now.since(begin));
}

#[test]
fn the_client_is_told_when_the_application_closes() {
    let setup = Setup::new(9);
    let mut pair = Pair::new(&setup);
    pair.connect();
    let now = pair.now;
    pair.connection().close(now, 77, "enough");
    pair.run_until(SECOND, |_| false);
    let told = pair.client_events.iter().any(|e| e.contains("ConnectionLost") && e.contains("77"));
    assert!(told, "{:?}", pair.client_events);
    pair.run_until(10 * SECOND, |pair| pair.server.is_empty());
    assert!(pair.server.is_empty());
}

#[test]
fn no_more_than_three_times_the_received_bytes_leave_before_the_address_is_proven() {
    let setup = Setup::new(10);
    let mut pair = Pair::new(&setup);
    // The client's first datagram arrives, nothing after it.
    pair.up(|link| link.loss = Some(read(&format!("script:1-{}", u64::MAX))));
    pair.down(|link| link.loss = Some(read("100%")));
    pair.run_until(9 * SECOND, |_| false);
    let sent = pair.paths[0].down.counters().sent;
    let bytes = sent.bytes - sent.packets * u64::from(UDP_IPV4_HEADERS);
    assert!(bytes > 0);
    assert!(bytes <= 3 * 1_200, "{bytes} bytes sent");
}

#[test]
fn a_handshake_survives_heavy_loss() {
    for seed in 0..20 {
        let mut setup = Setup::new(seed);
        // Of 30 % loss both ways only back-off recovers, and that takes its time.
        setup.transport(|t| t.handshake_timeout = 60 * SECOND);
        let mut pair = Pair::new(&setup);
        pair.both(|link| link.loss = Some(read("30%")));
        pair.connect();
    }
}

#[test]
fn a_request_that_overtakes_the_end_of_the_handshake_is_not_asked_for_again() {
    let mut pair = Pair::new(&Setup::new(21));
    pair.answer = content(500);
    assert!(pair.run_until(SECOND, |pair| !pair.client.is_handshaking()));
    // The Finished leaves for a detour, and then the path becomes as short as it was.
    pair.up(|link| link.delay = Some(SECOND / 25));
    pair.run_until(Duration::from_millis(1), |_| false);
    pair.up(|link| link.delay = Some(SECOND / 100));
    let begin = pair.now;
    assert_eq!(pair.download(SECOND), pair.answer);
    // One trip for the Finished, and one for the answer.
    assert!((48..52).contains(&pair.now.since(begin).as_millis()), "{:?}", pair.now.since(begin));
    let stats = *pair.connection().stats();
    assert_eq!(stats.dropped, Counts::default(), "{stats:?}");
    assert_eq!(pair.client.stats().path.lost_packets, 0);
}

#[test]
fn damage_duplicates_reordering_and_rebinding_cost_no_byte() {
    let cases = std::env::var("MENDCAST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
    for seed in 0..cases {
        let setup = Setup::with_keep_alive(seed, Some(Duration::from_millis(200)));
        let mut pair = Pair::new(&setup);
        pair.both(|link| {
            link.loss = Some(read("4%"));
            (link.corrupt, link.duplicate) = (read("4%"), read("4%"));
            link.reorder = Some(read(&format!("8%,{}ms", 1 + seed % 40)));
        });
        pair.answer = content(200_000 + seed as usize * 1_000 % 300_000);
        pair.connect();
        let id = pair.request();
        let mut dice = Dice(!seed);
        let (mut got, mut finished) = (Vec::new(), false);
        for _ in 0..400 {
            if finished {
                break;
            }
            // The client's port changes occasionally, as with NAT rebinding.
            if dice.chance(10) {
                pair.client_address.set_port(5_000 + (dice.roll() % 1_000) as u16);
            }
            let pause = Duration::from_millis(dice.roll() % 500);
            pair.run_until(pause, |pair| {
                finished = finished || pair.read(id, &mut got);
                finished
            });
        }
        let (ours, theirs) = (&pair.server_events, &pair.client_events);
        assert!(finished, "seed {seed}: {} bytes, {ours:?}, {theirs:?}", got.len());
        assert_eq!(got, pair.answer, "seed {seed}");
    }
}
