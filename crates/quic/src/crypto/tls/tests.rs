//! Handshakes with the TLS library's own QUIC client: full, resumed, with early data, and with
//! rejected tickets and early data.

use super::super::testing::{
    CLIENT_PARAMETERS, Handshake, SERVER_PARAMETERS, World, key_ring, rng,
};
use super::*;

/// Outcome of a handshake for the server: (resumed, early data accepted). The library drops the
/// early secret when it refuses early data.
fn outcome(Handshake { server, .. }: &Handshake) -> (bool, bool) {
    (server.resumed(), server.connection.zero_rtt_keys().is_some())
}

#[test]
fn a_full_handshake_completes_and_tells_what_was_negotiated() {
    let handshake = World::new(|_| {}).connect();
    let Handshake { client, server, .. } = &handshake;
    assert!(!server.is_handshaking() && !client.is_handshaking());
    assert_eq!(outcome(&handshake), (false, false));
    assert_eq!(server.alpn().as_deref(), Some(&b"h3"[..]));
    assert_eq!(server.server_name().as_deref(), Some("localhost"));
    assert_eq!(server.peer_transport_parameters(), Some(CLIENT_PARAMETERS));
    assert_eq!(client.quic_transport_parameters(), Some(SERVER_PARAMETERS));
    assert_eq!(server.returned_ticket(), None);
}

#[test]
fn handshake_keys_of_the_two_sides_match() {
    let world = World::new(|_| {});
    let mut handshake = Handshake::new(&world.server, world.client.clone());
    for (level, hello) in handshake.client_output() {
        handshake.server.read(level, &hello).expect("a ClientHello");
    }
    let mut flight = Vec::new();
    let Some(KeyChange::Handshake(server)) = handshake.server.write(&mut flight) else {
        panic!("no Handshake keys");
    };
    handshake.client.read_hs(&flight).expect("a ServerHello");
    let Some(quic::KeyChange::Handshake { keys }) = handshake.client.write_hs(&mut Vec::new())
    else {
        panic!("no Handshake keys");
    };
    let client = Keys::real(keys);
    for (local, remote) in [(&server.local, &client.remote), (&client.local, &server.remote)] {
        let mut packet = *b"text, then room for a tag";
        local.packet.seal(3, b"header", &mut packet);
        assert_eq!(remote.packet.open(3, b"header", &mut packet), Ok(9));
    }
}

#[test]
fn each_cipher_suite_can_be_had_alone() {
    use rustls::CipherSuite;
    for (cipher, expected) in [
        (Cipher::Aes128Gcm, CipherSuite::TLS13_AES_128_GCM_SHA256),
        (Cipher::Aes256Gcm, CipherSuite::TLS13_AES_256_GCM_SHA384),
        (Cipher::ChaCha20Poly1305, CipherSuite::TLS13_CHACHA20_POLY1305_SHA256),
    ] {
        let handshake = World::new(|settings| settings.ciphers = vec![cipher]).connect();
        let suite = handshake.client.negotiated_cipher_suite().expect("a suite");
        assert_eq!(suite.suite(), expected);
    }
}

#[test]
fn a_handshake_survives_delivery_in_single_bytes() {
    let world = World::new(|_| {});
    let mut handshake = Handshake::new(&world.server, world.client.clone());
    while handshake.server.is_handshaking() {
        for (level, flight) in handshake.client_output() {
            for byte in flight {
                handshake.server.read(level, &[byte]).expect("a correct handshake");
            }
        }
        for (_, flight) in handshake.server_output() {
            handshake.client_read(&flight);
        }
    }
}

#[test]
fn no_common_application_protocol_is_an_alert() {
    let world = World::new(|_| {});
    let mut handshake = Handshake::new(&world.server, world.other_client(b"smtp"));
    let error = handshake.run().expect_err("no common protocol");
    assert_eq!(error.alert, 120, "no_application_protocol: {}", error.text);
}

#[test]
fn rubbish_and_oversized_messages_are_alerts() {
    let world = World::new(|_| {});
    let refused = |data: &[u8]| {
        let mut server = Tls::new(&world.server, Vec::new());
        server.read(Level::Initial, data).is_err()
    };
    assert!(refused(&[0xff; 100]), "an unknown message");
    assert!(refused(&[1, 0, 0, 1, 0]), "a ClientHello of one byte");
    assert!(refused(&[1, 1, 0, 0]), "a length beyond 65 535");
    assert!(refused(&[20, 0, 0, 0]), "a Finished first");
}

#[test]
fn data_at_another_level_than_is_due_is_an_alert() {
    let world = World::new(|_| {});
    let mut handshake = Handshake::new(&world.server, world.client.clone());
    let hello = handshake.client_output().remove(0).1;
    let wrong = handshake.server.read(Level::Handshake, &hello).expect_err("Initial is due");
    assert_eq!(wrong.alert, 10, "unexpected_message");
    handshake.server.read(Level::Initial, &hello).expect("a ClientHello");
    for (_, flight) in handshake.server_output() {
        handshake.client_read(&flight);
    }
    let (_, finished) = handshake.client_output().remove(0);
    assert!(handshake.server.read(Level::Initial, &finished).is_err());
    assert!(handshake.server.read(Level::OneRtt, &finished).is_err());
    handshake.server.read(Level::Handshake, &finished).expect("Finished");
    assert!(!handshake.server.is_handshaking());
}

#[test]
fn a_finished_in_the_same_breath_as_the_client_hello_is_an_alert() {
    let world = World::new(|_| {});
    let mut handshake = Handshake::new(&world.server, world.client.clone());
    let mut data = handshake.client_output().remove(0).1;
    data.extend([20, 0, 0, 32]);
    data.extend([0; 32]);
    assert!(handshake.server.read(Level::Initial, &data).is_err());
}

#[test]
fn tickets_are_withheld_until_they_are_released() {
    let world = World::new(|settings| settings.tickets = 2);
    let mut handshake = world.connect();
    assert_eq!(handshake.client.tls13_tickets_received(), 0);
    for received in 1..=2 {
        let ticket = handshake.server.take_ticket().expect("a ticket");
        let message = ticket.release(&key_ring(), b"", world.clock.now(), &mut rng(received));
        handshake.client.read_hs(&message).expect("a NewSessionTicket");
        assert_eq!(u64::from(handshake.client.tls13_tickets_received()), received);
    }
    assert!(handshake.server.take_ticket().is_none());
}

#[test]
fn a_released_ticket_brings_its_bytes_back_and_resumes_with_early_data() {
    let world = World::new(|_| {});
    let own = vec![0xab; MAX_OWN];
    world.connect_for_ticket(&own);
    world.clock.advance(3600);

    let mut again = Handshake::new(&world.server, world.client.clone());
    let sealed = {
        let keys = again.client.zero_rtt_keys().expect("the client may send early data");
        let mut packet = b"early data".to_vec();
        let tag = keys.packet.encrypt_in_place(0, b"header", &mut packet).expect("sealed");
        packet.extend_from_slice(tag.as_ref());
        packet
    };
    let hello = again.client_output().remove(0).1;
    again.server.read(Level::Initial, &hello).expect("a ClientHello");
    assert_eq!(outcome(&again), (true, true));
    assert_eq!(again.server.returned_ticket(), Some(&own[..]));
    let keys = again.server.zero_rtt_keys().expect("early data is accepted");
    assert_eq!(keys.packet.open(0, b"header", &mut sealed.clone()), Ok(10));

    for (_, flight) in again.server_output() {
        again.client_read(&flight);
    }
    assert!(again.client.is_early_data_accepted());
    again.run().expect("the handshake completes");
    assert!(!again.server.is_handshaking());
    assert!(again.server.take_ticket().is_some(), "a new ticket for the next time");
}

const MAX_OWN: usize = super::super::MAX_OWN_BYTES;

#[test]
fn time_that_a_ticket_was_withheld_does_not_cost_the_early_data() {
    let world = World::new(|_| {});
    let mut first = world.connect();
    let ticket = first.server.take_ticket().expect("a ticket");
    world.clock.advance(600);
    let message = ticket.release(&key_ring(), b"own", world.clock.now(), &mut rng(1));
    first.client.read_hs(&message).expect("a NewSessionTicket");
    assert_eq!(outcome(&world.connect()), (true, true));
}

#[test]
fn a_replayed_client_hello_resumes_without_early_data() {
    let world = World::new(|_| {});
    world.connect_for_ticket(b"own");
    let mut original = Handshake::new(&world.server, world.client.clone());
    let hello = original.client_output().remove(0).1;
    original.server.read(Level::Initial, &hello).expect("a ClientHello");
    assert_eq!(outcome(&original), (true, true));

    for seconds in [0, 60, 200] {
        world.clock.advance(seconds);
        let mut replay = Tls::new(&world.server, Vec::new());
        replay.read(Level::Initial, &hello).expect("a ClientHello");
        assert!(replay.resumed());
        assert!(replay.zero_rtt_keys().is_none(), "after {seconds} s more");
    }
}

#[test]
fn a_refused_early_data_handshake_still_completes() {
    let world = World::new(|settings| {
        settings.single_use = Arc::new(SingleUseLog::new(0, 120, 0));
    });
    world.connect_for_ticket(b"own");
    let again = world.connect();
    assert_eq!(outcome(&again), (true, false));
    assert!(!again.client.is_early_data_accepted());
    assert_eq!(again.server.returned_ticket(), Some(&b"own"[..]));
}

#[test]
fn early_data_is_refused_when_its_context_has_changed_or_it_is_off() {
    for change in
        [(|settings| settings.early_data_context = 2) as fn(&mut TlsSettings), |settings| {
            settings.early_data = false
        }]
    {
        let mut world = World::new(|_| {});
        world.connect_for_ticket(b"own");
        let mut settings = world.settings();
        change(&mut settings);
        world.server = TlsConfig::new(settings).expect("a valid configuration");
        let again = world.connect();
        assert_eq!(outcome(&again), (true, false));
        assert_eq!(again.server.returned_ticket(), Some(&b"own"[..]));
    }
}

#[test]
fn after_a_restart_old_tickets_resume_without_early_data_for_one_window() {
    for (wait, early_data) in [(0, false), (130, true)] {
        let mut world = World::new(|_| {});
        world.connect_for_ticket(b"own");
        world.clock.advance(10);
        world.server = TlsConfig::new(world.settings()).expect("a valid configuration");
        world.clock.advance(wait);
        assert_eq!(outcome(&world.connect()), (true, early_data), "after {wait} s");
    }
}

#[test]
fn an_expired_ticket_leads_to_a_full_handshake() {
    // The client believes in the lifetime that its ticket was issued with; the server has since
    // been configured with a shorter one.
    let mut world = World::new(|_| {});
    world.connect_for_ticket(b"own");
    let mut settings = world.settings();
    settings.ticket_lifetime = 60;
    world.server = TlsConfig::new(settings).expect("a valid configuration");
    world.clock.advance(61);
    let again = world.connect();
    assert_eq!(outcome(&again), (false, false));
    assert_eq!(again.server.returned_ticket(), None);
}

#[test]
fn the_client_is_told_the_configured_lifetime() {
    let world = World::new(|settings| settings.ticket_lifetime = 60);
    world.connect_for_ticket(b"own");
    world.clock.advance(61);
    let mut again = Handshake::new(&world.server, world.client.clone());
    assert!(again.client.zero_rtt_keys().is_none(), "the client has dropped the ticket");
    again.run().expect("the handshake completes");
    assert_eq!(outcome(&again), (false, false));
}

#[test]
fn a_ticket_of_unknown_keys_leads_to_a_full_handshake_and_a_rotated_ring_still_opens_it() {
    let rotated = KeyRing::new(&[1; 32], &[(0, [2; 32]), (100, [3; 32])]);
    let replaced = KeyRing::new(&[1; 32], &[(100, [3; 32])]);
    for (ring, resumed) in [(rotated, true), (replaced, false)] {
        let mut world = World::new(|_| {});
        world.connect_for_ticket(b"own");
        let settings = TlsSettings { keys: Arc::new(ring), ..world.settings() };
        world.server = TlsConfig::new(settings).expect("a valid configuration");
        assert_eq!(world.connect().server.resumed(), resumed);
    }
}

#[test]
fn the_null_cipher_replaces_the_one_rtt_keys_only() {
    let handshake = World::new(|settings| settings.one_rtt = OneRttProtection::Null).connect();
    let mut server = handshake.server_one_rtt.expect("1-RTT keys");
    let mut packet = [&[0x40, 0x00][..], b"text as it is", &super::super::null_tag(0)].concat();
    let sealed = packet.clone();
    packet[15..].fill(0);
    server.seal(0, &mut packet, 1, 1);
    assert_eq!(packet, sealed);
}

#[test]
fn a_configuration_that_cannot_work_is_refused() {
    let world = World::new(|_| {});
    for change in [
        (|settings| settings.private_key = vec![1, 2, 3]) as fn(&mut TlsSettings),
        |settings| settings.certificate_chain = vec![vec![1, 2, 3]],
        |settings| settings.ticket_lifetime = 604_801,
    ] {
        let mut settings = world.settings();
        change(&mut settings);
        assert!(TlsConfig::new(settings).is_err());
    }
}
