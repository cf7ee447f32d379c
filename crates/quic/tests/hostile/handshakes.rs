//! Attacks on connection setup: tokens, coalesced junk, endless handshake data, and unusual but
//! valid handshakes (RFC 9000, sections 7, 8.1 and 14.1).

use std::sync::Arc;
use std::time::Duration;

use mendcast_quic::wire::{PacketType, put_crypto, put_ping};
use mendcast_quic::{DropReason, Endpoint, Outcome, RetryPolicy, TokenUse};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rustls::crypto::aws_lc_rs::kx_group;

use crate::raw::{Raw, frames, honest};
use crate::{client, client_tls, client_tls_with, config, endpoint};

const CRYPTO_BUFFER_EXCEEDED: u64 = 0x0d;
const INVALID_TOKEN: u64 = 0x0b;
const UNEXPECTED_MESSAGE: u64 = 0x10a;
const DECODE_ERROR: u64 = 0x132;
const ILLEGAL_PARAMETER: u64 = 0x12f;

/// A server that asks everybody to prove the address.
fn suspicious() -> Endpoint {
    let mut config = config();
    config.retry = RetryPolicy::Always;
    Endpoint::new(config, [3; 32])
}

/// A client that was sent a Retry packet and has its token; and its hello.
fn retried() -> (Raw, Vec<u8>) {
    let mut raw = Raw::new(suspicious(), client_tls(b"test"), &honest());
    let hello = raw.hello();
    let retry = raw.initial(&hello).expect("a Retry packet");
    raw.follow(&retry);
    (raw, hello)
}

#[test]
fn a_retry_token_from_its_address_is_accepted() {
    let (mut raw, hello) = retried();
    assert_eq!(raw.initial(&hello), None);
    raw.handshake();
    assert!(raw.confirmed, "{:?}", raw.close);
    let handle = raw.handle.expect("a connection");
    let token = raw.server.connection(handle).expect("open").stats().token;
    assert_eq!(token, TokenUse::Retry);
}

#[test]
fn a_retry_token_from_elsewhere_or_damaged_proves_nothing() {
    // Another address, another port.
    for change in [
        (|raw: &mut Raw| raw.address.set_ip([10, 0, 0, 9].into())) as fn(&mut Raw),
        |raw| raw.address.set_port(4_001),
        |raw| raw.token[20] ^= 1,
        |raw| raw.token.truncate(9),
        |raw| raw.token = vec![0x52; 900],
    ] {
        let (mut raw, hello) = retried();
        change(&mut raw);
        let answer = raw.initial(&hello).expect("another Retry packet");
        assert_eq!(answer[0] & 0xf0, 0xf0);
        assert!(raw.handle.is_none() && raw.server.is_empty());
        // RFC 9000, sections 14.1 and 8.1: the answer is smaller than the client's datagram.
        assert!(answer.len() < 1_200);
    }
}

#[test]
fn an_expired_retry_token_is_an_invalid_token() {
    let (mut raw, hello) = retried();
    raw.wait(Duration::from_secs(17));
    let mut answer = raw.initial(&hello).expect("CONNECTION_CLOSE");
    raw.open(&mut answer);
    // RFC 9000, section 8.1.2.
    assert_eq!(raw.code(), Some(INVALID_TOKEN), "{:?}", raw.close);
    assert!(raw.server.is_empty());
}

#[test]
fn a_retry_token_is_good_for_one_handshake_at_a_time() {
    let mut config = config();
    config.retry = RetryPolicy::Always;
    let mut raw = Raw::new(Endpoint::new(config, [3; 32]), client_tls(b"test"), &honest());
    let hello = raw.hello();
    let retry = raw.initial(&hello).expect("a Retry packet");
    raw.follow(&retry);
    let token = raw.token.clone();
    // With an ID of the client's choice it is no token of ours: each such packet costs a Retry.
    for n in 0..100 {
        let mut again = Raw::with_id(raw.server, [n; 8]);
        again.token = token.clone();
        let answer = again.initial(&hello).expect("a Retry packet");
        assert_eq!(answer[0] & 0xf0, 0xf0);
        raw.server = again.server;
    }
    assert_eq!(raw.server.len(), 0);
    // With the ID that came with it, it opens a connection, and copies belong to that.
    for _ in 0..100 {
        raw.initial(&hello);
    }
    assert_eq!(raw.server.len(), 1);
}

#[test]
fn a_token_that_is_none_costs_no_more_than_none() {
    let mut config = config();
    config.retry = RetryPolicy::Always;
    let mut raw = Raw::new(Endpoint::new(config, [3; 32]), client_tls(b"test"), &honest());
    let hello = raw.hello();
    for token in [vec![0], vec![0x52; 60], vec![0x4e; 300]] {
        raw.token = token;
        let answer = raw.initial(&hello).expect("a Retry packet");
        assert_eq!(answer[0] & 0xf0, 0xf0);
    }
    assert_eq!(raw.server.stats().invalid_tokens, 0, "not even looked into");
}

#[test]
fn a_late_copy_of_the_first_packet_opens_no_other_connection() {
    let mut raw = client(&honest());
    let hello = raw.hello();
    let mut packets: Vec<Vec<u8>> = Vec::new();
    for (n, piece) in hello.chunks(900).enumerate() {
        let payload = frames(|w| put_crypto(w, 900 * n as u64, piece));
        packets.push(raw.packet(PacketType::Initial, &payload));
    }
    for packet in &packets {
        raw.deliver(&mut packet.clone());
    }
    raw.handshake();
    assert!(raw.confirmed, "{:?}", raw.server_events);
    for packet in &packets {
        raw.deliver(&mut packet.clone());
    }
    assert_eq!(raw.server.len(), 1);
}

/// A client's NEW_TOKEN token, and the server that gave it.
fn address_token() -> (Endpoint, Vec<u8>) {
    let mut raw = client(&honest());
    raw.connect();
    let handle = raw.handle.expect("a connection");
    raw.server.send_new_token(handle, raw.now, b"own");
    raw.collect();
    let token = raw.token_of_server.take().expect("a NEW_TOKEN frame");
    raw.server.remove(handle);
    (raw.server, token)
}

fn with_token(server: Endpoint, token: &[u8]) -> (Raw, Vec<u8>) {
    let mut raw = Raw::new(server, client_tls(b"test"), &honest());
    raw.token = token.to_vec();
    let hello = raw.hello();
    (raw, hello)
}

fn token_use(raw: &mut Raw) -> TokenUse {
    let handle = raw.handle.expect("a connection");
    raw.server.connection(handle).expect("open").stats().token
}

#[test]
fn an_address_token_is_good_for_one_connection() {
    let (server, token) = address_token();
    let (mut raw, hello) = with_token(server, &token);
    raw.initial(&hello);
    assert_eq!(token_use(&mut raw), TokenUse::NewToken);
    let handle = raw.handle.expect("a connection");
    raw.server.remove(handle);
    // RFC 9000, section 8.1.4: replayed, it validates nothing; the client is served as any other.
    let (mut raw, hello) = with_token(raw.server, &token);
    raw.initial(&hello);
    assert_eq!(token_use(&mut raw), TokenUse::Invalid);
    raw.handshake();
    assert!(raw.confirmed, "{:?}", raw.close);
}

#[test]
fn an_address_token_is_bound_to_its_address() {
    let (server, token) = address_token();
    let (mut raw, hello) = with_token(server, &token);
    raw.address.set_ip([10, 0, 0, 9].into());
    raw.initial(&hello);
    assert_eq!(token_use(&mut raw), TokenUse::Invalid);
}

#[test]
fn a_damaged_initial_packet_does_not_use_up_its_token() {
    let (server, token) = address_token();
    let (mut raw, hello) = with_token(server, &token);
    let mut damaged = raw.packet(PacketType::Initial, &frames(|w| put_crypto(w, 0, &hello[..100])));
    *damaged.last_mut().expect("bytes") ^= 1;
    assert_eq!(raw.outcome(&mut damaged), Outcome::Dropped(DropReason::Decrypt));
    raw.initial(&hello);
    assert_eq!(token_use(&mut raw), TokenUse::NewToken);
}

#[test]
fn initial_packets_in_small_datagrams_are_ignored_at_any_time() {
    // RFC 9000, section 14.1: "A server MUST discard an Initial packet that is carried in a UDP
    // datagram with a payload that is smaller than the smallest allowed maximum datagram size of
    // 1200 bytes."
    let mut raw = client(&honest());
    let hello = raw.hello();
    raw.initial(&hello);
    raw.pads = false;
    raw.send(PacketType::Initial, &frames(|w| w.varint(0x21)));
    assert_eq!(raw.close, None);
    raw.pads = true;
    raw.send(PacketType::Initial, &frames(|w| w.varint(0x21)));
    assert!(raw.close.is_some());
}

#[test]
fn initial_packets_from_another_source_id_are_ignored() {
    // RFC 9000, section 7.2: "if subsequent Initial packets include a different Source Connection
    // ID, they MUST be discarded."
    let mut raw = client(&honest());
    let hello = raw.hello();
    raw.initial(&hello);
    raw.scid = [0xee; 8];
    raw.send(PacketType::Initial, &frames(|w| w.varint(0x21)));
    assert_eq!(raw.close, None);
    raw.scid = crate::raw::SCID;
    raw.send(PacketType::Initial, &frames(|w| w.varint(0x21)));
    assert!(raw.close.is_some());
}

#[test]
fn coalesced_junk_is_dropped_and_the_handshake_goes_on() {
    let mut raw = client(&honest());
    let hello = raw.hello();
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    for _ in 0..200 {
        // A packet of another connection, an undecryptable one of this, and random bytes.
        let mut datagram = raw.packet(PacketType::Initial, &frames(put_ping));
        let mut other = datagram.clone();
        other[6] ^= 0xff;
        let mut undecryptable = datagram.clone();
        undecryptable[100] ^= 1;
        datagram.extend(undecryptable);
        datagram.extend(other);
        let mut junk = vec![0; 500];
        rng.fill_bytes(&mut junk);
        datagram.extend(junk);
        raw.deliver(&mut datagram);
    }
    assert_eq!(raw.server.len(), 1, "one connection for one destination ID");
    raw.send_crypto(PacketType::Initial, &hello);
    raw.handshake();
    assert!(raw.confirmed, "{:?}", raw.close);
}

#[test]
fn many_tiny_initial_packets_in_a_datagram_open_one_connection() {
    let mut raw = client(&honest());
    raw.pads = false;
    let mut datagram = Vec::new();
    while datagram.len() < 1_200 {
        datagram.extend(raw.packet(PacketType::Initial, &frames(put_ping)));
    }
    raw.deliver(&mut datagram);
    assert_eq!(raw.server.len(), 1);
    assert!(raw.server_bytes <= 3 * datagram.len());
}

#[test]
fn a_hello_that_never_ends_is_cut_off() {
    // A ClientHello of 2^24 - 1 bytes, in order.
    let mut raw = client(&honest());
    let mut bytes = vec![0; 1_000];
    bytes[..4].copy_from_slice(&[1, 0xff, 0xff, 0xff]);
    let mut sent = 0;
    while raw.close.is_none() && sent < 1 << 20 {
        raw.send_crypto(PacketType::Initial, &bytes);
        bytes.fill(0);
        sent += bytes.len();
    }
    assert!(raw.close.is_some() && sent <= 132 << 10, "{sent} {:?}", raw.close);
}

#[test]
fn a_hello_with_gaps_between_its_bytes_is_cut_off() {
    // Every second byte, in an order that makes each a piece of its own.
    for ty in [PacketType::Initial, PacketType::Handshake, PacketType::OneRtt] {
        let mut raw = client(&honest());
        match ty {
            PacketType::OneRtt => raw.connect(),
            _ => {
                let hello = raw.hello();
                raw.initial(&hello);
            }
        }
        let mut pieces = 0;
        while raw.close.is_none() && pieces < 30_000 {
            let payload = frames(|w| {
                for _ in 0..100 {
                    put_crypto(w, 65_000 - 2 * pieces, b"x");
                    pieces += 1;
                }
            });
            raw.send(ty, &payload);
        }
        assert_eq!(raw.code(), Some(CRYPTO_BUFFER_EXCEEDED), "{ty:?}: {:?}", raw.close);
        assert!(pieces < 2_000, "{ty:?}: {pieces}");
    }
}

#[test]
fn bytes_behind_the_hello_are_unexpected() {
    // RFC 9001, section 4.1.3: the hello is all that a client says in Initial packets.
    let mut raw = client(&honest());
    let hello = raw.hello();
    raw.send_crypto(PacketType::Initial, &[&hello[..], &[1, 0, 0, 1, 0]].concat());
    assert_eq!(raw.code(), Some(UNEXPECTED_MESSAGE), "{:?}", raw.close);
    let mut raw = client(&honest());
    let hello = raw.hello();
    raw.send_crypto(PacketType::Initial, &hello);
    raw.send_crypto(PacketType::Initial, &[1, 0, 0, 1, 0]);
    assert_eq!(raw.code(), Some(UNEXPECTED_MESSAGE), "{:?}", raw.close);
}

#[test]
fn mutated_hellos_never_panic_and_fail_with_an_alert() {
    let hello = client(&honest()).hello();
    let mut server = endpoint();
    for seed in 0..400u64 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut mutant = hello.clone();
        for _ in 0..1 + rng.next_u32() % 4 {
            let at = rng.next_u32() as usize % mutant.len();
            mutant[at] = rng.next_u32() as u8;
        }
        let mut raw = Raw::with_id(server, [9; 8]);
        raw.initial(&mutant);
        if let Some(close) = &raw.close {
            let code = close.code;
            assert!(code == 0x08 || (0x100..0x200).contains(&code), "seed {seed}: {close:?}");
        }
        let handle = raw.handle.expect("a connection");
        raw.wait(Duration::from_secs(60));
        let ended = raw.server.connection(handle).is_none_or(|c| c.is_drained());
        assert!(ended, "seed {seed}: the connection never ends");
        raw.server.remove(handle);
        server = raw.server;
    }
}

#[test]
fn an_unreadable_hello_is_a_decode_error() {
    let mut raw = client(&honest());
    raw.send_crypto(PacketType::Initial, &[1, 0, 0, 4, 9, 9, 9, 9]);
    let code = raw.code();
    assert!(code == Some(DECODE_ERROR) || code == Some(ILLEGAL_PARAMETER), "{:?}", raw.close);
}

#[test]
fn a_client_whose_first_key_share_is_not_ours_is_asked_for_another() {
    // RFC 8446, section 4.1.4: HelloRetryRequest. Initial packets go back and forth twice.
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.kx_groups = vec![UNKNOWN, kx_group::X25519];
    let mut raw = Raw::new(endpoint(), client_tls_with(provider, b"test"), &honest());
    raw.handshake();
    assert!(raw.confirmed, "{:?} {:?}", raw.close, raw.server_events);
}

/// X25519 under a name that no server knows.
static UNKNOWN: &dyn rustls::crypto::SupportedKxGroup = &Unknown;

#[derive(Debug)]
struct Unknown;

impl rustls::crypto::SupportedKxGroup for Unknown {
    fn start(&self) -> Result<Box<dyn rustls::crypto::ActiveKeyExchange>, rustls::Error> {
        let exchange = kx_group::X25519.start()?;
        Ok(Box::new(Share(exchange.pub_key().to_vec())))
    }

    fn name(&self) -> rustls::NamedGroup {
        rustls::NamedGroup::Unknown(0x1a1a)
    }
}

/// A key share without a completed exchange.
struct Share(Vec<u8>);

impl rustls::crypto::ActiveKeyExchange for Share {
    fn complete(self: Box<Self>, _: &[u8]) -> Result<rustls::crypto::SharedSecret, rustls::Error> {
        Err(rustls::Error::General("no server knows this group".into()))
    }

    fn pub_key(&self) -> &[u8] {
        &self.0
    }

    fn group(&self) -> rustls::NamedGroup {
        rustls::NamedGroup::Unknown(0x1a1a)
    }
}

#[test]
fn a_handshake_in_drips_is_given_up() {
    let mut raw = client(&honest());
    let hello = raw.hello();
    let start = raw.now;
    for (offset, byte) in hello.iter().enumerate() {
        let handle = raw.handle;
        if handle.is_some_and(|h| raw.server.connection(h).is_none_or(|c| c.is_drained())) {
            break;
        }
        raw.send(PacketType::Initial, &frames(|w| put_crypto(w, offset as u64, &[*byte])));
        raw.wait(Duration::from_millis(500));
    }
    let handle = raw.handle.expect("a connection");
    assert!(raw.server.connection(handle).is_none_or(|c| c.is_drained()));
    assert!(raw.now.since(start) <= Duration::from_secs(11), "{:?}", raw.now);
}

#[test]
fn a_full_server_refuses() {
    let mut config = config();
    config.max_connections = 1;
    let tls: Arc<_> = client_tls(b"test");
    let mut first = Raw::new(Endpoint::new(config, [3; 32]), tls.clone(), &honest());
    first.connect();
    let hello = Raw::new(endpoint(), tls, &honest()).hello();
    let mut raw = Raw::with_id(first.server, [8; 8]);
    let mut answer = raw.initial(&hello).expect("CONNECTION_CLOSE");
    raw.open(&mut answer);
    // RFC 9000, section 5.2.2.
    assert_eq!(raw.code(), Some(0x02), "{:?}", raw.close);
}
