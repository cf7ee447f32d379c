//! Valid requests and responses: events, content under flow control, priorities, cancellation and
//! memory use.

use super::*;
use crate::code::*;
use crate::frame::PRIORITY_UPDATE_REQUEST;
use crate::{Priority, SendError};

fn priority_update(id: StreamId, value: &str) -> Vec<u8> {
    frame(PRIORITY_UPDATE_REQUEST, &[varint(id.0), value.as_bytes().to_vec()].concat())
}

#[test]
fn the_connection_begins_with_settings_and_without_qpack_streams() {
    let mut pair = Pair::silent(Config { grease: 2, ..Config::default() });
    let settings = [0x01, 0, 0x07, 0, 0x06, 0x80, 0, 0x40, 0, 0x40, 0x5f, 2];
    assert_eq!(pair.t.stream(server_uni(0)).sent, [vec![0], frame(SETTINGS, &settings)].concat());
    assert_eq!(pair.t.opened, 1);
}

#[test]
fn a_get_is_one_event_and_its_response_follows() {
    let mut pair = Pair::new();
    pair.send_fin(request(0), &headers(&[&GET[..], &[("range", "bytes=0-")]].concat()));
    let events = pair.events();
    let [Event::Request { id, head, end: true }] = &events[..] else { panic!("{events:?}") };
    assert_eq!((*id, &head.method[..], &head.path[..]), (request(0), &b"GET"[..], &b"/"[..]));
    assert_eq!(head.header("range").expect("sent")[..], b"bytes=0-"[..]);
    assert!(!head.early);

    let content = Bytes::from(vec![7; 70_000]);
    let Pair { server, t } = &mut pair;
    server.respond(t, *id, 200, &[("content-type", "video/x-flv")], false).expect("in order");
    server.send_data(t, *id, content.clone()).expect("in order");
    server.send_data(t, *id, Bytes::new()).expect("in order");
    let chunks = t.stream(request(0)).chunks.len();
    server.send_data_with_head(t, *id, b"own", content.slice(..3)).expect("in order");
    assert_eq!(
        t.stream(request(0)).chunks.len() - chunks,
        2,
        "one DATA frame, begun with its head"
    );
    server.finish(t, *id).expect("in order");

    let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let (sections, sent) = pair.response(request(0));
    assert_eq!(sections, [vec![field(":status", "200"), field("content-type", "video/x-flv")]]);
    assert_eq!(sent, [&content[..], b"own\x07\x07\x07"].concat());
    let stream = pair.t.stream(request(0));
    assert!(stream.chunks.iter().any(|c| c.as_ptr() == content.as_ptr()), "content was copied");
    assert!(stream.finished);
    assert_eq!((stream.reset, stream.stopped), (None, None));
}

#[test]
fn unread_content_stays_in_the_transport_except_for_a_chunk() {
    let mut pair = Pair::new();
    pair.send(request(0), &[headers(&POST), data(&[1; 5_000]), data(&[2; 5_000])].concat());
    pair.send(request(0), b"");
    let events = pair.events();
    assert!(
        matches!(events[..], [Event::Request { end: false, .. }, Event::BodyReadable(_)]),
        "{events:?}"
    );
    assert!(pair.t.stream(request(0)).incoming.len() > 5_000, "a chunk is read at most");

    let BodyRead::Data(first) = pair.server.read_body(&mut pair.t, request(0), 100) else {
        panic!("content is there")
    };
    assert_eq!(first.len(), 100);
    let (rest, end) = pair.body(request(0));
    assert_eq!((rest.len(), end), (9_900, BodyRead::Blocked));
    assert_eq!(pair.events(), []);

    pair.send(request(0), &data(&[3; 10]));
    assert_eq!(pair.events(), [Event::BodyReadable(request(0))]);
    assert_eq!(pair.body(request(0)), (vec![3; 10], BodyRead::Blocked));
    pair.send_fin(request(0), &headers(&[("x-sum", "9")]));
    let events = pair.events();
    assert!(
        matches!(&events[..], [Event::Trailers { fields, .. }, Event::RequestEnd(_)]
            if fields.len() == 1 && fields[0].name == "x-sum"),
        "{events:?}"
    );
    assert_eq!(pair.body(request(0)).1, BodyRead::End);
}

#[test]
fn many_small_frames_take_few_reads_of_the_transport() {
    let mut pair = Pair::new();
    let empty = frame(0x21, b"").repeat(700);
    for id in [request(0), CONTROL] {
        pair.t.reads = 0;
        pair.send(id, &empty);
        assert!(pair.t.reads <= 2, "{} reads", pair.t.reads);
    }
    assert_eq!(pair.close_code(), None);
}

#[test]
fn trailers_wait_for_unread_content() {
    let mut pair = Pair::new();
    let message = [headers(&POST), data(b"abc"), headers(&[("x-sum", "1")])].concat();
    pair.send_fin(request(0), &message);
    assert_eq!(pair.events().len(), 2);
    assert_eq!(pair.body(request(0)), (b"abc".to_vec(), BodyRead::End));
    assert!(matches!(pair.events()[..], [Event::Trailers { .. }, Event::RequestEnd(_)]));
}

#[test]
fn an_early_response_declines_the_rest_of_the_request() {
    let mut pair = Pair::new();
    pair.send(request(0), &[headers(&POST), data(b"abc")].concat());
    let Pair { server, t } = &mut pair;
    server.respond(t, request(0), 404, &[], true).expect("in order");
    let stream = t.stream(request(0));
    assert_eq!((stream.finished, stream.stopped), (true, Some(H3_NO_ERROR)));
    // Content in flight already is ignored.
    pair.send_fin(request(0), &data(b""));
    assert_eq!(pair.close_code(), None);
}

#[test]
fn response_parts_out_of_order_are_rejected() {
    let mut pair = Pair::new();
    pair.send_fin(request(0), &headers(&GET));
    let Pair { server, t } = &mut pair;
    let id = request(0);
    let some = || Bytes::from_static(b"x");
    assert_eq!(server.send_data(t, id, some()), Err(SendError::OutOfOrder));
    assert_eq!(server.finish(t, id), Err(SendError::OutOfOrder));
    assert_eq!(server.respond(t, id, 103, &[], false), Err(SendError::Malformed));
    for name in ["Server", "connection", ":path", "", "a b"] {
        assert_eq!(server.respond(t, id, 200, &[(name, "")], false), Err(SendError::Malformed));
    }
    assert_eq!(server.respond(t, id, 200, &[("a", "b\r\n")], false), Err(SendError::Malformed));
    assert_eq!(t.stream(id).sent, [], "nothing of the rejected response was sent");
    assert_eq!(server.respond(t, id, 200, &[], false), Ok(()));
    assert_eq!(server.respond(t, id, 200, &[], false), Err(SendError::OutOfOrder));
    assert_eq!(server.send_data(t, id, some()), Ok(()));
    assert_eq!(server.finish(t, id), Ok(()));
    assert_eq!(server.send_data(t, id, some()), Err(SendError::Gone));
    assert_eq!(server.respond(t, request(9), 200, &[], true), Err(SendError::Gone));
}

#[test]
fn a_response_respects_the_limit_of_the_client() {
    let mut pair = Pair::silent(Config::default());
    pair.send(CONTROL, &[vec![0x00], frame(SETTINGS, &[0x06, 63])].concat());
    pair.send_fin(request(0), &headers(&GET));
    let Pair { server, t } = &mut pair;
    let respond = server.respond(t, request(0), 200, &[("a", "b")], true);
    assert_eq!(respond, Err(SendError::TooLarge));
    assert_eq!(server.respond(t, request(0), 200, &[], true), Ok(()));
}

#[test]
fn a_request_in_early_data_is_marked() {
    let mut pair = Pair::new();
    pair.t.early = true;
    pair.send_fin(request(0), &headers(&GET));
    assert!(matches!(&pair.events()[..], [Event::Request { head, .. }] if head.early));
}

#[test]
fn a_priority_update_overrides_the_priority_field() {
    let mut pair = Pair::new();
    let urgent = [&GET[..], &[("priority", "u=1, i")]].concat();
    pair.send(CONTROL, &priority_update(request(1), "u=6"));
    for index in [2, 0, 1] {
        pair.send_fin(request(index), &headers(&urgent));
    }
    pair.send(CONTROL, &priority_update(request(2), ""));
    let of = |pair: &mut Pair, index| pair.t.stream(request(index)).priority;
    assert_eq!(of(&mut pair, 0), Some((1, true)));
    assert_eq!(of(&mut pair, 1), Some((6, false)));
    assert_eq!(of(&mut pair, 2), Some((3, false)));
    let events = pair.events();
    let Event::Request { head, .. } = &events[2] else { panic!("{events:?}") };
    assert_eq!(head.priority, Priority { urgency: 6, incremental: false });

    // Also while the response is in flight, but not after the stream is closed.
    let Pair { server, t } = &mut pair;
    server.respond(t, request(0), 200, &[], true).expect("in order");
    pair.send(CONTROL, &priority_update(request(0), "u=7"));
    assert_eq!(of(&mut pair, 0), Some((7, false)));
    pair.acknowledge();
    pair.send(CONTROL, &priority_update(request(0), "u=2"));
    assert_eq!(of(&mut pair, 0), Some((7, false)));
}

#[test]
fn a_priority_update_in_the_middle_of_a_head_applies() {
    let mut pair = Pair::new();
    let head = headers(&GET);
    pair.send(request(0), &head[..5]);
    pair.send(CONTROL, &priority_update(request(0), "u=0"));
    pair.send_fin(request(0), &head[5..]);
    assert_eq!(pair.t.stream(request(0)).priority, Some((0, false)));
}

#[test]
fn cancellation_by_the_client_ends_both_directions_with_one_event() {
    for stop in [false, true] {
        let mut pair = Pair::new();
        pair.send(request(0), &headers(&POST));
        pair.events();
        if stop {
            pair.stop(request(0), 0x77);
        }
        pair.reset(request(0), 0x77);
        pair.stop(request(0), 0x77);
        pair.server.on_readable(&mut pair.t, request(0));
        pair.acknowledge();
        assert_eq!(pair.events(), [Event::Cancelled { id: request(0), code: 0x77 }]);
        let stream = pair.t.stream(request(0));
        // The transport answers STOP_SENDING with the client's code.
        assert_eq!(stream.reset, Some(if stop { 0x77 } else { H3_REQUEST_CANCELLED }));
        assert_eq!(stream.stopped, Some(H3_REQUEST_CANCELLED));
        assert!(stream.closed);
        assert_eq!(pair.server.requests.len(), 0);
    }
}

#[test]
fn a_request_cancelled_before_delivery_is_rejected() {
    for bytes in [&[][..], &headers(&GET)[..5]] {
        let mut pair = Pair::new();
        if !bytes.is_empty() {
            pair.send(request(0), bytes);
        }
        pair.reset(request(0), H3_REQUEST_CANCELLED);
        assert_eq!(pair.events(), []);
        assert_eq!(pair.t.stream(request(0)).reset, Some(H3_REQUEST_REJECTED));
        pair.send_fin(request(0), &headers(&GET));
        assert_eq!(pair.events(), []);
    }
}

#[test]
fn a_reset_found_by_reading_counts_like_a_reported_one() {
    let mut pair = Pair::new();
    pair.send(request(0), &[headers(&POST), data(b"abc")].concat());
    pair.events();
    pair.t.stream(request(0)).peer_reset = Some(0x77);
    assert_eq!(pair.body(request(0)).1, BodyRead::Gone);
    assert_eq!(pair.events(), [Event::Cancelled { id: request(0), code: 0x77 }]);
}

#[test]
fn cancellation_by_the_application_is_silent() {
    let mut pair = Pair::new();
    pair.send(request(0), &headers(&POST));
    pair.events();
    let Pair { server, t } = &mut pair;
    server.cancel(t, request(0), H3_REQUEST_CANCELLED);
    server.cancel(t, request(0), H3_NO_ERROR);
    assert_eq!(t.stream(request(0)).reset, Some(H3_REQUEST_CANCELLED));
    assert_eq!(t.stream(request(0)).stopped, Some(H3_REQUEST_CANCELLED));
    pair.reset(request(0), H3_REQUEST_CANCELLED);
    pair.acknowledge();
    assert_eq!(pair.events(), []);
}

#[test]
fn requests_above_the_limit_are_rejected_until_others_finish() {
    let mut pair = Pair::silent(Config { max_concurrent_requests: 2, ..Config::default() });
    for index in 0..3 {
        pair.send_fin(request(index), &headers(&GET));
    }
    assert_eq!(pair.events().len(), 2);
    let stream = pair.t.stream(request(2));
    assert_eq!(stream.reset, Some(H3_REQUEST_REJECTED));
    assert_eq!(stream.stopped, Some(H3_REQUEST_REJECTED));
    pair.server.respond(&mut pair.t, request(0), 200, &[], true).expect("in order");
    pair.send(request(2), &[0; 10]);
    pair.send_fin(request(3), &headers(&GET));
    assert_eq!(pair.events().len(), 1);
    assert_eq!(pair.close_code(), None);
}

#[test]
fn a_connect_request_is_answered_with_501() {
    let mut pair = Pair::new();
    pair.send(request(0), &headers(&[(":method", "CONNECT"), (":authority", "a.test:443")]));
    assert_eq!(pair.response(request(0)).0, [vec![(":status".into(), "501".into())]]);
    assert_eq!(pair.events(), []);
    assert!(pair.t.stream(request(0)).finished);
}

#[test]
fn an_idle_connection_takes_less_than_a_kilobyte_of_heap() {
    let mut pair = Pair::new();
    assert!(pair.server.heap() < 1_024);
    for index in 0..100 {
        pair.send(CONTROL, &priority_update(request(index), "u=1"));
    }
    for index in 0..100 {
        pair.send_fin(request(index), &headers(&GET));
    }
    assert!(pair.server.heap() > 1_024);
    pair.events();
    for index in 0..100 {
        pair.server.respond(&mut pair.t, request(index), 200, &[], true).expect("in order");
        pair.acknowledge();
    }
    assert!(pair.server.heap() < 1_024, "{} bytes", pair.server.heap());
    assert!(size_of::<Server>() < 512, "{} bytes", size_of::<Server>());
}
