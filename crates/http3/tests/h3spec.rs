//! The HTTP/3 and QPACK cases of h3spec, a conformance tester for servers, by their names ("HTTP/3"
//! is RFC 9114, "QPACK" RFC 9204), over the real transport. The client writes STREAM frames by
//! hand. h3spec accepts generic error codes; these tests require the specific one.

extern crate quic as mendcast_quic;

#[allow(dead_code, reason = "shared with the tests of the transport")]
#[path = "../../quic/tests/hostile/raw.rs"]
mod raw;
#[path = "../../quic/tests/hostile/rows.rs"]
mod rows;
#[path = "../../quic/tests/common/server.rs"]
mod server;

use std::sync::Arc;

use mendcast_http3::code::*;
use mendcast_http3::{Config, Event, OverQuic, Server};
use mendcast_quic::wire::{Frame, Frames, PacketType, put_stream_header};
use mendcast_quic::{Endpoint, Event as QuicEvent};
use units::StreamId;

use raw::{Raw, frames, honest, varint};
use rows::{Row, conclude, hex};

const NAMES: [(u64, &str); 9] = [
    (H3_STREAM_CREATION_ERROR, "H3_STREAM_CREATION_ERROR"),
    (H3_CLOSED_CRITICAL_STREAM, "H3_CLOSED_CRITICAL_STREAM"),
    (H3_FRAME_UNEXPECTED, "H3_FRAME_UNEXPECTED"),
    (H3_SETTINGS_ERROR, "H3_SETTINGS_ERROR"),
    (H3_MISSING_SETTINGS, "H3_MISSING_SETTINGS"),
    (H3_MESSAGE_ERROR, "H3_MESSAGE_ERROR"),
    (QPACK_DECOMPRESSION_FAILED, "QPACK_DECOMPRESSION_FAILED"),
    (QPACK_ENCODER_STREAM_ERROR, "QPACK_ENCODER_STREAM_ERROR"),
    (QPACK_DECODER_STREAM_ERROR, "QPACK_DECODER_STREAM_ERROR"),
];

/// Transport parameters (RFC 9000, section 18.2).
const INITIAL_MAX_STREAM_DATA_UNI: u64 = 0x07;
const INITIAL_MAX_STREAMS_UNI: u64 = 0x09;

/// The client's first streams.
const REQUEST: StreamId = StreamId(0);
const CONTROL: StreamId = StreamId(2);
const ENCODER: StreamId = StreamId(6);
const DECODER: StreamId = StreamId(10);

/// The violation of an otherwise correct client.
enum Violation {
    /// A request stream with these bytes, then its end.
    Request(&'static [u8]),
    /// A control stream with these frames after its type.
    Control(&'static [u8]),
    /// A QPACK stream with these instructions.
    Encoder(&'static [u8]),
    Decoder(&'static [u8]),
    /// The control stream ends after SETTINGS.
    ControlEnds,
}

use Violation::*;

/// Reaction of the server: a closed connection or a reset request stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reaction {
    Closed(u64),
    Reset(u64),
    Nothing,
}

use Reaction::{Closed, Reset};

/// A case: name, violation, error, and the section that requires it.
type Case = (&'static str, Violation, Reaction, &'static str);

#[rustfmt::skip]
const CASES: [Case; 16] = [
    ("MUST send H3_FRAME_UNEXPECTED if DATA is received before HEADERS [HTTP/3 4.1]",
        Request(b"\x00\x00\x01\x10\x00\x00\xd1\xd7\x50\x09127.0.0.1\xc1"),
        Closed(H3_FRAME_UNEXPECTED), "9114, 4.1"),
    ("MUST send H3_MESSAGE_ERROR if a pseudo-header is duplicated [HTTP/3 4.1.1]",
        Request(b"\x01\x11\x00\x00\xd1\xd7\x50\x09127.0.0.1\xc1\xd1"),
        Reset(H3_MESSAGE_ERROR), "9114, 4.3"),
    ("MUST send H3_MESSAGE_ERROR if mandatory pseudo-header fields are absent [HTTP/3 4.1.3]",
        Request(b"\x01\x05\x00\x00\xd1\xd7\xc1"),
        Reset(H3_MESSAGE_ERROR), "9114, 4.3.1"),
    ("MUST send H3_MESSAGE_ERROR if prohibited pseudo-header fields are present[HTTP/3 4.1.3]",
        Request(b"\x01\x19\x00\x00\xd1\xd7\x50\x09127.0.0.1\xc1\x24:foo\x03bar"),
        Reset(H3_MESSAGE_ERROR), "9114, 4.3"),
    ("MUST send H3_MESSAGE_ERROR if pseudo-header fields exist after fields [HTTP/3 4.1.3]",
        Request(b"\x01\x18\x00\x00\xd1\xd7\x50\x09127.0.0.1\x23foo\x03bar\xc1"),
        Reset(H3_MESSAGE_ERROR), "9114, 4.3"),
    ("MUST send H3_MISSING_SETTINGS if the first control frame is not SETTINGS [HTTP/3 6.2.1]",
        Control(b"\x0d\x01\x01\x04\x00"), Closed(H3_MISSING_SETTINGS), "9114, 6.2.1"),
    ("MUST send H3_FRAME_UNEXPECTED if a DATA frame is received on a control stream [HTTP/3 7.2.1]",
        Control(b"\x04\x00\x00\x00"), Closed(H3_FRAME_UNEXPECTED), "9114, 7.2.1"),
    ("MUST send H3_FRAME_UNEXPECTED if a HEADERS frame is received on a control stream [HTTP/3 7.2.2]",
        Control(b"\x04\x00\x01\x00"), Closed(H3_FRAME_UNEXPECTED), "9114, 7.2.2"),
    ("MUST send H3_FRAME_UNEXPECTED if a second SETTINGS frame is received [HTTP/3 7.2.4]",
        Control(b"\x04\x00\x04\x00"), Closed(H3_FRAME_UNEXPECTED), "9114, 7.2.4"),
    // Present but disabled in h3spec's source: the RFC says MAY.
    ("MUST send H3_SETTINGS_ERROR if duplicate setting identifiers exist [HTTP/3 7.2.4]",
        Control(b"\x04\x0e\x07\x40\x64\x01\x50\x00\x06\x80\x00\x80\x00\x07\x40\x64"),
        Closed(H3_SETTINGS_ERROR), "9114, 7.2.4"),
    ("MUST send H3_SETTINGS_ERROR if HTTP/2 settings are included [HTTP/3 7.2.4.1]",
        Control(b"\x04\x0e\x07\x40\x64\x02\x40\xc8\x01\x50\x00\x06\x80\x00\x80\x00"),
        Closed(H3_SETTINGS_ERROR), "9114, 7.2.4.1"),
    ("MUST send H3_FRAME_UNEXPECTED if CANCEL_PUSH is received in a request stream [HTTP/3 7.2.5]",
        Request(b"\x03\x00\x01\x10\x00\x00\xd1\xd7\x50\x09127.0.0.1\xc1"),
        Closed(H3_FRAME_UNEXPECTED), "9114, 7.2.3"),
    ("MUST send QPACK_DECOMPRESSION_FAILED if an invalid static table index exits in a field line representation [QPACK 3.1]",
        Request(b"\x01\x12\x00\x00\xd1\xd7\x50\x09127.0.0.1\xc1\xff\x24"),
        Closed(QPACK_DECOMPRESSION_FAILED), "9204, 3.1"),
    ("MUST send QPACK_ENCODER_STREAM_ERROR if a new dynamic table capacity value exceeds the limit [QPACK 4.1.3]",
        Encoder(b"\x3f\xe1\xc7\xaf\xa0\x25"), Closed(QPACK_ENCODER_STREAM_ERROR), "9204, 4.3.1"),
    ("MUST send H3_CLOSED_CRITICAL_STREAM if a control stream is closed [QPACK 4.2]",
        ControlEnds, Closed(H3_CLOSED_CRITICAL_STREAM), "9114, 6.2.1"),
    ("MUST send QPACK_DECODER_STREAM_ERROR if Insert Count Increment is 0 [QPACK 4.4.3]",
        Decoder(b"\x00"), Closed(QPACK_DECODER_STREAM_ERROR), "9204, 4.4.3"),
];

/// HEADERS with `:method: GET`, `:scheme: https`, `:authority: 127.0.0.1` and `:path: /` from the
/// static table: a valid request, on which the cases above are based.
const VALID_REQUEST: &[u8] = b"\x01\x10\x00\x00\xd1\xd7\x50\x09127.0.0.1\xc1";

/// A client, and an HTTP/3 server on the other side of its connection.
struct Pair {
    raw: Raw,
    http: Server,
    /// Number of requests delivered to the application.
    requests: usize,
}

impl Pair {
    fn new() -> Self {
        let mut provider = rustls::crypto::aws_lc_rs::default_provider();
        provider
            .cipher_suites
            .retain(|suite| suite.suite() == rustls::CipherSuite::TLS13_AES_128_GCM_SHA256);
        let tls = Arc::new(server::client_tls(provider, b"test"));
        let mut parameters = honest();
        // Allow the server's three streams.
        parameters.push((INITIAL_MAX_STREAM_DATA_UNI, varint(1 << 16)));
        parameters.push((INITIAL_MAX_STREAMS_UNI, varint(10)));
        let mut raw = Raw::new(Endpoint::new(server::config(), [3; 32]), tls, &parameters);
        raw.connect();
        let mut http = Server::new(Config::default());
        let (now, handle) = (raw.now, raw.handle.expect("a connection"));
        let connection = raw.server.connection(handle).expect("open");
        http.start(&mut OverQuic::new(connection, now));
        raw.received.clear();
        Self { raw, http, requests: 0 }
    }

    /// Sends bytes on a stream, and handles them in the server.
    fn send(&mut self, id: StreamId, bytes: &[u8], fin: bool) {
        let payload = frames(|w| {
            put_stream_header(w, id, 0, Some(bytes.len()), fin);
            w.bytes(bytes);
        });
        let mut packet = self.raw.packet(PacketType::OneRtt, &payload);
        self.raw.hand_over(&mut packet, &mut Vec::new());
        let (now, handle) = (self.raw.now, self.raw.handle.expect("a connection"));
        while let Some(event) = self.raw.server.poll_event(handle) {
            let QuicEvent::Stream(event) = event else { continue };
            let connection = self.raw.server.connection(handle).expect("open");
            self.http.on_stream_event(&mut OverQuic::new(connection, now), event);
        }
        while let Some(event) = self.http.poll_event() {
            self.requests += usize::from(matches!(event, Event::Request { .. }));
        }
        self.raw.collect();
    }

    /// Returns the server's reaction; a closed connection takes precedence.
    fn reaction(&self) -> Reaction {
        let mut reaction = Reaction::Nothing;
        for payload in &self.raw.received {
            for frame in Frames::new(payload) {
                match frame.expect("the server's frames are well formed") {
                    Frame::ApplicationClose { error_code, .. } => return Closed(error_code),
                    Frame::ResetStream { id: REQUEST, error_code, .. } => {
                        reaction = Reset(error_code)
                    }
                    _ => {}
                }
            }
        }
        reaction
    }
}

/// Runs a client with empty SETTINGS and QPACK streams, then the violation.
fn run(deed: &Violation) -> Pair {
    const SETTINGS: &[u8] = b"\x00\x04\x00";
    let mut pair = Pair::new();
    let (mut control, mut encoder, mut decoder) = (SETTINGS.to_vec(), vec![0x02], vec![0x03]);
    match deed {
        Control(frames) => control = [&[0x00], *frames].concat(),
        Encoder(instructions) => encoder.extend(*instructions),
        Decoder(instructions) => decoder.extend(*instructions),
        Request(_) | ControlEnds => {}
    }
    pair.send(CONTROL, &control, matches!(deed, ControlEnds));
    for (id, bytes) in [(ENCODER, encoder), (DECODER, decoder)] {
        if pair.reaction() == Reaction::Nothing {
            pair.send(id, &bytes, false);
        }
    }
    if let Request(bytes) = deed {
        pair.send(REQUEST, bytes, true);
    }
    pair
}

fn name_of(code: u64) -> String {
    let known = NAMES.iter().find(|(number, _)| *number == code);
    known.map_or_else(|| format!("{code:#x}"), |(_, name)| (*name).to_owned())
}

fn shown(reaction: Reaction) -> String {
    match reaction {
        Closed(code) => format!("connection: {}", name_of(code)),
        Reset(code) => format!("stream: {}", name_of(code)),
        Reaction::Nothing => "no error".to_owned(),
    }
}

fn sent(deed: &Violation) -> String {
    match deed {
        Request(bytes) => format!("request stream: {}", hex(bytes)),
        Control(frames) => format!("control stream: {}", hex(frames)),
        Encoder(instructions) => format!("encoder stream: {}", hex(instructions)),
        Decoder(instructions) => format!("decoder stream: {}", hex(instructions)),
        ControlEnds => "control stream: 0400, then FIN".to_owned(),
    }
}

#[test]
fn a_valid_request_reaches_the_application() {
    let pair = run(&Request(VALID_REQUEST));
    assert!(pair.reaction() == Reaction::Nothing, "{}", shown(pair.reaction()));
    assert_eq!(pair.requests, 1);
}

#[test]
fn h3spec_every_http_3_case_ends_with_its_error() {
    let rows = CASES.iter().map(|(name, deed, expected, section)| {
        let pair = run(deed);
        let got = pair.reaction();
        Row {
            name,
            sent: sent(deed),
            expected: format!("{} (RFC {section})", shown(*expected)),
            got: shown(got),
            // Malformed requests are not delivered.
            good: got == *expected && pair.requests == 0,
        }
    });
    conclude("h3spec-http3.tsv", &rows.collect::<Vec<_>>());
}
