//! Paths that change under a viewer: a NAT's new port, a datagram size that shrinks, ECN.

use std::time::Duration;

use congestion::Cap;
use links::UDP_IPV4_HEADERS;
use units::{Ecn, Rate};

use crate::common::{Pair, Setup, content, read};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn packets_are_marked_ect_after_the_handshake() {
    let setup = Setup::new(1);
    let mut pair = Pair::new(&setup);
    pair.answer = content(1_000_000);
    pair.connect();
    pair.ecn_to_client.clear();
    assert_eq!(pair.download(60 * SECOND), pair.answer);
    let marked = pair.ecn_to_client.iter().filter(|&&ecn| ecn == Ecn::Ect0).count();
    assert_eq!(marked, pair.ecn_to_client.len());
}

#[test]
fn packets_are_marked_ect_through_reordering_and_on_a_new_path() {
    let setup = Setup::with_keep_alive(2, Some(Duration::from_millis(50)));
    let mut pair = Pair::new(&setup);
    pair.answer = content(3_000_000);
    // Acknowledgements overtake each other.
    pair.up(|link| link.reorder = Some(read("15%,7ms")));
    pair.connect();
    assert_eq!(pair.download(60 * SECOND), pair.answer);
    pair.client_address.set_ip([10, 0, 0, 9].into());
    pair.run_until(SECOND, |_| false);
    assert!(pair.connection().is_validated());
    pair.ecn_to_client.clear();
    assert_eq!(pair.download(60 * SECOND), pair.answer);
    let marked = pair.ecn_to_client.iter().filter(|&&ecn| ecn == Ecn::Ect0).count();
    assert!(10 * marked > 9 * pair.ecn_to_client.len(), "{marked} of {}", pair.ecn_to_client.len());
}

#[test]
fn a_datagram_size_that_shrinks_in_mid_stream_is_found_within_a_second() {
    for delay in [10, 40] {
        let setup = Setup::with_keep_alive(1, Some(Duration::from_millis(50)));
        let mut pair = Pair::new(&setup);
        pair.both(|link| link.delay = Some(Duration::from_millis(delay)));
        pair.answer = content(60_000_000);
        pair.connect();
        let id = pair.request();
        let mut got = Vec::new();
        pair.run_until(SECOND * 5, |pair| {
            pair.read(id, &mut got);
            got.len() > 2_000_000
        });
        assert_eq!(pair.connection().mtu(), 1_452);
        pair.down(|link| link.mtu = Some(1_300 + UDP_IPV4_HEADERS));
        // Datagrams in flight still arrive.
        pair.run_until(Duration::from_millis(2 * delay), |_| false);
        pair.read(id, &mut got);
        let (begin, base) = (pair.now, got.len());
        let goes_on = pair.run_until(10 * SECOND, |pair| {
            pair.read(id, &mut got);
            got.len() > base + 100_000
        });
        let stall = pair.now.since(begin);
        println!("{delay} ms each way: 100 kB after {stall:?}");
        assert!(goes_on && stall < SECOND, "{stall:?} with {delay} ms");
        // The search finds its way to what passes.
        pair.run_until(20 * SECOND, |pair| {
            pair.read(id, &mut got);
            false
        });
        let mtu = pair.connection().mtu();
        assert!((1_280..=1_300).contains(&mtu), "{mtu}");
    }
}

/// How long the picture stands still after the client's port has changed, when the first `drops`
/// datagrams to the new port are lost, at a round-trip time of 80 ms.
fn stall_after_a_new_port(drops: u64) -> Duration {
    let setup = Setup::with_keep_alive(5, Some(Duration::from_millis(50)));
    let mut pair = Pair::new(&setup);
    pair.answer = content(60_000_000);
    pair.both(|link| link.delay = Some(Duration::from_millis(40)));
    pair.connect();
    let id = pair.request();
    let mut got = Vec::new();
    pair.run_until(SECOND / 2, |pair| {
        pair.read(id, &mut got);
        false
    });
    let first = (drops > 0).then(|| read(&format!("script:0-{}", drops - 1)));
    pair.down(|link| link.loss = first);
    pair.client_address.set_port(4_001);
    let begin = pair.now;
    pair.read(id, &mut got);
    let base = got.len();
    let done = pair.run_until(20 * SECOND, |pair| {
        pair.read(id, &mut got);
        got.len() > base + 300_000
    });
    let lost = pair.paths.last().map(|path| path.down.counters().lost.packets);
    assert!(done && lost == Some(drops));
    pair.now.since(begin)
}

#[test]
fn a_new_port_with_lost_datagrams_stalls_for_a_few_round_trips() {
    for (drops, limit) in [(0, 200), (1, 400), (2, 400), (4, 1_000)] {
        let stall = stall_after_a_new_port(drops);
        println!("{drops} datagrams to the new port lost: 300 kB after {stall:?}");
        assert!(stall < Duration::from_millis(limit), "{drops} lost: {stall:?}");
    }
}

#[test]
fn a_path_that_reorders_is_learned() {
    let setup = Setup::new(6);
    let mut pair = Pair::new(&setup);
    pair.answer = content(20_000_000);
    pair.connect();
    // One datagram in thirty is overtaken by those of the next 6 ms.
    pair.down(|link| link.reorder = Some(read("3.3%,6ms")));
    let id = pair.request();
    let mut got = Vec::new();
    pair.run_until(60 * SECOND, |pair| pair.read(id, &mut got) || got.len() > 5_000_000);
    let early = *pair.connection().stats();
    assert!(early.spurious_losses > 0, "there is something to learn");
    assert!(early.congestion_undone > 0, "{early:?}");
    let finished = pair.run_until(60 * SECOND, |pair| pair.read(id, &mut got));
    assert!(finished && got == pair.answer);
    let late = *pair.connection().stats();
    let (learned, more) = (early.spurious_losses, late.spurious_losses - early.spurious_losses);
    println!("spurious losses: {learned} in the first quarter, {more} in the rest");
    assert!(more < learned, "{learned} and then {more}");
}

#[test]
fn caps_hold_on_every_path_and_never_lift_the_limit_of_bytes_in_flight() {
    let mut setup = Setup::with_keep_alive(7, Some(Duration::from_millis(50)));
    setup.transport(|transport| transport.max_in_flight = 100_000);
    let mut pair = Pair::new(&setup);
    pair.answer = content(3_000_000);
    pair.connect();
    let rate = Rate::from_kbps(8_000);
    pair.connection().cap(Cap { rate: Some(rate), in_flight: Some(20_000), ..Cap::default() });
    let home = pair.client_address;
    for ip in [[10, 0, 0, 9], [10, 0, 0, 10]] {
        pair.client_address.set_ip(ip.into());
        pair.run_until(SECOND, |_| false);
        assert_eq!(pair.connection().addresses().remote, pair.client_address);
        let begin = pair.now;
        assert_eq!(pair.download(60 * SECOND), pair.answer);
        // 24 million bits, partly sent as an initial burst.
        let span = pair.now.since(begin);
        assert!(span > 5 * SECOND / 2, "{span:?}");
        assert_eq!(pair.connection().window(), 20_000);
        assert!(pair.connection().pacing_rate().is_some_and(|now| now <= rate));
    }
    // Lifted on a path that proves to be none: the path before knows of it as well.
    pair.down(|link| link.loss = Some(read("100%")));
    let last = pair.client_address;
    pair.client_address = home;
    pair.run_until(SECOND / 5, |_| false);
    assert_eq!(pair.connection().addresses().remote, home);
    pair.connection().cap(Cap::default());
    pair.client_address = last;
    pair.down(|link| link.loss = None);
    pair.run_until(SECOND, |_| false);
    assert_eq!(pair.connection().addresses().remote, last);
    assert_eq!(pair.download(60 * SECOND), pair.answer);
    let window = pair.connection().window();
    assert!((20_001..=100_000).contains(&window), "{window}");
}
