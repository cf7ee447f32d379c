//! Attacks with acknowledgements, packet numbers and key phases (RFC 9000, sections 13 and 21.4;
//! RFC 9001, section 6).

use std::time::Duration;

use mendcast_quic::wire::{
    Frame, Frames, PacketType, put_crypto, put_max_data, put_ping, put_stop_sending,
    put_stream_header,
};
use units::StreamId;

use crate::raw::{Parameters, Raw, ack, frames, honest, id, varint};
use crate::{client, connected, downloading};

const INTERNAL_ERROR: u64 = 0x01;
const PROTOCOL_VIOLATION: u64 = 0x0a;
const KEY_UPDATE_ERROR: u64 = 0x0e;

/// A client with much credit.
fn generous() -> Parameters {
    let mut parameters = honest();
    for (parameter, value) in &mut parameters {
        if [id::INITIAL_MAX_DATA, id::INITIAL_MAX_STREAM_DATA_BIDI_LOCAL].contains(parameter) {
            *value = varint(1 << 40);
        }
    }
    parameters
}

fn window(raw: &mut Raw) -> u64 {
    let handle = raw.handle.expect("a connection");
    raw.server.connection(handle).expect("open").window()
}

#[test]
fn acknowledgements_before_there_is_anything_to_acknowledge() {
    // RFC 9000, section 13.1, in each space.
    let mut raw = client(&honest());
    let hello = raw.hello();
    raw.initial(&hello);
    raw.send(PacketType::Initial, &ack(0, 50));
    assert_eq!(raw.code(), Some(PROTOCOL_VIOLATION), "{:?}", raw.close);
    let mut raw = client(&honest());
    let hello = raw.hello();
    raw.initial(&hello);
    raw.send(PacketType::Handshake, &ack(0, 50));
    assert_eq!(raw.code(), Some(PROTOCOL_VIOLATION), "{:?}", raw.close);
}

#[test]
fn an_acknowledgement_of_everything_meets_a_number_that_was_skipped() {
    // RFC 9000, section 21.4: a client that acknowledges packets it never received.
    let mut raw = downloading(&generous(), 20_000_000);
    let mut turns = 0;
    while raw.close.is_none() && turns < 1_000 {
        turns += 1;
        let largest = raw.largest(PacketType::OneRtt).expect("1-RTT packets");
        // Does not look for gaps.
        raw.send(PacketType::OneRtt, &ack(0, largest));
        raw.wait(Duration::from_millis(5));
    }
    assert_eq!(raw.code(), Some(PROTOCOL_VIOLATION), "{:?}", raw.close);
    assert!(raw.largest(PacketType::OneRtt) < Some(200), "{:?}", raw.largest(PacketType::OneRtt));
}

#[test]
fn an_acknowledgement_that_runs_ahead_is_caught_at_once() {
    let mut raw = downloading(&generous(), 1_000_000);
    let largest = raw.largest(PacketType::OneRtt).expect("1-RTT packets");
    raw.send(PacketType::OneRtt, &ack(0, largest + 10));
    assert_eq!(raw.code(), Some(PROTOCOL_VIOLATION), "{:?}", raw.close);
}

#[test]
fn a_client_that_acknowledges_nothing_gets_a_window_and_probes() {
    let mut raw = downloading(&generous(), 20_000_000);
    let window = window(&mut raw) as usize;
    let before = raw.server_bytes;
    for _ in 0..600 {
        raw.send(PacketType::OneRtt, &frames(put_ping));
        raw.wait(Duration::from_millis(100));
    }
    // Two datagrams a probe time-out with back-off, and acknowledgements.
    let sent = raw.server_bytes - before;
    assert!(sent <= window + 20 * 2 * 1_200 + 600 * 60, "{sent} with a window of {window}");
    // Without packets of its own it is idle.
    raw.wait(Duration::from_secs(1_000));
    let handle = raw.handle.expect("a connection");
    assert!(raw.server.connection(handle).is_none_or(|c| c.is_drained()));
}

#[test]
fn acknowledgements_that_nobody_acknowledges_come_to_an_end() {
    // Each packet makes the server send, and remember, an acknowledgement.
    for ty in [PacketType::Handshake, PacketType::OneRtt] {
        let mut raw = client(&honest());
        if ty == PacketType::OneRtt {
            raw.connect();
        } else {
            let hello = raw.hello();
            raw.initial(&hello);
        }
        let mut pings = 0;
        while raw.close.is_none() && pings < 60_000 {
            raw.send(ty, &frames(put_ping));
            pings += 1;
        }
        assert_eq!(raw.code(), Some(PROTOCOL_VIOLATION), "{ty:?}: {:?}", raw.close);
    }
}

#[test]
fn a_client_that_only_sends_is_asked_to_acknowledge_now_and_then() {
    // RFC 9000, section 13.2.4: acknowledgements of acknowledgements let both sides forget.
    let mut raw = connected();
    for _ in 0..30_000 {
        raw.received.clear();
        raw.send(PacketType::OneRtt, &frames(put_ping));
        let elicits = raw.received.iter().any(|payload| payload.contains(&0x01));
        if elicits {
            let largest = raw.largest(PacketType::OneRtt).expect("1-RTT packets");
            raw.send(PacketType::OneRtt, &ack(largest, largest));
        }
    }
    assert_eq!(raw.close, None);
}

#[test]
fn packet_numbers_with_gaps_are_acknowledged_in_a_bounded_frame() {
    let mut raw = connected();
    for _ in 0..3_000 {
        raw.skip_numbers(PacketType::OneRtt, 1);
        raw.send(PacketType::OneRtt, &frames(put_ping));
    }
    let ranges = raw.received.iter().flat_map(|payload| {
        Frames::new(payload).flatten().map(|frame| match frame {
            Frame::Ack(ack) => ack.ranges().count(),
            _ => 0,
        })
    });
    let most = ranges.max();
    assert!(most <= Some(64), "{most:?}");
    assert_eq!(raw.close, None);
}

#[test]
fn a_packet_number_far_ahead_is_as_good_as_any() {
    let mut raw = connected();
    raw.skip_numbers(PacketType::OneRtt, 1 << 30);
    raw.send(PacketType::OneRtt, &frames(put_ping));
    raw.send(PacketType::OneRtt, &frames(|w| put_stream_header(w, StreamId(0), 0, Some(0), true)));
    assert!(raw.server_events.iter().any(|event| event.contains("Opened")));
    assert_eq!(raw.close, None);
}

#[test]
fn delays_and_ranges_out_of_the_world_change_nothing() {
    let mut raw = downloading(&generous(), 1_000_000);
    raw.wait(Duration::from_millis(20));
    let largest = raw.largest(PacketType::OneRtt).expect("1-RTT packets");
    let fields = [largest, (1 << 62) - 1, 0, 0].map(varint).concat();
    raw.send(PacketType::OneRtt, &[vec![0x02], fields].concat());
    // With ECN counts that cannot be.
    let huge = (1 << 62) - 1;
    let fields = [largest, huge, 0, 0, huge, huge, huge].map(varint).concat();
    raw.send(PacketType::OneRtt, &[vec![0x03], fields].concat());
    assert_eq!(raw.close, None);
    let handle = raw.handle.expect("a connection");
    let rtt = *raw.server.connection(handle).expect("open").rtt();
    assert!(rtt.smoothed() <= Duration::from_millis(400), "{rtt:?}");
    // More ranges than there are numbers.
    let fields = [largest, 0, 1 << 40, 0].map(varint).concat();
    raw.send(PacketType::OneRtt, &[vec![0x02], fields].concat());
    assert_eq!(raw.code(), Some(0x07), "{:?}", raw.close);
}

#[test]
fn a_key_update_is_followed_and_old_packets_still_open() {
    let mut raw = connected();
    let late = raw.packet(PacketType::OneRtt, &frames(put_ping));
    let later = raw.packet(PacketType::OneRtt, &frames(put_ping));
    raw.update_keys();
    raw.send(PacketType::OneRtt, &frames(put_ping));
    raw.send(PacketType::OneRtt, &frames(put_ping));
    let handle = raw.handle.expect("a connection");
    let stats = |raw: &mut Raw| *raw.server.connection(handle).expect("open").stats();
    assert_eq!(stats(&mut raw).key_updates, 1);
    assert!(raw.largest(PacketType::OneRtt).is_some());
    // RFC 9001, section 6.5: delayed packets open, for three probe time-outs.
    let dropped = stats(&mut raw).dropped;
    raw.deliver(&mut late.clone());
    assert_eq!(stats(&mut raw).dropped, dropped);
    raw.wait(Duration::from_secs(10));
    raw.deliver(&mut later.clone());
    assert_ne!(stats(&mut raw).dropped, dropped, "the old keys are gone");
    // A replay of either does nothing.
    raw.deliver(&mut late.clone());
    assert_eq!((raw.close.clone(), stats(&mut raw).key_updates), (None, 1));
}

#[test]
fn old_keys_on_new_packets_are_a_key_update_error() {
    // RFC 9001, section 6.4: "An endpoint that successfully removes protection with old keys when
    // newer keys were used for packets with lower packet numbers MUST treat this as a connection
    // error of type KEY_UPDATE_ERROR." Ours may also not open the packet in the first place.
    let mut raw = connected();
    raw.skip_numbers(PacketType::OneRtt, 10);
    let old = raw.packet(PacketType::OneRtt, &frames(put_ping));
    raw.rewind_numbers(PacketType::OneRtt, 5);
    raw.update_keys();
    raw.send(PacketType::OneRtt, &frames(put_ping));
    let handle = raw.handle.expect("a connection");
    let before = *raw.server.connection(handle).expect("open").stats();
    raw.deliver(&mut old.clone());
    let after = *raw.server.connection(handle).expect("known").stats();
    let opened = after.dropped == before.dropped;
    assert!(!opened || raw.code() == Some(KEY_UPDATE_ERROR), "{:?}", raw.close);
}

#[test]
fn a_second_key_update_before_the_first_was_confirmed_is_an_error() {
    // RFC 9001, section 6.2. No packet of the server is sent in between.
    let mut raw = connected();
    raw.update_keys();
    let mut first = raw.packet(PacketType::OneRtt, &[0x00; 8]);
    raw.update_keys();
    let mut second = raw.packet(PacketType::OneRtt, &[0x00; 8]);
    raw.deliver(&mut first);
    raw.deliver(&mut second);
    assert_eq!(raw.close_by_server(), Some(KEY_UPDATE_ERROR));
}

#[test]
fn handshake_data_behind_the_handshake_is_unexpected() {
    // RFC 9001, section 4: a client has nothing more to say, in whatever pieces.
    for offset in [0, 10] {
        let mut raw = connected();
        for n in 0..20 {
            raw.send(PacketType::OneRtt, &frames(|w| put_crypto(w, offset + n, b"x")));
        }
        let late = offset > 0;
        assert_eq!(raw.code(), (!late).then_some(0x10a), "{:?}", raw.close);
    }
}

#[test]
fn every_second_byte_of_a_stream_is_too_scattered() {
    // CVE-2026-25800. Section 21.7 leaves the code open.
    let mut raw = connected();
    let mut pieces = 0u64;
    while raw.close.is_none() && pieces < 32_000 {
        let payload = frames(|w| {
            for _ in 0..100 {
                put_stream_header(w, StreamId(0), 2 * pieces + 1, Some(1), false);
                w.u8(7);
                pieces += 1;
            }
        });
        raw.send(PacketType::OneRtt, &payload);
    }
    assert_eq!(raw.code(), Some(INTERNAL_ERROR), "{:?}", raw.close);
    assert!(pieces <= 1_000, "{pieces}");
}

#[test]
fn streams_that_are_reset_as_soon_as_they_open_are_bounded() {
    // The "rapid reset" of HTTP/2: the client stays within the limit that it was told.
    let mut raw = connected();
    for id in (0..400).step_by(4).map(StreamId) {
        raw.send(
            PacketType::OneRtt,
            &frames(|w| {
                mendcast_quic::wire::put_reset_stream(w, id, 0, 0);
                put_stop_sending(w, id, 0);
            }),
        );
    }
    assert_eq!(raw.close, None);
    // One more than 100 that nobody acknowledges.
    raw.send(PacketType::OneRtt, &frames(|w| put_stop_sending(w, StreamId(400), 0)));
    let told = raw.received.iter().flatten().any(|&byte| byte == 0x12);
    assert!(told || raw.code() == Some(0x04), "{:?}", raw.close);
}

#[test]
fn a_zero_window_keeps_nobody_busy() {
    let mut raw = downloading(&honest(), 8 << 20);
    for credit in (1 << 20) + 1..=(1 << 20) + 200 {
        let largest = raw.largest(PacketType::OneRtt).expect("1-RTT packets");
        let payload = [frames(|w| put_max_data(w, credit)), ack(largest, largest)].concat();
        raw.send(PacketType::OneRtt, &payload);
        // The time between is free of turns that do nothing: `wait` checks that.
        raw.wait(Duration::from_millis(50));
    }
    assert_eq!(raw.close, None);
}
