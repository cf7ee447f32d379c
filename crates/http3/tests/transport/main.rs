//! HTTP/3 over the real transport, in virtual time, with a client that writes QUIC frames by hand:
//! behaviour that depends on the timing of transport events.

extern crate quic as mendcast_quic;

#[allow(dead_code)]
#[path = "../../../quic/tests/hostile/raw.rs"]
mod raw;
#[path = "../../../quic/tests/common/server.rs"]
mod server;

mod costs;
mod ends;

use std::sync::Arc;
use std::time::Duration;

use http3::{Config, Event, OverQuic, Server};
use mendcast_http3 as http3;
use mendcast_quic::wire::{PacketType, put_stream_header};
use mendcast_quic::{Addresses, Datagram, Endpoint, Event as QuicEvent};
use raw::{Raw, ack, frames, honest, varint};
use units::{Ecn, StreamId};

/// Identifiers of transport parameters (RFC 9000, section 18.2).
const INITIAL_MAX_STREAM_DATA_UNI: u64 = 0x07;
const INITIAL_MAX_STREAMS_UNI: u64 = 0x09;

/// The client's control stream.
const CONTROL: StreamId = StreamId(2);
/// A request by static-table references (RFC 9204, appendix A): GET https://a/.
const GET: [u8; 10] = [0x01, 8, 0, 0, 0xc0 | 17, 0xc0 | 23, 0xc0 | 1, 0x50, 1, b'a'];

/// Returns a STREAM frame.
fn stream(id: StreamId, offset: u64, data: &[u8], fin: bool) -> Vec<u8> {
    frames(|w| {
        put_stream_header(w, id, offset, Some(data.len()), fin);
        w.bytes(data);
    })
}

/// A client and its server.
struct Pair {
    raw: Raw,
    server: Server,
    events: Vec<Event>,
}

impl Pair {
    /// Connects a client that has sent nothing on streams.
    fn silent(config: Config) -> Self {
        let mut parameters = honest();
        parameters.push((INITIAL_MAX_STREAMS_UNI, varint(3)));
        parameters.push((INITIAL_MAX_STREAM_DATA_UNI, varint(1 << 20)));
        let mut provider = rustls::crypto::aws_lc_rs::default_provider();
        provider
            .cipher_suites
            .retain(|suite| suite.suite() == rustls::CipherSuite::TLS13_AES_128_GCM_SHA256);
        let tls = Arc::new(server::client_tls(provider, b"test"));
        let mut raw = Raw::new(Endpoint::new(server::config(), [3; 32]), tls, &parameters);
        raw.connect();
        let mut pair = Self { raw, server: Server::new(config), events: Vec::new() };
        pair.with_server(|server, t| server.start(t));
        pair.serve();
        pair
    }

    /// Connects a client that has sent empty SETTINGS.
    fn new() -> Self {
        let mut pair = Self::silent(Config::default());
        pair.send(&stream(CONTROL, 0, &[0x00, 0x04, 0x00], false));
        pair
    }

    fn with_server<T>(&mut self, act: impl FnOnce(&mut Server, &mut OverQuic<'_>) -> T) -> T {
        let handle = self.raw.handle.expect("a connection");
        let now = self.raw.now;
        let connection = self.raw.server.connection(handle).expect("open");
        act(&mut self.server, &mut OverQuic::new(connection, now))
    }

    /// Passes the transport's events to HTTP/3, and collects the server's output.
    fn serve(&mut self) {
        let handle = self.raw.handle.expect("a connection");
        while let Some(event) = self.raw.server.poll_event(handle) {
            if let QuicEvent::Stream(event) = event {
                self.with_server(|server, t| server.on_stream_event(t, event));
                self.events.extend(core::iter::from_fn(|| self.server.poll_event()));
            }
        }
        self.raw.collect();
    }

    /// Advances the time, and runs the timers of the transport and of HTTP/3.
    fn wait(&mut self, time: Duration) {
        let end = self.raw.now + time;
        let handle = self.raw.handle.expect("a connection");
        for _ in 0..1_000 {
            let connection = self.raw.server.connection(handle).expect("open");
            let due = [connection.deadline(), self.server.deadline()];
            let Some(at) = due.into_iter().flatten().min().filter(|&at| at <= end) else {
                self.raw.now = end;
                return;
            };
            self.raw.now = self.raw.now.max(at);
            self.raw.server.handle_timeout(handle, self.raw.now);
            if self.server.deadline().is_some_and(|at| at <= self.raw.now) {
                self.with_server(|server, t| server.on_timeout(t));
            }
            self.serve();
        }
        panic!("time stands still at {:?}", self.raw.now);
    }

    /// Whether the server sent a packet that contains this frame.
    fn has_received(&self, frame: &[u8]) -> bool {
        let has = |payload: &Vec<u8>| payload.windows(frame.len()).any(|part| part == frame);
        self.raw.received.iter().any(has)
    }

    /// Sends frames in a separate packet.
    fn send_unacked(&mut self, payload: &[u8]) {
        let mut packet = self.raw.packet(PacketType::OneRtt, payload);
        let addresses = Addresses::of(self.raw.address);
        let now = self.raw.now;
        let datagram = Datagram { addresses, ecn: Ecn::NotEct, payload: &mut packet[..] };
        self.raw.server.handle_datagram(now, datagram, &mut Vec::new());
        self.serve();
    }

    /// Sends frames, and acknowledges everything that the server has sent.
    fn send(&mut self, payload: &[u8]) {
        self.send_unacked(payload);
        if let Some(last) = self.raw.largest(PacketType::OneRtt) {
            let numbers = self.raw.numbers(PacketType::OneRtt);
            let run = numbers.iter().rev().zip(0..).take_while(|(n, back)| **n + back == last);
            let first = last + 1 - run.count() as u64;
            self.send_unacked(&ack(first, last));
        }
    }
}
