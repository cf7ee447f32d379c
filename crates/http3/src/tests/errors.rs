//! Client errors beyond the cases of h3spec, and unusual but permitted behaviour.

use super::*;
use crate::code::*;
use crate::frame::{
    CANCEL_PUSH, GOAWAY, MAX_PUSH_ID, PRIORITY_UPDATE_PUSH, PRIORITY_UPDATE_REQUEST, PUSH_PROMISE,
};

/// A type of frames, streams and settings that is reserved to be ignored.
const GREASE: u64 = 0x1f * 1_000 + 0x21;

fn control(frames: &[Vec<u8>]) -> Option<u64> {
    let mut pair = Pair::new();
    pair.send(CONTROL, &frames.concat());
    pair.close_code()
}

fn settings(payload: &[u8]) -> Option<u64> {
    let mut pair = Pair::silent(Config::default());
    pair.send(CONTROL, &[vec![0x00], frame(SETTINGS, payload)].concat());
    pair.close_code()
}

fn on_request_stream(frames: &[Vec<u8>]) -> Pair {
    let mut pair = Pair::new();
    pair.send_fin(request(0), &frames.concat());
    while let Some(event) = pair.server.poll_event() {
        if let Event::BodyReadable(id) = event {
            pair.body(id);
        }
    }
    pair
}

#[test]
fn frames_that_belong_elsewhere_are_unexpected_on_a_request_stream() {
    for kind in [0x02, CANCEL_PUSH, SETTINGS, PUSH_PROMISE, 0x06, GOAWAY, 0x08, 0x09, MAX_PUSH_ID]
        .into_iter()
        .chain([PRIORITY_UPDATE_REQUEST, PRIORITY_UPDATE_PUSH])
    {
        for before in [vec![], headers(&POST), [headers(&POST), data(b"x")].concat()] {
            let pair = on_request_stream(&[before, frame(kind, &[0])]);
            assert_eq!(pair.close_code(), Some(H3_FRAME_UNEXPECTED), "frame {kind:#x}");
        }
    }
}

#[test]
fn frames_that_belong_elsewhere_are_unexpected_on_the_control_stream() {
    for kind in [DATA, HEADERS, PUSH_PROMISE, 0x02, 0x06, 0x08, 0x09] {
        assert_eq!(control(&[frame(kind, &[0])]), Some(H3_FRAME_UNEXPECTED), "frame {kind:#x}");
    }
}

#[test]
fn only_unknown_frames_may_follow_the_trailers() {
    let trailers = headers(&[("x-sum", "1")]);
    let message = [headers(&POST), data(b"abc"), trailers.clone()];
    for late in [data(b""), trailers] {
        let pair = on_request_stream(&[message.concat(), late]);
        assert_eq!(pair.close_code(), Some(H3_FRAME_UNEXPECTED));
    }
    let pair = on_request_stream(&[message.concat(), frame(GREASE, b"abc")]);
    assert_eq!(pair.close_code(), None);
}

#[test]
fn a_stream_that_ends_inside_a_frame_is_a_frame_error() {
    let whole = [headers(&POST), data(b"abc"), frame(GREASE, b"abc")].concat();
    let boundaries =
        [0, headers(&POST).len(), headers(&POST).len() + data(b"abc").len(), whole.len()];
    for length in 0..whole.len() {
        let pair = on_request_stream(&[whole[..length].to_vec()]);
        let expected = (!boundaries.contains(&length)).then_some(H3_FRAME_ERROR);
        assert_eq!(pair.close_code(), expected, "cut to {length}");
    }
}

#[test]
fn a_stream_that_ends_without_a_request_is_reset_as_incomplete() {
    for frames in [vec![], frame(GREASE, b"abc")] {
        let mut pair = on_request_stream(&[frames]);
        assert_eq!(pair.close_code(), None);
        assert_eq!(pair.t.stream(request(0)).reset, Some(H3_REQUEST_INCOMPLETE));
    }
}

#[test]
fn settings_are_pairs_without_repetition_and_unknown_ones_are_ignored() {
    let grease = [varint(GREASE), varint(7)].concat();
    assert_eq!(settings(&grease), None);
    assert_eq!(settings(&[&grease[..], &grease].concat()), Some(H3_SETTINGS_ERROR));
    assert_eq!(settings(&[0x01]), Some(H3_FRAME_ERROR), "no value");
    assert_eq!(settings(&[0x01, 0x40]), Some(H3_FRAME_ERROR), "half a value");
    for reserved in [0x00, 0x02, 0x03, 0x04, 0x05] {
        assert_eq!(settings(&[&grease[..], &[reserved, 0]].concat()), Some(H3_SETTINGS_ERROR));
    }
    assert_eq!(settings(&[0x08, 1, 0x33, 1]), None, "settings of extensions");
    assert_eq!(settings(&vec![0x40; 1025]), Some(H3_EXCESSIVE_LOAD));
}

#[test]
fn an_unknown_frame_does_not_replace_settings() {
    let mut pair = Pair::silent(Config::default());
    pair.send(CONTROL, &[vec![0x00], frame(GREASE, &[]), frame(SETTINGS, &[])].concat());
    assert_eq!(pair.close_code(), Some(H3_MISSING_SETTINGS));
}

#[test]
fn push_identifiers_only_increase_and_no_push_is_promised() {
    let max = |id| frame(MAX_PUSH_ID, &varint(id));
    assert_eq!(control(&[max(5), max(5), max(6)]), None);
    assert_eq!(control(&[max(5), max(4)]), Some(H3_ID_ERROR));
    assert_eq!(control(&[max(5), frame(CANCEL_PUSH, &[0])]), Some(H3_ID_ERROR));
    assert_eq!(control(&[frame(PRIORITY_UPDATE_PUSH, b"\x00u=1")]), Some(H3_ID_ERROR));
}

#[test]
fn goaway_identifiers_only_decrease() {
    let goaway = |id| frame(GOAWAY, &varint(id));
    assert_eq!(control(&[goaway(7), goaway(7), goaway(0)]), None);
    assert_eq!(control(&[goaway(7), goaway(8)]), Some(H3_ID_ERROR));
    let mut pair = Pair::new();
    pair.send(CONTROL, &[goaway(7), goaway(6)].concat());
    assert_eq!(pair.events(), [Event::GoAway]);
}

#[test]
fn a_priority_for_no_request_or_one_beyond_the_limit_is_an_id_error() {
    for id in [1, 2, 3] {
        let update = [varint(id), b"u=1".to_vec()].concat();
        assert_eq!(control(&[frame(PRIORITY_UPDATE_REQUEST, &update)]), Some(H3_ID_ERROR));
    }
    let of = |index| frame(PRIORITY_UPDATE_REQUEST, &varint(request(index).0));
    let mut pair = Pair::new();
    pair.send(CONTROL, &of(pair.t.request_limit - 1));
    assert_eq!(pair.close_code(), None);
    pair.t.request_limit += 1;
    pair.send(CONTROL, &of(pair.t.request_limit - 1));
    assert_eq!(pair.close_code(), None, "the limit was raised");
    pair.send(CONTROL, &of(pair.t.request_limit));
    assert_eq!(pair.close_code(), Some(H3_ID_ERROR));
    let long = vec![0; 1025];
    assert_eq!(control(&[frame(PRIORITY_UPDATE_REQUEST, &long)]), Some(H3_EXCESSIVE_LOAD));
}

#[test]
fn control_frames_contain_exactly_their_fields() {
    for kind in [GOAWAY, MAX_PUSH_ID, CANCEL_PUSH] {
        for payload in [&[][..], &[0x40], &[0, 0], &[0; 9]] {
            assert_eq!(control(&[frame(kind, payload)]), Some(H3_FRAME_ERROR), "frame {kind:#x}");
        }
    }
    assert_eq!(control(&[frame(PRIORITY_UPDATE_REQUEST, &[])]), Some(H3_FRAME_ERROR));
}

#[test]
fn closing_or_stopping_a_critical_stream_ends_the_connection() {
    for id in [CONTROL, ENCODER, DECODER] {
        let mut pair = Pair::new();
        pair.send_fin(id, b"");
        assert_eq!(pair.close_code(), Some(H3_CLOSED_CRITICAL_STREAM), "{id:?} ended");
        let mut pair = Pair::new();
        pair.reset(id, H3_NO_ERROR);
        assert_eq!(pair.close_code(), Some(H3_CLOSED_CRITICAL_STREAM), "{id:?} reset");
    }
    let mut pair = Pair::new();
    pair.server.on_stopped(&mut pair.t, server_uni(0), H3_NO_ERROR);
    assert_eq!(pair.close_code(), Some(H3_CLOSED_CRITICAL_STREAM), "our control stream");
    // Also in the middle of a frame.
    let mut pair = Pair::new();
    pair.send_fin(CONTROL, &[GOAWAY as u8]);
    assert_eq!(pair.close_code(), Some(H3_CLOSED_CRITICAL_STREAM));
}

#[test]
fn a_push_stream_from_a_client_ends_the_connection() {
    let mut pair = Pair::new();
    pair.send(StreamId(14), &[0x01, 0x00]);
    assert_eq!(pair.close_code(), Some(H3_STREAM_CREATION_ERROR));
}

#[test]
fn streams_of_unknown_type_are_rejected_without_closing_the_connection() {
    let mut pair = Pair::new();
    pair.send(StreamId(14), &[varint(GREASE), vec![7; 100]].concat());
    assert_eq!(pair.t.stream(StreamId(14)).stopped, Some(H3_STREAM_CREATION_ERROR));
    pair.send(StreamId(14), &[0; 100]);
    // The stream ends before its type is complete.
    pair.send_fin(StreamId(18), &[0x40]);
    pair.send(StreamId(22), &[0x40]);
    pair.reset(StreamId(22), 7);
    assert_eq!(pair.close_code(), None);
}

#[test]
fn the_number_of_open_unidirectional_streams_is_bounded() {
    let mut pair = Pair::new();
    for index in 3..1_000 {
        let id = StreamId::new(Side::Client, Direction::Unidirectional, index);
        pair.send(id, &varint(GREASE));
        pair.send_fin(id, &[]);
        pair.acknowledge();
    }
    assert_eq!(pair.close_code(), None, "one at a time");
    for index in 1_000..1_100 {
        pair.send(StreamId::new(Side::Client, Direction::Unidirectional, index), &[0x40]);
    }
    assert_eq!(pair.close_code(), Some(H3_EXCESSIVE_LOAD));
}

#[test]
fn content_that_is_not_as_long_as_announced_is_malformed() {
    let post = [&POST[..], &[("content-length", "5")]].concat();
    for (frames, expected) in [
        (vec![data(b"hello")], None),
        (vec![data(b"he"), data(b""), data(b"llo")], None),
        (vec![], Some(H3_MESSAGE_ERROR)),
        (vec![data(b"hell")], Some(H3_MESSAGE_ERROR)),
        (vec![data(b"hello!")], Some(H3_MESSAGE_ERROR)),
        (vec![data(b"hello"), data(b"!")], Some(H3_MESSAGE_ERROR)),
        (vec![data(b"hell"), headers(&[("a", "b")])], Some(H3_MESSAGE_ERROR)),
    ] {
        let mut pair = on_request_stream(&[headers(&post), frames.concat()]);
        assert_eq!(pair.close_code(), None);
        assert_eq!(pair.t.stream(request(0)).reset, expected);
    }
}

#[test]
fn content_above_its_announced_length_is_not_delivered() {
    let mut pair = Pair::new();
    pair.send(request(0), &headers(&[&POST[..], &[("content-length", "5")]].concat()));
    assert_eq!(pair.events().len(), 1);
    pair.send(request(0), &data(b"hello!")[..4]);
    assert_eq!(pair.events(), [Event::Cancelled { id: request(0), code: H3_MESSAGE_ERROR }]);
}

#[test]
fn malformed_requests_are_not_delivered() {
    let post = headers(&[&POST[..], &[("content-length", "5")]].concat());
    for (wrong, close) in [(vec![], None), (frame(SETTINGS, &[]), Some(H3_FRAME_UNEXPECTED))] {
        let mut pair = Pair::new();
        pair.send_fin(request(0), &[post.clone(), wrong].concat());
        assert_eq!(pair.events(), []);
        assert_eq!(pair.close_code(), close);
    }
}

#[test]
fn invalid_trailers_cancel_a_delivered_request() {
    for trailers in [&GET[..], &[("connection", "close")], &[("X", "y")]] {
        let mut pair = Pair::new();
        pair.send(request(0), &[headers(&POST), data(b"abc")].concat());
        assert_eq!(pair.events().len(), 2);
        pair.send(request(0), &headers(trailers));
        assert_eq!(pair.body(request(0)), (b"abc".to_vec(), BodyRead::Gone));
        assert_eq!(pair.events(), [Event::Cancelled { id: request(0), code: H3_MESSAGE_ERROR }]);
        assert_eq!(pair.t.stream(request(0)).reset, Some(H3_MESSAGE_ERROR));
        assert_eq!(pair.t.stream(request(0)).stopped, Some(H3_MESSAGE_ERROR));
        assert_eq!(pair.close_code(), None);
    }
}

#[test]
fn a_header_section_that_is_too_large_is_answered_with_431() {
    let config = Config { max_field_section_size: 300, ..Config::default() };
    let long = "x".repeat(400);
    // Over the limit when encoded, and only when decoded.
    for extra in [&[("a", long.as_str())][..], &[("accept", "*/*"); 10]] {
        let mut pair = Pair::silent(config);
        pair.send(request(0), &headers(&[&GET, extra].concat()));
        assert_eq!(pair.response(request(0)).0, [vec![(":status".into(), "431".into())]]);
        let stream = pair.t.stream(request(0));
        assert!(stream.finished);
        assert_eq!((stream.reset, stream.stopped), (None, Some(H3_NO_ERROR)));
        assert_eq!(pair.events(), []);
        assert_eq!(pair.close_code(), None);
    }
}

#[test]
fn trailers_that_are_too_large_end_the_request() {
    let config = Config { max_field_section_size: 300, ..Config::default() };
    let long = "x".repeat(400);
    for extra in [&[("a", long.as_str())][..], &[("accept", "*/*"); 10]] {
        let mut pair = Pair::silent(config);
        pair.send(request(0), &headers(&POST));
        pair.events();
        pair.send(request(0), &headers(extra));
        assert_eq!(pair.events(), [Event::Cancelled { id: request(0), code: H3_EXCESSIVE_LOAD }]);
    }
}

#[test]
fn a_frame_of_any_length_is_skipped_in_constant_memory() {
    let mut pair = Pair::new();
    let mut start = varint(GREASE);
    start.extend(varint((1 << 62) - 1));
    for id in [request(0), CONTROL] {
        pair.send(id, &start);
        for _ in 0..50 {
            pair.send(id, &[7; 10_000]);
        }
        assert!(pair.t.stream(id).incoming.is_empty());
    }
    assert_eq!(pair.close_code(), None);
    assert!(pair.server.heap() < 1_024);
}

#[test]
fn a_head_that_arrives_byte_by_byte_is_collected_within_the_limit() {
    let mut pair = Pair::new();
    let mut announced = varint(HEADERS);
    announced.extend(varint(16 * 1024));
    pair.send(request(0), &announced);
    assert!(pair.server.heap() < 1_024, "announced bytes take no memory");
    for _ in 0..16 * 1024 - 1 {
        pair.send(request(0), &[0]);
    }
    assert!((16 * 1024 - 1..40 * 1024).contains(&pair.server.heap()), "{}", pair.server.heap());
    pair.send(request(0), &[0]);
    assert_eq!(pair.close_code(), Some(QPACK_DECOMPRESSION_FAILED));
}

#[test]
fn a_client_that_allows_no_control_stream_is_rejected() {
    let mut pair = Pair::silent(Config::default());
    pair.t.opened = pair.t.max_uni;
    let mut server = Server::new(Config::default());
    server.start(&mut pair.t);
    assert_eq!(pair.close_code(), Some(H3_GENERAL_PROTOCOL_ERROR));
}

#[test]
fn input_after_a_violation_is_ignored() {
    let mut pair = Pair::new();
    pair.send_fin(CONTROL, b"");
    pair.send_fin(request(0), &headers(&GET));
    pair.send_fin(request(4), &data(b""));
    pair.reset(ENCODER, 0);
    pair.server.on_stopped(&mut pair.t, server_uni(0), 0);
    assert_eq!(pair.events(), []);
    assert_eq!(pair.server.read_body(&mut pair.t, request(0), 1), BodyRead::Gone);
}

#[test]
fn a_second_stream_of_a_kind_is_a_stream_creation_error() {
    for kind in [0x00, 0x02, 0x03] {
        let mut pair = Pair::new();
        pair.send(StreamId(CONTROL.0 + 12), &[kind]);
        assert_eq!(pair.close_code(), Some(H3_STREAM_CREATION_ERROR), "type {kind}");
    }
}
