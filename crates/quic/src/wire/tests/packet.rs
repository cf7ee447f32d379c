//! Packet headers and packet numbers.

use super::*;

fn id(bytes: &[u8]) -> ConnectionId {
    ConnectionId::new(bytes).expect("at most 20 bytes")
}

/// A long-header packet with `payload` bytes of 0x55 from its packet number on.
fn long(
    ty: PacketType,
    dcid: &ConnectionId,
    scid: &ConnectionId,
    token: &[u8],
    payload: usize,
) -> Vec<u8> {
    written(|w| {
        let at = put_long_header(w, ty, dcid, scid, token, 2);
        w.set_varint2(at, payload as u64);
        w.fill(0x55, payload);
    })
}

#[test]
fn the_clients_initial_of_rfc_9001_appendix_a2_is_read() {
    let mut datagram = [0u8; 1_200];
    let header = [
        0xc3, 0x00, 0x00, 0x00, 0x01, 0x08, 0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08, 0x00,
        0x00, 0x44, 0x9e, 0x00, 0x00, 0x00, 0x02,
    ];
    datagram[..header.len()].copy_from_slice(&header);
    assert_eq!(
        parse_header(&datagram, 8),
        Ok(Header::Long {
            ty: PacketType::Initial,
            dcid: id(&[0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08]),
            scid: ConnectionId::EMPTY,
            token: &[],
            pn_offset: 18,
            end: 1_200,
        })
    );
}

#[test]
fn coalesced_packets_are_found_one_after_the_other() {
    let (dcid, scid) = (id(&[1; 8]), id(&[2; 5]));
    let mut datagram = long(PacketType::Initial, &dcid, &scid, b"token", 40);
    let first = datagram.len();
    datagram.extend(long(PacketType::Handshake, &dcid, &scid, &[], 30));
    let second = datagram.len();
    datagram.extend(written(|w| {
        put_short_header(w, &dcid, false, true, 1, true);
        w.fill(0x55, MIN_PROTECTED_LEN);
    }));

    let Ok(Header::Long { ty, token, pn_offset, end, .. }) = parse_header(&datagram, 8) else {
        panic!("the Initial packet is well-formed");
    };
    assert_eq!((ty, token, end, end - pn_offset), (PacketType::Initial, &b"token"[..], first, 40));
    let Ok(Header::Long { ty, token, end, .. }) = parse_header(&datagram[end..], 8) else {
        panic!("the Handshake packet is well-formed");
    };
    assert_eq!((ty, token, first + end), (PacketType::Handshake, &[][..], second));
    let rest = &datagram[second..];
    assert_eq!(parse_header(rest, 8), Ok(Header::Short { dcid, pn_offset: 9 }));
    assert_eq!(rest[0], 0x44);
}

#[test]
fn a_zero_fixed_bit_is_accepted_and_visible() {
    let dcid = id(&[1; 8]);
    let packet = |fixed_bit| {
        written(|w| {
            put_short_header(w, &dcid, true, false, 4, fixed_bit);
            w.fill(0, 30);
        })
    };
    let (greased, plain) = (packet(false), packet(true));
    assert_eq!(greased[0], 0x23);
    assert_eq!(plain[0], 0x63);
    assert_eq!(parse_header(&greased, 8), parse_header(&plain, 8));
}

#[test]
fn other_versions_show_connection_ids_of_up_to_255_bytes() {
    let mut datagram = vec![0x80, 0x6b, 0x33, 0x43, 0xcf, 255];
    datagram.extend([7; 255]);
    datagram.push(0);
    assert_eq!(
        parse_header(&datagram, 8),
        Ok(Header::UnknownVersion { version: 0x6b33_43cf, dcid: &[7; 255], scid: &[] })
    );
    datagram[1..5].copy_from_slice(&VERSION_1.to_be_bytes());
    assert_eq!(parse_header(&datagram, 8), Err(HeaderError::InvalidConnectionId));
}

#[test]
fn what_only_servers_send_is_unexpected() {
    let mut datagram = Vec::new();
    version_negotiation(&mut datagram, 0x15, &[1], &[2; 30], &[VERSION_1, 0x1a2a_3a4a]);
    let expected =
        [&[0xd5, 0, 0, 0, 0, 1, 1, 30][..], &[2; 30], &[0, 0, 0, 1, 0x1a, 0x2a, 0x3a, 0x4a]];
    assert_eq!(datagram, expected.concat());
    assert_eq!(parse_header(&datagram, 8), Err(HeaderError::Unexpected));

    datagram.clear();
    put_retry(&mut datagram, &id(&[1]), &id(&[2, 3]), b"token", 0xfe);
    assert_eq!(datagram, b"\xfe\0\0\0\x01\x01\x01\x02\x02\x03token");
    datagram.extend([0; RETRY_INTEGRITY_TAG_LEN]);
    assert_eq!(parse_header(&datagram, 8), Err(HeaderError::Unexpected));
}

#[test]
fn the_retry_of_rfc_9001_appendix_a4_is_written() {
    let mut retry = Vec::new();
    let scid = id(&[0xf0, 0x67, 0xa5, 0x50, 0x2a, 0x42, 0x62, 0xb5]);
    put_retry(&mut retry, &ConnectionId::EMPTY, &scid, b"token", 0x0f);
    let expected = b"\xff\x00\x00\x00\x01\x00\x08\xf0\x67\xa5\x50\x2a\x42\x62\xb5token";
    assert_eq!(retry, expected);
}

#[test]
fn lengths_that_do_not_fit_are_refused() {
    let (dcid, scid) = (id(&[1; 8]), id(&[2; 5]));
    let exact = long(PacketType::Handshake, &dcid, &scid, &[], MIN_PROTECTED_LEN);
    assert!(parse_header(&exact, 8).is_ok());
    let beyond = &exact[..exact.len() - 1];
    assert_eq!(parse_header(beyond, 8), Err(HeaderError::InvalidLength));
    let short = long(PacketType::Handshake, &dcid, &scid, &[], MIN_PROTECTED_LEN - 1);
    assert_eq!(parse_header(&short, 8), Err(HeaderError::InvalidLength));
    assert_eq!(parse_header(&[0x40; 28], 8), Err(HeaderError::Truncated));
    assert!(parse_header(&[0x40; 29], 8).is_ok());
    assert_eq!(parse_header(&[], 8), Err(HeaderError::Truncated));
    assert_eq!(parse_header(&[0xc0, 0, 0, 0, 1, 8], 8), Err(HeaderError::Truncated));
    assert_eq!(parse_header(&[0x40; 60], 21), Err(HeaderError::InvalidConnectionId));
}

#[test]
fn packet_numbers_are_cut_as_in_rfc_9000_appendix_a2() {
    assert_eq!(packet_number_len(0xac_5c02, Some(0xab_e8b3)), 2);
    assert_eq!(packet_number_len(0xac_e8fe, Some(0xab_e8b3)), 3);
    assert_eq!(packet_number_len(0, None), 1);
    assert_eq!(packet_number_len(127, None), 2);
    assert_eq!(packet_number_len(VARINT_MAX, None), 4);
}

#[test]
fn packet_numbers_are_restored_as_in_rfc_9000_appendix_a3() {
    assert_eq!(expand_packet_number(0x9b32, 2, 0xa82f_30eb), 0xa82f_9b32);
    assert_eq!(expand_packet_number(0xff, 1, 0x100), 0xff);
    assert_eq!(expand_packet_number(0x00, 1, 0xff), 0x100);
    assert_eq!(expand_packet_number(0, 4, 0), 0);
    // The window reaches from just above `expected` - 0x80 up to `expected` + 0x80 itself.
    assert_eq!(expand_packet_number(0x00, 1, 0x180), 0x200);
    assert_eq!(expand_packet_number(0x80, 1, 0x100), 0x180);
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn long_headers_come_back(
        ty in prop::sample::select(
            vec![PacketType::Initial, PacketType::ZeroRtt, PacketType::Handshake]),
        dcid in connection_id(),
        scid in connection_id(),
        token in bytes(0..100),
        payload in MIN_PROTECTED_LEN..1_500,
        rest in bytes(0..40),
    ) {
        let mut datagram = long(ty, &dcid, &scid, &token, payload);
        let end = datagram.len();
        datagram.extend(rest);
        let pn_offset = end - payload;
        let token = if ty == PacketType::Initial { &token[..] } else { &[] };
        let expected = Header::Long { ty, dcid, scid, token, pn_offset, end };
        prop_assert_eq!(parse_header(&datagram, 8), Ok(expected));
        prop_assert_eq!(datagram[0], [0xc1, 0xd1, 0xe1][ty as usize]);
        for cut in 0..end {
            prop_assert!(parse_header(&datagram[..cut], 8).is_err());
        }
    }

    #[test]
    fn a_receiver_up_to_the_window_behind_restores_the_number(
        full in varint(),
        behind in varint(),
        received in any::<u32>(),
    ) {
        let largest_acked = full.checked_sub(behind % (1 << 30) + 1);
        let len = packet_number_len(full, largest_acked);
        prop_assume!(largest_acked.is_some() || full < 1 << 31);
        let bytes = written(|w| put_packet_number(w, full, len));
        prop_assert_eq!(bytes.len(), len);
        let truncated = bytes.iter().fold(0, |v, &byte| v << 8 | u64::from(byte));
        // The receiver has processed something from the largest acknowledged to just before.
        let oldest = largest_acked.map_or(0, |acked| acked + 1);
        let expected = oldest + u64::from(received) % (full - oldest + 1);
        prop_assert_eq!(expand_packet_number(truncated, len, expected), full);
    }

    #[test]
    fn a_restored_number_stays_in_range(
        truncated in any::<u32>(),
        len in 1usize..=4,
        expected in prop_oneof![varint(), VARINT_MAX - 1_000..=VARINT_MAX],
    ) {
        let truncated = u64::from(truncated) & ((1 << (8 * len)) - 1);
        let full = expand_packet_number(truncated, len, expected);
        prop_assert!(full <= VARINT_MAX);
        prop_assert_eq!(full & ((1 << (8 * len)) - 1), truncated);
    }

    #[test]
    fn arbitrary_datagrams_never_panic(
        start in prop_oneof![
            Just(vec![]), Just(vec![0xc0, 0, 0, 0, 1]), Just(vec![0xe0, 0, 0, 0, 1, 0, 0])],
        tail in bytes(0..200),
        local_cid_len in 0usize..=20,
    ) {
        let datagram = [start, tail].concat();
        match parse_header(&datagram, local_cid_len) {
            Ok(Header::Long { pn_offset, end, .. }) => {
                prop_assert!(pn_offset + MIN_PROTECTED_LEN <= end && end <= datagram.len());
            }
            Ok(Header::Short { pn_offset, .. }) => {
                prop_assert!(pn_offset + MIN_PROTECTED_LEN <= datagram.len());
            }
            Ok(Header::UnknownVersion { version, .. }) => {
                prop_assert!(version != 0 && version != VERSION_1);
            }
            Err(_) => {}
        }
    }
}
