//! Random clients: arbitrary bytes on arbitrary streams neither cause panics nor exceed memory
//! limits, and fragmentation has no effect.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::frame::{GOAWAY, MAX_PUSH_ID, PRIORITY_UPDATE_REQUEST};

/// The application's final view of a request, independent of its split into events.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Seen {
    head: Option<Box<crate::RequestHead>>,
    content: Vec<u8>,
    trailers: Vec<crate::Field>,
    is_complete: bool,
    reset: Option<u64>,
}

/// Delivers a request stream in pieces of the given lengths (the last one repeats), and reads it as
/// an application would, `max` bytes at a time.
fn deliver(stream: &[u8], pieces: &[usize], chunk: usize, max: usize) -> (Seen, Option<u64>) {
    let mut pair = Pair::new();
    pair.t.chunk = chunk;
    let mut seen = Seen::default();
    let mut rest = stream;
    let mut pieces = pieces.iter().copied();
    loop {
        let length = pieces.next().unwrap_or(rest.len()).clamp(1, rest.len().max(1));
        let (piece, later) = rest.split_at(length.min(rest.len()));
        rest = later;
        pair.put(request(0), piece, rest.is_empty());
        while let Some(event) = pair.server.poll_event() {
            match event {
                Event::Request { head, end, .. } => {
                    seen.head = Some(head);
                    seen.is_complete = end;
                }
                Event::BodyReadable(id) => {
                    while let BodyRead::Data(data) = pair.server.read_body(&mut pair.t, id, max) {
                        assert!((1..=max).contains(&data.len()));
                        seen.content.extend_from_slice(&data);
                    }
                }
                Event::Trailers { fields, .. } => seen.trailers = fields,
                Event::RequestEnd(_) => seen.is_complete = true,
                Event::Cancelled { .. } | Event::GoAway => {}
            }
        }
        if rest.is_empty() {
            break;
        }
    }
    seen.reset = pair.t.stream(request(0)).reset;
    if seen.reset.is_some() || pair.close_code().is_some() {
        // The delivered part of a failed request depends on timing.
        seen = Seen { reset: seen.reset, ..Seen::default() };
    }
    (seen, pair.close_code())
}

/// Returns a frame that may or may not be allowed on a request stream.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => Just(headers(&POST)),
        2 => Just(headers(&[("x-sum", "1")])),
        1 => Just(headers(&[&POST[..], &[("content-length", "20")]].concat())),
        4 => vec(any::<u8>(), 0..30).prop_map(|payload| data(&payload)),
        2 => (0u64..1 << 20, vec(any::<u8>(), 0..30))
            .prop_map(|(kind, payload)| frame(0x1f * kind + 0x21, &payload)),
        1 => vec(any::<u8>(), 0..4),
    ]
}

/// Returns bytes that are likely to be partly valid on some stream.
fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..40),
        any_frame(),
        Just(vec![0x00]),
        Just(frame(SETTINGS, &[0x06, 0x40, 0xff])),
        (0u64..64)
            .prop_map(|id| frame(PRIORITY_UPDATE_REQUEST, &[varint(id), b"u=1".to_vec()].concat())),
        (0u64..64).prop_map(|id| frame(MAX_PUSH_ID, &varint(id))),
        (0u64..64).prop_map(|id| frame(GOAWAY, &varint(id))),
        Just(vec![0x02, 0x20]),
        Just(vec![0x03, 0x7f, 0x80]),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Send(u64, Vec<u8>, bool),
    Reset(u64),
    Stopped(u64),
    Acknowledge,
    Wait(u64),
    Read(u64),
    Respond(u64, bool),
    Cancel(u64),
    GoAway,
}

fn any_step() -> impl Strategy<Value = Step> {
    // Streams 0 to 31 of all four types, mostly client-initiated ones.
    let id = || prop_oneof![4 => (0u64..16).prop_map(|n| 2 * n), 1 => 0u64..32];
    prop_oneof![
        12 => (id(), any_bytes(), any::<bool>())
            .prop_map(|(id, bytes, fin)| Step::Send(id, bytes, fin)),
        1 => id().prop_map(Step::Reset),
        1 => id().prop_map(Step::Stopped),
        1 => Just(Step::Acknowledge),
        1 => (1u64..20).prop_map(Step::Wait),
        3 => id().prop_map(Step::Read),
        3 => (id(), any::<bool>()).prop_map(|(id, end)| Step::Respond(id, end)),
        1 => id().prop_map(Step::Cancel),
        1 => Just(Step::GoAway),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn fragmentation_makes_no_difference(
        frames in vec(any_frame(), 0..6),
        begins_well in any::<bool>(),
        pieces in vec(1usize..20, 0..60),
        chunk in 1usize..20,
        max in 1usize..20,
    ) {
        let begin = if begins_well { headers(&POST) } else { vec![] };
        let stream = [begin, frames.concat()].concat();
        let whole = deliver(&stream, &[], usize::MAX, 1_000);
        prop_assert_eq!(&deliver(&stream, &pieces, chunk, max), &whole);
        prop_assert_eq!(&deliver(&stream, &vec![1; stream.len()], 1, 1), &whole);
    }

    #[test]
    fn arbitrary_clients_cause_neither_panics_nor_memory_growth(steps in vec(any_step(), 0..60)) {
        let mut pair = Pair::silent(Config { max_concurrent_requests: 4, ..Config::default() });
        for step in steps {
            let Pair { server, t } = &mut pair;
            match step {
                Step::Send(id, bytes, fin) => pair.put(StreamId(id), &bytes, fin),
                Step::Reset(id) => pair.reset(StreamId(id), 7),
                Step::Stopped(id) => pair.stop(StreamId(id), 7),
                Step::Acknowledge => pair.acknowledge(),
                Step::Wait(seconds) => pair.wait(Duration::from_secs(seconds)),
                Step::Read(id) => { server.read_body(t, StreamId(id), 10); }
                Step::Respond(id, end) => {
                    let _ = server.respond(t, StreamId(id), 200, &[], end);
                }
                Step::Cancel(id) => server.cancel(t, StreamId(id), 7),
                Step::GoAway => server.go_away(t),
            }
            pair.events();
            prop_assert!(pair.server.heap() < 4_096, "{} bytes", pair.server.heap());
        }
    }
}
