//! Finished streams leave no state, and the state of endless ones is bounded.

use mendcast_quic::wire::{put_reset_stream, put_stop_sending};

use super::*;

/// RFC 9114, section 8.1.
const H3_REQUEST_CANCELLED: u64 = 0x10c;
const H3_NO_ERROR: u64 = 0x100;
const H3_EXCESSIVE_LOAD: u64 = 0x107;
const H3_ID_ERROR: u64 = 0x108;
const H3_REQUEST_INCOMPLETE: u64 = 0x10d;

/// Performs a graceful shutdown, and returns whether no request is left.
fn drains(pair: &mut Pair) -> bool {
    pair.with_server(|server, t| {
        server.go_away(t);
        server.go_away(t);
    });
    assert_eq!(pair.raw.close_by_server(), None);
    pair.server.is_drained()
}

#[test]
fn cancelled_requests_leave_no_state() {
    let mut pair = Pair::new();
    for id in (0..50).map(|n| StreamId(4 * n)) {
        pair.send(&stream(id, 0, &GET, true));
        pair.send(&frames(|w| put_stop_sending(w, id, H3_REQUEST_CANCELLED)));
    }
    let requests = |event: &&Event| matches!(event, Event::Request { .. });
    assert_eq!(pair.events.iter().filter(requests).count(), 50);
    assert!(drains(&mut pair));
}

#[test]
fn a_request_cancelled_in_both_directions_causes_one_event_and_leaves_no_state() {
    let mut pair = Pair::new();
    let mut expected = Vec::new();
    for id in (0..50).map(|n| StreamId(4 * n)) {
        pair.send(&stream(id, 0, &GET, false));
        pair.events.clear();
        pair.send(&frames(|w| {
            put_reset_stream(w, id, H3_REQUEST_CANCELLED, GET.len() as u64);
            put_stop_sending(w, id, H3_REQUEST_CANCELLED);
        }));
        expected.push(Event::Cancelled { id, code: H3_REQUEST_CANCELLED });
        assert_eq!(pair.events, expected[expected.len() - 1..]);
    }
    assert!(drains(&mut pair));
}

#[test]
fn answered_requests_leave_no_state() {
    let mut pair = Pair::new();
    for id in (0..50).map(|n| StreamId(4 * n)) {
        pair.send(&stream(id, 0, &GET, true));
        pair.with_server(|server, t| server.respond(t, id, 200, &[], true)).expect("in order");
        pair.serve();
        pair.send(&[0x01]);
    }
    assert!(drains(&mut pair));
}

#[test]
fn consecutive_unknown_unidirectional_streams_are_unlimited() {
    let mut pair = Pair::new();
    for n in 1..200 {
        let id = StreamId(CONTROL.0 + 4 * n);
        // A reserved type (RFC 9114, section 6.2.3), then the end or a reset.
        pair.send(&stream(id, 0, &[0x21], false));
        pair.send(&match n % 2 {
            0 => stream(id, 1, &[], true),
            _ => frames(|w| put_reset_stream(w, id, H3_REQUEST_CANCELLED, 1)),
        });
        assert_eq!(pair.raw.close_by_server(), None, "after {n}");
    }
}

#[test]
fn concurrent_unknown_unidirectional_streams_are_bounded() {
    let mut pair = Pair::new();
    for n in 1..200 {
        pair.send(&stream(StreamId(CONTROL.0 + 4 * n), 0, &[0x21], false));
        if let Some(code) = pair.raw.close_by_server() {
            // The transport's limit applies before HTTP/3's: STREAM_LIMIT_ERROR.
            assert!(matches!(code, 0x04 | H3_EXCESSIVE_LOAD), "{code:#x}");
            assert!(n < 40);
            return;
        }
    }
    panic!("200 streams are open");
}

#[test]
fn a_priority_beyond_the_stream_limit_closes_the_connection() {
    let update = |id| [vec![0x80, 0x0f, 0x07, 0x00], varint(2), varint(id)].concat();
    let mut pair = Pair::new();
    // The first hundred requests are allowed at once.
    pair.send(&stream(CONTROL, 3, &update(4 * 99), false));
    assert_eq!(pair.raw.close_by_server(), None);
    pair.send(&stream(CONTROL, 10, &update(4 * 100), false));
    assert_eq!(pair.raw.close_by_server(), Some(H3_ID_ERROR));
}

#[test]
fn pings_and_slow_heads_do_not_keep_a_connection_open() {
    let mut pair = Pair::new();
    pair.send(&stream(StreamId(0), 0, &GET[..1], false));
    for second in 1..=41 {
        assert_eq!(pair.raw.close_by_server(), None, "after {second} s");
        pair.wait(Duration::from_secs(1));
        pair.send(&[0x01]);
        if second < GET.len() as u64 - 1 {
            let byte = &GET[second as usize..][..1];
            pair.send(&stream(StreamId(0), second, byte, false));
        }
        let is_reset = pair.has_received(&frames(|w| {
            put_reset_stream(w, StreamId(0), H3_REQUEST_INCOMPLETE, 0);
        }));
        assert_eq!(is_reset, second >= 10, "after {second} s");
    }
    assert_eq!(pair.events, []);
    assert_eq!(pair.raw.close_by_server(), Some(H3_NO_ERROR));
}

#[test]
fn an_unfinished_response_keeps_the_connection() {
    let mut pair = Pair::new();
    pair.send(&stream(StreamId(0), 0, &GET, true));
    pair.with_server(|server, t| server.respond(t, StreamId(0), 200, &[], false)).expect("open");
    for _ in 0..100 {
        pair.wait(Duration::from_secs(1));
        pair.send(&[0x01]);
    }
    assert_eq!(pair.raw.close_by_server(), None);
    pair.with_server(|server, t| server.finish(t, StreamId(0))).expect("open");
    pair.serve();
    pair.send(&[0x01]);
    for _ in 0..32 {
        pair.wait(Duration::from_secs(1));
        pair.send(&[0x01]);
    }
    assert_eq!(pair.raw.close_by_server(), Some(H3_NO_ERROR));
}
