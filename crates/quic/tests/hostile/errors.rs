//! Each broken rule has its error code (RFC 9000, section 20.1; RFC 9001, section 4.8). Complements
//! the cases of `h3spec`.

use mendcast_quic::wire::ConnectionId;
use mendcast_quic::wire::{
    PacketType, Writer, put_crypto, put_handshake_done, put_max_stream_data, put_new_connection_id,
    put_new_token, put_path_challenge, put_ping, put_reset_stream, put_retire_connection_id,
    put_stop_sending, put_stream_data_blocked, put_stream_header,
};
use units::StreamId;

use crate::raw::{Parameters, Raw, SCID, frames, honest, id, varint};
use crate::{client, client_tls, connected, endpoint};

const FLOW_CONTROL_ERROR: u64 = 0x03;
const STREAM_LIMIT_ERROR: u64 = 0x04;
const STREAM_STATE_ERROR: u64 = 0x05;
const FINAL_SIZE_ERROR: u64 = 0x06;
const FRAME_ENCODING_ERROR: u64 = 0x07;
const TRANSPORT_PARAMETER_ERROR: u64 = 0x08;
const CONNECTION_ID_LIMIT_ERROR: u64 = 0x09;
const PROTOCOL_VIOLATION: u64 = 0x0a;
const CRYPTO_BUFFER_EXCEEDED: u64 = 0x0d;
/// An alert of TLS, on 0x100.
const UNEXPECTED_MESSAGE: u64 = 0x10a;

/// A client-initiated bidirectional, a client-initiated and a server-initiated unidirectional
/// stream.
const BIDI: StreamId = StreamId(0);
const OURS: StreamId = StreamId(2);
const SERVERS: StreamId = StreamId(3);

fn stream(w: &mut Writer<'_>, id: StreamId, offset: u64, data: &[u8], fin: bool) {
    put_stream_header(w, id, offset, Some(data.len()), fin);
    w.bytes(data);
}

/// The code after frames in a 1-RTT packet, each group in a packet of its own.
#[track_caller]
fn expect(code: u64, packets: &[Vec<u8>]) {
    let mut raw = connected();
    for payload in packets {
        assert_eq!(raw.close, None, "closed too early");
        raw.send(PacketType::OneRtt, payload);
    }
    assert_eq!(raw.code(), Some(code), "{:?}", raw.close);
}

#[track_caller]
fn expect_one(code: u64, write: impl FnOnce(&mut Writer<'_>)) {
    expect(code, &[frames(write)]);
}

#[test]
fn an_honest_client_is_served() {
    let mut raw = connected();
    raw.send(PacketType::OneRtt, &frames(|w| stream(w, BIDI, 0, b"GET", true)));
    assert_eq!(raw.close, None);
    assert!(raw.server_events.iter().any(|event| event.contains("Readable")));
}

#[track_caller]
fn expect_for_parameters(change: impl FnOnce(&mut Parameters)) {
    let mut parameters = honest();
    change(&mut parameters);
    let mut raw = client(&parameters);
    raw.handshake();
    assert_eq!(raw.code(), Some(TRANSPORT_PARAMETER_ERROR), "{:?}", raw.close);
}

#[test]
fn transport_parameters_that_break_section_7_or_18_2() {
    // Section 7.3: initial_source_connection_id differs from the packets' source ID.
    expect_for_parameters(|p| {
        p.retain(|(id, _)| *id != id::INITIAL_SOURCE_CONNECTION_ID);
        p.push((id::INITIAL_SOURCE_CONNECTION_ID, [&SCID[1..], &[0]].concat()));
    });
    // Section 18.2: the first values out of range.
    expect_for_parameters(|p| p.push((id::MAX_UDP_PAYLOAD_SIZE, varint(1_199))));
    expect_for_parameters(|p| p.push((id::ACK_DELAY_EXPONENT, varint(21))));
    expect_for_parameters(|p| p.push((id::MAX_ACK_DELAY, varint(1 << 14))));
    expect_for_parameters(|p| p.push((id::ACTIVE_CONNECTION_ID_LIMIT, varint(1))));
    expect_for_parameters(|p| p.push((id::INITIAL_MAX_STREAMS_BIDI, varint((1 << 60) + 1))));
    // Section 7.4: a duplicate; and a value that is cut short.
    expect_for_parameters(|p| p.push((id::INITIAL_MAX_DATA, varint(1))));
    expect_for_parameters(|p| p.push((id::MAX_ACK_DELAY, vec![0x40])));
}

#[test]
fn frames_that_cannot_be_read() {
    // Section 12.4: an unknown type is a FRAME_ENCODING_ERROR, a type in too many bytes a
    // PROTOCOL_VIOLATION.
    expect_one(FRAME_ENCODING_ERROR, |w| w.varint(0x3fff_ffff));
    expect_one(PROTOCOL_VIOLATION, |w| w.bytes(&[0x40, 0x01]));
    // STREAM beyond 2^62 - 1 (section 19.8).
    expect_one(FRAME_ENCODING_ERROR, |w| stream(w, BIDI, (1 << 62) - 1, b"ab", false));
    // Cut short.
    expect_one(FRAME_ENCODING_ERROR, |w| w.bytes(&[0x04, 0x00]));
    // MAX_STREAMS and STREAMS_BLOCKED above 2^60 (sections 19.11 and 19.14).
    for ty in [0x13, 0x17] {
        expect_one(FRAME_ENCODING_ERROR, |w| {
            w.varint(ty);
            w.varint((1 << 60) + 1);
        });
    }
}

#[test]
fn new_connection_ids_that_break_section_19_15() {
    let new = |sequence: u64, retire: u64, id: &[u8]| {
        let mut frame = vec![0x18];
        frame.extend(varint(sequence));
        frame.extend(varint(retire));
        frame.push(id.len() as u8);
        frame.extend(id);
        frame.extend([9; 16]);
        frame
    };
    expect(FRAME_ENCODING_ERROR, &[new(1, 0, &[1; 21])]);
    // The same ID under two numbers, or two IDs under one number.
    expect(PROTOCOL_VIOLATION, &[new(1, 0, &[1; 8]), new(2, 0, &[1; 8])]);
    expect(PROTOCOL_VIOLATION, &[new(1, 0, &[1; 8]), new(1, 0, &[2; 8])]);
    // More than active_connection_id_limit (section 5.1.1).
    let many: Vec<u8> = (1..40).flat_map(|n| new(n, 0, &[n as u8; 8])).collect();
    expect(CONNECTION_ID_LIMIT_ERROR, &[many]);
    // Section 19.16: RETIRE_CONNECTION_ID of a number that was never issued, or of the ID that
    // carries it.
    expect_one(PROTOCOL_VIOLATION, |w| put_retire_connection_id(w, 1_000));
    expect_one(PROTOCOL_VIOLATION, |w| put_retire_connection_id(w, 0));
    // A well-formed one is fine.
    let mut raw = connected();
    raw.send(
        PacketType::OneRtt,
        &frames(|w| {
            let id = ConnectionId::new(&[5; 8]).expect("an ID");
            put_new_connection_id(w, 1, 0, &id, &[1; 16]);
        }),
    );
    assert_eq!(raw.close, None);
}

#[test]
fn frames_in_packets_that_may_not_carry_them() {
    // Section 12.4, table 3.
    for write in [
        (|w: &mut Writer<'_>| put_path_challenge(w, [1; 8])) as fn(&mut Writer<'_>),
        |w| stream(w, BIDI, 0, b"x", false),
        |w| put_new_token(w, b"token"),
        |w| put_max_stream_data(w, BIDI, 1),
        |w| w.bytes(&[0x1d, 0, 0]),
        put_handshake_done,
    ] {
        for ty in [PacketType::Initial, PacketType::Handshake] {
            let mut raw = client(&honest());
            start(&mut raw);
            raw.send(ty, &frames(write));
            assert_eq!(raw.code(), Some(PROTOCOL_VIOLATION), "{ty:?}: {:?}", raw.close);
        }
    }
}

/// Advances the handshake until packets of this type can be sent, without finishing it.
fn start(raw: &mut Raw) {
    let hello = raw.hello();
    raw.send_crypto(PacketType::Initial, &hello);
}

#[test]
fn reserved_bits_that_are_set() {
    // Section 17.2 and 17.3.1: "MUST treat receipt of a packet that has a non-zero value for these
    // bits after removing both packet and header protection as a connection error".
    for (ty, bit) in
        [(PacketType::Initial, 0x04), (PacketType::Initial, 0x08), (PacketType::Handshake, 0x04)]
    {
        let mut raw = client(&honest());
        start(&mut raw);
        raw.flip = bit;
        raw.send(ty, &frames(put_ping));
        assert_eq!(raw.code(), Some(PROTOCOL_VIOLATION), "{ty:?}: {:?}", raw.close);
    }
    let mut raw = connected();
    raw.flip = 0x10;
    raw.send(PacketType::OneRtt, &frames(put_ping));
    assert_eq!(raw.code(), Some(PROTOCOL_VIOLATION), "{:?}", raw.close);
}

#[test]
fn stream_frames_on_streams_that_do_not_take_them() {
    // Section 19.5 and 19.13: a receive-only and a send-only stream.
    expect_one(STREAM_STATE_ERROR, |w| put_stop_sending(w, OURS, 0));
    expect_one(STREAM_STATE_ERROR, |w| put_stream_data_blocked(w, SERVERS, 0));
    // Section 19.5 and 19.10: unidirectional streams of the server that it never opened.
    expect_one(STREAM_STATE_ERROR, |w| put_stop_sending(w, SERVERS, 0));
    expect_one(STREAM_STATE_ERROR, |w| put_max_stream_data(w, SERVERS, 1));
    // Section 19.4: a bidirectional one.
    expect_one(STREAM_STATE_ERROR, |w| put_reset_stream(w, StreamId(1), 0, 0));
    // Section 4.6: more streams than allowed.
    expect_one(STREAM_LIMIT_ERROR, |w| stream(w, StreamId(4 * 100), 0, b"x", false));
    expect_one(STREAM_LIMIT_ERROR, |w| put_reset_stream(w, StreamId(4 * 8 + 2), 0, 0));
}

#[test]
fn flow_control_and_final_sizes() {
    // Section 4.1, of a stream (64 KiB) and of the connection (128 KiB).
    expect_one(FLOW_CONTROL_ERROR, |w| stream(w, BIDI, (64 << 10) - 1, b"ab", false));
    let near = |id| frames(|w| stream(w, id, (64 << 10) - 2, b"ab", false));
    expect(FLOW_CONTROL_ERROR, &[near(StreamId(0)), near(StreamId(4)), near(StreamId(8))]);
    expect_one(FLOW_CONTROL_ERROR, |w| put_reset_stream(w, BIDI, 0, 1 << 20));
    // Section 4.5.
    let fin = |offset, data: &'static [u8]| frames(|w| stream(w, BIDI, offset, data, true));
    expect(FINAL_SIZE_ERROR, &[fin(0, b"abc"), fin(0, b"ab")]);
    expect(FINAL_SIZE_ERROR, &[fin(0, b"abc"), fin(3, b"d")]);
    expect(FINAL_SIZE_ERROR, &[fin(0, b"a"), frames(|w| put_reset_stream(w, BIDI, 0, 5))]);
    let data = frames(|w| stream(w, BIDI, 10, b"0123456789", false));
    expect(FINAL_SIZE_ERROR, &[data, fin(0, b"a")]);
}

#[test]
fn acknowledgements_of_what_was_not_sent() {
    // Section 13.1.
    let ack = |largest: u64| {
        let mut frame = vec![0x02];
        frame.extend([varint(largest), varint(0), varint(0), varint(0)].concat());
        frame
    };
    expect(PROTOCOL_VIOLATION, &[ack(1_000)]);
    // Section 19.3.1: a range below 0.
    let mut below = vec![0x02];
    below.extend([varint(0), varint(0), varint(0), varint(5)].concat());
    expect(FRAME_ENCODING_ERROR, &[below]);
}

#[test]
fn handshake_messages_at_times_that_quic_does_not_know() {
    // RFC 9001, section 6: a TLS KeyUpdate (24) is an unexpected_message, also before the Finished;
    // section 8.3: so is EndOfEarlyData (5), also after it.
    let mut raw = client(&honest());
    start(&mut raw);
    raw.send_crypto(PacketType::Handshake, &[24, 0, 0, 1, 0]);
    assert_eq!(raw.code(), Some(UNEXPECTED_MESSAGE), "{:?}", raw.close);
    let mut raw = connected();
    raw.send_crypto(PacketType::OneRtt, &[5, 0, 0, 0]);
    assert_eq!(raw.code(), Some(UNEXPECTED_MESSAGE), "{:?}", raw.close);
}

#[test]
fn crypto_data_beyond_the_buffer() {
    // Section 7.5, in each space.
    let far = frames(|w| put_crypto(w, 100_000, b"x"));
    for ty in [PacketType::Initial, PacketType::Handshake] {
        let mut raw = client(&honest());
        start(&mut raw);
        raw.send(ty, &far);
        assert_eq!(raw.code(), Some(CRYPTO_BUFFER_EXCEEDED), "{ty:?}: {:?}", raw.close);
    }
    expect(CRYPTO_BUFFER_EXCEEDED, &[far]);
}

#[test]
fn acknowledgements_in_0_rtt() {
    // Section 12.4, table 3: no ACK; a PATH_CHALLENGE may be there.
    for payload in [vec![0x02, 0, 0, 0, 0], frames(|w| put_path_challenge(w, [1; 8]))] {
        let tls = client_tls(b"test");
        let mut first = Raw::new(endpoint(), tls.clone(), &honest());
        first.connect();
        let handle = first.handle.expect("a connection");
        first.server.remove(handle);
        let mut raw = Raw::new(first.server, tls, &honest());
        let hello = raw.hello();
        assert!(raw.take_early_keys(), "the first connection left a ticket");
        raw.send_crypto(PacketType::Initial, &hello);
        let allowed = payload[0] == 0x1a;
        raw.send(PacketType::ZeroRtt, &payload);
        let expected = (!allowed).then_some(PROTOCOL_VIOLATION);
        assert_eq!(raw.code(), expected, "{payload:?}: {:?}", raw.close);
    }
}
