//! The 16 HTTP/3 and QPACK cases of h3spec, a conformance tester for servers, each named by the
//! section of RFC 9114 ("HTTP/3") or RFC 9204 ("QPACK") that h3spec gives for it, and the one on
//! second streams that its newer versions add.

use super::*;
use crate::code::*;
use crate::frame::{CANCEL_PUSH, MAX_PUSH_ID};

/// What becomes of a connection whose first request stream begins with `bytes`.
fn after_request(bytes: &[u8]) -> Pair {
    let mut pair = Pair::new();
    pair.send_fin(request(0), bytes);
    pair
}

/// The code that a first request with these field lines is reset with; the connection lives on,
/// and the application hears of nothing.
fn reset_code(fields: &[(&str, &str)]) -> Option<u64> {
    let mut pair = after_request(&headers(fields));
    assert_eq!(pair.close_code(), None);
    assert_eq!(pair.events(), []);
    pair.t.stream(request(0)).reset
}

/// The code that a connection is closed with whose control stream carries `bytes` after its type.
fn control_code(bytes: &[u8]) -> Option<u64> {
    let mut pair = Pair::silent(Config::default());
    pair.send(CONTROL, &[&[0x00], bytes].concat());
    pair.close_code()
}

#[test]
fn http3_4_1_data_before_headers_is_frame_unexpected() {
    let pair = after_request(&[data(b""), headers(&GET)].concat());
    assert_eq!(pair.close_code(), Some(H3_FRAME_UNEXPECTED));
}

#[test]
fn http3_4_1_1_a_duplicated_pseudo_header_is_message_error() {
    assert_eq!(reset_code(&[&GET[..], &GET[..1]].concat()), Some(H3_MESSAGE_ERROR));
}

#[test]
fn http3_4_1_3_absent_mandatory_pseudo_headers_are_message_error() {
    assert_eq!(reset_code(&[GET[0], GET[1], GET[3]]), Some(H3_MESSAGE_ERROR));
}

#[test]
fn http3_4_1_3_prohibited_pseudo_headers_are_message_error() {
    assert_eq!(reset_code(&[&GET[..], &[(":foo", "bar")]].concat()), Some(H3_MESSAGE_ERROR));
}

#[test]
fn http3_4_1_3_pseudo_headers_after_fields_are_message_error() {
    let late = [GET[0], GET[1], GET[2], ("foo", "bar"), GET[3]];
    assert_eq!(reset_code(&late), Some(H3_MESSAGE_ERROR));
}

#[test]
fn http3_6_2_1_a_first_control_frame_other_than_settings_is_missing_settings() {
    let frames = [frame(MAX_PUSH_ID, &[1]), frame(SETTINGS, &[])].concat();
    assert_eq!(control_code(&frames), Some(H3_MISSING_SETTINGS));
}

#[test]
fn http3_7_2_1_data_on_the_control_stream_is_frame_unexpected() {
    let frames = [frame(SETTINGS, &[]), data(b"")].concat();
    assert_eq!(control_code(&frames), Some(H3_FRAME_UNEXPECTED));
}

#[test]
fn http3_7_2_2_headers_on_the_control_stream_are_frame_unexpected() {
    let frames = [frame(SETTINGS, &[]), frame(HEADERS, &[])].concat();
    assert_eq!(control_code(&frames), Some(H3_FRAME_UNEXPECTED));
}

#[test]
fn http3_7_2_4_a_second_settings_frame_is_frame_unexpected() {
    let frames = [frame(SETTINGS, &[]), frame(SETTINGS, &[])].concat();
    assert_eq!(control_code(&frames), Some(H3_FRAME_UNEXPECTED));
}

#[test]
fn http3_7_2_4_1_http2_settings_are_settings_error() {
    let settings = b"\x07\x40\x64\x02\x40\xc8\x01\x50\x00\x06\x80\x00\x80\x00";
    assert_eq!(control_code(&frame(SETTINGS, settings)), Some(H3_SETTINGS_ERROR));
}

#[test]
fn http3_7_2_4_duplicate_settings_are_settings_error() {
    let settings = b"\x07\x40\x64\x01\x50\x00\x06\x80\x00\x80\x00\x07\x40\x64";
    assert_eq!(control_code(&frame(SETTINGS, settings)), Some(H3_SETTINGS_ERROR));
}

#[test]
fn http3_7_2_5_cancel_push_on_a_request_stream_is_frame_unexpected() {
    let pair = after_request(&[frame(CANCEL_PUSH, b""), headers(&GET)].concat());
    assert_eq!(pair.close_code(), Some(H3_FRAME_UNEXPECTED));
}

#[test]
fn qpack_3_1_an_invalid_static_index_is_decompression_failed() {
    let section = b"\x00\x00\xd1\xd7\x50\x09127.0.0.1\xc1\xff\x24";
    let pair = after_request(&frame(HEADERS, section));
    assert_eq!(pair.close_code(), Some(QPACK_DECOMPRESSION_FAILED));
}

#[test]
fn qpack_4_1_3_a_capacity_above_the_limit_is_encoder_stream_error() {
    let mut pair = Pair::new();
    pair.send(ENCODER, b"\x3f\xe1\xc7\xaf\xa0\x25");
    assert_eq!(pair.close_code(), Some(QPACK_ENCODER_STREAM_ERROR));
}

#[test]
fn qpack_4_2_a_closed_control_stream_is_closed_critical_stream() {
    let mut pair = Pair::new();
    pair.send_fin(CONTROL, b"");
    assert_eq!(pair.close_code(), Some(H3_CLOSED_CRITICAL_STREAM));
}

#[test]
fn qpack_4_4_3_an_insert_count_increment_of_0_is_decoder_stream_error() {
    let mut pair = Pair::new();
    pair.send(DECODER, b"\x00");
    assert_eq!(pair.close_code(), Some(QPACK_DECODER_STREAM_ERROR));
}

#[test]
fn http3_6_2_a_second_stream_of_a_kind_is_stream_creation_error() {
    for kind in [0x00, 0x02, 0x03] {
        let mut pair = Pair::new();
        pair.send(StreamId(CONTROL.0 + 12), &[kind]);
        assert_eq!(pair.close_code(), Some(H3_STREAM_CREATION_ERROR), "type {kind}");
    }
}
