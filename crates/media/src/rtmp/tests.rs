//! Server and client connected in memory, and with hostile peers.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use super::chunk::{ChunkReader, ChunkWriter, Message};
use super::error::MAX_CHUNK_STREAMS;
use super::*;
use crate::amf0::{self, Value, object};
use crate::deviation::Deviation;
use crate::flv::{Kind, Tag};

const METADATA: &[u8] = b"\x02\x00\x0aonMetaData\x08\x00\x00\x00\x00\x00\x00\x09";
const URL: &str = "rtmp://example.org/live/demo?key=1";

/// Returns metadata, sequence headers, frames of various sizes, a time that needs an extended
/// timestamp, and codecs that only Enhanced RTMP supports.
fn tags() -> Vec<Tag> {
    let long: Vec<u8> = (0..200_000).map(|i| if i == 0 { 0x17 } else { (i * 7) as u8 }).collect();
    [
        Tag::new(Kind::Script, 0, METADATA),
        Tag::new(Kind::Video, 0, &[0x17, 0, 0, 0, 0, 1]),
        Tag::new(Kind::Audio, 0, &[0xaf, 0, 0x12, 0x10]),
        Tag::new(Kind::Video, 40, &long),
        Tag::new(Kind::Audio, 33, &[0xaf, 1, 0x21]),
        Tag::new(Kind::Audio, 30, &[0xaf, 1, 0x21, 7]),
        Tag::new(Kind::Video, 80, b"\xa1av01data"),
        Tag::new(Kind::Video, 0x00ff_fffe, &long[..70_000]),
        Tag::new(Kind::Video, 0x00ff_ffff, &long[..70_000]),
        Tag::new(Kind::Video, 0x0100_0001, &long[..140_000]),
        Tag::new(Kind::Audio, u32::MAX, &[0xaf, 1, 3]),
        Tag::new(Kind::Audio, 5, &[0xaf, 1, 4]),
    ]
    .into_iter()
    .map(|tag| tag.expect("short enough"))
    .collect()
}

fn server() -> Server {
    Server::new(Config::default(), &[1; 1_528])
}

fn client(intent: Intent) -> Client {
    let url = Url::parse(URL).expect("a good URL");
    Client::new(url, intent, Config::default(), &[2; 1_528])
}

fn output(mut poll: impl FnMut() -> Option<Bytes>) -> Vec<u8> {
    core::iter::from_fn(&mut poll).flatten().collect()
}

/// Transfers bytes in both directions, in pieces of these sizes, until none are left.
fn exchange(server: &mut Server, client: &mut Client, pieces: &[usize]) {
    let mut sizes = pieces.iter().cycle();
    loop {
        let up = output(|| client.poll_output());
        let mut rest = &up[..];
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(rest.len().min(*sizes.next().expect("endless")));
            server.handle(piece).expect("an honest client");
            rest = behind;
        }
        let down = output(|| server.poll_output());
        assert_eq!((client.queued(), server.queued()), (0, 0));
        let mut rest = &down[..];
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(rest.len().min(*sizes.next().expect("endless")));
            client.handle(piece).expect("an honest server");
            rest = behind;
        }
        if up.is_empty() && down.is_empty() {
            return;
        }
    }
}

fn server_events(server: &mut Server) -> Vec<Event> {
    core::iter::from_fn(|| server.poll_event()).collect()
}

fn client_events(client: &mut Client) -> Vec<ClientEvent> {
    core::iter::from_fn(|| client.poll_event()).collect()
}

/// Connects a client and a server that accepts its request.
fn granted(intent: Intent, pieces: &[usize]) -> (Server, Client) {
    let (mut server, mut client) = (server(), client(intent));
    exchange(&mut server, &mut client, pieces);
    let request = match (intent, server.poll_event()) {
        (Intent::Publish, Some(Event::Publish(request)))
        | (Intent::Play, Some(Event::Play(request))) => request,
        (_, event) => panic!("{event:?}"),
    };
    assert_eq!((&*request.app, &*request.stream, &*request.query), ("live", "demo", "key=1"));
    assert_eq!(request.tc_url, "rtmp://example.org/live");
    server.accept();
    exchange(&mut server, &mut client, pieces);
    let expected = match intent {
        Intent::Publish => ClientEvent::Publishing,
        Intent::Play => ClientEvent::Playing,
    };
    assert_eq!(client_events(&mut client), [expected]);
    (server, client)
}

fn tag_events(tags: &[Tag]) -> Vec<Event> {
    tags.iter().cloned().map(Event::Tag).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn tags_reach_the_player_unchanged(
        pieces in proptest::collection::vec(1..5_000usize, 1..20),
    ) {
        let (mut ingest, mut publisher) = granted(Intent::Publish, &pieces);
        tags().iter().for_each(|tag| publisher.send_tag(tag));
        exchange(&mut ingest, &mut publisher, &pieces);
        let events = server_events(&mut ingest);
        prop_assert_eq!(&events, &tag_events(&tags()));

        let (mut front, mut player) = granted(Intent::Play, &pieces);
        for event in events {
            if let Event::Tag(tag) = event {
                front.send_tag(&tag);
            }
        }
        exchange(&mut front, &mut player, &pieces);
        let got: Vec<_> = tags().into_iter().map(ClientEvent::Tag).collect();
        prop_assert_eq!(client_events(&mut player), got);
    }
}

#[test]
fn both_sides_can_end_a_stream() {
    let (mut server, mut client) = granted(Intent::Publish, &[999]);
    client.close();
    exchange(&mut server, &mut client, &[999]);
    assert_eq!(server_events(&mut server), [Event::Unpublish], "once");

    let (mut server, mut client) = granted(Intent::Play, &[999]);
    client.close();
    exchange(&mut server, &mut client, &[999]);
    assert_eq!(server_events(&mut server), [Event::StopPlay]);
    server.send_tag(&tags()[0]);
    assert_eq!(server.queued(), 0);

    let (mut server, mut client) = granted(Intent::Play, &[999]);
    server.end_of_stream();
    exchange(&mut server, &mut client, &[999]);
    assert_eq!(client_events(&mut client), [ClientEvent::Ended], "once");
}

#[test]
fn a_rejection_carries_its_description() {
    for intent in [Intent::Publish, Intent::Play] {
        let (mut server, mut client) = (server(), client(intent));
        exchange(&mut server, &mut client, &[100]);
        server.refuse("bad key");
        exchange(&mut server, &mut client, &[100]);
        assert_eq!(client_events(&mut client), [ClientEvent::Refused("bad key".to_owned())]);
        client.send_tag(&tags()[0]);
        assert_eq!(client.queued(), 0);
    }
}

#[test]
fn payloads_are_sent_without_a_copy() {
    let (mut server, _) = granted(Intent::Play, &[999]);
    let tag = &tags()[3];
    server.send_tag(tag);
    let pieces: Vec<Bytes> = core::iter::from_fn(|| server.poll_output()).collect();
    let chunks: Vec<_> = pieces.iter().filter(|piece| piece.len() > 16).collect();
    assert_eq!(chunks.len(), 4, "200,000 bytes in chunks of 65,536");
    assert_eq!(chunks[1].as_ptr(), tag.payload()[65_536..].as_ptr());
}

// The following tests write their own chunks.

const STREAM: u32 = 1;

fn greeting() -> Vec<u8> {
    [&[3][..], &[0; 2 * 1_536]].concat()
}

/// Returns a message in chunks of 128 bytes.
fn message(kind: u8, time: u32, payload: &[u8]) -> Vec<u8> {
    let mut writer = ChunkWriter::new();
    writer.message(3, kind, STREAM, time, Bytes::copy_from_slice(payload));
    output(|| writer.pop())
}

fn command(name: &str, transaction: f64, arguments: &[Value]) -> Vec<u8> {
    let mut payload = BytesMut::new();
    Value::from(name).write(&mut payload);
    Value::from(transaction).write(&mut payload);
    arguments.iter().for_each(|value| value.write(&mut payload));
    message(20, 0, &payload)
}

fn connect() -> Vec<u8> {
    command("connect", 1.0, &[object([("app", "live?a=1".into()), ("capsEx", 1.0.into())])])
}

fn publish() -> Vec<u8> {
    command("publish", 0.0, &[Value::Null, "demo?b=2".into(), "live".into()])
}

/// A server, and a reader of its output.
struct Served {
    server: Server,
    reader: ChunkReader,
}

impl Served {
    /// Returns the server's messages since the last call.
    fn sent(&mut self) -> Vec<Message> {
        let output = output(|| self.server.poll_output());
        let mut input = &output[..];
        let read = || self.reader.read(&mut input).expect("our own chunks");
        core::iter::from_fn(read).collect()
    }

    /// Returns the commands among these messages.
    fn commands(&mut self) -> Vec<Vec<Value>> {
        let messages = self.sent().into_iter().filter(|message| message.kind == 20);
        messages.map(|message| amf0::read(message.payload()).expect("our own AMF0")).collect()
    }

    fn events(&mut self) -> Vec<Event> {
        server_events(&mut self.server)
    }
}

/// Sends these bytes to a server after a handshake, and returns the result.
fn after(parts: &[Vec<u8>]) -> (Served, Result<(), Error>) {
    let mut server = server();
    let result = server.handle(&greeting());
    output(|| server.poll_output());
    let result = result.and_then(|()| parts.iter().try_for_each(|part| server.handle(part)));
    (Served { server, reader: ChunkReader::new(1 << 20) }, result)
}

/// Starts a server that accepts the request.
fn active(request: Vec<u8>) -> Served {
    let (mut served, result) = after(&[connect(), request]);
    assert_eq!(result, Ok(()));
    served.server.accept();
    served.sent();
    served.events();
    served
}

fn publishing() -> Server {
    active(publish()).server
}

#[test]
fn a_replaced_publisher_is_notified_and_ignored() {
    let mut served = active(publish());
    served.server.revoke("taken");
    let [status] = &served.commands()[..] else { panic!("one status") };
    let text = format!("{status:?}");
    let parts = ["onStatus", "error", "NetStream.Publish.BadName", "taken"];
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    served.server.revoke("again");
    assert!(served.commands().is_empty());
    let close = command("deleteStream", 0.0, &[Value::Null, 1.0.into()]);
    assert_eq!(served.server.handle(&close), Ok(()));
    assert!(served.events().is_empty(), "the stream is another one's");
}

#[test]
fn messages_without_media_have_an_allowance_and_media_of_a_publisher_has_none() {
    let floods: [(&str, Vec<u8>); 9] = [
        ("empty audio", message(8, 1, b"")),
        ("empty video", message(9, 1, b"")),
        ("empty data", message(15, 1, b"")),
        ("acknowledgement", message(3, 0, &[0; 4])),
        ("user control", message(4, 0, &[0, 9, 0, 0])),
        ("window", message(5, 0, &[0, 1, 0, 0])),
        ("shared object", message(19, 0, b"x")),
        ("empty aggregate", message(22, 1, b"")),
        ("unknown command", command("what", 0.0, &[])),
    ];
    for (name, part) in floods {
        for before in [Vec::new(), vec![connect()], vec![connect(), publish()]] {
            let (mut served, result) = after(&before);
            assert_eq!(result, Ok(()));
            served.server.allow(0, 100);
            let sent = (0..200).take_while(|_| served.server.handle(&part).is_ok()).count();
            assert!(sent <= 100, "{name}: {sent}");
        }
    }
    let mut server = publishing();
    server.allow(0, 100);
    let frame = message(8, 1, &[0xaf, 1, 0x21]);
    assert!((0..1_000).all(|_| server.handle(&frame).is_ok()));
    // Media without a publish request does not count as media.
    let (mut served, _) = after(&[connect()]);
    served.server.allow(0, 100);
    assert!(!(0..200).all(|_| served.server.handle(&frame).is_ok()));
    // A refill does not exceed the maximum.
    let mut server = publishing();
    server.allow(0, 100);
    (0..3).for_each(|_| server.allow(80, 100));
    let part = message(8, 1, b"");
    let sent = (0..200).take_while(|_| server.handle(&part).is_ok()).count();
    assert_eq!(sent, 100);
}

#[test]
fn queries_are_joined_and_enhanced_rtmp_is_announced_on_request() {
    let (mut served, result) = after(&[connect(), publish()]);
    assert_eq!(result, Ok(()));
    let Some(Event::Publish(request)) = served.server.poll_event() else { panic!("no request") };
    assert_eq!((&*request.app, &*request.stream, &*request.query), ("live", "demo", "a=1&b=2"));
    let any_video = |served: &mut Served| {
        let answer = served.commands().swap_remove(0);
        assert_eq!(answer[3].get("code"), Some(&"NetConnection.Connect.Success".into()));
        answer[2].get("videoFourCcInfoMap")?.get("*")?.number()
    };
    assert_eq!(any_video(&mut served), Some(4.0));
    let plain = command("connect", 1.0, &[object([("app", "live".into())])]);
    assert_eq!(any_video(&mut after(&[plain]).0), None);
}

#[test]
fn media_sent_before_the_response_is_held() {
    let tag = &tags()[1];
    let (mut served, result) = after(&[connect(), publish()]);
    assert_eq!(result, Ok(()));
    let server = &mut served.server;
    server.handle(&message(9, 0, &tag.payload())).expect("held");
    assert_eq!(server_events(server).len(), 1, "the request");
    server.accept();
    assert_eq!(server_events(server), [Event::Tag(tag.clone())]);

    let mut server = after(&[connect(), publish()]).0.server;
    let flood = message(9, 0, &[0x17; 60_000]);
    let result = (0..1_000).try_for_each(|_| server.handle(&flood));
    assert_eq!(result, Err(Error::EarlyMedia));
}

#[test]
fn large_messages_before_authorisation_are_rejected() {
    // The start of a message of 1 MiB.
    let large = [6, 0, 0, 0, 0x10, 0, 0, 9, 1, 0, 0, 0, 0x17];
    let mut server = after(&[connect(), publish()]).0.server;
    assert_eq!(server.handle(&large), Err(Error::MessageTooLarge(1 << 20)));
    let mut server = after(&[connect(), publish()]).0.server;
    server.accept();
    assert_eq!(server.handle(&large), Ok(()));
}

#[test]
fn a_reading_peer_answers_pings() {
    let (mut served, _) = after(&[connect()]);
    while served.server.poll_output().is_some() {}
    served.server.ping();
    let bytes: Vec<u8> =
        std::iter::from_fn(|| served.server.poll_output()).flat_map(|b| b.to_vec()).collect();
    // A user control message (type 4) with event 6, PingRequest.
    assert!(bytes.windows(6).any(|part| part == [0, 6, 0, 0, 0, 0]), "{bytes:?}");
    assert_eq!(bytes[7], 4);
}

#[test]
fn a_withdrawn_request_cannot_be_accepted_for_another() {
    let close = command("deleteStream", 0.0, &[Value::Null, f64::from(STREAM).into()]);
    let (mut served, result) = after(&[connect(), publish(), close.clone()]);
    assert_eq!(result, Ok(()));
    assert_eq!(served.events()[1..], [Event::Unpublish]);
    let again = served.server.handle(&publish());
    assert_eq!(again, Err(Error::SecondStream), "before the first is answered");

    let (mut served, _) = after(&[connect(), publish(), close]);
    served.server.accept();
    assert_eq!(served.server.handle(&publish()), Ok(()));
    assert_eq!(served.events().len(), 3);
}

#[test]
fn other_commands_get_the_expected_responses() {
    let answer = |parts: Vec<u8>| {
        let (mut served, _) = after(&[connect()]);
        served.sent();
        served.server.handle(&parts).expect("allowed");
        served.commands()
    };
    for (name, first) in [
        ("createStream", "_result"),
        ("releaseStream", "_result"),
        ("FCPublish", "_result"),
        ("_checkbw", "_result"),
        ("getStreamLength", "_result"),
        ("play2", "onStatus"),
        ("somethingElse", "_error"),
    ] {
        let commands = answer(command(name, 7.0, &[Value::Null]));
        assert_eq!(commands[0][0], first.into(), "{name}");
        let transaction = if first == "onStatus" { 0.0 } else { 7.0 };
        assert_eq!(commands[0][1], transaction.into(), "{name}");
    }
    assert!(answer(command("somethingElse", 0.0, &[])).is_empty());
    // The same after the zero byte of an AMF3 command.
    let payload = b"\x00\x02\x00\x0ccreateStream\x00\x3f\xf0\0\0\0\0\0\0\x05";
    assert_eq!(answer(message(17, 0, payload)).len(), 1);
}

#[test]
fn a_player_pauses_and_selects_tracks() {
    let mut served = active(command("play", 0.0, &[Value::Null, "demo".into()]));
    let wish = |name, value: bool| command(name, 0.0, &[Value::Null, value.into()]);
    served.server.handle(&wish("pause", true)).expect("allowed");
    assert_eq!(served.events(), [Event::Paused(true)]);
    served.server.handle(&wish("receiveVideo", false)).expect("allowed");
    served.sent();
    tags()[..5].iter().for_each(|tag| served.server.send_tag(tag));
    let kinds: Vec<u8> = served.sent().iter().map(|message| message.kind).collect();
    assert_eq!(kinds, [18, 9, 8, 8], "the sequence header, but no frame");
}

#[test]
fn an_aggregate_becomes_its_tags() {
    let mut server = publishing();
    let aggregate: Vec<u8> =
        [&tags()[4], &tags()[1]].iter().flat_map(|tag| tag.bytes().to_vec()).collect();
    server.handle(&message(22, 1_000, &aggregate)).expect("allowed");
    let at = |tag: &Tag, time| Tag::new(tag.kind(), time, &tag.payload()).expect("short");
    let expected = [at(&tags()[4], 1_000), at(&tags()[1], 1_000u32.wrapping_sub(33))];
    assert_eq!(server_events(&mut server), tag_events(&expected));
    let cut = message(22, 0, &aggregate[..12]);
    assert_eq!(server.handle(&cut), Err(Error::Malformed("aggregate")));
}

#[test]
fn set_data_frame_is_removed_from_metadata() {
    let kept = [&b"\x02\x00\x0d@setDataFrame"[..], METADATA].concat();
    let amf3 = [&[0][..], METADATA].concat();
    for (kind, payload) in [(18, &kept), (18, &METADATA.to_vec()), (15, &amf3)] {
        let mut server = publishing();
        server.handle(&message(kind, 0, payload)).expect("allowed");
        assert_eq!(server_events(&mut server), tag_events(&tags()[..1]), "{kind}");
    }
}

#[test]
fn bytes_are_acknowledged_and_pings_answered() {
    let mut served = active(publish());
    let mut sent_for = |kind, payload: &[u8]| {
        let input = message(kind, 0, payload);
        served.server.handle(&input).expect("allowed");
        let sent = served.sent().into_iter();
        sent.map(|message| (message.kind, message.payload().to_vec())).collect::<Vec<_>>()
    };
    assert_eq!(sent_for(4, &[0, 6, 1, 2, 3, 4]), [(4, vec![0, 7, 1, 2, 3, 4])], "pong");
    assert_eq!(sent_for(6, &[0, 1, 0, 0, 2])[0].0, 5, "our window");
    // More than 1,000 bytes have arrived since the start: acknowledged at once, and then after
    // another 1,000.
    assert_eq!(sent_for(5, &[0, 0, 3, 232])[0].0, 3);
    assert_eq!(sent_for(9, &[0x17; 500]), []);
    assert_eq!(sent_for(9, &[0x17; 500])[0].0, 3);
}

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
fn bytes_are_acknowledged_without_an_announced_window() {
    let acknowledgements = |window: Option<u32>| {
        let mut served = active(publish());
        if let Some(window) = window {
            served.server.handle(&message(5, 0, &window.to_be_bytes())).expect("allowed");
        }
        let mut count = 0;
        for _ in 0..90 {
            served.server.handle(&message(9, 0, &[0x17; 100_000])).expect("allowed");
            count += served.sent().into_iter().filter(|message| message.kind == 3).count();
        }
        count
    };
    assert_eq!(acknowledgements(None), 3, "9 MB in windows of 2.5 MB");
    assert_eq!(acknowledgements(Some(0)), 3);
    assert_eq!(acknowledgements(Some(0x7fff_ffff)), 3);
    assert!(acknowledgements(Some(500_000)) >= 15);
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
