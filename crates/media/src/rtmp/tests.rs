//! Server and client connected in memory, and helpers for peers that write their own chunks.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use super::chunk::{ChunkReader, ChunkWriter, Message};
use super::*;
use crate::amf0::{self, Value, object};
use crate::flv::{Kind, Tag};

mod hostile;
mod requests;

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
