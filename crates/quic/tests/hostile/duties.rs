//! Duties of a server towards every client, seen from outside: sizes and headers of its packets,
//! acknowledgements, key lifetimes and closing (RFC 9000, sections 8 to 19; RFC 9001, section 4.9).

use std::net::IpAddr;
use std::time::Duration;

use mendcast_quic::wire::{
    AckFrame, ConnectionId, Frame, Frames, Header, PacketType, parse_header, put_crypto,
    put_max_data, put_max_stream_data, put_new_connection_id, put_path_challenge, put_ping,
    put_stream_header,
};
use mendcast_quic::{DropReason, Endpoint, Outcome, RetryPolicy};
use units::{Ecn, StreamId};

use crate::raw::{ADDRESS, Opened, Raw, SCID, ack, frames, honest, varint};
use crate::{client, client_tls, config, connected, downloading, endpoint};

const MS: Duration = Duration::from_millis(1);
const ELSEWHERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(11, 0, 0, 7));
/// A frame unknown to version 1. Reading it closes the connection.
const UNKNOWN_FRAME: &[u8] = &[0x21];

/// A client that has the server's flight and has not finished.
fn begun() -> Raw {
    let mut raw = client(&honest());
    let hello = raw.hello();
    raw.send_crypto(PacketType::Initial, &hello);
    raw
}

fn all(packet: &Opened) -> Vec<Frame<'_>> {
    Frames::new(&packet.payload).map(|frame| frame.expect("well formed")).collect()
}

fn has(packet: &Opened, wanted: impl Fn(&Frame<'_>) -> bool) -> bool {
    all(packet).iter().any(wanted)
}

/// The acknowledgements among packets that were opened from `since` on.
fn acks(raw: &Raw, since: usize) -> Vec<AckFrame<'_>> {
    let frames = raw.opened[since..].iter().flat_map(all);
    frames.filter_map(|frame| if let Frame::Ack(ack) = frame { Some(ack) } else { None }).collect()
}

fn acknowledges(raw: &Raw, since: usize, number: u64) -> bool {
    acks(raw, since).iter().any(|ack| ack.ranges().any(|range| range.contains(&number)))
}

/// Acknowledges all received 1-RTT packets.
fn acknowledge_all(raw: &mut Raw) {
    for number in raw.numbers(PacketType::OneRtt).to_vec() {
        raw.send(PacketType::OneRtt, &ack(number, number));
    }
}

/// Sends a PING after everything is quiet; how long its acknowledgement takes, if it comes.
fn time_to_ack(prepare: impl FnOnce(&mut Raw), pings: usize) -> Option<Duration> {
    let mut raw = connected();
    raw.wait(100 * MS);
    acknowledge_all(&mut raw);
    raw.wait(100 * MS);
    prepare(&mut raw);
    let (since, begin) = (raw.opened.len(), raw.now);
    for _ in 0..pings {
        raw.send(PacketType::OneRtt, &frames(put_ping));
    }
    raw.wait(50 * MS);
    let first =
        raw.opened[since..].iter().find(|packet| has(packet, |f| matches!(f, Frame::Ack(_))));
    first.map(|packet| packet.at.since(begin))
}

#[test]
fn acknowledgements_come_in_time_and_at_once_where_they_must() {
    // RFC 9000, section 13.2.1: within max_ack_delay, 25 ms unless something else was said.
    let alone = time_to_ack(|_| {}, 1).expect("an acknowledgement");
    assert!(alone > Duration::ZERO && alone <= 25 * MS, "{alone:?}");
    // Section 13.2.2: after two packets; section 13.2.1: after a gap, and for a CE mark.
    assert_eq!(time_to_ack(|_| {}, 2), Some(Duration::ZERO));
    assert_eq!(time_to_ack(|raw| raw.skip_numbers(PacketType::OneRtt, 1), 1), Some(Duration::ZERO));
    assert_eq!(time_to_ack(|raw| raw.ecn = Ecn::Ce, 1), Some(Duration::ZERO));
}

#[test]
fn acknowledgements_alone_are_not_answered() {
    // RFC 9000, section 13.2.1: "MUST NOT send a non-ack-eliciting packet in response to a
    // non-ack-eliciting packet", gaps or not.
    let mut raw = connected();
    raw.wait(100 * MS);
    acknowledge_all(&mut raw);
    raw.wait(100 * MS);
    let before = raw.datagrams.len();
    let largest = raw.largest(PacketType::OneRtt).expect("1-RTT packets");
    for _ in 0..10 {
        raw.skip_numbers(PacketType::OneRtt, 1);
        raw.send(PacketType::OneRtt, &ack(largest, largest));
        raw.wait(50 * MS);
    }
    assert_eq!(raw.datagrams.len(), before);
}

#[test]
fn early_packets_are_acknowledged_at_once_and_in_their_own_space() {
    // RFC 9000, sections 13.2.1 and 13.2.6.
    let mut raw = begun();
    for ty in [PacketType::Initial, PacketType::Handshake] {
        let since = raw.opened.len();
        raw.skip_numbers(ty, 20);
        raw.send(ty, &frames(put_ping));
        let answers = raw.opened[since..].iter().filter(|p| has(p, |f| matches!(f, Frame::Ack(_))));
        let types: Vec<PacketType> = answers.map(|packet| packet.ty).collect();
        assert_eq!(types, [ty]);
        assert!(acknowledges(&raw, since, acks(&raw, since)[0].largest));
    }
}

#[test]
fn the_packets_of_one_datagram_are_acknowledged_each() {
    // RFC 9000, section 12.2.
    let mut raw = begun();
    let before = acks(&raw, 0).last().expect("the hello's acknowledgement").largest;
    let since = raw.opened.len();
    let mut datagram = raw.packet(PacketType::Initial, &frames(put_ping));
    datagram.extend(raw.packet(PacketType::Initial, &frames(put_ping)));
    raw.deliver(&mut datagram);
    assert!(acknowledges(&raw, since, before + 1) && acknowledges(&raw, since, before + 2));
}

#[test]
fn marks_are_reported_as_they_came() {
    // RFC 9000, section 13.4.1.
    let mut raw = connected();
    for (mark, count) in [(Ecn::Ect0, 3), (Ecn::Ect1, 2), (Ecn::Ce, 1)] {
        raw.ecn = mark;
        for _ in 0..count {
            raw.send(PacketType::OneRtt, &frames(put_ping));
        }
    }
    raw.wait(50 * MS);
    let reported = acks(&raw, 0).last().expect("an acknowledgement").ecn.expect("counts");
    assert_eq!((reported.ect0, reported.ect1, reported.ce), (3, 2, 1));
}

#[test]
fn packet_numbers_only_rise() {
    // RFC 9000, section 12.3, over losses, probes and the close.
    let mut raw = begun();
    raw.wait(2_000 * MS);
    raw.handshake();
    raw.connect();
    raw.send(PacketType::OneRtt, &frames(|w| put_stream_header(w, StreamId(0), 0, Some(0), true)));
    raw.wait(2_000 * MS);
    raw.send(PacketType::OneRtt, UNKNOWN_FRAME);
    assert!(raw.close.is_some());
    for ty in [PacketType::Initial, PacketType::Handshake, PacketType::OneRtt] {
        let numbers = raw.numbers(ty);
        assert!(!numbers.is_empty() && numbers.is_sorted_by(|a, b| a < b), "{ty:?}: {numbers:?}");
    }
}

#[test]
fn packets_have_frames_zero_bits_and_the_ids_that_the_client_chose() {
    // RFC 9000, sections 12.4, 17.2, 17.3.1 and 17.4.
    let raw = connected();
    for packet in &raw.opened {
        let zero = if packet.ty == PacketType::OneRtt { 0x38 } else { 0x0c };
        assert_eq!(packet.first & zero, 0, "{:?} {}", packet.ty, packet.number);
        assert!(!packet.payload.is_empty());
    }
    // Sections 7.2 and 12.2: in every packet of every datagram.
    for datagram in &raw.datagrams {
        let mut rest = &datagram.bytes[..];
        while !rest.is_empty() {
            let (dcid, end) = match parse_header(rest, SCID.len()) {
                Ok(Header::Long { dcid, end, .. }) => (dcid, end),
                Ok(Header::Short { dcid, .. }) => (dcid, rest.len()),
                other => panic!("{other:?}"),
            };
            assert_eq!(dcid.as_slice(), SCID);
            rest = &rest[end..];
        }
    }
}

#[test]
fn the_servers_parameters_are_said_once_and_leave_room_for_http_3() {
    let raw = connected();
    let tls = raw.tls.as_ref().expect("TLS");
    let mut rest = tls.quic_transport_parameters().expect("the handshake is over");
    let take = |rest: &mut &[u8]| {
        let length = 1 << (rest[0] >> 6);
        let (number, behind) = rest.split_at(length);
        *rest = behind;
        let first = u64::from(number[0] & 0x3f);
        number[1..].iter().fold(first, |value, &byte| value << 8 | u64::from(byte))
    };
    let mut parameters = std::collections::BTreeMap::new();
    while !rest.is_empty() {
        let id = take(&mut rest);
        let length = take(&mut rest) as usize;
        // RFC 9000, section 7.4.
        assert_eq!(parameters.insert(id, &rest[..length]), None, "{id:#x} twice");
        rest = &rest[length..];
    }
    let value = |id: u64| parameters.get(&id).copied().map(|mut value: &[u8]| take(&mut value));
    // Section 18.2: active_connection_id_limit, and no preferred_address.
    assert!(value(0x0e).is_none_or(|limit| limit >= 2));
    assert!(!parameters.contains_key(&0x0d));
    // RFC 9114, section 6.1: 100 requests with windows; section 6.2: three streams of the other
    // kind, with 1,024 bytes each.
    assert!(value(0x08) >= Some(100) && value(0x06) > Some(0) && value(0x04) > Some(0));
    assert!(value(0x09) >= Some(3) && value(0x07) >= Some(1_024));
}

#[test]
fn an_answer_takes_the_acknowledgement_along() {
    // RFC 9000, sections 12.2, 13.2 and 13.2.1.
    let mut raw = connected();
    raw.wait(100 * MS);
    acknowledge_all(&mut raw);
    raw.wait(100 * MS);
    raw.send(PacketType::OneRtt, &frames(|w| put_stream_header(w, StreamId(0), 0, Some(0), true)));
    let since = raw.opened.len();
    let handle = raw.handle.expect("a connection");
    let connection = raw.server.connection(handle).expect("open");
    connection.write(StreamId(0), vec![7; 100].into()).expect("an open stream");
    connection.finish(StreamId(0)).expect("an open stream");
    raw.collect();
    let answer = raw.opened[since..]
        .iter()
        .find(|packet| has(packet, |f| matches!(f, Frame::Stream { .. })))
        .expect("an answer");
    assert!(has(answer, |f| matches!(f, Frame::Ack(_))));
    assert!(has(
        answer,
        |f| matches!(f, Frame::Stream { fin: true, data, .. } if data.len() == 100)
    ));
}

#[test]
fn a_packet_whose_range_is_no_longer_reported_is_still_a_duplicate() {
    // RFC 9000, sections 12.3 and 13.2.3.
    let mut raw = connected();
    let old = raw.packet(PacketType::OneRtt, &frames(put_ping));
    raw.deliver(&mut old.clone());
    for _ in 0..200 {
        raw.skip_numbers(PacketType::OneRtt, 1);
        raw.send(PacketType::OneRtt, &frames(put_ping));
    }
    let handle = raw.handle.expect("a connection");
    let dropped = |raw: &mut Raw| raw.server.connection(handle).expect("open").stats().dropped;
    let before = dropped(&mut raw);
    raw.deliver(&mut old.clone());
    assert_ne!(dropped(&mut raw), before);
}

#[test]
fn datagrams_with_initial_packets_are_full_and_carry_no_token() {
    // RFC 9000, section 14.1 and 17.2.2; probes, too.
    let mut raw = begun();
    raw.wait(3_000 * MS);
    let mut seen = 0;
    for datagram in &raw.datagrams {
        let Ok(Header::Long { ty: PacketType::Initial, token, .. }) =
            parse_header(&datagram.bytes, SCID.len())
        else {
            continue;
        };
        assert!(token.is_empty());
        // Those that only acknowledge may be small.
        seen += usize::from(datagram.bytes.len() >= 1_200);
        assert!(datagram.bytes.len() >= 1_200 || datagram.bytes.len() < 100);
    }
    assert!(seen >= 2, "the flight and a probe");
}

#[test]
fn initial_keys_go_with_the_first_handshake_packet_and_those_with_the_end() {
    // RFC 9001, sections 4.9.1 and 4.9.2.
    let mut raw = begun();
    raw.send(PacketType::Handshake, &frames(put_ping));
    let since = raw.opened.len();
    raw.send(PacketType::Initial, UNKNOWN_FRAME);
    raw.wait(1_000 * MS);
    assert_eq!(raw.close, None);
    assert!(raw.opened[since..].iter().all(|packet| packet.ty != PacketType::Initial));
    raw.handshake();
    assert!(raw.confirmed);
    let since = raw.opened.len();
    raw.send(PacketType::Handshake, UNKNOWN_FRAME);
    raw.wait(1_000 * MS);
    assert_eq!(raw.close, None);
    assert!(raw.opened[since..].iter().all(|packet| packet.ty == PacketType::OneRtt));
}

#[test]
fn early_data_is_acknowledged_in_1_rtt_packets_and_its_keys_go_soon() {
    // RFC 9000, section 13.2.6; RFC 9001, sections 4.9.3 and 5.6.
    let tls = client_tls(b"test");
    let mut first = Raw::new(endpoint(), tls.clone(), &honest());
    first.connect();
    let handle = first.handle.expect("a connection");
    first.server.remove(handle);
    let mut raw = Raw::new(first.server, tls, &honest());
    let hello = raw.hello();
    assert!(raw.take_early_keys(), "the first connection left a ticket");
    raw.send_crypto(PacketType::Initial, &hello);
    raw.send(PacketType::ZeroRtt, &frames(|w| put_stream_header(w, StreamId(0), 0, Some(0), true)));
    raw.handshake();
    assert!(raw.confirmed);
    raw.wait(50 * MS);
    let of_data = raw.opened.iter().filter(|packet| packet.ty == PacketType::OneRtt);
    let acked = of_data.flat_map(all).any(
        |frame| matches!(frame, Frame::Ack(ack) if ack.ranges().any(|range| range.contains(&0))),
    );
    assert!(acked, "0-RTT packet 0");
    raw.wait(1_000 * MS);
    raw.send(PacketType::ZeroRtt, UNKNOWN_FRAME);
    assert_eq!(raw.close, None);
}

#[test]
fn data_that_overtakes_the_finished_is_read_after_it() {
    // RFC 9001, section 5.7.
    let mut raw = begun();
    let finished = raw.hello();
    raw.send(PacketType::OneRtt, &frames(|w| put_stream_header(w, StreamId(0), 0, Some(0), true)));
    assert!(!raw.server_events.iter().any(|event| event.contains("Opened")));
    raw.send_crypto(PacketType::Handshake, &finished);
    assert!(raw.server_events.iter().any(|event| event.contains("Opened")));
}

#[test]
fn the_end_of_the_handshake_is_told_until_it_is_acknowledged() {
    // RFC 9000, sections 13.3 and 19.20.
    let told = |raw: &Raw| {
        raw.opened.iter().filter(|p| has(p, |f| matches!(f, Frame::HandshakeDone))).count()
    };
    let mut raw = begun();
    raw.wait(200 * MS);
    assert_eq!(told(&raw), 0, "before the client has finished");
    raw.handshake();
    assert_eq!(told(&raw), 1);
    let done = raw
        .opened
        .iter()
        .find(|packet| has(packet, |f| matches!(f, Frame::HandshakeDone)))
        .map(|packet| packet.number)
        .expect("HANDSHAKE_DONE");
    // Everything arrives but this packet.
    for _ in 0..20 {
        raw.send(PacketType::OneRtt, &frames(put_ping));
        raw.wait(100 * MS);
        for number in raw.numbers(PacketType::OneRtt).to_vec() {
            if number != done {
                raw.send(PacketType::OneRtt, &ack(number, number));
            }
        }
    }
    let repeated = told(&raw);
    assert!(repeated >= 2, "{repeated}");
    acknowledge_all(&mut raw);
    raw.wait(2_000 * MS);
    assert_eq!(told(&raw), repeated);
}

#[test]
fn new_connection_ids_retire_none_and_may_be_given_twice() {
    // RFC 9000, sections 5.1.2 and 19.15.
    let mut raw = connected();
    let mut sequences = Vec::new();
    for frame in raw.opened.iter().flat_map(all) {
        if let Frame::NewConnectionId { sequence, retire_prior_to, .. } = frame {
            assert_eq!(retire_prior_to, 0);
            sequences.push(sequence);
        }
    }
    sequences.sort_unstable();
    assert_eq!(sequences, (1..=sequences.len() as u64).collect::<Vec<_>>());
    let id = ConnectionId::new(&[5; 8]).expect("an ID");
    for _ in 0..3 {
        raw.send(PacketType::OneRtt, &frames(|w| put_new_connection_id(w, 1, 0, &id, &[1; 16])));
    }
    assert_eq!(raw.close, None);
}

/// A payload of a full datagram that begins with a PATH_CHALLENGE.
fn full_challenge() -> Vec<u8> {
    let mut payload = frames(|w| put_path_challenge(w, [1; 8]));
    payload.resize(1_160, 0);
    payload
}

#[test]
fn responses_and_challenges_are_in_full_datagrams_where_they_may_be() {
    // RFC 9000, sections 8.2.1 and 8.2.2.
    let mut raw = connected();
    raw.address.set_ip(ELSEWHERE);
    raw.send(PacketType::OneRtt, &full_challenge());
    // At once, before any time has passed.
    let answer = raw.datagrams.iter().find(|d| d.to == raw.address).expect("PATH_RESPONSE");
    assert!(answer.bytes.len() >= 1_200, "{}", answer.bytes.len());
    assert!(raw.opened.iter().any(|p| has(p, |f| matches!(f, Frame::PathResponse([1, ..])))));
    // The client moves there, with a full datagram.
    let (since, before) = (raw.opened.len(), raw.datagrams.len());
    let mut payload = frames(put_ping);
    payload.resize(1_160, 0);
    raw.send(PacketType::OneRtt, &payload);
    let challenges = |to: IpAddr| {
        let sent = raw.opened[since..].iter().filter(move |packet| packet.to.ip() == to);
        let counts = sent.map(|packet| {
            all(packet).iter().filter(|frame| matches!(frame, Frame::PathChallenge(_))).count()
        });
        counts.filter(|&count| count > 0).collect::<Vec<_>>()
    };
    // Section 9.3.3: the old path is validated, too. One challenge in a packet.
    assert_eq!(challenges(ELSEWHERE), [1]);
    assert_eq!(challenges(ADDRESS.ip()), [1]);
    let first = raw.datagrams[before..].iter().find(|d| d.to.ip() == ELSEWHERE);
    assert!(first.is_some_and(|datagram| datagram.bytes.len() >= 1_200));
    // Section 8.2.1: unpredictable data.
    let data: Vec<[u8; 8]> = raw.opened[since..]
        .iter()
        .flat_map(all)
        .filter_map(|frame| if let Frame::PathChallenge(data) = frame { Some(data) } else { None })
        .collect();
    assert!(data.len() == 2 && data[0] != data[1]);
}

#[test]
fn a_close_goes_into_every_space_that_the_client_may_read() {
    // RFC 9000, section 10.2.3: before the handshake is confirmed.
    let mut raw = begun();
    let since = raw.opened.len();
    raw.send(PacketType::Initial, UNKNOWN_FRAME);
    let closed = |ty: PacketType| {
        raw.opened[since..].iter().any(|packet| {
            packet.ty == ty && has(packet, |f| matches!(f, Frame::ConnectionClose { .. }))
        })
    };
    for ty in [PacketType::Initial, PacketType::Handshake, PacketType::OneRtt] {
        assert!(closed(ty), "{ty:?}");
    }
    // After it: in a 1-RTT packet.
    let mut raw = connected();
    let since = raw.opened.len();
    raw.send(PacketType::OneRtt, UNKNOWN_FRAME);
    assert!(raw.opened[since..].iter().all(|packet| packet.ty == PacketType::OneRtt));
    assert!(raw.close.is_some());
}

#[test]
fn what_the_application_says_at_the_end_is_not_for_early_packets() {
    // RFC 9000, sections 10.2.3 and 12.5: APPLICATION_ERROR without a reason instead.
    let mut raw = begun();
    let (since, now) = (raw.opened.len(), raw.now);
    let handle = raw.handle.expect("a connection");
    raw.server.connection(handle).expect("open").close(now, 77, "a secret");
    raw.collect();
    let mut seen = 0;
    for packet in raw.opened[since..].iter().filter(|packet| packet.ty != PacketType::OneRtt) {
        for frame in all(packet) {
            match frame {
                Frame::ConnectionClose { error_code, reason, .. } => {
                    assert_eq!((error_code, reason), (0x0c, &b""[..]));
                    seen += 1;
                }
                Frame::ApplicationClose { .. } => panic!("in a packet of {:?}", packet.ty),
                _ => {}
            }
        }
    }
    assert_eq!(seen, 2, "Initial and Handshake");
}

#[test]
fn nothing_is_sent_to_a_client_that_has_closed() {
    // RFC 9000, section 10.2.2.
    let mut raw = downloading(&honest(), 200_000);
    raw.send(PacketType::OneRtt, &[&[0x1c], &varint(0)[..], &[0, 0]].concat());
    let before = raw.datagrams.len();
    for _ in 0..20 {
        raw.send(PacketType::OneRtt, &frames(put_ping));
        raw.wait(50 * MS);
    }
    assert_eq!(raw.datagrams.len(), before);
}

/// A datagram of `len` bytes with a long header of this version.
fn long(version: u32, dcid: &[u8], scid: &[u8], len: usize) -> Vec<u8> {
    let mut datagram = vec![0xc0];
    datagram.extend(version.to_be_bytes());
    for id in [dcid, scid] {
        datagram.push(id.len() as u8);
        datagram.extend(id);
    }
    // No token, then a length that fits.
    datagram.push(0);
    datagram.extend([0x44, 0x00]);
    datagram.resize(len, 7);
    datagram
}

#[test]
fn a_first_connection_id_has_8_bytes() {
    // RFC 9000, section 7.2.
    let mut raw = Raw::without_tls(endpoint());
    let outcome = raw.outcome(&mut long(1, &[1; 7], &[2; 8], 1_200));
    assert_eq!(outcome, Outcome::Dropped(DropReason::ShortConnectionId));
}

#[test]
fn version_negotiation_gives_the_ids_back_and_a_retry_gives_new_ones() {
    // RFC 9000, sections 17.2.1: whatever their lengths.
    let mut raw = Raw::without_tls(endpoint());
    let (dcid, scid) = ([1; 40], [2; 3]);
    let answer = raw.deliver(&mut long(0x1a2a_3a4a, &dcid, &scid, 1_200)).expect("an answer");
    assert_eq!(answer[0] & 0xc0, 0xc0);
    assert_eq!(answer[1..5], [0; 4]);
    let ids = [&[3], &scid[..], &[40], &dcid[..]].concat();
    assert_eq!(answer[5..5 + ids.len()], ids);
    assert!(answer[5 + ids.len()..].chunks(4).any(|version| version == [0, 0, 0, 1]));
    // Section 17.2.5.1; and one answer to a datagram, whatever it holds.
    let mut config = config();
    config.retry = RetryPolicy::Always;
    let mut raw = Raw::new(Endpoint::new(config, [3; 32]), client_tls(b"test"), &honest());
    let hello = raw.hello();
    let mut packet = raw.packet(PacketType::Initial, &frames(|w| put_crypto(w, 0, &hello[..100])));
    packet.extend(packet.clone());
    let retry = raw.deliver(&mut packet).expect("a Retry packet");
    assert_eq!(retry[0] & 0xf0, 0xf0);
    assert_eq!(retry[6..14], SCID);
    assert_ne!(retry[15..15 + usize::from(retry[14])], [0xd0; 8]);
    assert_eq!(raw.server.stats().retries, 1);
}

#[test]
fn handshake_and_0_rtt_packets_of_nobody_are_dropped() {
    // RFC 9000, section 5.2.2.
    let mut raw = Raw::without_tls(endpoint());
    for first in [0xe0, 0xd0] {
        let mut datagram = long(1, &[1; 8], &[2; 8], 1_200);
        datagram[0] = first;
        assert!(matches!(raw.outcome(&mut datagram), Outcome::Dropped(_)), "{first:#x}");
    }
}

#[test]
fn stateless_resets_look_like_any_packet_and_are_shorter() {
    // RFC 9000, sections 10.3 and 10.3.3.
    let mut raw = connected();
    let orphan = raw.packet(PacketType::OneRtt, &frames(|w| w.bytes(&[0; 200])));
    let handle = raw.handle.expect("a connection");
    raw.server.remove(handle);
    let mut tails = Vec::new();
    for len in 17..=60 {
        let answer = raw.deliver(&mut orphan[..len].to_vec());
        match answer {
            // Too short for a packet of ours.
            None => assert!(len < 37, "{len}"),
            Some(reset) => {
                assert_eq!(reset[0] & 0xc0, 0x40, "a short header");
                assert_eq!(reset.len(), (len - 1).min(41), "{len}");
                tails.push(reset[reset.len() - 16..].to_vec());
                // Otherwise the bits of the first byte, and the following bytes, are random.
                assert_ne!(reset[1..5], [0; 4]);
            }
        }
    }
    // One token for one ID.
    assert!(tails.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn limits_that_fall_change_nothing_and_a_finished_stream_takes_nothing() {
    // RFC 9000, sections 4.1, 4.5 and 13.3.
    let mut raw = downloading(&honest(), 100_000);
    raw.send(
        PacketType::OneRtt,
        &frames(|w| {
            put_max_data(w, 0);
            put_max_stream_data(w, StreamId(0), 0);
        }),
    );
    for _ in 0..100 {
        acknowledge_all(&mut raw);
        raw.wait(10 * MS);
    }
    let handle = raw.handle.expect("a connection");
    let connection = raw.server.connection(handle).expect("open");
    assert_eq!(connection.unsent(StreamId(0)), Some(0), "all of it left");
    connection.finish(StreamId(0)).expect("an open stream");
    assert!(connection.write(StreamId(0), vec![1].into()).is_err());
    assert_eq!(raw.close, None);
}

#[test]
fn a_token_of_another_address_lifts_no_limit() {
    // RFC 9000, section 8.1.4.
    let mut first = connected();
    let handle = first.handle.expect("a connection");
    first.server.send_new_token(handle, first.now, b"own");
    first.collect();
    let token = first.token_of_server.take().expect("a NEW_TOKEN frame");
    first.server.remove(handle);
    let mut raw = Raw::new(first.server, client_tls(b"test"), &honest());
    raw.token = token;
    raw.address.set_ip(ELSEWHERE);
    let hello = raw.hello();
    raw.initial(&hello);
    let sent = 1_200 * hello.len().div_ceil(900);
    raw.wait(5_000 * MS);
    assert!(raw.server_bytes > 0 && raw.server_bytes <= 3 * sent, "{} {sent}", raw.server_bytes);
}

#[test]
fn connection_ids_above_20_bytes_are_of_no_version_1_packet() {
    // RFC 9000, section 17.2.
    let mut raw = Raw::without_tls(endpoint());
    for (dcid, scid) in [(&[1; 21][..], &[2; 8][..]), (&[1; 8], &[2; 21])] {
        let outcome = raw.outcome(&mut long(1, dcid, scid, 1_200));
        assert_eq!(outcome, Outcome::Dropped(DropReason::Header));
    }
}
