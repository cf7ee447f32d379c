//! The test vectors of RFC 9001, appendix A, and the null cipher.

use rustls::Side;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256;
use rustls::crypto::cipher::{AeadKey, Iv};

use super::super::testing::bytes;
use super::*;

const CLIENT_DCID: &str = "8394c8f03e515708";

/// Seals and masks `header` (with a packet number of `pn_len` bytes at its end) and `payload`.
fn seal(keys: &DirectionKeys, pn: u64, pn_len: usize, header: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut packet = [header, payload, &[0; TAG_LEN]].concat();
    let (head, body) = packet.split_at_mut(header.len());
    keys.packet.seal(pn, head, body);
    keys.header.protect(&mut packet, header.len() - pn_len, pn_len);
    packet
}

/// Unmasks and opens; the packet number must be `pn` truncated.
fn open(keys: &DirectionKeys, pn: u64, pn_offset: usize, packet: &[u8]) -> (u8, Vec<u8>) {
    let mut packet = packet.to_vec();
    let (first, truncated, pn_len) =
        keys.header.unprotect(&mut packet, pn_offset).expect("long enough");
    assert_eq!(truncated, pn & ((1 << (8 * pn_len)) - 1));
    let (header, payload) = packet.split_at_mut(pn_offset + pn_len);
    let len = keys.packet.open(pn, header, payload).expect("authentic");
    (first, payload[..len].to_vec())
}

#[test]
fn the_client_initial_of_appendix_a_2() {
    let mut payload = bytes(
        "060040f1010000ed0303ebf8fa56f129 39b9584a3896472ec40bb863cfd3e868
         04fe3a47f06a2b69484c000004130113 02010000c000000010000e00000b6578
         616d706c652e636f6dff01000100000a 00080006001d00170018001000070005
         04616c706e0005000501000000000033 00260024001d00209370b2c9caa47fba
         baf4559fedba753de171fa71f50f1ce1 5d43e994ec74d748002b000302030400
         0d0010000e0403050306030203080408 050806002d00020101001c0002400100
         3900320408ffffffffffffffff050480 00ffff07048000ffff08011001048000
         75300901100f088394c8f03e51570806 048000ffff",
    );
    payload.resize(1162, 0);
    let header = bytes("c300000001088394c8f03e5157080000449e00000002");
    let client = initial_keys_of(Side::Client, &bytes(CLIENT_DCID)).local;
    let packet = seal(&client, 2, 4, &header, &payload);

    assert_eq!(packet.len(), 1200);
    assert_eq!(packet[..22], bytes("c000000001088394c8f03e5157080000449e7b9aec34"));
    assert_eq!(packet[22..38], bytes("d1b1c98dd7689fb8ec11d242b123dc9b"));
    assert_eq!(packet[1184..], bytes("e221af44860018ab0856972e194cd934"));

    let server = initial_keys(&bytes(CLIENT_DCID)).remote;
    assert_eq!(open(&server, 2, 18, &packet), (0xc3, payload));
}

#[test]
fn the_server_initial_of_appendix_a_3() {
    let payload = bytes(
        "02000000000600405a020000560303ee fce7f7b37ba1d1632e96677825ddf739
         88cfc79825df566dc5430b9a045a1200 130100002e00330024001d00209d3c94
         0d89690b84d08a60993c144eca684d10 81287c834d5311bcf32bb9da1a002b00
         020304",
    );
    let header = bytes("c1000000010008f067a5502a4262b50040750001");
    let expected = bytes(
        "cf000000010008f067a5502a4262b500 4075c0d95a482cd0991cd25b0aac406a
         5816b6394100f37a1c69797554780bb3 8cc5a99f5ede4cf73c3ec2493a1839b3
         dbcba3f6ea46c5b7684df3548e7ddeb9 c3bf9c73cc3f3bded74b562bfb19fb84
         022f8ef4cdd93795d77d06edbb7aaf2f 58891850abbdca3d20398c276456cbc4
         2158407dd074ee",
    );
    let server = initial_keys(&bytes(CLIENT_DCID)).local;
    assert_eq!(seal(&server, 1, 2, &header, &payload), expected);
    let client = initial_keys_of(Side::Client, &bytes(CLIENT_DCID)).remote;
    assert_eq!(open(&client, 1, 18, &expected), (0xc1, payload));
}

#[test]
fn the_retry_tag_of_appendix_a_4() {
    let packet = bytes(
        "ff000000010008f067a5502a4262b574 6f6b656e04a265ba2eff4d829058fb3f
         0f2496ba",
    );
    let (without_tag, tag) = packet.split_at(packet.len() - TAG_LEN);
    assert_eq!(retry_tag(&bytes(CLIENT_DCID), without_tag), tag);
    assert_ne!(retry_tag(&[], without_tag), tag);
}

#[test]
fn the_chacha20_short_header_of_appendix_a_5() {
    let algorithm = TLS13_CHACHA20_POLY1305_SHA256
        .tls13()
        .and_then(|suite| suite.quic)
        .expect("a suite with QUIC keys");
    let key = |hex| AeadKey::from(<[u8; 32]>::try_from(bytes(hex)).expect("32 bytes"));
    let iv: [u8; 12] = bytes("e0459b3474bdd0e44a41c144").try_into().expect("12 bytes");
    let keys = DirectionKeys {
        header: HeaderKey::real(algorithm.header_protection_key(key(
            "25a282b9e82f06f21f488917a4fc8f1b73573685608597d0efcb076b0ab7a7a4",
        ))),
        packet: PacketKey::real(algorithm.packet_key(
            key("c6d98ff3441c3fe1b2182094f69caa2ed4b716b65488960a7a984979fb23e1c8"),
            Iv::from(iv),
        )),
    };
    let packet = seal(&keys, 654_360_564, 3, &bytes("4200bff4"), &[0x01]);
    assert_eq!(packet, bytes("4cfe4189655e5cd55c41f69080575d7999c25a5bfb"));
    assert_eq!(open(&keys, 654_360_564, 1, &packet), (0x42, vec![0x01]));
}

#[test]
fn a_packet_without_a_whole_sample_is_truncated() {
    for key in [initial_keys(&[]).remote.header, HeaderKey::null()] {
        for len in 0..21 {
            let mut packet = vec![0xff; len];
            assert_eq!(key.unprotect(&mut packet, 1), Err(Truncated), "{len} bytes");
            assert_eq!(packet, vec![0xff; len]);
        }
        assert!(key.unprotect(&mut [0xff; 21], 1).is_ok());
    }
}

#[test]
fn a_packet_that_is_changed_anywhere_does_not_open() {
    for (sealing, opening) in [
        (initial_keys_of(Side::Client, b"id").local.packet, initial_keys(b"id").remote.packet),
        (PacketKey::null(0), PacketKey::null(0)),
    ] {
        let null = matches!(opening.0, PacketCipher::Null { .. });
        let mut sealed = *b"payload, then room for the tag: 0123456789abcdef";
        sealing.seal(7, b"header", &mut sealed);
        assert_eq!(opening.open(7, b"header", &mut sealed.clone()), Ok(32));
        // The null cipher looks at its tag only.
        for at in if null { 32..48 } else { 0..48 } {
            let mut changed = sealed;
            changed[at] ^= 1;
            assert_eq!(opening.open(7, b"header", &mut changed), Err(DecryptError), "byte {at}");
        }
        if !null {
            assert_eq!(opening.open(8, b"header", &mut sealed.clone()), Err(DecryptError));
            assert_eq!(opening.open(7, b"reader", &mut sealed.clone()), Err(DecryptError));
        }
        assert_eq!(opening.open(7, b"header", &mut [0; 15]), Err(DecryptError));
    }
}

#[test]
fn the_null_cipher_keeps_sizes_and_key_phases() {
    let keys = |generation| DirectionKeys {
        header: HeaderKey::null(),
        packet: PacketKey::null(generation),
    };
    let packet = seal(&keys(1), 0x1234, 2, &[0x41, 0x12, 0x34], b"twenty bytes of text");
    assert_eq!(packet.len(), 3 + 20 + TAG_LEN);
    assert_eq!(open(&keys(1), 0x1234, 1, &packet), (0x41, b"twenty bytes of text".to_vec()));
    let (header, payload) = packet.split_at(3);
    let other = keys(0).packet.open(0x1234, header, &mut payload.to_vec());
    assert_eq!(other, Err(DecryptError));
}
