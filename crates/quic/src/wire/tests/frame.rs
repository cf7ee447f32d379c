//! Frames: round trips, what RFC 9000 forbids, room, and arbitrary bytes.

use super::*;

fn parse(payload: &[u8]) -> Vec<Result<Frame<'_>, FrameErrorKind>> {
    Frames::new(payload).map(|result| result.map_err(|error| error.kind)).collect()
}

fn only_error(payload: &[u8]) -> FrameErrorKind {
    let [Err(kind)] = parse(payload)[..] else { panic!("{payload:?} should not be read") };
    kind
}

#[test]
fn an_empty_payload_is_a_protocol_violation() {
    let mut frames = Frames::new(&[]);
    let error = frames.next().unwrap().unwrap_err();
    assert_eq!(error, FrameError { frame_type: 0, kind: FrameErrorKind::NoFrames });
    assert_eq!(TransportError::from(error).code, TransportErrorCode::PROTOCOL_VIOLATION);
    assert_eq!(frames.next(), None);
}

#[test]
fn runs_of_padding_are_one_frame() {
    let frames = parse(&[0, 0, 0, 1, 0, 0]);
    assert_eq!(frames, [Ok(Frame::Padding), Ok(Frame::Ping), Ok(Frame::Padding)]);
}

#[test]
fn nothing_comes_after_an_error_and_the_type_is_known() {
    let mut frames = Frames::new(&[0x01, 0x1f, 0x01]);
    assert_eq!(frames.next(), Some(Ok(Frame::Ping)));
    assert_eq!(frames.frame_type(), types::PING);
    let error = FrameError { frame_type: 0x1f, kind: FrameErrorKind::Unknown };
    assert_eq!(frames.next(), Some(Err(error)));
    assert_eq!(frames.frame_type(), 0x1f);
    assert_eq!((frames.next(), frames.next()), (None, None));
    assert_eq!(TransportError::from(error).code, TransportErrorCode::FRAME_ENCODING_ERROR);
}

#[test]
fn a_type_in_too_many_bytes_is_a_protocol_violation() {
    assert_eq!(only_error(&[0x40, 0x01]), FrameErrorKind::NonMinimalType);
    assert_eq!(only_error(&[0x80, 0, 0, 0x1f]), FrameErrorKind::NonMinimalType);
    // A type that needs its two bytes is merely unknown.
    assert_eq!(only_error(&[0x7a, 0xb2]), FrameErrorKind::Unknown);
    let error = FrameError { frame_type: 1, kind: FrameErrorKind::NonMinimalType };
    assert_eq!(TransportError::from(error).code, TransportErrorCode::PROTOCOL_VIOLATION);
}

#[test]
fn a_truncated_type_names_no_frame() {
    let mut frames = Frames::new(&[0x01, 0x40]);
    frames.next();
    let error = FrameError { frame_type: 0, kind: FrameErrorKind::Truncated };
    assert_eq!(frames.next(), Some(Err(error)));
}

#[test]
fn values_that_rfc_9000_forbids_are_refused() {
    let max = [0xff; 8];
    let past_2_60 = ((3u64 << 62) + (1 << 60) + 1).to_be_bytes();
    let at_2_60 = ((3u64 << 62) + (1 << 60)).to_be_bytes();
    for payload in [
        // STREAM and CRYPTO beyond 2^62 - 1.
        [&[0x0e, 0][..], &max, &[1, 0xaa]].concat(),
        [&[0x0c, 0][..], &max, &[0xaa]].concat(),
        [&[0x06][..], &max, &[1, 0xaa]].concat(),
        // More streams than 2^60.
        [&[0x12][..], &past_2_60].concat(),
        [&[0x13][..], &past_2_60].concat(),
        [&[0x16][..], &past_2_60].concat(),
        [&[0x17][..], &past_2_60].concat(),
        // An empty token.
        vec![0x07, 0],
        // Connection IDs of 0 and 21 bytes, Retire Prior To above the Sequence Number.
        [&[0x18, 1, 0, 0][..], &[9; 16]].concat(),
        [&[0x18, 1, 0, 21][..], &[9; 37]].concat(),
        [&[0x18, 1, 2, 4][..], &[9; 20]].concat(),
        // ACKs of negative packet numbers: in the first range, by a gap, by a length.
        vec![0x02, 3, 0, 0, 4],
        vec![0x02, 3, 0, 1, 2, 0, 0],
        vec![0x02, 4, 0, 1, 1, 0, 2],
    ] {
        assert_eq!(only_error(&payload), FrameErrorKind::Invalid, "{payload:02x?}");
    }
    for payload in [
        [&[0x0e, 0][..], &max, &[0]].concat(),
        [&[0x06][..], &max, &[0]].concat(),
        [&[0x12][..], &at_2_60].concat(),
        [&[0x17][..], &at_2_60].concat(),
        [&[0x18, 1, 1, 20][..], &[9; 36]].concat(),
        vec![0x02, 3, 0, 0, 3],
        vec![0x02, 4, 0, 1, 1, 0, 1],
    ] {
        assert!(matches!(parse(&payload)[..], [Ok(_)]), "{payload:02x?}");
    }
}

#[test]
fn a_huge_ack_range_count_ends_with_the_payload() {
    let payload = [&[0x02, 0x7f, 0xff, 0][..], &[0xff; 8], &[0, 0, 0, 0, 0]].concat();
    assert_eq!(only_error(&payload), FrameErrorKind::Truncated);
}

#[test]
fn frames_stand_only_in_the_packets_of_table_3() {
    use PacketType::{Handshake, Initial, OneRtt, ZeroRtt};
    // Table 3 in the order of types 0x00 to 0x1e; for 0-RTT also section 12.5.
    let table = [
        "IH01", "IH01", "IH_1", "IH_1", "__01", "__01", "IH_1", "___1", "__01", "__01", "__01",
        "__01", "__01", "__01", "__01", "__01", "__01", "__01", "__01", "__01", "__01", "__01",
        "__01", "__01", "__01", "___1", "__01", "___1", "IH01", "__01", "___1",
    ];
    let not_eliciting = [0x00, 0x02, 0x03, 0x1c, 0x1d];
    let probing = [0x00, 0x18, 0x1a, 0x1b];
    for (ty, allowed) in (0u64..).zip(table) {
        let bytes = written(|w| example(ty).put(w));
        let Some(Ok(frame)) = Frames::new(&bytes).next() else { panic!("{ty:#x}") };
        for (packet, letter) in
            [Initial, Handshake, ZeroRtt, OneRtt].into_iter().zip("IH01".chars())
        {
            assert_eq!(frame.allowed_in(packet), allowed.contains(letter), "{ty:#x} {packet:?}");
        }
        assert_eq!(frame.is_ack_eliciting(), !not_eliciting.contains(&ty), "{ty:#x}");
        assert_eq!(frame.is_probing(), probing.contains(&ty), "{ty:#x}");
    }
}

fn example(ty: u64) -> Fields {
    let mut ranges = RangeSet::new();
    ranges.insert(1..3);
    Fields { ty, a: VARINT_MAX, b: VARINT_MAX, c: VARINT_MAX, data: vec![], array: [1; 16], ranges }
}

#[test]
fn the_largest_small_frames_have_the_documented_lengths() {
    let longest_cid = ConnectionId::new(&[7; 20]).unwrap();
    for (ty, max) in [
        (types::RESET_STREAM, max_len::RESET_STREAM),
        (types::MAX_DATA, max_len::MAX_DATA),
        (types::DATA_BLOCKED, max_len::MAX_DATA),
        (types::MAX_STREAMS_UNI, max_len::MAX_DATA),
        (types::STREAMS_BLOCKED_UNI, max_len::MAX_DATA),
        (types::RETIRE_CONNECTION_ID, max_len::RETIRE_CONNECTION_ID),
        (types::HANDSHAKE_DONE, max_len::HANDSHAKE_DONE),
    ] {
        assert_eq!(written(|w| example(ty).put(w)).len(), max, "{ty:#x}");
    }
    for ty in [types::STOP_SENDING, types::MAX_STREAM_DATA, types::STREAM_DATA_BLOCKED] {
        assert!(written(|w| example(ty).put(w)).len() <= max_len::RESET_STREAM, "{ty:#x}");
    }
    let bytes = written(|w| put_new_connection_id(w, VARINT_MAX, 1 << 40, &longest_cid, &[0; 16]));
    assert_eq!(bytes.len(), max_len::NEW_CONNECTION_ID);
    assert_eq!(written(|w| put_new_token(w, &[1; 64])).len(), new_token_len(64));
}

#[test]
fn a_reason_is_cut_to_its_room_between_characters() {
    let error = TransportError::new(TransportErrorCode(VARINT_MAX), VARINT_MAX, "aé");
    for (room, reason) in [(0, ""), (1, "a"), (2, "a"), (3, "aé"), (9, "aé")] {
        let bytes = written_in(1 + 2 * 8 + 1 + room, |w| put_connection_close(w, &error));
        let Some(Ok(Frame::ConnectionClose { reason: read, .. })) = Frames::new(&bytes).next()
        else {
            panic!("room for {room} bytes of reason");
        };
        assert_eq!(read, reason.as_bytes());
    }
    // 64 bytes of reason need a second byte of length.
    let long = "x".repeat(100);
    for (room, len) in [(66, 63), (67, 63), (68, 64), (69, 65), (200, 100)] {
        let bytes = written_in(room, |w| put_application_close(w, 1, &long[..]));
        let Some(Ok(Frame::ApplicationClose { reason, .. })) = Frames::new(&bytes).next() else {
            panic!("room of {room}");
        };
        assert_eq!(reason.len(), len, "room of {room}");
    }
}

#[test]
fn an_ack_of_nothing_or_without_room_writes_nothing() {
    let mut ranges = RangeSet::new();
    assert_eq!(written(|w| assert_eq!(put_ack(w, &ranges, 0, None, usize::MAX), 0)), [0u8; 0]);
    ranges.insert(5..9);
    assert_eq!(
        written_in(4, |w| assert_eq!(put_ack(w, &ranges, 0, None, usize::MAX), 0)),
        [0u8; 0]
    );
    assert_eq!(
        written_in(5, |w| assert_eq!(put_ack(w, &ranges, 0, None, usize::MAX), 1)),
        [2, 8, 0, 0, 3]
    );
}

#[test]
fn transport_errors_are_named_in_logs() {
    let codes = [TransportErrorCode::NO_VIABLE_PATH, TransportErrorCode::crypto(40)];
    assert_eq!(format!("{codes:?}"), "[NO_VIABLE_PATH, CRYPTO_ERROR(alert 40)]");
    let error = TransportError::new(TransportErrorCode(0x77), 6, "why");
    assert_eq!(error.to_string(), "0x77: why (frame type 0x6)");
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_frame_comes_back(list in prop::collection::vec(fields(), 1..8)) {
        let mut list = list;
        if let Some(open) = list.iter().position(Fields::is_open_ended) {
            list.truncate(open + 1);
        }
        // Neighbouring runs of padding would be one.
        list.dedup_by_key(|frame| (frame.ty != types::PADDING).then_some(frame.array));
        let payload = written_in(65_536, |w| list.iter().for_each(|frame| frame.put(w)));
        let mut frames = Frames::new(&payload);
        for expected in &list {
            let frame = frames.next().expect("one for each").expect("well-formed");
            prop_assert!(expected.matches(&frame), "{:?} came back as {:?}", expected, frame);
            prop_assert_eq!(frames.frame_type(), expected.ty);
        }
        prop_assert_eq!(frames.next(), None);
    }

    #[test]
    fn a_cut_frame_is_truncated(mut frame in fields()) {
        // These two would merely be shorter.
        match frame.ty {
            types::STREAM..=types::STREAM_LAST => frame.ty |= LEN_BIT,
            types::PADDING => frame.ty = types::PING,
            _ => {}
        }
        let payload = written(|w| frame.put(w));
        for cut in 1..payload.len() {
            prop_assert_eq!(only_error(&payload[..cut]), FrameErrorKind::Truncated);
        }
    }

    #[test]
    fn an_ack_carries_as_many_of_the_newest_ranges_as_fit(
        ranges in ack_ranges(),
        delay in varint(),
        ecn in prop::option::of((varint(), varint(), varint())),
        room in 0usize..400,
    ) {
        let ecn = ecn.map(|(ect0, ect1, ce)| EcnCounts { ect0, ect1, ce });
        let full = written(|w| { put_ack(w, &ranges, delay, ecn, usize::MAX); });
        let mut count = 0;
        let bytes = written_in(room, |w| count = put_ack(w, &ranges, delay, ecn, usize::MAX));
        prop_assert_eq!(bytes.is_empty(), count == 0);
        if count == 0 {
            return Ok(());
        }
        let Some(Ok(Frame::Ack(ack))) = Frames::new(&bytes).next() else {
            panic!("an ACK frame was written");
        };
        prop_assert_eq!(ack.ecn, ecn);
        let newest: Vec<_> = ranges.iter().rev().take(count).map(|r| r.start..=r.end - 1).collect();
        prop_assert_eq!(ack.ranges().collect::<Vec<_>>(), newest);
        // One more would not have fitted: a pair takes at most 4 bytes here, a count one more.
        prop_assert!(count == ranges.len() || room - bytes.len() < 5);
        prop_assert_eq!(room >= full.len(), count == ranges.len());
    }

    #[test]
    fn arbitrary_payloads_never_panic(payload in bytes(0..300), ty in 0u8..0x20) {
        for payload in [payload.clone(), [vec![ty], payload].concat()] {
            let mut total = 0;
            for frame in Frames::new(&payload) {
                total += 1;
                if let Ok(Frame::Ack(ack)) = frame {
                    let mut below = VARINT_MAX + 1;
                    for range in ack.ranges() {
                        prop_assert!(range.start() <= range.end() && *range.end() < below);
                        below = range.start().saturating_sub(1);
                    }
                }
            }
            prop_assert!(total <= payload.len().max(1));
        }
    }
}
