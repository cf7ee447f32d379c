//! Differential tests: `s2n-quic-core`, written by others from the same RFC, must read what we
//! write, write what we read, and agree about which bytes are valid.

use super::*;
use s2n_codec::{DecoderBuffer, DecoderBufferMut, DecoderValueMut, EncoderValue};
use s2n_quic_core::frame::FrameMut;
use s2n_quic_core::transport::parameters::{ClientTransportParameters, ServerTransportParameters};
use s2n_quic_core::varint::VarInt;

/// The first frame of `payload` in the oracle's own encoding, and how many bytes it took.
fn oracle_frame(payload: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut copy = payload.to_vec();
    let (frame, rest) = FrameMut::decode_mut(DecoderBufferMut::new(&mut copy)).ok()?;
    let taken = payload.len() - rest.len();
    Some((frame.encode_to_vec(), taken))
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn integers_are_encoded_alike(v in varint(), tail in bytes(0..9)) {
        let ours = written(|w| w.varint(v));
        let theirs = VarInt::new(v).expect("in range").encode_to_vec();
        prop_assert_eq!(&ours, &theirs);
        let theirs = DecoderBuffer::new(&tail).decode::<VarInt>();
        let mut r = Reader::new(&tail);
        prop_assert_eq!(r.varint().ok(), theirs.ok().map(|(v, _)| v.as_u64()));
    }

    #[test]
    fn the_oracle_reads_every_frame_that_we_write_and_we_read_its_encoding(frame in fields()) {
        let ours = written(|w| frame.put(w));
        let (theirs, taken) = oracle_frame(&ours).expect("a valid frame");
        prop_assert_eq!(taken, ours.len());
        let read = Frames::new(&theirs).next().expect("one frame").expect("a valid frame");
        prop_assert!(frame.matches(&read), "{:?} came back as {:?}", frame, read);
    }

    #[test]
    fn both_accept_the_same_bytes_as_a_frame(
        ty in types::PADDING..=types::HANDSHAKE_DONE,
        body in prop_oneof![bytes(0..60), prop::collection::vec(0u8..0x42, 0..60)],
    ) {
        let payload = [vec![ty as u8], body].concat();
        let theirs = oracle_frame(&payload);
        let mut frames = Frames::new(&payload);
        let ours = frames.next().expect("not empty");
        // Laxer than RFC 9000, section 19.7, which refuses an empty token.
        let empty_token = ty == types::NEW_TOKEN
            && ours.is_err_and(|error| error.kind == FrameErrorKind::Invalid);
        let accepted = ours.is_ok() || empty_token;
        prop_assert_eq!(accepted, theirs.is_some(), "{:02x?}: {:?}", payload, ours);
        if let (Ok(ours), Some((encoding, _))) = (ours, theirs) {
            let again = Frames::new(&encoding).next().expect("not empty").expect("valid");
            match (ours, again) {
                // The pairs may be encoded in more bytes than they need.
                (Frame::Ack(a), Frame::Ack(b)) => {
                    prop_assert!(a.ranges().eq(b.ranges()) && (a.delay, a.ecn) == (b.delay, b.ecn));
                }
                (ours, again) => prop_assert_eq!(ours, again),
            }
        }
    }

    #[test]
    fn both_accept_the_same_transport_parameters_of_a_client(
        ids in prop::collection::vec((0u8..0x14, varint(), any::<bool>()), 0..4),
        tail in bytes(0..6),
    ) {
        let mut encoded = vec![0x0f, 4, 1, 2, 3, 4];
        for (id, value, integer) in ids {
            let value = if integer { written(|w| w.varint(value)) } else { Vec::new() };
            encoded.extend([id, value.len() as u8]);
            encoded.extend(value);
        }
        encoded.extend(tail);
        let ours = TransportParameters::decode_client(&encoded);
        let theirs = DecoderBuffer::new(&encoded).decode::<ClientTransportParameters>().ok();
        let Some((theirs, _)) = theirs else {
            // Stricter than RFC 9000, section 18.2, which leaves larger values open.
            prop_assert!(ours.is_err() || ours.is_ok_and(|p| p.max_udp_payload_size > 65_527));
            return Ok(());
        };
        let Ok(ours) = ours else {
            // Laxer than RFC 9000, section 18.2: "Values of 2^14 or greater are invalid."
            prop_assert_eq!(theirs.max_ack_delay.as_duration().as_millis(), 1 << 14);
            return Ok(());
        };
        let idle_timeout = theirs.max_idle_timeout.as_duration().unwrap_or_default();
        prop_assert_eq!(ours.max_idle_timeout, idle_timeout);
        prop_assert_eq!(ours.max_udp_payload_size, theirs.max_udp_payload_size.as_u64());
        prop_assert_eq!(ours.initial_max_data, theirs.initial_max_data.as_u64());
        prop_assert_eq!(ours.initial_max_streams_bidi, theirs.initial_max_streams_bidi.as_u64());
        prop_assert_eq!(ours.initial_max_streams_uni, theirs.initial_max_streams_uni.as_u64());
        prop_assert_eq!(ours.ack_delay_exponent, theirs.ack_delay_exponent.as_u8());
        prop_assert_eq!(ours.max_ack_delay, theirs.max_ack_delay.as_duration());
        let id_limit = theirs.active_connection_id_limit.as_u64();
        prop_assert_eq!(ours.active_connection_id_limit, id_limit);
    }

    #[test]
    fn the_oracle_reads_a_servers_transport_parameters(
        values in prop::array::uniform4(varint()),
        cid in bytes(8..=20),
        token in any::<[u8; 16]>(),
    ) {
        let id = ConnectionId::new(&cid);
        let params = TransportParameters {
            original_destination_connection_id: id,
            initial_source_connection_id: id,
            retry_source_connection_id: id,
            stateless_reset_token: Some(token),
            initial_max_data: values[0],
            initial_max_stream_data_bidi_local: values[1],
            initial_max_stream_data_bidi_remote: values[2],
            initial_max_stream_data_uni: values[3],
            disable_active_migration: true,
            grease_quic_bit: true,
            ..TransportParameters::default()
        };
        let mut out = Vec::new();
        params.encode_server(&mut out, 31 * 1_000 + 27);
        let (theirs, _) = DecoderBuffer::new(&out)
            .decode::<ServerTransportParameters>()
            .expect("valid parameters");
        prop_assert_eq!(theirs.initial_max_data.as_u64(), values[0]);
        prop_assert_eq!(theirs.initial_max_stream_data_bidi_local.as_u64(), values[1]);
        prop_assert_eq!(theirs.initial_max_stream_data_bidi_remote.as_u64(), values[2]);
        prop_assert_eq!(theirs.initial_max_stream_data_uni.as_u64(), values[3]);
        prop_assert_eq!(theirs.stateless_reset_token.map(|t| t.into_inner()), Some(token));
        let theirs = theirs.retry_source_connection_id.expect("sent");
        prop_assert_eq!(theirs.as_bytes(), &cid[..]);
    }
}
