//! Key updates and limits, between the two ends of a real handshake and between two null ends.

use super::super::TAG_LEN;
use super::super::testing::World;
use super::*;

const RETAIN: Duration = Duration::from_millis(300);

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// Both ends' keys after a handshake: (client, server).
fn real_pair() -> (OneRtt, OneRtt) {
    let handshake = World::new(|_| {}).connect();
    (handshake.client_one_rtt.expect("client keys"), handshake.server_one_rtt.expect("server keys"))
}

fn pairs() -> [(OneRtt, OneRtt); 2] {
    [real_pair(), (OneRtt::null(), OneRtt::null())]
}

const TEXT: &[u8] = b"some application data";

fn seal(from: &mut OneRtt, pn: u64) -> Vec<u8> {
    let phase = u8::from(from.local_phase()) * KEY_PHASE_BIT;
    let header = [0x43 | phase, 0xaa, 0, 0, (pn >> 8) as u8, pn as u8];
    let mut packet = [&header, TEXT, &[0; TAG_LEN]].concat();
    from.seal(pn, &mut packet, 2, 4);
    packet
}

fn open(to: &mut OneRtt, packet: &[u8], now: Timestamp) -> Result<bool, OpenError> {
    let mut packet = packet.to_vec();
    let (first, pn, pn_len) = to.remote_header().unprotect(&mut packet, 2).expect("long enough");
    let (header, payload) = packet.split_at_mut(2 + pn_len);
    let opened = to.open(pn, first & KEY_PHASE_BIT != 0, header, payload, now, RETAIN)?;
    assert_eq!(payload[..opened.len], *TEXT);
    Ok(opened.key_updated)
}

/// Sends one packet and lets the receiver open it.
fn send(from: &mut OneRtt, to: &mut OneRtt, pn: u64, now: Timestamp) -> Result<bool, OpenError> {
    let packet = seal(from, pn);
    open(to, &packet, now)
}

#[test]
fn keys_update_in_both_directions() {
    for (mut client, mut server) in pairs() {
        for round in 0..4 {
            let (base, now) = (round * 10, at(round * 1000));
            let (first, second) = if round % 2 == 0 {
                (&mut server, &mut client)
            } else {
                (&mut client, &mut server)
            };
            assert_eq!(send(first, second, base, now), Ok(false));
            assert_eq!(send(second, first, base, now), Ok(false));
            first.on_acked(base);
            assert_eq!(first.initiate_update(true, now), Ok(()));
            assert_eq!(first.local_phase(), round % 2 == 0);

            assert_eq!(send(first, second, base + 1, now), Ok(true), "round {round}");
            assert_eq!(second.local_phase(), first.local_phase(), "the receiver follows");
            assert_eq!(send(second, first, base + 1, now), Ok(false));
        }
    }
}

#[test]
fn late_packets_of_the_previous_phase_open_for_three_pto() {
    for (mut client, mut server) in pairs() {
        assert_eq!(send(&mut client, &mut server, 0, at(0)), Ok(false));
        assert_eq!(send(&mut server, &mut client, 0, at(0)), Ok(false));
        let late: Vec<_> = (1..4).map(|pn| seal(&mut client, pn)).collect();
        client.on_acked(0);
        assert_eq!(client.initiate_update(true, at(0)), Ok(()));
        assert_eq!(send(&mut client, &mut server, 4, at(100)), Ok(true));

        assert_eq!(open(&mut server, &late[0], at(100)), Ok(false));
        assert_eq!(open(&mut server, &late[1], at(399)), Ok(false));
        assert_eq!(open(&mut server, &late[2], at(400)), Err(OpenError::Decrypt));
        assert_eq!(send(&mut client, &mut server, 5, at(400)), Ok(false));
    }
}

#[test]
fn the_initiator_opens_old_packets_until_the_peer_follows() {
    for (mut client, mut server) in pairs() {
        assert_eq!(send(&mut server, &mut client, 0, at(0)), Ok(false));
        server.on_acked(0);
        assert_eq!(server.initiate_update(true, at(0)), Ok(()));
        for pn in 0..3 {
            assert_eq!(send(&mut client, &mut server, pn, at(60_000)), Ok(false));
        }
        assert_eq!(send(&mut server, &mut client, 1, at(60_000)), Ok(true));
        assert_eq!(send(&mut client, &mut server, 3, at(60_000)), Ok(false));
    }
}

#[test]
fn an_update_waits_for_confirmation_acknowledgment_and_the_end_of_the_previous_phase() {
    for (mut client, mut server) in pairs() {
        let refused = |server: &mut OneRtt, confirmed, now| {
            server.initiate_update(confirmed, now).expect_err("too early")
        };
        assert_eq!(send(&mut client, &mut server, 0, at(0)), Ok(false));
        assert_eq!(send(&mut server, &mut client, 7, at(0)), Ok(false));
        assert_eq!(refused(&mut server, true, at(0)), UpdateRefused::PhaseUnacknowledged);
        server.on_acked(6);
        assert_eq!(refused(&mut server, true, at(0)), UpdateRefused::PhaseUnacknowledged);
        server.on_acked(7);
        assert_eq!(refused(&mut server, false, at(0)), UpdateRefused::HandshakeUnconfirmed);
        assert_eq!(server.initiate_update(true, at(0)), Ok(()));

        assert_eq!(refused(&mut server, true, at(0)), UpdateRefused::PhaseUnacknowledged);
        assert_eq!(send(&mut server, &mut client, 8, at(0)), Ok(true));
        server.on_acked(7);
        assert_eq!(refused(&mut server, true, at(0)), UpdateRefused::PhaseUnacknowledged);
        server.on_acked(8);
        assert_eq!(send(&mut client, &mut server, 1, at(10)), Ok(false));
        assert_eq!(refused(&mut server, true, at(309)), UpdateRefused::PreviousPhaseKept);
        assert_eq!(server.initiate_update(true, at(310)), Ok(()));
    }
}

#[test]
fn a_peer_that_updates_without_awaiting_confirmation_is_in_error() {
    for (mut client, mut server) in pairs() {
        client.update();
        assert_eq!(
            send(&mut client, &mut server, 0, at(0)),
            Err(OpenError::KeyUpdateError),
            "the server has sent nothing in 1-RTT packets, so no handshake is confirmed"
        );
    }
    for (mut client, mut server) in pairs() {
        assert_eq!(send(&mut server, &mut client, 0, at(0)), Ok(false));
        client.update();
        assert_eq!(send(&mut client, &mut server, 0, at(0)), Ok(true));
        client.update();
        assert_eq!(send(&mut client, &mut server, 1, at(0)), Err(OpenError::KeyUpdateError));
    }
}

#[test]
fn old_keys_on_newer_packets_are_an_error() {
    // The newer number under old keys arrives first.
    for (mut client, mut server) in pairs() {
        assert_eq!(send(&mut server, &mut client, 0, at(0)), Ok(false));
        assert_eq!(send(&mut client, &mut server, 9, at(0)), Ok(false));
        client.update();
        let result = send(&mut client, &mut server, 8, at(0));
        assert_eq!(result, Err(OpenError::KeyUpdateError));
    }
    // The same, in a phase that we began.
    for (mut client, mut server) in pairs() {
        assert_eq!(send(&mut server, &mut client, 0, at(0)), Ok(false));
        server.on_acked(0);
        assert_eq!(server.initiate_update(true, at(0)), Ok(()));
        assert_eq!(send(&mut client, &mut server, 9, at(0)), Ok(false));
        client.update();
        let result = send(&mut client, &mut server, 8, at(0));
        assert_eq!(result, Err(OpenError::KeyUpdateError));
    }
    // It arrives second: then the old keys are not even tried.
    for (mut client, mut server) in pairs() {
        assert_eq!(send(&mut server, &mut client, 0, at(0)), Ok(false));
        let newer = seal(&mut client, 9);
        client.update();
        assert_eq!(send(&mut client, &mut server, 8, at(0)), Ok(true));
        assert_eq!(open(&mut server, &newer, at(0)), Err(OpenError::Decrypt));
    }
}

#[test]
fn a_forged_key_phase_changes_nothing_but_the_count() {
    for (mut client, mut server) in pairs() {
        assert_eq!(send(&mut server, &mut client, 0, at(0)), Ok(false));
        let mut forged = seal(&mut client, 0);
        let authentic = forged.clone();
        forged[0] ^= KEY_PHASE_BIT;
        for count in 1..=3 {
            assert_eq!(open(&mut server, &forged, at(0)), Err(OpenError::Decrypt));
            assert_eq!(server.failed, count);
            assert!(!server.local_phase());
        }
        assert_eq!(open(&mut server, &authentic, at(0)), Ok(false));
    }
}

#[test]
fn failures_are_summed_over_all_keys_up_to_the_integrity_limit() {
    for (mut client, mut server) in pairs() {
        server.integrity_limit = 3;
        assert_eq!(send(&mut server, &mut client, 0, at(0)), Ok(false));
        let mut damaged = seal(&mut client, 0);
        *damaged.last_mut().expect("a tag") ^= 1;
        assert_eq!(open(&mut server, &damaged, at(0)), Err(OpenError::Decrypt));
        assert_eq!(open(&mut server, &damaged, at(0)), Err(OpenError::Decrypt));
        client.update();
        assert_eq!(send(&mut client, &mut server, 1, at(0)), Ok(true));
        let mut damaged = seal(&mut client, 2);
        *damaged.last_mut().expect("a tag") ^= 1;
        assert_eq!(open(&mut server, &damaged, at(0)), Err(OpenError::Decrypt));
        assert_eq!(open(&mut server, &damaged, at(0)), Err(OpenError::IntegrityLimit));
    }
}

#[test]
fn the_confidentiality_limit_asks_for_an_update_and_then_for_the_end() {
    let (mut client, mut server) = real_pair();
    server.confidentiality_limit = 1000;
    for pn in 0..875 {
        assert!(!server.should_update(0), "packet {pn}");
        seal(&mut server, pn);
    }
    assert!(server.should_update(0));
    for pn in 875..936 {
        assert!(!server.is_exhausted(), "packet {pn}");
        seal(&mut server, pn);
    }
    assert!(server.is_exhausted());

    assert_eq!(send(&mut server, &mut client, 936, at(0)), Ok(false));
    server.on_acked(936);
    assert_eq!(server.initiate_update(true, at(0)), Ok(()));
    assert!(!server.should_update(0) && !server.is_exhausted());
}

#[test]
fn the_limits_are_those_of_the_cipher() {
    let (_, server) = real_pair();
    // RFC 9001, section 6.6: 2^23 packets and 2^52 forgeries for AES-GCM.
    assert_eq!((server.confidentiality_limit, server.integrity_limit), (1 << 23, 1 << 52));
    assert!(!OneRtt::null().should_update(0) && !OneRtt::null().is_exhausted());
}
