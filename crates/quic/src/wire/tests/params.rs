//! Transport parameters: rejected, ignored and sent values.

use super::*;
use core::time::Duration;

/// `initial_source_connection_id`, without which no client's parameters are complete.
const SCID: [u8; 4] = [0x0f, 0x02, 0xab, 0xcd];

fn decode(params: &[&[u8]]) -> Result<TransportParameters, TransportError> {
    TransportParameters::decode_client(&[params.concat(), SCID.to_vec()].concat())
}

#[test]
fn absent_parameters_have_their_defaults() {
    let params = decode(&[]).unwrap();
    let expected = TransportParameters {
        initial_source_connection_id: ConnectionId::new(&[0xab, 0xcd]),
        ..TransportParameters::default()
    };
    assert_eq!(params, expected);
    assert_eq!(params.max_udp_payload_size, 65_527);
    assert_eq!(params.ack_delay_exponent, 3);
    assert_eq!(params.max_ack_delay, Duration::from_millis(25));
    assert_eq!(params.active_connection_id_limit, 2);
}

#[test]
fn every_parameter_of_a_client_is_read() {
    let params = decode(&[
        &[0x01, 2, 0x75, 0x30],
        &[0x03, 2, 0x45, 0xdc],
        &[0x04, 4, 0x80, 0x10, 0, 0],
        &[0x05, 1, 5],
        &[0x06, 1, 6],
        &[0x07, 1, 7],
        &[0x08, 1, 8],
        &[0x09, 1, 9],
        &[0x0a, 1, 10],
        &[0x0b, 1, 11],
        &[0x0c, 0],
        &[0x0e, 1, 14],
        &[0x6a, 0xb2, 0],
        &[0x71, 0x27, 2, 0x40, 0x64],
    ]);
    let expected = TransportParameters {
        max_idle_timeout: Duration::from_millis(0x3530),
        max_udp_payload_size: 1_500,
        initial_max_data: 1 << 20,
        initial_max_stream_data_bidi_local: 5,
        initial_max_stream_data_bidi_remote: 6,
        initial_max_stream_data_uni: 7,
        initial_max_streams_bidi: 8,
        initial_max_streams_uni: 9,
        ack_delay_exponent: 10,
        max_ack_delay: Duration::from_millis(11),
        disable_active_migration: true,
        active_connection_id_limit: 14,
        initial_source_connection_id: ConnectionId::new(&[0xab, 0xcd]),
        grease_quic_bit: true,
        initial_rtt: Some(Duration::from_micros(100)),
        ..TransportParameters::default()
    };
    assert_eq!(params, Ok(expected));
}

#[test]
fn what_rfc_9000_forbids_is_a_transport_parameter_error() {
    let past_2_60 = [&[0x08, 8][..], &((3u64 << 62) + (1 << 60) + 1).to_be_bytes()].concat();
    let mut preferred_address = vec![0x0d, 41];
    preferred_address.extend([0; 41]);
    let refused: [&[u8]; 20] = [
        // Twice.
        &[0x04, 1, 1, 0x04, 1, 1],
        &SCID,
        &[0x6a, 0xb2, 0, 0x6a, 0xb2, 0],
        // Badly formatted: cut identifier, length and value, trailing bytes, flags with a value.
        &[0x04, 1, 0x40],
        &[0x04, 0],
        &[0x04, 2, 1, 1],
        &[0x0c, 1, 0],
        &[0x6a, 0xb2, 1, 1],
        &[0x71, 0x27, 0],
        // Out of range.
        &[0x03, 2, 0x44, 0xaf],
        &[0x0a, 1, 21],
        &[0x0b, 4, 0x80, 0, 0x40, 0],
        &[0x0e, 1, 1],
        &past_2_60,
        &[0x09, 8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        // A server's.
        &[0x00, 1, 1],
        &[0x02, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &preferred_address,
        &[0x10, 1, 1],
        &[0x10, 0],
    ];
    for params in refused {
        let error = decode(&[params]).expect_err("forbidden");
        assert_eq!(error.code, TransportErrorCode::TRANSPORT_PARAMETER_ERROR, "{params:02x?}");
    }
    for truncated in [&[0x40][..], &[0x04], &[0x04, 0x40], &[0x04, 5, 1], &[0x1b, 0xff]] {
        let bytes = [&SCID[..], truncated].concat();
        assert!(TransportParameters::decode_client(&bytes).is_err(), "{truncated:02x?}");
    }
    let long_cid = [&[0x0f, 21][..], &[1; 21]].concat();
    assert!(TransportParameters::decode_client(&long_cid).is_err());
    assert!(TransportParameters::decode_client(&[]).is_err());
    let allowed: [&[u8]; 4] =
        [&[0x03, 2, 0x44, 0xb0], &[0x0a, 1, 20], &[0x0b, 2, 0x7f, 0xff], &[0x0e, 1, 2]];
    for params in allowed {
        assert!(decode(&[params]).is_ok(), "{params:02x?}");
    }
}

#[test]
fn unknown_parameters_are_ignored_even_twice() {
    assert_eq!(decode(&[&[0x1b, 3, 1, 2, 3], &[0x1b, 0], &[0x11, 1, 1]]), decode(&[]));
}

#[test]
fn a_server_sends_only_what_differs_from_the_default_and_one_reserved_parameter() {
    let mut out = Vec::new();
    TransportParameters::default().encode_server(&mut out, 27);
    assert_eq!(out, [27, 0]);
    out.clear();
    let params = TransportParameters {
        stateless_reset_token: Some([9; 16]),
        initial_source_connection_id: Some(ConnectionId::EMPTY),
        max_ack_delay: Duration::from_millis(5),
        grease_quic_bit: true,
        ..TransportParameters::default()
    };
    params.encode_server(&mut out, 31 + 27);
    let expected =
        [&[0x0f, 0, 0x02, 16][..], &[9; 16], &[0x0b, 1, 5, 0x6a, 0xb2, 0, 58, 0]].concat();
    assert_eq!(out, expected);
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn arbitrary_bytes_never_panic(
        tail in bytes(0..200),
        ids in prop::collection::vec((0u8..0x12, bytes(0..9)), 0..8),
    ) {
        let mut well_formed = Vec::new();
        for (id, value) in ids {
            well_formed.extend([id, value.len() as u8]);
            well_formed.extend(value);
        }
        for bytes in [tail.clone(), [well_formed.clone(), tail].concat(), well_formed] {
            if let Ok(params) = TransportParameters::decode_client(&bytes) {
                prop_assert!(params.ack_delay_exponent <= 20);
                prop_assert!(params.max_udp_payload_size >= 1_200);
            }
        }
    }

    #[test]
    fn the_parameters_that_both_sides_send_come_back(
        values in prop::array::uniform6(varint()),
        cid in connection_id(),
    ) {
        let params = TransportParameters {
            max_idle_timeout: Duration::from_millis(values[0]),
            initial_max_data: values[1],
            initial_max_stream_data_bidi_local: values[2],
            initial_max_stream_data_bidi_remote: values[3],
            initial_max_stream_data_uni: values[4],
            initial_max_streams_bidi: values[5] >> 2,
            initial_max_streams_uni: values[0] >> 2,
            active_connection_id_limit: values[1].max(2),
            max_udp_payload_size: values[2].max(1_200),
            max_ack_delay: Duration::from_millis(values[3] % (1 << 14)),
            ack_delay_exponent: (values[4] % 21) as u8,
            disable_active_migration: values[5] % 2 == 0,
            grease_quic_bit: values[5] % 3 == 0,
            initial_source_connection_id: Some(cid),
            ..TransportParameters::default()
        };
        let mut out = Vec::new();
        params.encode_server(&mut out, 27);
        prop_assert_eq!(TransportParameters::decode_client(&out), Ok(params));
    }
}
