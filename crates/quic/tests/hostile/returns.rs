//! Clients, and attackers, that come back to addresses which the server has seen lately (RFC 9000,
//! sections 8.2.3 and 9.3).

use std::net::SocketAddr;
use std::time::Duration;

use mendcast_quic::wire::{Frame, Frames, PacketType, put_path_response, put_ping};

use crate::raw::{Raw, ack_of, frames, generous};
use crate::{connected, downloading};

fn elsewhere(n: u32) -> SocketAddr {
    (std::net::IpAddr::from((0x0b00_0000 + n).to_be_bytes()), 4_000).into()
}

fn connection(raw: &mut Raw) -> &mut mendcast_quic::Connection {
    let handle = raw.handle.expect("a connection");
    raw.server.connection(handle).expect("open")
}

/// Returns the challenges received since the last call.
fn challenges(raw: &mut Raw) -> Vec<[u8; 8]> {
    let payloads: Vec<_> = raw.received.drain(..).collect();
    let frames = payloads.iter().flat_map(|payload| Frames::new(payload).flatten());
    frames
        .filter_map(|frame| match frame {
            Frame::PathChallenge(data) => Some(data),
            _ => None,
        })
        .collect()
}

/// Speaks from an address. Returns the packet's size.
fn speak(raw: &mut Raw, from: SocketAddr) -> usize {
    raw.address = from;
    let mut packet = raw.packet(PacketType::OneRtt, &frames(put_ping));
    raw.deliver(&mut packet);
    packet.len()
}

/// Answers challenges until none is left.
fn answer(raw: &mut Raw, mut found: Vec<[u8; 8]>) {
    while !found.is_empty() {
        let responses = frames(|w| found.iter().for_each(|data| put_path_response(w, *data)));
        raw.send(PacketType::OneRtt, &responses);
        found = challenges(raw);
    }
}

#[test]
fn a_response_from_another_address_proves_the_one_that_was_challenged() {
    let mut raw = connected();
    let home = raw.address;
    raw.received.clear();
    speak(&mut raw, elsewhere(1));
    let found = challenges(&mut raw);
    speak(&mut raw, home);
    answer(&mut raw, found);
    assert_eq!(connection(&mut raw).addresses().remote, home);
    speak(&mut raw, elsewhere(1));
    assert!(connection(&mut raw).is_validated(), "proved from elsewhere");
    // The challenge in a full datagram is sent now; afterwards both are proven.
    let found = challenges(&mut raw);
    answer(&mut raw, found);
    for address in [home, elsewhere(1), home, elsewhere(1)] {
        speak(&mut raw, address);
        assert_eq!(connection(&mut raw).addresses().remote, address);
        assert!(connection(&mut raw).is_validated());
        assert_eq!(challenges(&mut raw), Vec::<[u8; 8]>::new());
    }
}

#[test]
fn an_unproven_address_gets_three_times_its_bytes_however_often_it_returns() {
    let mut raw = downloading(&generous(), 1_000_000);
    let (home, mut sent) = (raw.address, 0);
    for _ in 0..200 {
        sent += speak(&mut raw, elsewhere(1));
        speak(&mut raw, home);
        raw.wait(Duration::from_millis(20));
    }
    let got = raw.bytes_to.get(&elsewhere(1)).copied().unwrap_or(0);
    assert!(got > 0 && got <= 3 * sent, "{got} for {sent}");
}

#[test]
fn copies_from_many_forged_addresses_do_not_make_the_clients_own_unknown() {
    let mut raw = downloading(&generous(), 2_000_000);
    let home = raw.address;
    for _ in 0..8 {
        raw.wait(Duration::from_millis(20));
        let numbers = raw.numbers(PacketType::OneRtt).to_vec();
        raw.send(PacketType::OneRtt, &ack_of(&numbers));
    }
    let window = connection(&mut raw).window();
    for n in 1..=300 {
        speak(&mut raw, elsewhere(n));
        assert!(!connection(&mut raw).is_validated());
    }
    speak(&mut raw, home);
    assert!(connection(&mut raw).is_validated());
    assert_eq!(connection(&mut raw).window(), window);
}

#[test]
fn an_address_that_was_left_for_a_minute_is_validated_again() {
    for (pause, known) in [(50, true), (61, false)] {
        let mut raw = connected();
        let home = raw.address;
        raw.received.clear();
        speak(&mut raw, elsewhere(1));
        let found = challenges(&mut raw);
        answer(&mut raw, found);
        // Not idle meanwhile.
        for _ in 0..pause {
            speak(&mut raw, elsewhere(1));
            raw.wait(Duration::from_secs(1));
            let numbers = raw.numbers(PacketType::OneRtt).to_vec();
            let recent = numbers[numbers.len().saturating_sub(8)..].to_vec();
            raw.send(PacketType::OneRtt, &ack_of(&recent));
        }
        speak(&mut raw, home);
        assert_eq!(connection(&mut raw).is_validated(), known, "after {pause} s");
    }
}

#[test]
fn the_address_that_was_left_longest_ago_makes_place() {
    let mut raw = connected();
    let home = raw.address;
    raw.received.clear();
    // Three more are kept beside the present one.
    for n in 1..=4 {
        speak(&mut raw, elsewhere(n));
        let found = challenges(&mut raw);
        answer(&mut raw, found);
        assert!(connection(&mut raw).is_validated(), "{n}");
    }
    for n in [1, 2, 3, 4, 1] {
        speak(&mut raw, elsewhere(n));
        assert!(connection(&mut raw).is_validated(), "{n}");
    }
    speak(&mut raw, home);
    assert!(!connection(&mut raw).is_validated());
}

#[test]
fn packets_of_each_path_count_in_its_own_flight() {
    let mut raw = downloading(&generous(), 400_000);
    let home = raw.address;
    raw.wait(Duration::from_millis(20));
    let at_home = raw.numbers(PacketType::OneRtt).to_vec();
    let flying = connection(&mut raw).in_flight();
    assert!(flying > 5_000);
    raw.received.clear();
    speak(&mut raw, elsewhere(1));
    let found = challenges(&mut raw);
    answer(&mut raw, found);
    raw.wait(Duration::from_millis(20));
    let there = connection(&mut raw).in_flight();
    assert!(there > 1_000);
    // Acknowledges packets sent to the home address, from this address.
    let window = connection(&mut raw).window();
    let mut packet = raw.packet(PacketType::OneRtt, &ack_of(&at_home));
    raw.outcome_alone(&mut packet);
    assert_eq!(connection(&mut raw).in_flight(), there);
    assert_eq!(connection(&mut raw).window(), window);
    let handle = raw.handle.expect("a connection");
    raw.address = home;
    let mut packet = raw.packet(PacketType::OneRtt, &frames(put_ping));
    raw.outcome_alone(&mut packet);
    let back = raw.server.connection(handle).expect("open").in_flight();
    assert!(back < flying, "{back} of {flying}");
    raw.wait(Duration::from_secs(30));
    assert_eq!(raw.close, None);
}
