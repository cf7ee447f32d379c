//! The QUIC cases of h3spec, a conformance tester for servers, by their names (RFC 9000 is
//! "Transport" in them, RFC 9001 "TLS"). h3spec lets a server answer with a generic code instead
//! (RFC 9000, section 11); here it has to be the specific one.

use mendcast_quic::wire::{PacketType, put_crypto};

use crate::raw::{Raw, frames, honest, id, varint};
use crate::rows::{Row, conclude, hex};
use crate::{client, client_tls, connected, endpoint};

const NAMES: [(u64, &str); 9] = [
    (0x03, "FLOW_CONTROL_ERROR"),
    (0x04, "STREAM_LIMIT_ERROR"),
    (0x05, "STREAM_STATE_ERROR"),
    (0x07, "FRAME_ENCODING_ERROR"),
    (0x08, "TRANSPORT_PARAMETER_ERROR"),
    (0x0a, "PROTOCOL_VIOLATION"),
    (0x10a, "CRYPTO_ERROR unexpected_message"),
    (0x16d, "CRYPTO_ERROR missing_extension"),
    (0x178, "CRYPTO_ERROR no_application_protocol"),
];
const FLOW_CONTROL: u64 = 0x03;
const STREAM_LIMIT: u64 = 0x04;
const STREAM_STATE: u64 = 0x05;
const FRAME_ENCODING: u64 = 0x07;
const PARAMETER: u64 = 0x08;
const VIOLATION: u64 = 0x0a;
const UNEXPECTED_MESSAGE: u64 = 0x10a;
const MISSING_EXTENSION: u64 = 0x16d;
const NO_APPLICATION_PROTOCOL: u64 = 0x178;

/// Deviation of the client from an honest one.
enum Deviation {
    /// A 1-RTT packet with this payload.
    Payload(&'static [u8]),
    /// A NEW_CONNECTION_ID frame: sequence number, Retire Prior To, ID.
    NewConnectionId(u8, u8, &'static [u8]),
    /// A Handshake packet with this payload.
    HandshakePayload(&'static [u8]),
    /// A packet with a PING and these bits flipped in its first byte.
    Flip(PacketType, u8),
    /// Transport parameters without this one.
    Without(u64),
    /// Transport parameters with this one, with an integer or bytes as its value.
    Integer(u64, u64),
    Bytes(u64, &'static [u8]),
    /// Handshake messages before and after the client's Finished.
    AroundFinished(&'static [u8], &'static [u8]),
    /// Handshake data in a 1-RTT packet.
    Crypto(&'static [u8]),
    /// Handshake data in a 0-RTT packet.
    EarlyCrypto(&'static [u8]),
    /// An application protocol that the server does not speak.
    Protocol(&'static [u8]),
    /// A ClientHello with this number instead of 0x39 for the transport parameters extension, or
    /// without the extension.
    ParametersAs(Option<[u8; 2]>),
}

use Deviation::*;

/// A case: name, deviation, expected error, and the section that prescribes it.
type Case = (&'static str, Deviation, u64, &'static str);

const GET: &[u8] = b"\x0f\x00\x85\xf5\xe1\x00\x07GET /\r\n";
const GET_1000000000: &[u8] = b"\x0b\xbb\x9a\xca\x00\x07GET /\r\n";
const ABOVE_2_60: &[u8] = b"\xd0\x00\x00\x00\x00\x00\x00\x01";
const KEY_UPDATE: &[u8] = b"\x18\x00\x00\x01\x01";

#[rustfmt::skip]
const CASES: [Case; 34] = [
    ("MUST send FLOW_CONTROL_ERROR if a STREAM frame with a large offset is received [Transport 4.1]",
        Payload(GET), FLOW_CONTROL, "9000, 4.1"),
    ("MUST send STREAM_LIMIT_ERROR if a stream ID exceeding the limit",
        Payload(GET_1000000000), STREAM_LIMIT, "9000, 4.6"),
    ("MUST send TRANSPORT_PARAMETER_ERROR if initial_source_connection_id is missing [Transport 7.3]",
        Without(id::INITIAL_SOURCE_CONNECTION_ID), PARAMETER, "9000, 7.3"),
    ("MUST send TRANSPORT_PARAMETER_ERROR if original_destination_connection_id is received [Transport 18.2]",
        Bytes(id::ORIGINAL_DESTINATION_CONNECTION_ID, b"DUMMY"), PARAMETER, "9000, 18.2"),
    ("MUST send TRANSPORT_PARAMETER_ERROR if preferred_address, is received [Transport 18.2]",
        Bytes(id::PREFERRED_ADDRESS, &[1; 49]), PARAMETER, "9000, 18.2"),
    ("MUST send TRANSPORT_PARAMETER_ERROR if retry_source_connection_id is received [Transport 18.2]",
        Bytes(id::RETRY_SOURCE_CONNECTION_ID, b"DUMMY"), PARAMETER, "9000, 18.2"),
    ("MUST send TRANSPORT_PARAMETER_ERROR if stateless_reset_token is received [Transport 18.2]",
        Bytes(id::STATELESS_RESET_TOKEN, &[1; 16]), PARAMETER, "9000, 18.2"),
    ("MUST send TRANSPORT_PARAMETER_ERROR if max_udp_payload_size < 1200 [Transport 7.4 and 18.2]",
        Integer(id::MAX_UDP_PAYLOAD_SIZE, 1_090), PARAMETER, "9000, 7.4"),
    ("MUST send TRANSPORT_PARAMETER_ERROR if ack_delay_exponen > 20 [Transport 7.4 and 18.2]",
        Integer(id::ACK_DELAY_EXPONENT, 30), PARAMETER, "9000, 7.4"),
    ("MUST send TRANSPORT_PARAMETER_ERROR if max_ack_delay >= 2^14 [Transport 7.4 and 18.2]",
        Integer(id::MAX_ACK_DELAY, 1 << 15), PARAMETER, "9000, 7.4"),
    ("MUST send FRAME_ENCODING_ERROR if a frame of unknown type is received [Transport 12.4]",
        Payload(b"\x20"), FRAME_ENCODING, "9000, 12.4"),
    ("MUST send PROTOCOL_VIOLATION on no frames [Transport 12.4]",
        Payload(b""), VIOLATION, "9000, 12.4"),
    ("MUST send PROTOCOL_VIOLATION if reserved bits in Handshake are non-zero [Transport 17.2]",
        Flip(PacketType::Handshake, 0x08), VIOLATION, "9000, 17.2"),
    ("MUST send PROTOCOL_VIOLATION if PATH_CHALLENGE in Handshake is received [Transport 17.2.4]",
        HandshakePayload(b"\x1a01234567"), VIOLATION, "9000, 17.2.4"),
    ("MUST send PROTOCOL_VIOLATION if reserved bits in Short are non-zero [Transport 17.2]",
        Flip(PacketType::OneRtt, 0x08), VIOLATION, "9000, 17.3.1"),
    ("MUST send STREAM_STATE_ERROR if RESET_STREAM is received for a send-only stream [Transport 19.4]",
        Payload(b"\x04\x03\x00\x00"), STREAM_STATE, "9000, 19.4"),
    ("MUST send STREAM_STATE_ERROR if STOP_SENDING is received for a non-existing stream [Transport 19.5]",
        Payload(b"\x05\x40\x65\x00"), STREAM_STATE, "9000, 19.5"),
    ("MUST send PROTOCOL_VIOLATION if NEW_TOKEN is received [Transport 19.7]",
        Payload(b"\x07\x05DUMMY"), VIOLATION, "9000, 19.7"),
    ("MUST send STREAM_STATE_ERROR if it receives a STREAM frame for a locally-initiated stream that has not yet been created [Transport 19.8]",
        Payload(b"\x0a\x01\x00"), STREAM_STATE, "9000, 19.8"),
    ("MUST send STREAM_STATE_ERROR if it receives a STREAM frame for a send-only stream [Transport 19.8]",
        Payload(b"\x0a\x03\x00"), STREAM_STATE, "9000, 19.8"),
    ("MUST send STREAM_STATE_ERROR if MAX_STREAM_DATA is received for a stream that has not yet been created [Transport 19.10]",
        Payload(b"\x11\x40\x65\x80\x0f\x42\x40"), STREAM_STATE, "9000, 19.10"),
    ("MUST send STREAM_STATE_ERROR if MAX_STREAM_DATA is received for a receive-only stream [Transport 19.10]",
        Payload(b"\x11\x02\x80\x0f\x42\x40"), STREAM_STATE, "9000, 19.10"),
    ("MUST send FRAME_ENCODING_ERROR if invalid MAX_STREAMS is received [Transport 19.11]",
        Payload(&prefixed(0x12)), FRAME_ENCODING, "9000, 19.11"),
    ("MUST send STREAM_LIMIT_ERROR or FRAME_ENCODING_ERROR if invalid STREAMS_BLOCKED is received [Transport 19.14]",
        Payload(&prefixed(0x16)), FRAME_ENCODING, "9000, 19.14"),
    ("MUST send FRAME_ENCODING_ERROR if NEW_CONNECTION_ID with invalid Retire_Prior_To is received [Transport 19.15]",
        NewConnectionId(1, 11, &[5; 8]), FRAME_ENCODING, "9000, 19.15"),
    ("MUST send FRAME_ENCODING_ERROR if NEW_CONNECTION_ID with 0-byte CID is received [Transport 19.15]",
        NewConnectionId(1, 0, &[]), FRAME_ENCODING, "9000, 19.15"),
    ("MUST send PROTOCOL_VIOLATION if HANDSHAKE_DONE is received [Transport 19.20]",
        Payload(b"\x1e"), VIOLATION, "9000, 19.20"),
    ("MUST send unexpected_message TLS alert if KeyUpdate in Handshake is received [TLS 6]",
        AroundFinished(b"", KEY_UPDATE), UNEXPECTED_MESSAGE, "9001, 6"),
    ("MUST send unexpected_message TLS alert if KeyUpdate in 1-RTT is received [TLS 6]",
        Crypto(KEY_UPDATE), UNEXPECTED_MESSAGE, "9001, 6"),
    ("MUST send no_application_protocol TLS alert if no application protocols are supported [TLS 8.1]",
        Protocol(b"dummy"), NO_APPLICATION_PROTOCOL, "9001, 8.1"),
    ("MUST send missing_extension TLS alert if the quic_transport_parameters extension does not included [TLS 8.2]",
        ParametersAs(None), MISSING_EXTENSION, "9001, 8.2"),
    ("MUST send missing_extension TLS alert if the quic_transport_parameters extension does not included [TLS 8.2]",
        ParametersAs(Some([0xff, 0xa5])), MISSING_EXTENSION, "9001, 8.2"),
    ("MUST send unexpected_message TLS alert if EndOfEarlyData is received [TLS 8.3]",
        AroundFinished(b"\x05\x00\x00\x00", b""), UNEXPECTED_MESSAGE, "9001, 8.3"),
    ("MUST send PROTOCOL_VIOLATION if CRYPTO in 0-RTT is received [TLS 8.3]",
        EarlyCrypto(b"\x08\x00\x00\x02\x00\x00"), VIOLATION, "9001, 8.3"),
];

/// Known deviations of the server, by case, with reasons. Remove a case once it conforms.
const DEVIATIONS: [(&str, &str); 0] = [];

/// A frame of this type that says 2^60 + 1.
const fn prefixed(frame_type: u8) -> [u8; 9] {
    let mut frame = [0; 9];
    frame[0] = frame_type;
    let mut at = 0;
    while at < 8 {
        frame[at + 1] = ABOVE_2_60[at];
        at += 1;
    }
    frame
}

/// Does it, and gives the client that did it.
fn run(deviation: &Deviation) -> Raw {
    let with_parameter = |id: u64, value: Option<Vec<u8>>| {
        let mut parameters = honest();
        parameters.retain(|(other, _)| *other != id);
        parameters.extend(value.map(|value| (id, value)));
        let mut raw = client(&parameters);
        raw.handshake();
        raw
    };
    match *deviation {
        Payload(payload) => one_rtt(payload),
        NewConnectionId(..) => one_rtt(&new_connection_id(deviation)),
        HandshakePayload(payload) => {
            let mut raw = begun();
            raw.send(PacketType::Handshake, payload);
            raw
        }
        Flip(ty, bits) => {
            let mut raw = if ty == PacketType::OneRtt { connected() } else { begun() };
            raw.flip = bits;
            raw.send(ty, &[0x01]);
            raw
        }
        Without(id) => with_parameter(id, None),
        Integer(id, value) => with_parameter(id, Some(varint(value))),
        Bytes(id, value) => with_parameter(id, Some(value.to_vec())),
        AroundFinished(before, behind) => {
            let mut raw = begun();
            let finished = raw.hello();
            raw.send_crypto(PacketType::Handshake, &[before, &finished, behind].concat());
            raw
        }
        Crypto(data) => {
            let mut raw = connected();
            raw.send_crypto(PacketType::OneRtt, data);
            raw
        }
        EarlyCrypto(data) => {
            let tls = client_tls(b"test");
            let mut first = Raw::new(endpoint(), tls.clone(), &honest());
            first.connect();
            let handle = first.handle.expect("a connection");
            first.server.remove(handle);
            let mut raw = Raw::new(first.server, tls, &honest());
            let hello = raw.hello();
            assert!(raw.take_early_keys(), "the first connection left a ticket");
            raw.send_crypto(PacketType::Initial, &hello);
            raw.send(PacketType::ZeroRtt, &frames(|w| put_crypto(w, 0, data)));
            raw
        }
        Protocol(name) => {
            let mut raw = Raw::new(endpoint(), client_tls(name), &honest());
            raw.handshake();
            raw
        }
        ParametersAs(number) => {
            let hello = hello_with_parameters_as(number);
            let mut raw = Raw::without_tls(endpoint());
            raw.send_crypto(PacketType::Initial, &hello);
            raw
        }
    }
}

fn one_rtt(payload: &[u8]) -> Raw {
    let mut raw = connected();
    raw.send(PacketType::OneRtt, payload);
    raw
}

/// A client that can send Handshake packets and has not finished.
fn begun() -> Raw {
    let mut raw = client(&honest());
    let hello = raw.hello();
    raw.send_crypto(PacketType::Initial, &hello);
    raw
}

fn new_connection_id(deviation: &Deviation) -> Vec<u8> {
    let &NewConnectionId(sequence, retire, id) = deviation else {
        unreachable!("another deviation")
    };
    [&[0x18, sequence, retire, id.len() as u8], id, &[9; 16]].concat()
}

/// A ClientHello (RFC 8446, section 4.1.2) with another number for extension 0x39, or without it.
fn hello_with_parameters_as(number: Option<[u8; 2]>) -> Vec<u8> {
    let hello = client(&honest()).hello();
    let length = |at: usize| usize::from(u16::from_be_bytes([hello[at], hello[at + 1]]));
    // Type and length, version, random; then session ID, cipher suites, compression methods.
    let mut at = 4 + 2 + 32;
    at += 1 + usize::from(hello[at]);
    at += 2 + length(at);
    at += 1 + usize::from(hello[at]);
    let mut extensions = Vec::new();
    let mut found = false;
    let all = at + 2;
    let mut next = all;
    while next < hello.len() {
        let end = next + 4 + length(next + 2);
        let extension = &hello[next..end];
        if extension[..2] == [0x00, 0x39] {
            found = true;
            extensions.extend(number.into_iter().flatten());
            if number.is_some() {
                extensions.extend(&extension[2..]);
            }
        } else {
            extensions.extend(extension);
        }
        next = end;
    }
    assert!(found, "a hello of QUIC has transport parameters");
    let extensions_length = (extensions.len() as u16).to_be_bytes();
    let body = [&hello[4..at], &extensions_length, &extensions].concat();
    let body_length = &(body.len() as u32).to_be_bytes()[1..];
    [&hello[..1], body_length, &body].concat()
}

/// Describes a deviation for a table.
fn told(deviation: &Deviation) -> String {
    let or_nothing =
        |bytes: &[u8]| if bytes.is_empty() { "nothing".to_owned() } else { hex(bytes) };
    match *deviation {
        Payload(payload) => format!("1-RTT: {}", or_nothing(payload)),
        NewConnectionId(..) => format!("1-RTT: {}", hex(&new_connection_id(deviation))),
        HandshakePayload(payload) => format!("Handshake: {}", hex(payload)),
        Flip(ty, bits) => {
            let ty = if ty == PacketType::OneRtt { "1-RTT" } else { "Handshake" };
            format!("{ty}: PING, bits {bits:02x} of the first byte flipped")
        }
        Without(id) => format!("parameter {id:02x} left out"),
        Integer(id, value) => format!("parameter {id:02x} = {value}"),
        Bytes(id, value) => format!("parameter {id:02x} = {}", hex(value)),
        AroundFinished(before, behind) => {
            let part = |bytes: &[u8], place: &str| {
                (!bytes.is_empty()).then(|| format!("{} {place} Finished", hex(bytes)))
            };
            let parts = [part(before, "before"), part(behind, "behind")].into_iter().flatten();
            format!("Handshake CRYPTO: {}", parts.collect::<Vec<_>>().join(", "))
        }
        Crypto(data) => format!("1-RTT CRYPTO: {}", hex(data)),
        EarlyCrypto(data) => format!("0-RTT CRYPTO: {}", hex(data)),
        Protocol(name) => format!("ALPN {}", String::from_utf8_lossy(name)),
        ParametersAs(None) => "ClientHello without extension 0039".to_owned(),
        ParametersAs(Some(number)) => {
            format!("ClientHello with extension {} instead of 0039", hex(&number))
        }
    }
}

fn name_of(code: u64) -> String {
    let known = NAMES.iter().find(|(number, _)| *number == code);
    known.map_or_else(|| format!("{code:#x}"), |(_, name)| (*name).to_owned())
}

#[test]
fn h3spec_every_quic_case_ends_with_its_error() {
    let rows = CASES.iter().map(|(name, deviation, code, section)| {
        let (got, sent) = (run(deviation).code(), told(deviation));
        let answer = got.map_or_else(|| "no error".to_owned(), name_of);
        let known = DEVIATIONS.iter().find(|(sending, _)| *sending == sent);
        Row {
            name,
            sent,
            expected: format!("{} (RFC {section})", name_of(*code)),
            got: known.map_or_else(|| answer.clone(), |(_, why)| format!("{answer}: {why}")),
            good: (got == Some(*code)) != known.is_some(),
        }
    });
    conclude("h3spec-quic.tsv", &rows.collect::<Vec<_>>());
}
