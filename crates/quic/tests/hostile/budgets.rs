//! Small budgets: an unvalidated address gets three times the bytes it sends (RFC 9000, section
//! 8.1). A client that moves but never answers the challenge therefore chooses the exact size of
//! the server's packets. For all pending frames, the server must neither loop nor write beyond the
//! end of a packet.

use std::sync::mpsc;
use std::time::Duration;

use mendcast_quic::wire::{PacketType, put_ping, put_retire_connection_id};
use mendcast_quic::{Connection, Endpoint};
use recovery::fixed::{Fixed, Reading};

use crate::raw::{Raw, ack, ack_of, frames, generous};
use crate::{client_tls, config, downloading};

/// Runs it in a thread of its own, which has to end within the time and without a panic.
fn ends(time: Duration, what: &str, run: impl FnOnce() + Send + 'static) {
    let (done, wait) = mpsc::channel();
    std::thread::spawn(move || {
        run();
        let _ = done.send(());
    });
    match wait.recv_timeout(time) {
        Ok(()) => {}
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what}: endless loop"),
        Err(mpsc::RecvTimeoutError::Disconnected) => panic!("{what}: the thread panicked"),
    }
}

/// Makes the server's acknowledgements long: 64 ranges of them.
fn many_ranges(raw: &mut Raw, gap: u64) {
    for _ in 0..80 {
        raw.skip_numbers(PacketType::OneRtt, gap);
        raw.send(PacketType::OneRtt, &frames(put_ping));
    }
}

fn connection(raw: &mut Raw) -> &mut Connection {
    let handle = raw.handle.expect("a connection");
    raw.server.connection(handle).expect("open")
}

/// The client's next port: the server's challenge to it is never answered.
fn next_port(raw: &mut Raw) {
    let port = raw.address.port();
    raw.address.set_port(if port == u16::MAX { 10_000 } else { port + 1 });
}

/// Pending frames while budgets take all sizes.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// Acknowledgements of 64 ranges, each gap this long; none for 0.
    gap: u64,
    /// NEW_CONNECTION_ID frames.
    control: bool,
    /// Lost units, with replicas.
    units: bool,
    /// Probes after a time-out.
    probes: bool,
    /// A PING is due now and then.
    keep_alive: bool,
}

/// Moves the client for each datagram size, so that pending frames meet every budget from zero to a
/// full packet. After each move, time passes until all timers within a second have fired.
fn every_budget(waiting: Waiting) {
    let mut config = config();
    let mut transport = (*config.transport).clone();
    transport.keep_alive = waiting.keep_alive.then_some(Duration::from_millis(500));
    config.transport = std::sync::Arc::new(transport);
    let server = Endpoint::new(config, [3; 32]);
    let mut raw = Raw::new(server, client_tls(b"test"), &generous());
    raw.connect();
    crate::download(&mut raw, 2_000_000);
    let three = Fixed { slope: 0, offset: 3, reading: Reading::Extra };
    connection(&mut raw).set_scheme(three.scheme("three"));
    if waiting.gap > 0 {
        many_ranges(&mut raw, waiting.gap);
    }
    for extra in 0..480 {
        next_port(&mut raw);
        let mut payload = Vec::new();
        if waiting.units {
            let largest = raw.largest(PacketType::OneRtt).expect("1-RTT packets");
            payload.extend(ack(largest, largest));
        }
        if waiting.control && extra % 2 == 0 {
            payload.extend(frames(|w| put_retire_connection_id(w, 1 + extra as u64 / 2)));
        }
        payload.extend(frames(put_ping));
        payload.resize(payload.len() + extra, 0);
        let before = raw.bytes_to.get(&raw.address).copied().unwrap_or(0);
        let mut packet = raw.packet(PacketType::OneRtt, &payload);
        raw.deliver(&mut packet);
        if waiting.probes || waiting.keep_alive {
            raw.wait(Duration::from_millis(700));
        }
        let sent = raw.bytes_to.get(&raw.address).copied().unwrap_or(0) - before;
        assert!(sent <= 3 * packet.len(), "{sent} for {} with {waiting:?}", packet.len());
        if raw.close_by_server().is_some() {
            // A client that retires IDs faster than it learns new ones violates the protocol; the
            // rest was seen.
            assert!(waiting.control && extra > 2, "{:?} with {waiting:?}", raw.close_by_server());
            return;
        }
    }
}

#[test]
fn whatever_waits_every_budget_has_an_end() {
    for bits in 0..32u8 {
        let bit = |n: u8| bits >> n & 1 == 1;
        let waiting = Waiting {
            gap: if bit(0) { 1 << 20 } else { 0 },
            control: bit(1),
            units: bit(2),
            probes: bit(3),
            keep_alive: bit(4),
        };
        ends(Duration::from_secs(60), &format!("{waiting:?}"), move || every_budget(waiting));
    }
}

#[test]
fn an_acknowledgement_that_fills_a_small_budget_lets_lost_data_wait() {
    for extra in 0..40usize {
        ends(Duration::from_secs(10), &format!("{extra} bytes of padding"), move || {
            let mut raw = downloading(&generous(), 2_000_000);
            many_ranges(&mut raw, 1);
            raw.address.set_port(5_555);
            raw.send(PacketType::OneRtt, &frames(put_ping));
            raw.wait(Duration::from_millis(30));
            // An acknowledgement of the newest packet only, which makes all others lost, and the
            // retirement of an ID, which makes a NEW_CONNECTION_ID due.
            let largest = raw.largest(PacketType::OneRtt).expect("1-RTT packets");
            let retire = frames(|w| put_retire_connection_id(w, 1));
            let payload = [ack(largest, largest), retire, vec![0; extra]].concat();
            raw.send(PacketType::OneRtt, &payload);
        });
    }
}

#[test]
fn a_keep_alive_that_does_not_fit_waits() {
    for extra in 0..40usize {
        ends(Duration::from_secs(10), &format!("{extra} bytes of padding"), move || {
            let mut config = config();
            let mut transport = (*config.transport).clone();
            transport.keep_alive = Some(Duration::from_millis(500));
            config.transport = std::sync::Arc::new(transport);
            let server = Endpoint::new(config, [3; 32]);
            let mut raw = Raw::new(server, client_tls(b"test"), &generous());
            raw.connect();
            let mut numbers = raw.numbers(PacketType::OneRtt).to_vec();
            numbers.sort_unstable();
            raw.send(PacketType::OneRtt, &ack_of(&numbers));
            // Gaps that take 4 bytes each to report.
            for _ in 0..30 {
                raw.skip_numbers(PacketType::OneRtt, 1 << 30);
                raw.send(PacketType::OneRtt, &frames(put_ping));
            }
            let before = raw.largest(PacketType::OneRtt).expect("1-RTT packets");
            raw.address.set_port(5_555);
            raw.send(PacketType::OneRtt, &frames(put_ping));
            // Acknowledges the challenges, and asks for an acknowledgement, which takes the budget.
            let mut numbers = raw.numbers(PacketType::OneRtt).to_vec();
            numbers.sort_unstable();
            numbers.retain(|&n| n > before);
            raw.send(PacketType::OneRtt, &[ack_of(&numbers), frames(put_ping)].concat());
            raw.wait(Duration::from_millis(700));
            raw.send(PacketType::OneRtt, &[frames(put_ping), vec![0; extra]].concat());
        });
    }
}
