//! Timeouts of incomplete requests and of unused connections.

use super::*;
use crate::code::*;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_slow_head_is_reset_after_ten_seconds() {
    let mut pair = Pair::new();
    let head = headers(&[&GET[..], &[("x-long", &"y".repeat(100)[..])]].concat());
    for second in 0..9 {
        pair.send(request(0), &head[second..second + 1]);
        pair.wait(SECOND);
    }
    assert_eq!(pair.t.stream(request(0)).reset, None);
    pair.send(request(0), &head[9..10]);
    pair.wait(SECOND);
    let stream = pair.t.stream(request(0));
    assert_eq!(stream.reset, Some(H3_REQUEST_INCOMPLETE));
    assert_eq!(stream.stopped, Some(H3_REQUEST_INCOMPLETE));
    assert_eq!(pair.events(), []);
    assert_eq!(pair.close_code(), None);
}

#[test]
fn frames_before_the_head_do_not_extend_the_timeout() {
    let mut pair = Pair::new();
    for _ in 0..11 {
        pair.send(request(0), &frame(0x21, &[7; 2_000]));
        pair.wait(SECOND);
    }
    assert_eq!(pair.t.stream(request(0)).reset, Some(H3_REQUEST_INCOMPLETE));
}

#[test]
fn slow_content_is_reset_with_an_event() {
    let mut pair = Pair::new();
    pair.send(request(0), &headers(&POST));
    pair.events();
    for _ in 0..11 {
        pair.send(request(0), &data(b"x"));
        pair.send(request(0), &frame(0x21, &[7; 2_000]));
        pair.body(request(0));
        pair.wait(SECOND);
    }
    let events = pair.events();
    let cancelled = Event::Cancelled { id: request(0), code: H3_REQUEST_INCOMPLETE };
    assert_eq!(events.last(), Some(&cancelled), "{events:?}");
    assert_eq!(pair.t.stream(request(0)).reset, Some(H3_REQUEST_INCOMPLETE));
}

#[test]
fn steady_content_may_take_long() {
    let mut pair = Pair::new();
    pair.send(request(0), &headers(&POST));
    for _ in 0..100 {
        pair.send(request(0), &data(&[7; 1_024]));
        pair.body(request(0));
        pair.wait(SECOND);
    }
    pair.send_fin(request(0), b"");
    assert_eq!(pair.events().last(), Some(&Event::RequestEnd(request(0))));
}

#[test]
fn responses_have_no_timeout() {
    let mut pair = Pair::new();
    pair.send_fin(request(0), &headers(&GET));
    // The client has not ended this request, and does not need to.
    pair.send(request(1), &headers(&GET));
    pair.server.discard_body(&mut pair.t, request(1));
    pair.wait(1_000 * SECOND);
    let Pair { server, t } = &mut pair;
    for id in [request(0), request(1)] {
        server.respond(t, id, 200, &[], false).expect("open");
    }
    pair.wait(1_000 * SECOND);
    let Pair { server, t } = &mut pair;
    for id in [request(0), request(1)] {
        server.finish(t, id).expect("open");
    }
    // The client reads the response slowly.
    pair.wait(1_000 * SECOND);
    assert_eq!(pair.close_code(), None);
}

#[test]
fn many_slow_requests_are_reset_in_few_checks() {
    let mut pair = Pair::new();
    for index in 0..100 {
        pair.send(request(index), &[0x01]);
        pair.t.now += Duration::from_millis(20);
    }
    let mut checks = 0;
    while pair.server.active > 0 {
        pair.t.now = pair.server.deadline().expect("requests are open");
        pair.server.on_timeout(&mut pair.t);
        checks += 1;
    }
    assert!(checks < 6, "{checks}");
    assert!(pair.t.now < Timestamp::from_millis(1) + 14 * SECOND);
}

#[test]
fn a_connection_without_a_request_gets_a_goaway_and_is_closed_after_thirty_seconds() {
    // With and without a control stream of the client.
    for mut pair in [Pair::new(), Pair::silent(Config::default())] {
        let control = |pair: &mut Pair| pair.t.stream(server_uni(0)).sent.len();
        let before = control(&mut pair);
        pair.wait(29 * SECOND);
        assert_eq!(control(&mut pair), before);
        pair.wait(SECOND);
        assert_eq!(pair.t.stream(server_uni(0)).sent[before..], frame(crate::frame::GOAWAY, &[0]));
        assert_eq!(pair.close_code(), None);
        // This request crosses the GOAWAY.
        pair.send_fin(request(0), &headers(&GET));
        assert_eq!(pair.t.stream(request(0)).reset, Some(H3_REQUEST_REJECTED));
        pair.wait(SECOND);
        assert_eq!(pair.close_code(), Some(H3_NO_ERROR));
        assert_eq!(pair.server.deadline(), None);
    }
}

#[test]
fn a_connection_closes_one_second_after_its_last_goaway() {
    let mut pair = Pair::new();
    pair.wait(20 * SECOND);
    pair.server.go_away(&mut pair.t);
    pair.server.go_away(&mut pair.t);
    assert_eq!(pair.server.deadline(), Some(pair.t.now + SECOND));
    pair.wait(SECOND);
    assert_eq!(pair.close_code(), Some(H3_NO_ERROR));
}

#[test]
fn the_unused_timeout_starts_at_the_last_acknowledgement() {
    let mut pair = Pair::new();
    pair.wait(29 * SECOND);
    pair.send_fin(request(0), &headers(&GET));
    pair.wait(100 * SECOND);
    pair.server.respond(&mut pair.t, request(0), 200, &[], true).expect("open");
    pair.wait(100 * SECOND);
    pair.acknowledge();
    pair.wait(30 * SECOND);
    assert_eq!(pair.close_code(), None);
    pair.wait(SECOND);
    assert_eq!(pair.close_code(), Some(H3_NO_ERROR));
}

#[test]
fn streams_without_fin_do_not_keep_the_connection_open() {
    let mut pair = Pair::new();
    // An incomplete, a timed-out, a malformed and an early answered request, all without FIN.
    pair.send(request(0), &[0x01]);
    pair.send(request(1), &headers(&POST));
    pair.send(request(2), &headers(&GET[..2]));
    pair.server.respond(&mut pair.t, request(1), 404, &[], true).expect("open");
    pair.server.on_delivered(&mut pair.t, request(1));
    pair.wait(41 * SECOND);
    assert_eq!(pair.close_code(), Some(H3_NO_ERROR));
    assert_eq!(pair.server.requests.len(), 3);
}

#[test]
fn incomplete_heads_are_bounded_across_requests() {
    let mut pair = Pair::new();
    let limit = Config::default().max_field_section_size;
    let start = [vec![0x01], varint(limit), vec![0; 1_000]].concat();
    for index in 0..100 {
        pair.send(request(index), &start);
        assert!(pair.server.heap() < 128 * 1024, "{} bytes", pair.server.heap());
    }
    assert_eq!(pair.t.stream(request(0)).reset, None, "the first ones may go on");
    assert_eq!(pair.t.stream(request(99)).reset, Some(H3_EXCESSIVE_LOAD));
    assert_eq!(pair.close_code(), None);
    // Resets free the memory.
    for index in 0..100 {
        pair.reset(request(index), H3_REQUEST_CANCELLED);
    }
    pair.acknowledge();
    pair.send(request(100), &start);
    assert_eq!(pair.t.stream(request(100)).reset, None);
}

#[test]
fn unread_content_is_declined_above_a_limit() {
    let mut pair = Pair::new();
    pair.send(request(0), &headers(&GET));
    pair.server.discard_body(&mut pair.t, request(0));
    pair.send(request(0), &[data(&[7; 10_000]), frame(0x21, &[7; 1_000])].concat());
    assert_eq!(pair.t.stream(request(0)).stopped, None);
    assert!(pair.t.stream(request(0)).incoming.is_empty());
    pair.send(request(0), &data(&[7; 10_000]));
    assert_eq!(pair.t.stream(request(0)).stopped, Some(H3_NO_ERROR));
    let Pair { server, t } = &mut pair;
    server.respond(t, request(0), 200, &[], true).expect("the response is unaffected");
    let stream = pair.t.stream(request(0));
    assert_eq!((stream.finished, stream.reset), (true, None));
    assert!(pair.events().iter().all(|event| matches!(event, Event::Request { .. })));
}

#[test]
fn short_unread_content_is_read_to_its_end() {
    let mut pair = Pair::new();
    pair.send(request(0), &[headers(&GET), data(b"abc")].concat());
    pair.server.discard_body(&mut pair.t, request(0));
    pair.send_fin(request(0), &data(b"abc"));
    pair.server.respond(&mut pair.t, request(0), 200, &[], true).expect("open");
    assert_eq!(pair.t.stream(request(0)).stopped, None);
    pair.acknowledge();
    assert_eq!(pair.server.requests.len(), 0);
}

#[test]
fn a_client_that_cancels_all_requests_is_closed() {
    for (how, open) in [(0, 128), (1, 128), (2, 128), (0, 200)] {
        let config = Config { max_concurrent_requests: open, ..Config::default() };
        let mut pair = Pair::with(config);
        let burst = 2 * open as u64;
        let cancel = |pair: &mut Pair, index: u64| match how {
            0 => pair.reset(request(index), H3_REQUEST_CANCELLED),
            1 => pair.stop(request(index), H3_REQUEST_CANCELLED),
            // Content above its announced length makes the server reset the stream.
            _ => pair.send_fin(request(index), &data(b"xx")),
        };
        let head = headers(&[&POST[..], &[("content-length", "1")]].concat());
        for index in 0..burst {
            pair.send(request(index), &head);
            cancel(&mut pair, index);
            pair.body(request(index));
            pair.acknowledge();
            assert!(pair.events().iter().any(|e| matches!(e, Event::Cancelled { .. })), "{how}");
        }
        assert_eq!((pair.close_code(), pair.server.is_flooding()), (None, false), "{how}");
        pair.send(request(burst), &head);
        cancel(&mut pair, burst);
        pair.body(request(burst));
        assert_eq!(pair.close_code(), Some(H3_EXCESSIVE_LOAD), "{how}");
        assert!(pair.server.is_flooding());
    }
}

#[test]
fn ten_cancelled_requests_a_second_are_tolerated() {
    let mut pair = Pair::new();
    for index in 0..2_000 {
        pair.send_fin(request(index), &headers(&GET));
        pair.reset(request(index), H3_REQUEST_CANCELLED);
        pair.acknowledge();
        pair.events();
        pair.wait(Duration::from_millis(100));
    }
    assert_eq!(pair.close_code(), None);
}

#[test]
fn answered_requests_do_not_count_as_cancelled() {
    let mut pair = Pair::new();
    for index in 0..2_000 {
        pair.send_fin(request(index), &headers(&GET));
        pair.server.respond(&mut pair.t, request(index), 204, &[], true).expect("answered");
        // Too late for the response, which is complete.
        pair.stop(request(index), H3_REQUEST_CANCELLED);
        pair.acknowledge();
        pair.events();
    }
    assert_eq!(pair.close_code(), None);
}
