//! Chunks and messages of hostile or careless peers: errors, tolerance and bounds.

use super::*;
use crate::deviation::Deviation;
use crate::rtmp::error::MAX_CHUNK_STREAMS;

#[test]
fn hostile_chunks_end_the_connection() {
    let control = |kind: u8, value: u32| message(kind, 0, &value.to_be_bytes());
    let end = |parts: &[Vec<u8>]| {
        let mut server = publishing();
        parts.iter().try_for_each(|part| server.handle(part))
    };
    assert_eq!(end(&[control(1, 0)]), Err(Error::ChunkSize(0)));
    assert_eq!(end(&[control(1, 1 << 31)]), Err(Error::ChunkSize(1 << 31)));
    assert_eq!(end(&[control(1, 0x7fff_ffff)]), Ok(()));
    assert_eq!(end(&[control(2, 9_999)]), Ok(()), "abort of an unknown message");
    assert_eq!(
        end(&[vec![2, 0, 0, 0, 0, 0, 3, 1, 0, 0, 0, 0, 1, 1, 1]]),
        Err(Error::Malformed("chunk control"))
    );
    assert_eq!(end(&[vec![0xc9]]), Err(Error::ChunkHeader));
    assert_eq!(end(&[vec![0x89, 0, 0, 0]]), Err(Error::ChunkHeader));
    let huge = [4, 0, 0, 0, 0xff, 0xff, 0xff, 9, 1, 0, 0, 0];
    assert_eq!(end(&[huge.to_vec()]), Err(Error::MessageTooLarge(0xff_ffff)));
    let started = [4, 0, 0, 0, 0, 0, 9, 9, 1, 0, 0, 0, 1];
    assert_eq!(end(&[[started, started].concat()]), Ok(()), "the second is the first's payload");

    let (_, result) = after(&[vec![4, 0, 0, 0, 1, 0, 1, 9, 1, 0, 0, 0]]);
    assert_eq!(result, Err(Error::MessageTooLarge(65_537)), "no media before publish");
    let (_, result) = after(&[publish()]);
    assert_eq!(result, Err(Error::NotConnected));
    let (mut served, result) = after(&[connect(), publish(), publish()]);
    assert_eq!(result, Err(Error::SecondStream));
    let sent = served.commands();
    let code = sent.last().and_then(|status| status[3].get("code"));
    assert_eq!(code, Some(&"NetStream.Publish.BadName".into()), "notified before the end");
    let nested = [&b"\x02\x00\x01x"[..], &b"\x0a\x00\x00\x00\x01".repeat(10_000)].concat();
    let nested = message(20, 0, &nested);
    assert_eq!(end(&[nested]), Ok(()), "ignored");
    let publish = [&b"\x02\x00\x07publish"[..], &b"\x0a\x00\x00\x00\x01".repeat(10_000)].concat();
    let publish = message(20, 0, &publish);
    assert_eq!(end(&[publish]), Err(Error::Amf(amf0::Error::TooDeep)));
}

#[test]
fn unreadable_messages_are_skipped_and_counted() {
    let metadata = [&[0][..], METADATA].concat();
    for (kind, payload, tags, left_out) in [
        // AMF3 metadata, AMF0 with and without the zero byte, and an empty message.
        (15, &b"\x11\x06\x15onMetaData\x0a\x0b\x01\x01"[..], 0, 1),
        (15, &metadata, 1, 0),
        (15, METADATA, 1, 0),
        (15, b"", 0, 0),
        (15, b"\0", 0, 0),
        (17, b"\x03\x02", 0, 1),
        (17, b"\x11\x06\x09ping", 0, 1),
        (17, b"\0\x02\x00\x04ping\x11", 0, 1),
        (20, b"\x02\x00\x04ping\x00\x01", 0, 1),
        (20, b"", 0, 1),
        (16, b"shared object", 0, 0),
    ] {
        let mut server = publishing();
        server.handle(&message(kind, 0, payload)).expect("tolerated");
        server.handle(&message(9, 0, &[0x17, 1, 0, 0, 0, 1])).expect("allowed");
        assert_eq!(server_events(&mut server).len(), tags + 1, "{kind} {payload:?}");
        let seen: Vec<_> = server.deviations().collect();
        let expected = [(Deviation::RtmpMessage, 1)];
        assert_eq!(seen, &expected[..left_out], "{kind} {payload:?}");
    }
}

#[test]
fn a_message_continues_after_another_header_or_restarts() {
    let payload: Vec<u8> = (0..300_u32).map(|n| if n == 0 { 0x17 } else { n as u8 }).collect();
    let first = [&[4, 0, 0, 40, 0, 1, 44, 9, 1, 0, 0, 0][..], &payload[..128]].concat();
    let by_type_1 =
        |at: usize| [&[0x44, 0, 0, 7, 0, 1, 44, 9][..], &payload[at..300.min(at + 128)]].concat();
    let by_type_2 = |at: usize| [&[0x84, 0, 0, 7][..], &payload[at..300.min(at + 128)]].concat();
    let by_type_3 = |at: usize| [&[0xc4][..], &payload[at..300.min(at + 128)]].concat();
    let extended =
        [&[4, 0xff, 0xff, 0xff, 0, 1, 44, 9, 1, 0, 0, 0, 2, 0, 0, 0][..], &payload[..128]];
    let go_on =
        [&[0x44, 0xff, 0xff, 0xff, 0, 1, 44, 9, 2, 0, 0, 0][..], &payload[128..256]].concat();
    let go_on_3 = [&[0xc4, 2, 0, 0, 0][..], &payload[256..]].concat();
    let short = [4, 0, 0, 50, 0, 0, 1, 9, 1, 0, 0, 0, 0x27];
    let by_type_1_again = [0x44, 0, 0, 10, 0, 0, 1, 8, 0xaf];
    use Deviation::{RtmpContinuation, RtmpRestart};
    for (chunks, time, length, seen) in [
        ([first.clone(), by_type_1(128), by_type_1(256)], 40, 300, (RtmpContinuation, 2)),
        ([first.clone(), by_type_2(128), by_type_3(256)], 40, 300, (RtmpContinuation, 1)),
        ([extended.concat(), go_on, go_on_3], 0x200_0000, 300, (RtmpContinuation, 1)),
        ([first.clone(), short.to_vec(), vec![]], 50, 1, (RtmpRestart, 1)),
        ([first.clone(), by_type_1_again.to_vec(), vec![]], 50, 1, (RtmpRestart, 1)),
        (
            [first.clone(), first.clone(), [by_type_3(128), by_type_3(256)].concat()],
            40,
            300,
            (RtmpRestart, 1),
        ),
    ] {
        for piece in [1, 7, 10_000] {
            let mut server = publishing();
            for bytes in chunks.concat().chunks(piece) {
                server.handle(bytes).expect("tolerated");
            }
            let events = server_events(&mut server);
            let [Event::Tag(tag)] = &events[..] else { panic!("{events:?}") };
            assert_eq!((tag.timestamp(), tag.payload().len()), (time, length));
            assert!(length == 1 || tag.payload()[..] == payload[..]);
            assert_eq!(server.deviations().collect::<Vec<_>>(), [seen]);
            // A message without a header of its own derives its time from the first chunk's.
            if time == 40 && seen.0 == RtmpContinuation {
                let next = [by_type_3(0), by_type_3(128), by_type_3(256)].concat();
                server.handle(&next).expect("allowed");
                let events = server_events(&mut server);
                assert!(matches!(&events[..], [Event::Tag(tag)] if tag.timestamp() == 80));
            }
            // Abandoned messages free their memory.
            server.handle(&message(9, 0, &[0x17; 100_000])).expect("within the limits");
        }
    }
}

#[test]
fn chunks_of_one_byte_work() {
    let mut server = publishing();
    server.handle(&message(1, 0, &[0, 0, 0, 1])).expect("allowed");
    let chunks = [4, 0, 0, 7, 0, 0, 3, 9, 1, 0, 0, 0, 0x17, 0xc4, 0x01, 0xc4, 0x00];
    server.handle(&chunks).expect("allowed");
    let tag = Tag::new(Kind::Video, 7, &[0x17, 1, 0]).expect("short");
    assert_eq!(server_events(&mut server), [Event::Tag(tag)]);
}

#[test]
fn the_number_of_chunk_streams_is_limited() {
    let mut server = publishing();
    let mut opened = 0;
    let result = (0u32..65_536).try_for_each(|n| {
        let [.., high, low] = n.to_be_bytes();
        let header = [1, low, high, 0, 0, 0, 0, 0, 200, 9, 1, 0, 0, 0];
        server.handle(&[&header[..], &[0x17; 128]].concat())?;
        opened += 1;
        Ok(())
    });
    assert_eq!(result, Err(Error::ChunkStreams));
    assert!((50..MAX_CHUNK_STREAMS).contains(&opened), "{opened}");
}

#[test]
fn incomplete_messages_are_bounded_in_total() {
    let mut server = publishing();
    let mut started = 0;
    // One chunk of each 1 MiB message is sent.
    let result = (8u8..60).try_for_each(|id| {
        let header = [id, 0, 0, 0, 0x10, 0, 0, 9, 1, 0, 0, 0];
        server.handle(&[&header[..], &[0x17; 128]].concat())?;
        started += 1;
        Ok(())
    });
    assert_eq!((result, started), (Err(Error::Unfinished), 8));

    // An abort frees memory.
    let mut server = publishing();
    for _ in 0..100 {
        let header = [8, 0, 0, 0, 0x10, 0, 0, 9, 1, 0, 0, 0];
        server.handle(&[&header[..], &[0x17; 128]].concat()).expect("within bounds");
        server.handle(&message(2, 0, &[0, 0, 0, 8])).expect("allowed");
    }
}

#[test]
fn responses_to_a_peer_that_does_not_read_are_bounded() {
    for request in [
        command("createStream", 1.0, &[Value::Null]),
        message(4, 0, &[0, 6, 1, 2, 3, 4]),
        message(6, 0, &[0, 1, 0, 0, 2]),
        connect(),
    ] {
        let mut server = publishing();
        let result = (0..2_000).try_for_each(|_| server.handle(&request));
        assert_eq!(result, Err(Error::UnreadResponses));
        assert!(server.queued() < 1 << 20, "{}", server.queued());
        // A client that reads the responses may continue.
        let mut server = publishing();
        for _ in 0..2_000 {
            server.handle(&request).expect("allowed");
            output(|| server.poll_output());
        }
    }
}

/// Returns everything that a client sends in a publishing session, and a server in a playing
/// session.
fn recorded() -> (Vec<u8>, Vec<u8>) {
    let record = |intent| {
        let (mut server, mut client) = (server(), client(intent));
        let (mut ups, mut downs) = (Vec::new(), Vec::new());
        for round in 0..9 {
            let up = output(|| client.poll_output());
            server.handle(&up).expect("an honest client");
            let down = output(|| server.poll_output());
            client.handle(&down).expect("an honest server");
            ups.extend(up);
            downs.extend(down);
            if round == 5 {
                server.accept();
            }
            if round == 7 {
                tags().iter().take(7).for_each(|tag| client.send_tag(tag));
                tags().iter().take(7).for_each(|tag| server.send_tag(tag));
            }
        }
        (ups, downs)
    };
    (record(Intent::Publish).0, record(Intent::Play).1)
}

fn damaged(session: &[u8], damage: &[(prop::sample::Index, u8)]) -> Vec<u8> {
    let mut bytes = session.to_vec();
    // Handshakes have 3 kB and frames 200 kB: most damage is placed in headers.
    for (at, value) in damage {
        let at = 3_073 + at.index(1_500);
        if let Some(byte) = bytes.get_mut(at) {
            *byte = *value;
        }
    }
    bytes
}

proptest! {
    #[test]
    fn damage_causes_neither_panics_nor_memory_growth(
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        piece in 1..4_000usize,
    ) {
        let (up, down) = recorded();
        let mut server = server();
        for piece in damaged(&up, &damage).chunks(piece) {
            if server.handle(piece).is_err() {
                break;
            }
            server.accept();
            server_events(&mut server);
        }
        prop_assert!(server.queued() < 1 << 20);
        let mut client = client(Intent::Play);
        for piece in damaged(&down, &damage).chunks(piece) {
            if client.handle(piece).is_err() {
                break;
            }
            client_events(&mut client);
        }
        prop_assert!(client.queued() < 1 << 20);
    }

    #[test]
    fn random_chunks_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..3_000)) {
        let _ = publishing().handle(&bytes);
    }
}
