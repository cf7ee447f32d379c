//! Graceful shutdown (RFC 9114, section 5.2).

use super::*;
use crate::code::*;
use crate::frame::GOAWAY;

/// Returns the identifiers of the GOAWAY frames on the server's control stream.
fn goaways(pair: &mut Pair) -> Vec<u64> {
    let sent = &pair.t.stream(server_uni(0)).sent;
    let mut rest = &sent[1..];
    let mut found = Vec::new();
    while !rest.is_empty() {
        let kind = take_varint(&mut rest).expect("a frame type");
        let length = take_varint(&mut rest).expect("a frame length") as usize;
        let mut payload = &rest[..length];
        rest = &rest[length..];
        if kind == GOAWAY {
            found.push(take_varint(&mut payload).expect("an identifier"));
            assert!(payload.is_empty());
        }
    }
    found
}

#[test]
fn a_shutdown_warns_then_names_the_last_request_then_drains() {
    let mut pair = Pair::new();
    pair.send_fin(request(0), &headers(&GET));
    pair.server.go_away(&mut pair.t);
    // Sent before the client received the first GOAWAY.
    pair.send_fin(request(2), &headers(&GET));
    assert_eq!(pair.events().len(), 2);
    assert!(!pair.server.is_drained());
    pair.server.go_away(&mut pair.t);
    pair.server.go_away(&mut pair.t);
    assert_eq!(goaways(&mut pair), [(1 << 62) - 4, request(3).0]);

    // Below the limit, but late.
    pair.send_fin(request(1), &headers(&GET));
    assert_eq!(pair.events().len(), 1);
    pair.send_fin(request(3), &headers(&GET));
    assert_eq!(pair.events(), []);
    assert_eq!(pair.t.stream(request(3)).reset, Some(H3_REQUEST_REJECTED));
    assert_eq!(pair.t.stream(request(3)).stopped, Some(H3_REQUEST_REJECTED));

    for index in 0..3 {
        pair.server.respond(&mut pair.t, request(index), 200, &[], true).expect("in order");
        assert!(!pair.server.is_drained(), "the transport still has responses to deliver");
        pair.acknowledge();
    }
    assert!(pair.server.is_drained());
    assert_eq!(pair.close_code(), None);
}

#[test]
fn a_connection_without_requests_drains_at_once() {
    let mut pair = Pair::new();
    assert!(!pair.server.is_drained());
    pair.server.go_away(&mut pair.t);
    assert!(!pair.server.is_drained());
    pair.server.go_away(&mut pair.t);
    assert!(pair.server.is_drained());
    assert_eq!(goaways(&mut pair), [(1 << 62) - 4, 0]);
    pair.reset(request(0), H3_NO_ERROR);
    assert!(!pair.server.is_drained());
    pair.acknowledge();
    assert!(pair.server.is_drained());
}
