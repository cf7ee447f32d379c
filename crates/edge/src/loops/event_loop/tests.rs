//! Unit tests of a loop without its thread.

use std::net::SocketAddr;

use ::quic::crypto::initial_keys;
use ::quic::wire::{ConnectionId, PacketType, Writer, put_long_header, put_packet_number};
use ::quic::{Addresses, Datagram};
use units::Ecn;

use super::*;
use crate::config::Config;
use crate::io::socket::Buffers;
use crate::loops::mailbox::mailbox;
use crate::server::Edge;

const BUFFERS: Buffers = Buffers { receive: 1 << 20, send: 1 << 20 };

/// Returns a loop with its own sockets; the rest of the edge is not running.
fn event_loop(sockets: usize) -> EventLoop {
    let mut config = Config::default();
    config.server.listen = vec![([127, 0, 0, 1], 0).into()];
    config.admin.listen = Some(([127, 0, 0, 1], 0).into());
    let edge = Edge::open(config).expect("opened");
    let (sender, mailbox) = mailbox().expect("made");
    let bind = || UdpSocket::bind(([127, 0, 0, 1], 0).into(), false, BUFFERS).expect("bound");
    EventLoop::new(LoopPlan {
        core: 0,
        seed: [7; 32],
        sockets: (0..sockets).map(|_| bind()).collect(),
        shared: edge.shared().clone(),
        mailbox,
        others: vec![sender],
        log: None,
        draining: Arc::default(),
        pulse: Arc::new(Pulse::new("quic-0".into())),
    })
}

/// Returns a datagram of an unknown version, which triggers Version Negotiation.
fn unknown_version() -> Vec<u8> {
    let mut datagram = vec![0; 1_200];
    datagram[..7].copy_from_slice(&[0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8, 1]);
    datagram[14] = 8;
    datagram
}

/// Returns a valid first Initial: the server acknowledges it and waits for a ClientHello.
fn first_initial(number: u16) -> Vec<u8> {
    let [high, low] = number.to_be_bytes();
    let dcid = ConnectionId::new(&[1, 2, 3, 4, 5, 6, high, low]).expect("8 bytes");
    let mut datagram = vec![0; 1_200];
    let mut w = Writer::new(&mut datagram);
    let length_at = put_long_header(&mut w, PacketType::Initial, &dcid, &dcid, &[], 1);
    let number_at = w.position();
    put_packet_number(&mut w, 0, 1);
    let payload_at = w.position();
    w.set_varint2(length_at, (1_200 - number_at) as u64);
    // A PING frame, then padding.
    datagram[payload_at] = 1;
    let keys = initial_keys(dcid.as_slice()).remote;
    let (header, payload) = datagram.split_at_mut(payload_at);
    keys.packet.seal(0, header, payload);
    keys.header.protect(&mut datagram, number_at, 1);
    datagram
}

fn client() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind(([127, 0, 0, 1], 0).into(), false, BUFFERS).expect("bound");
    let address = socket.local_address();
    (socket, address)
}

/// Returns the senders of the datagrams that arrived at a client.
fn senders(client: &UdpSocket) -> Vec<SocketAddr> {
    let mut buffer = ReceiveBuffer::default();
    // May be empty: loopback delivers within the sending call.
    let _ = client.receive(&mut buffer);
    buffer.datagrams().map(|datagram| datagram.from).collect()
}

fn arrive(edge: &mut EventLoop, socket: u16, remote: SocketAddr, mut datagram: Vec<u8>) {
    let addresses = Addresses { socket, ..Addresses::of(remote) };
    let datagram = Datagram { addresses, ecn: Ecn::NotEct, payload: &mut datagram[..] };
    edge.deliver(edge.now(), datagram);
}

#[test]
fn reflecting_ports_and_port_0_get_no_answer() {
    let mut edge = event_loop(1);
    let mut deliver = |port| {
        arrive(&mut edge, 0, ([127, 0, 0, 1], port).into(), unknown_version());
        edge.take_handshakes();
        (edge.endpoint.stats().version_negotiations, edge.counters)
    };
    for port in [53, 11_211] {
        deliver(port);
    }
    let (answers, counters) = deliver(0);
    assert_eq!((answers, counters.from_reflectors, counters.from_port_0), (0, 2, 1));
    let (answers, counters) = deliver(50_000);
    assert_eq!((answers, counters.from_reflectors, counters.from_port_0), (1, 2, 1));
}

#[test]
fn forwarded_datagram_is_answered_from_its_receiving_socket() {
    let mut edge = event_loop(2);
    let (client, remote) = client();
    let addresses = Addresses { socket: 1, ..Addresses::of(remote) };
    let payload = unknown_version();
    let datagram = Datagram { addresses, ecn: Ecn::NotEct, payload };
    assert!(edge.plan.others[0].send(datagram));
    edge.take_mail(edge.now(), true);
    edge.take_handshakes();
    assert_eq!(senders(&client), [edge.plan.sockets[1].local_address()]);
}

#[test]
fn full_socket_blocks_only_its_own_connections() {
    let mut edge = event_loop(2);
    let clients = [client(), client()];
    for (n, (_, address)) in clients.iter().enumerate() {
        arrive(&mut edge, n as u16, *address, first_initial(n as u16));
    }
    // On a busy machine the 2 ms of a turn may suffice for the first only.
    while !edge.handshakes.is_empty() {
        edge.take_handshakes();
    }
    let far = edge.now() + Duration::from_secs(100);
    edge.blocked[0] = Some(Blocked::waiting_until(far));
    for handle in core::mem::take(&mut edge.dirty) {
        edge.serve(handle, edge.now());
    }
    assert_eq!(senders(&clients[0].0), []);
    assert_eq!(senders(&clients[1].0), [edge.plan.sockets[1].local_address()]);
    assert!(edge.dirty.is_empty(), "no connection is served without need meanwhile");
    edge.retry_blocked(far);
    for handle in core::mem::take(&mut edge.dirty) {
        edge.serve(handle, edge.now());
    }
    assert_eq!(senders(&clients[0].0), [edge.plan.sockets[0].local_address()]);
    assert!(edge.blocked[0].is_none());
}

#[test]
fn turn_serves_a_bounded_number_of_connections() {
    let mut edge = event_loop(1);
    let (_client, address) = client();
    for n in 0..3 * MAX_SERVED as u16 {
        arrive(&mut edge, 0, address, first_initial(n));
    }
    while !edge.handshakes.is_empty() {
        edge.take_handshakes();
    }
    let mut buffer = ReceiveBuffer::default();
    assert_eq!(edge.dirty.len(), 3 * MAX_SERVED);
    let mut left = edge.dirty.len();
    while left > 0 {
        edge.turn(edge.now(), &mut vec![false, false], &mut buffer);
        assert!(edge.dirty.len() < left && left - edge.dirty.len() <= MAX_SERVED);
        left = edge.dirty.len();
    }
}

/// Returns a loop with a connection in its handshake, and the handshake deadline.
fn in_handshake() -> (EventLoop, Handle, Timestamp) {
    let mut edge = event_loop(1);
    let (_, address) = client();
    arrive(&mut edge, 0, address, first_initial(0));
    edge.take_handshakes();
    let handle = edge.dirty.pop_front().expect("accepted");
    edge.serve(handle, edge.now());
    let at = edge.deadline(handle).expect("the handshake has its time");
    (edge, handle, at)
}

#[test]
fn timers_wait_for_unread_datagrams_within_a_bound() {
    let (mut edge, handle, at) = in_handshake();
    let is_alive =
        |edge: &mut EventLoop| edge.endpoint.connection(handle).expect("known").is_alive();

    edge.is_behind = true;
    // The loop itself was delayed and notices the timer late.
    let late = at + 10 * MAX_TIMER_DELAY;
    edge.fire_timers(late, late);
    assert!(is_alive(&mut edge));
    assert_eq!((edge.counters.timers_postponed, edge.dirty.pop_front()), (1, Some(handle)));
    edge.serve(handle, late);
    assert_eq!(edge.next_deadline(), Some(late + TIMER_RECHECK));
    edge.fire_timers(late + TIMER_RECHECK, late + TIMER_RECHECK);
    assert!(is_alive(&mut edge));
    edge.serve(handle, late + MAX_TIMER_DELAY - TIMER_RECHECK);
    edge.fire_timers(late + MAX_TIMER_DELAY, late + MAX_TIMER_DELAY);
    assert!(!is_alive(&mut edge), "a flood cannot hold it up");
}

#[test]
fn timers_fire_at_once_without_unread_datagrams() {
    let (mut edge, handle, at) = in_handshake();
    edge.fire_timers(at, at);
    assert!(!edge.endpoint.connection(handle).expect("known").is_alive());
    assert_eq!(edge.counters.timers_postponed, 0);
}

#[test]
fn timer_due_during_the_read_waits_for_the_next_turn() {
    let (mut edge, handle, at) = in_handshake();
    let before = at - Duration::from_millis(1);
    edge.fire_timers(before, at);
    assert!(edge.endpoint.connection(handle).expect("known").is_alive());
    assert_eq!(edge.next_deadline(), Some(at));
    edge.fire_timers(at, at);
    assert!(!edge.endpoint.connection(handle).expect("known").is_alive());
}
