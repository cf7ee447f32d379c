//! A loop by itself, driven by hand.

use std::net::SocketAddr;

use ::quic::Addresses;
use units::Ecn;

use super::*;
use crate::config::Config;
use crate::io::socket::Buffers;
use crate::quic::mailbox::mailbox;
use crate::server::Edge;

/// A loop with sockets of its own; the rest of the edge does not run.
fn event_loop(sockets: usize) -> EventLoop {
    let mut config = Config::default();
    config.server.listen = vec![([127, 0, 0, 1], 0).into()];
    config.admin.listen = Some(([127, 0, 0, 1], 0).into());
    let edge = Edge::open(config).expect("opened");
    let (sender, mailbox) = mailbox().expect("made");
    let buffers = Buffers { receive: 1 << 20, send: 1 << 20 };
    let bind = || UdpSocket::bind(([127, 0, 0, 1], 0).into(), false, buffers).expect("bound");
    EventLoop::new(Plan {
        core: 0,
        seed: [7; 32],
        sockets: (0..sockets).map(|_| bind()).collect(),
        shared: edge.shared().clone(),
        mailbox,
        others: vec![sender],
        log: None,
        draining: Arc::default(),
        pulse: Arc::new(Pulse::new()),
    })
}

/// A datagram of an unknown version, which is answered by Version Negotiation.
fn unknown_version() -> Vec<u8> {
    let mut datagram = vec![0; 1_200];
    datagram[..7].copy_from_slice(&[0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8, 1]);
    datagram[14] = 8;
    datagram
}

#[test]
fn a_port_that_reflects_gets_no_answer_and_port_0_none_at_all() {
    let mut edge = event_loop(1);
    let now = edge.now();
    let mut deliver = |port, mut datagram: Vec<u8>| {
        let remote = SocketAddr::from(([127, 0, 0, 1], port));
        let addresses = Addresses { remote, local: None };
        edge.deliver(now, 0, addresses, Ecn::NotEct, &mut datagram);
        (edge.endpoint.stats().version_negotiations, edge.counters)
    };
    for port in [53, 11_211] {
        deliver(port, unknown_version());
    }
    let (answers, counters) = deliver(0, unknown_version());
    assert_eq!((answers, counters.from_reflectors, counters.from_port_0), (0, 2, 1));
    let (answers, counters) = deliver(50_000, unknown_version());
    assert_eq!((answers, counters.from_reflectors, counters.from_port_0), (1, 2, 1));
}
