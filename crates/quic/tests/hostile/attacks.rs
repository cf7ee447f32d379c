//! Floods and forgeries: their cost is bounded, and honest clients are served.

use std::time::Duration;

use mendcast_quic::wire::{
    ConnectionId, PacketType, put_crypto, put_max_data, put_new_connection_id, put_path_challenge,
    put_ping, put_reset_stream, put_retire_connection_id,
};
use mendcast_quic::{Endpoint, RetryPolicy};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use units::StreamId;

use crate::raw::{Raw, frames, honest};
use crate::{client, client_tls, config, connected, endpoint};

#[test]
fn random_datagrams_open_nothing() {
    let mut raw = Raw::without_tls(endpoint());
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for round in 0..3_000 {
        let length = match round % 5 {
            0 => round % 30,
            1 => 65_507,
            _ => 1_200,
        };
        let mut datagram = vec![0; length];
        rng.fill_bytes(&mut datagram);
        if round % 3 == 0 && length > 5 {
            // As far as a long header of version 1.
            datagram[0] |= 0xc0;
            datagram[1..5].copy_from_slice(&1u32.to_be_bytes());
        }
        let answer = raw.deliver(&mut datagram);
        // RFC 9000, section 10.3.3: a reset is smaller than what triggered it.
        assert!(answer.is_none_or(|answer| answer.len() < length), "round {round}");
        assert!(raw.handle.is_none(), "round {round}");
    }
}

#[test]
fn an_unknown_version_is_negotiated_once_and_never_amplified() {
    let mut raw = Raw::without_tls(endpoint());
    for (length, answered) in [(1_200, true), (1_199, false), (40, false)] {
        let mut datagram = vec![0; length];
        datagram[0] = 0xc0;
        datagram[1..5].copy_from_slice(&0x1a2a_3a4au32.to_be_bytes());
        datagram[5] = 8;
        datagram[14] = 8;
        let answer = raw.deliver(&mut datagram);
        assert_eq!(answer.is_some(), answered, "{length}");
        if let Some(mut answer) = answer {
            assert!(answer.len() <= length && answer[1..5] == [0; 4]);
            // RFC 9000, section 6.1: never in response to Version Negotiation.
            answer.resize(1_200, 0);
            assert_eq!(raw.deliver(&mut answer), None);
        }
    }
}

#[test]
fn an_initial_packet_in_a_small_datagram_leaves_no_state() {
    let mut raw = client(&honest());
    let hello = raw.hello();
    let payload = frames(|w| put_crypto(w, 0, &hello));
    let mut packet = raw.packet(PacketType::Initial, &payload);
    packet.truncate(1_199);
    assert_eq!(raw.deliver(&mut packet), None);
    assert!(raw.handle.is_none());
}

#[test]
fn a_silent_client_gets_three_times_what_it_sent() {
    let mut raw = client(&honest());
    let hello = raw.hello();
    raw.send_crypto(PacketType::Initial, &hello);
    raw.tls = None;
    raw.wait(Duration::from_secs(60));
    // RFC 9000, section 8.1, probes included.
    assert!(raw.server_bytes > 1_200 && raw.server_bytes <= 3 * 1_200, "{}", raw.server_bytes);
    let handle = raw.handle.expect("a connection");
    assert!(raw.server.connection(handle).is_none_or(|c| c.is_drained()), "it must end by itself");
}

#[test]
fn a_flood_of_hellos_is_answered_with_retry() {
    let mut config = config();
    config.retry = RetryPolicy::Above(16);
    let mut server = Endpoint::new(config, [3; 32]);
    let tls = client_tls(b"test");
    let (mut accepted, mut retried) = (0, 0);
    for n in 0..200u8 {
        let hello = Raw::new(endpoint(), tls.clone(), &honest()).hello();
        let mut raw = Raw::with_id(server, [n; 8]);
        raw.address.set_port(10_000 + u16::from(n));
        let payload = frames(|w| put_crypto(w, 0, &hello));
        let mut packet = raw.packet(PacketType::Initial, &payload);
        match raw.deliver(&mut packet) {
            Some(answer) => {
                assert_eq!(answer[0] & 0xf0, 0xf0, "a Retry packet");
                retried += 1;
            }
            None => accepted += u16::from(raw.handle.is_some()),
        }
        server = raw.server;
    }
    assert_eq!((accepted, retried), (16, 184));
}

#[test]
fn a_hello_in_single_bytes_and_reverse_order_completes() {
    let mut raw = client(&honest());
    let hello = raw.hello();
    let bytes: Vec<(usize, u8)> = hello.iter().copied().enumerate().collect();
    let mut packets: Vec<Vec<u8>> = Vec::new();
    for piece in bytes.chunks(40) {
        let payload = frames(|w| {
            for (offset, byte) in piece.iter().rev() {
                put_crypto(w, *offset as u64, &[*byte]);
            }
        });
        packets.push(raw.packet(PacketType::Initial, &payload));
    }
    for packet in packets.iter_mut().rev() {
        raw.deliver(packet);
    }
    assert_eq!(raw.close, None);
    raw.handshake();
    assert!(raw.confirmed, "{:?}", raw.server_events);
}

#[test]
fn path_challenges_are_answered_one_for_one_at_most() {
    let mut raw = connected();
    let before = raw.server_datagrams;
    for n in 0..1_000u64 {
        raw.send(PacketType::OneRtt, &frames(|w| put_path_challenge(w, n.to_be_bytes())));
    }
    assert_eq!(raw.close, None);
    assert!(raw.server_datagrams - before <= 2_100, "{}", raw.server_datagrams - before);
    // Many in one packet: the queue is short.
    let before = raw.server_bytes;
    let payload = frames(|w| (0..100u64).for_each(|n| put_path_challenge(w, n.to_be_bytes())));
    raw.send(PacketType::OneRtt, &payload);
    assert!(raw.server_bytes - before <= 20_000, "{}", raw.server_bytes - before);
}

#[test]
fn a_new_address_with_every_packet_costs_no_more_than_it_brings() {
    let mut raw = connected();
    for n in 0..500u16 {
        raw.address.set_port(20_000 + n);
        let mut packet = raw.packet(PacketType::OneRtt, &frames(put_ping));
        raw.deliver(&mut packet);
        let answered = raw.bytes_to.get(&raw.address).copied().unwrap_or(0);
        assert!(answered <= 3 * packet.len(), "{n}: {answered} for {}", packet.len());
    }
    assert_eq!(raw.close, None);
}

#[test]
fn retired_connection_ids_do_not_pile_up() {
    let mut raw = connected();
    for n in 1..2_000u64 {
        if raw.close.is_some() {
            break;
        }
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&n.to_be_bytes());
        let id = ConnectionId::new(&bytes).expect("an ID");
        // Every ID retires all before it; the client acknowledges nothing.
        raw.send(
            PacketType::OneRtt,
            &frames(|w| put_new_connection_id(w, n, n, &id, &[n as u8; 16])),
        );
    }
    // RFC 9000, section 5.1.2: "SHOULD limit the number of connection IDs it has retired locally
    // for which RETIRE_CONNECTION_ID frames have not yet been acknowledged".
    let close = raw.close.expect("a limit");
    assert!(close.code == 0x09 || close.code == 0x0a, "{close:?}");
}

#[test]
fn a_client_that_keeps_one_id_and_retires_all_others_is_borne() {
    let mut raw = connected();
    for sequence in 1..300 {
        raw.send(PacketType::OneRtt, &frames(|w| put_retire_connection_id(w, sequence)));
    }
    // At some number there is none to retire: that is a violation, and no panic on the way.
    assert_eq!(raw.code(), Some(0x0a), "{:?}", raw.close);
}

#[test]
fn resets_without_end_open_no_more_than_the_limit() {
    let mut raw = connected();
    let mut id = 0;
    for _ in 0..200 {
        let payload = frames(|w| {
            for _ in 0..100 {
                put_reset_stream(w, StreamId(id), 0, 0);
                id += 4;
            }
        });
        if raw.close.is_some() {
            break;
        }
        raw.send(PacketType::OneRtt, &payload);
    }
    // The application reads no events here, so that credit for new streams runs out.
    assert!(raw.close.is_some(), "20,000 streams");
}

#[test]
fn credit_in_drips_makes_no_packets() {
    let mut raw = connected();
    let before = raw.server_datagrams;
    for n in 0..1_000u64 {
        raw.send(PacketType::OneRtt, &frames(|w| put_max_data(w, n)));
    }
    // An acknowledgement for each second packet.
    assert!(raw.server_datagrams - before <= 600, "{}", raw.server_datagrams - before);
    assert_eq!(raw.close, None);
}

#[test]
fn a_closed_connection_answers_a_storm_ever_more_rarely() {
    let mut raw = connected();
    raw.send(PacketType::OneRtt, &frames(|w| w.varint(0x21)));
    assert!(raw.close.is_some());
    let before = raw.server_datagrams;
    for _ in 0..1_000 {
        raw.send(PacketType::OneRtt, &frames(put_ping));
    }
    // RFC 9000, section 10.2.1.
    assert!(raw.server_datagrams - before <= 12, "{}", raw.server_datagrams - before);
}

#[test]
fn a_replayed_packet_from_elsewhere_moves_nothing() {
    let mut raw = connected();
    let packet = raw.packet(PacketType::OneRtt, &frames(put_ping));
    raw.deliver(&mut packet.clone());
    let handle = raw.handle.expect("a connection");
    let before = raw.server.connection(handle).expect("open").addresses();
    raw.address.set_port(6_666);
    raw.deliver(&mut packet.clone());
    let after = raw.server.connection(handle).expect("open").addresses();
    assert_eq!(before.remote, after.remote);
}
