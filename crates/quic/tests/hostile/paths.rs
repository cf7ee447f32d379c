//! Attacks with addresses, connection IDs and stateless resets (RFC 9000, sections 8, 9, 10.3 and
//! 21).

use std::net::IpAddr;
use std::time::Duration;

use mendcast_quic::crypto::KeyRing;
use mendcast_quic::wire::{
    ConnectionId, Frame, Frames, PacketType, put_new_connection_id, put_path_challenge,
    put_path_response, put_ping, put_retire_connection_id,
};
use mendcast_quic::{DropReason, Endpoint, Outcome};

use crate::raw::{Raw, ack, frames, honest};
use crate::{client_tls, config, connected, downloading};

/// An address that differs from the others in its IP.
fn elsewhere(n: u32) -> IpAddr {
    (0x0b00_0000 + n).to_be_bytes().into()
}

fn in_flight(raw: &mut Raw) -> u64 {
    let handle = raw.handle.expect("a connection");
    raw.server.connection(handle).expect("open").in_flight()
}

#[test]
fn challenges_from_elsewhere_bring_no_more_than_three_times_their_bytes() {
    // RFC 9000, section 8.1, holds for paths that are only probed, too.
    let mut raw = connected();
    for count in [1, 8, 100u64] {
        raw.address.set_ip(elsewhere(count as u32));
        let payload = frames(|w| (0..count).for_each(|n| put_path_challenge(w, n.to_be_bytes())));
        let mut packet = raw.packet(PacketType::OneRtt, &payload);
        raw.deliver(&mut packet);
        let answered = raw.bytes_to.get(&raw.address).copied().unwrap_or(0);
        assert!(answered <= 3 * packet.len(), "{count}: {answered} for {}", packet.len());
        assert!(answered > 0, "{count}");
    }
    assert_eq!(raw.close, None);
}

#[test]
fn probing_frames_alone_move_nothing() {
    // RFC 9000, section 9.1.
    let mut raw = connected();
    let old = raw.address;
    raw.address.set_ip(elsewhere(1));
    raw.send(PacketType::OneRtt, &frames(|w| put_path_challenge(w, [1; 8])));
    let handle = raw.handle.expect("a connection");
    assert_eq!(raw.server.connection(handle).expect("open").addresses().remote, old);
}

#[test]
fn responses_that_nobody_asked_for_validate_nothing() {
    let mut raw = connected();
    raw.address.set_ip(elsewhere(1));
    raw.send(PacketType::OneRtt, &frames(put_ping));
    raw.send(PacketType::OneRtt, &frames(|w| put_path_response(w, [1; 8])));
    let handle = raw.handle.expect("a connection");
    assert!(!raw.server.connection(handle).expect("open").is_validated());
    assert_eq!(raw.close, None);
    // RFC 9000, section 9.3.2: without an answer to its challenge the server returns.
    raw.wait(Duration::from_secs(20));
    let connection = raw.server.connection(handle).expect("open");
    assert!(connection.is_validated());
    assert_eq!(connection.addresses().remote, crate::raw::ADDRESS);
}

#[test]
fn a_client_that_moves_and_answers_is_followed() {
    let mut raw = connected();
    raw.received.clear();
    raw.address.set_ip(elsewhere(1));
    raw.send(PacketType::OneRtt, &frames(put_ping));
    let mut challenges = Vec::new();
    for payload in raw.received.drain(..) {
        for frame in Frames::new(&payload).flatten() {
            if let Frame::PathChallenge(data) = frame {
                challenges.push(data);
            }
        }
    }
    raw.send(
        PacketType::OneRtt,
        &frames(|w| challenges.iter().for_each(|data| put_path_response(w, *data))),
    );
    let handle = raw.handle.expect("a connection");
    let connection = raw.server.connection(handle).expect("open");
    assert!(connection.is_validated());
    assert_eq!(connection.addresses().remote.ip(), elsewhere(1));
}

#[test]
fn moves_without_end_and_late_acknowledgements_keep_the_books() {
    // Paths are marked with one byte. Packets of the first address must not count for the later one
    // with the same mark.
    for moves in 253..=258 {
        let mut raw = downloading(&honest(), 200_000);
        let first = raw.largest(PacketType::OneRtt).expect("1-RTT packets");
        assert!(in_flight(&mut raw) > 0);
        for n in 1..=moves {
            raw.address.set_ip(elsewhere(n));
            raw.send(PacketType::OneRtt, &frames(put_ping));
        }
        raw.send(PacketType::OneRtt, &ack(first, first));
        let flying = in_flight(&mut raw);
        assert!(flying < 200_000, "{moves}: {flying}");
        raw.wait(Duration::from_secs(100));
        assert_eq!(raw.close, None);
    }
}

#[test]
fn connection_ids_that_retire_each_other_under_a_full_window_are_bounded() {
    // CVE-2024-22189: the answers cannot leave, because nothing is acknowledged.
    let mut raw = downloading(&honest(), 200_000);
    let mut sent = 0u64;
    while raw.close.is_none() && sent < 500 {
        sent += 1;
        let id = ConnectionId::new(&(sent << 8).to_be_bytes()).expect("an ID");
        raw.send(
            PacketType::OneRtt,
            &frames(|w| put_new_connection_id(w, sent, sent, &id, &[sent as u8; 16])),
        );
    }
    assert!(sent < 50, "{sent}");
}

#[test]
fn resets_are_only_for_ids_that_this_server_gave() {
    let mut raw = connected();
    let orphan = raw.packet(PacketType::OneRtt, &frames(|w| w.bytes(&[0; 200])));
    let handle = raw.handle.expect("a connection");
    raw.server.remove(handle);
    let mut reset = raw.deliver(&mut orphan.clone()).expect("a stateless reset");
    assert!(reset.len() < orphan.len() && reset.len() >= 21);
    // RFC 9000, section 10.3.3: the client's reset in return is answered with less, or not at all.
    let answer = raw.deliver(&mut reset);
    assert!(answer.is_none_or(|answer| answer.len() < reset.len()));
    // RFC 9000, section 21.11: the connection may be alive on another server with the same keys,
    // and an attacker that sends this packet here would learn how to end it.
    let mut other = config();
    other.server_id = 2;
    let mut elsewhere = Raw::without_tls(Endpoint::new(other, [4; 32]));
    let outcome = elsewhere.outcome(&mut orphan.clone());
    assert_eq!(outcome, Outcome::Dropped(DropReason::UnknownConnection));
    let mut core = config();
    (core.core, core.cores) = (1, 2);
    let mut elsewhere = Raw::without_tls(Endpoint::new(core, [4; 32]));
    assert_eq!(elsewhere.outcome(&mut orphan.clone()), Outcome::Foreign(0));
}

#[test]
fn the_first_id_of_a_connection_leads_to_no_later_one_in_its_place() {
    let mut first = connected();
    let handle = first.handle.expect("a connection");
    // A Handshake packet to the ID that the client chose for the server.
    let late = [&[0xe0, 0, 0, 0, 1, 8][..], &[0xd0; 8], &[0, 0x40, 40], &[0; 40]].concat();
    assert_eq!(first.outcome(&mut late.clone()), Outcome::Connection(handle));
    first.server.remove(handle);
    let unknown = Outcome::Dropped(DropReason::UnknownConnection);
    assert_eq!(first.outcome(&mut late.clone()), unknown);
    let mut second = Raw::with_id(first.server, [0xd1; 8]);
    let mut hello = second.packet(PacketType::Initial, &frames(put_ping));
    assert_eq!(second.outcome(&mut hello), Outcome::Accepted(handle));
    assert_eq!(second.outcome(&mut late.clone()), unknown);
}

#[test]
fn connections_of_cores_that_a_restart_has_taken_away_are_reset() {
    let mut before = config();
    (before.core, before.cores) = (3, 4);
    let mut raw = Raw::new(Endpoint::new(before, [4; 32]), client_tls(b"test"), &honest());
    raw.connect();
    let orphan = raw.packet(PacketType::OneRtt, &frames(|w| w.bytes(&[0; 200])));
    for (core, cores) in [(0, 1), (0, 3), (2, 3)] {
        let mut after = config();
        (after.core, after.cores) = (core, cores);
        let mut after = Raw::without_tls(Endpoint::new(after, [5; 32]));
        assert!(
            matches!(after.outcome(&mut orphan.clone()), Outcome::Reply(21..)),
            "{core}/{cores}"
        );
    }
}

#[test]
fn resets_have_a_limit_per_second() {
    let mut raw = connected();
    let orphan = raw.packet(PacketType::OneRtt, &frames(|w| w.bytes(&[0; 200])));
    let handle = raw.handle.expect("a connection");
    raw.server.remove(handle);
    let mut answers = 0;
    for _ in 0..5_000 {
        answers += u32::from(raw.deliver(&mut orphan.clone()).is_some());
    }
    assert!((1..=1_000).contains(&answers), "{answers}");
}

#[test]
fn forged_resets_are_ignored_and_genuine_ones_end_the_connection() {
    let mut raw = connected();
    let handle = raw.handle.expect("a connection");
    let id = ConnectionId::new(&[5; 8]).expect("an ID");
    // The client's IDs change to one that has a reset token.
    raw.send(PacketType::OneRtt, &frames(|w| put_new_connection_id(w, 1, 1, &id, &[0xaa; 16])));
    let shape = raw.packet(PacketType::OneRtt, &frames(|w| w.bytes(&[0; 50])));
    let mut forged = shape.clone();
    let tail = forged.len() - 16;
    forged[tail..].fill(0xab);
    raw.deliver(&mut forged);
    assert!(raw.server.connection(handle).expect("open").is_alive());
    let mut genuine = shape;
    genuine[tail..].fill(0xaa);
    raw.deliver(&mut genuine);
    assert!(!raw.server.connection(handle).expect("known").is_alive());
    // RFC 9000, section 10.3.1: it enters the draining period and sends nothing.
    let before = raw.server_datagrams;
    raw.wait(Duration::from_secs(10));
    assert_eq!(raw.server_datagrams, before);
}

#[test]
fn random_ids_reach_no_connection() {
    let mut raw = connected();
    let keys = KeyRing::new(&[7; 32], &[(0, [9; 32])]);
    let genuine = raw.packet(PacketType::OneRtt, &frames(put_ping));
    for byte in 1..17 {
        let mut forged = genuine.clone();
        forged[byte] ^= 1;
        assert!(!matches!(raw.outcome(&mut forged), Outcome::Connection(_)), "{byte}");
    }
    // The right place with the wrong nonce, as of a former tenant.
    let id: [u8; 16] = genuine[1..17].try_into().expect("one block");
    let mut plain = keys.cids().decode(&id);
    plain.nonce ^= 1;
    let mut forged = genuine.clone();
    forged[1..17].copy_from_slice(&keys.cids().encode(&plain));
    assert!(!matches!(raw.outcome(&mut forged), Outcome::Connection(_)));
    assert!(matches!(raw.outcome(&mut genuine.clone()), Outcome::Connection(_)));
}

/// Returns the received challenges, with the sizes of their packets' payloads.
fn challenges(raw: &mut Raw) -> Vec<([u8; 8], usize)> {
    let mut found = Vec::new();
    for payload in raw.received.drain(..) {
        for frame in Frames::new(&payload).flatten() {
            if let Frame::PathChallenge(data) = frame {
                found.push((data, payload.len()));
            }
        }
    }
    found
}

fn connection(raw: &mut Raw) -> &mut mendcast_quic::Connection {
    let handle = raw.handle.expect("a connection");
    raw.server.connection(handle).expect("open")
}

#[test]
fn an_address_proved_by_a_small_challenge_is_proved_again_by_a_full_one() {
    // RFC 9000, section 8.2.1.
    let mut raw = connected();
    raw.received.clear();
    raw.address.set_ip(elsewhere(1));
    raw.send(PacketType::OneRtt, &frames(put_ping));
    let new: Vec<_> = challenges(&mut raw).into_iter().filter(|(_, size)| *size < 1_000).collect();
    assert_eq!(new.len(), 1, "{new:?}");
    raw.send(PacketType::OneRtt, &frames(|w| put_path_response(w, new[0].0)));
    assert!(connection(&mut raw).is_validated());
    let full = challenges(&mut raw);
    assert_eq!(full.len(), 1, "{full:?}");
    assert!(full[0].1 > 1_100, "{full:?}");
    // The answer to the small one, sent again, asks for no more of them.
    raw.send(PacketType::OneRtt, &frames(|w| put_path_response(w, new[0].0)));
    assert_eq!(challenges(&mut raw), []);
    raw.send(PacketType::OneRtt, &frames(|w| put_path_response(w, full[0].0)));
    raw.wait(Duration::from_secs(20));
    assert_eq!(connection(&mut raw).addresses().remote.ip(), elsewhere(1));
    assert_eq!(challenges(&mut raw), []);
}

#[test]
fn an_address_that_takes_no_full_datagram_is_left_again() {
    let mut raw = connected();
    raw.received.clear();
    raw.address.set_ip(elsewhere(1));
    raw.send(PacketType::OneRtt, &frames(put_ping));
    let new = challenges(&mut raw);
    for (data, _) in new.iter().filter(|(_, size)| *size < 1_000) {
        raw.send(PacketType::OneRtt, &frames(|w| put_path_response(w, *data)));
    }
    raw.wait(Duration::from_secs(20));
    assert_eq!(connection(&mut raw).addresses().remote, crate::raw::ADDRESS);
}

#[test]
fn the_way_back_to_a_validated_address_finds_its_estimates() {
    // RFC 9000, section 9.3.3: a packet copied from elsewhere arrives before the client's own.
    let mut raw = downloading(&crate::raw::generous(), 2_000_000);
    for _ in 0..8 {
        raw.wait(Duration::from_millis(20));
        let numbers = raw.numbers(PacketType::OneRtt).to_vec();
        raw.send(PacketType::OneRtt, &crate::raw::ack_of(&numbers));
    }
    let (window, rtt, flying) = {
        let connection = connection(&mut raw);
        (connection.window(), connection.rtt().smoothed(), connection.in_flight())
    };
    let home = raw.address;
    raw.address.set_ip(elsewhere(1));
    raw.send(PacketType::OneRtt, &frames(put_ping));
    assert!(connection(&mut raw).window() < window);
    raw.address = home;
    raw.send(PacketType::OneRtt, &frames(put_ping));
    let connection = connection(&mut raw);
    assert!(connection.is_validated());
    assert_eq!(connection.addresses().remote, home);
    assert_eq!((connection.window(), connection.rtt().smoothed()), (window, rtt));
    assert!(connection.in_flight() >= flying, "{} of {flying}", connection.in_flight());
}

#[test]
fn responses_on_the_path_itself_stay_below_three_times_the_challenges() {
    let mut raw = connected();
    let mut sent = 0;
    for round in 0..500u64 {
        let count = 1 + round % 8;
        let payload = frames(|w| (0..count).for_each(|n| put_path_challenge(w, n.to_be_bytes())));
        let mut packet = raw.packet(PacketType::OneRtt, &payload);
        sent += packet.len();
        raw.deliver(&mut packet);
        if round % 50 == 0 {
            let largest = raw.largest(PacketType::OneRtt).expect("1-RTT packets");
            raw.send(PacketType::OneRtt, &ack(largest - 3, largest));
        }
    }
    let is_response = |frame| matches!(frame, Frame::PathResponse(_));
    let responses = raw.received.iter().filter(|sent| Frames::new(sent).flatten().any(is_response));
    let answered: usize = responses.map(Vec::len).sum();
    assert!(answered <= 3 * sent, "{answered} for {sent}");
    assert!(answered > sent, "{answered} for {sent}: that is few");
    assert_eq!(raw.close, None);
}

#[test]
fn no_connection_id_is_issued_twice() {
    let mut raw = connected();
    let mut seen = std::collections::HashMap::new();
    let mut retired = 0u64;
    while retired < 600 {
        let mut newest = retired;
        for payload in raw.received.drain(..) {
            for frame in Frames::new(&payload).flatten() {
                if let Frame::NewConnectionId { sequence, id, .. } = frame {
                    let before = seen.insert(id.as_slice().to_vec(), sequence);
                    assert!(
                        before.is_none_or(|before| before == sequence),
                        "{before:?}, {sequence}"
                    );
                    newest = newest.max(sequence);
                }
            }
        }
        assert!(newest > retired, "the server goes on giving IDs after {retired}");
        retired += 1;
        // The client goes on under the newest it knows.
        let id = seen.iter().find(|(_, sequence)| **sequence == newest).expect("known").0.clone();
        raw.set_dcid(&id);
        let numbers = raw.numbers(PacketType::OneRtt);
        let recent = numbers[numbers.len().saturating_sub(20)..].to_vec();
        let payload =
            [crate::raw::ack_of(&recent), frames(|w| put_retire_connection_id(w, retired - 1))];
        raw.send(PacketType::OneRtt, &payload.concat());
        assert_eq!(raw.close_by_server(), None, "after {retired}");
    }
    assert!(seen.len() > 500, "{}", seen.len());
}

#[test]
fn an_address_that_is_left_again_gets_no_more_than_three_times_its_bytes() {
    let mut raw = connected();
    raw.address.set_port(5_000);
    // More than the server may send is wanted at once: a full challenge, and the answer to one.
    let payload = frames(|w| {
        put_ping(w);
        put_path_challenge(w, [1; 8]);
        w.fill(0, 200);
    });
    let mut packet = raw.packet(PacketType::OneRtt, &payload);
    raw.outcome_alone(&mut packet);
    let first = raw.address;
    raw.address.set_port(5_001);
    raw.send(PacketType::OneRtt, &frames(put_ping));
    raw.wait(Duration::from_secs(20));
    let answered = raw.bytes_to.get(&first).copied().unwrap_or(0);
    assert!(answered <= 3 * packet.len(), "{answered} for {}", packet.len());
}

#[test]
fn a_client_that_went_away_and_came_back_many_times_is_followed_still() {
    // The marks of paths come around while the home path keeps its own.
    let mut raw = connected();
    let home = raw.address;
    for n in 1..=300 {
        for address in [(elsewhere(n), 4_000).into(), home] {
            raw.address = address;
            raw.send(PacketType::OneRtt, &frames(put_ping));
            let numbers = raw.numbers(PacketType::OneRtt);
            let recent = numbers[numbers.len().saturating_sub(8)..].to_vec();
            raw.send(PacketType::OneRtt, &crate::raw::ack_of(&recent));
            assert_eq!(connection(&mut raw).addresses().remote, address, "move {n}");
        }
    }
    assert_eq!(raw.close, None);
}
