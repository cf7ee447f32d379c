//! Server of an RTMP connection: handles one publisher or player.
//!
//! Adobe's RTMP specification 1.0, section 7.2, with the commands that OBS, ffmpeg, VLC and librtmp
//! add (`releaseStream`, `FCPublish`, `_checkbw` …) and the responses that they wait for. The
//! caller decides on `publish` and `play`.

use std::collections::VecDeque;

use bytes::Bytes;

use super::handshake::{Handshake, Random};
use super::link::{
    Incoming, PING_REQUEST, RtmpCommand, RtmpLink, STREAM_BEGIN, STREAM_EOF, enhanced_properties,
};
use super::{Config, Error};
use crate::amf0::{Value, object};
use crate::codec::Role;
use crate::deviation::Deviation;
use crate::flv::{Kind, Tag};

/// Approximate overhead of a held tag in addition to its payload, in bytes.
const TAG_OVERHEAD: usize = 128;
/// Maximum size of a message, and of all held tags, before `publish` is accepted. Enough for
/// sequence headers and the key frame of most encoders.
const MAX_EARLY: usize = 256 << 10;

/// A client's request to publish or play.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Application, without its query.
    pub app: String,
    /// Stream name, without its query; may be empty.
    pub stream: String,
    /// Queries of application and stream name, joined with `&`, without `?`.
    pub query: String,
    /// URL of the connection, as reported by the client; may be empty.
    pub tc_url: String,
    /// Name and version of the client, as reported by it; may be empty.
    pub flash_ver: String,
    /// Servers that the stream passed, as reported by the client (RFC 8586); may be empty.
    pub cdn_loop: String,
}

/// Event of a connection. A client that only closes the connection causes no event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The client requests to publish. Respond with [`Server::accept`] or [`Server::refuse`].
    Publish(Request),
    /// The client requests to play. Respond with [`Server::accept`] or [`Server::refuse`].
    Play(Request),
    /// A tag of the publisher, with its own timestamp. Only after [`Server::accept`].
    Tag(Tag),
    /// The publisher has ended its stream, or withdrawn its request.
    Unpublish,
    /// The player has paused or resumed.
    Paused(bool),
    /// The player has stopped, or withdrawn its request.
    StopPlay,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StreamPurpose {
    Publish,
    Play,
}

#[derive(Debug)]
enum ServerState {
    Idle,
    /// Waiting for the caller's decision. Tags that arrive meanwhile are held.
    Requested {
        purpose: StreamPurpose,
        stream: u32,
        held: VecDeque<Tag>,
        held_bytes: usize,
    },
    /// Withdrawn by the client before the caller's decision.
    Withdrawn,
    Active {
        purpose: StreamPurpose,
        stream: u32,
    },
}

/// Server of an RTMP connection.
#[derive(Debug)]
pub struct Server {
    link: RtmpLink,
    max_message: usize,
    multitrack: bool,
    /// Parameters of `connect`, without a stream, which requests inherit.
    connect: Option<Request>,
    state: ServerState,
    /// Newest message stream.
    created: u32,
    /// Whether the player wants audio, and video.
    receive: [bool; 2],
    events: VecDeque<Event>,
}

impl Server {
    /// Creates a server for a new connection.
    pub fn new(config: Config, random: &Random) -> Self {
        Self {
            max_message: config.max_message,
            multitrack: config.multitrack,
            link: RtmpLink::new(config, Handshake::server(random)),
            connect: None,
            state: ServerState::Idle,
            created: 0,
            receive: [true; 2],
            events: VecDeque::new(),
        }
    }

    /// Handles bytes from the peer. Drain events and output after each call.
    ///
    /// # Errors
    /// The peer violated the protocol or a limit: the connection must be closed. Queued events and
    /// output remain valid, but no further input is allowed.
    pub fn handle(&mut self, mut input: &[u8]) -> Result<(), Error> {
        self.link.count(input.len());
        while let Some(incoming) = self.link.read(&mut input)? {
            match incoming {
                Incoming::Open | Incoming::StreamEof => {}
                Incoming::Command(command) => self.command(&command)?,
                Incoming::Tag(tag) => self.tag(tag)?,
            }
        }
        Ok(())
    }

    /// Adds `more` to the allowance for messages without media, up to `most` in total. Such a
    /// message costs 1, plus 1 per KiB. A peer that exceeds its allowance violates a limit. Without
    /// a call, there is no limit.
    pub fn allow(&mut self, more: u32, most: u32) {
        let left = self.link.allowance().map_or(most, |left| left.saturating_add(more).min(most));
        self.link.allow(left);
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the next bytes for the peer.
    pub fn poll_output(&mut self) -> Option<Bytes> {
        self.link.writer.pop()
    }

    /// Returns the number of tolerated protocol deviations since the last call, by kind.
    pub fn deviations(&mut self) -> impl Iterator<Item = (Deviation, u32)> + use<> {
        self.link.deviations().take()
    }

    /// Returns the number of bytes that [`Server::poll_output`] has not returned yet.
    pub fn queued(&self) -> usize {
        self.link.writer.queued()
    }

    /// Accepts the client's request. Ignored without a pending request.
    pub fn accept(&mut self) {
        let (purpose, stream) = match core::mem::replace(&mut self.state, ServerState::Idle) {
            ServerState::Requested { purpose, stream, held, .. } => {
                self.events.extend(held.into_iter().map(Event::Tag));
                if purpose == StreamPurpose::Publish {
                    self.link.expect_media(self.max_message);
                }
                (purpose, stream)
            }
            ServerState::Withdrawn => return,
            other => return self.state = other,
        };
        self.state = ServerState::Active { purpose, stream };
        self.link.send_event(STREAM_BEGIN, &[stream]);
        match purpose {
            StreamPurpose::Publish => {
                self.status(stream, "status", "NetStream.Publish.Start", "publishing");
            }
            StreamPurpose::Play => {
                self.receive = [true; 2];
                self.status(stream, "status", "NetStream.Play.Reset", "playing and resetting");
                self.status(stream, "status", "NetStream.Play.Start", "playing");
                self.link
                    .send_data(stream, &["|RtmpSampleAccess".into(), true.into(), true.into()]);
            }
        }
    }

    /// Rejects the client's request. The client may then send another.
    ///
    /// Publishers always get `NetStream.Publish.Denied`, because OBS shows its description.
    pub fn refuse(&mut self, description: &str) {
        match core::mem::replace(&mut self.state, ServerState::Idle) {
            ServerState::Requested { purpose, stream, .. } => {
                let code = match purpose {
                    StreamPurpose::Publish => "NetStream.Publish.Denied",
                    StreamPurpose::Play => "NetStream.Play.StreamNotFound",
                };
                self.status(stream, "error", code, description);
            }
            ServerState::Withdrawn => {}
            other => self.state = other,
        }
    }

    /// Notifies a publisher that another one took over its stream. Its further tags are ignored.
    pub fn revoke(&mut self, description: &str) {
        if let ServerState::Active { purpose: StreamPurpose::Publish, stream } = self.state {
            self.state = ServerState::Idle;
            self.status(stream, "error", "NetStream.Publish.BadName", description);
        }
    }

    /// Queues a tag for a player. Ignored without a player, or if it does not want this kind of
    /// tag.
    pub fn send_tag(&mut self, tag: &Tag) {
        self.send_tag_at(tag, tag.timestamp());
    }

    /// Like [`Server::send_tag`], with another timestamp, in milliseconds.
    pub fn send_tag_at(&mut self, tag: &Tag, timestamp: u32) {
        let ServerState::Active { purpose: StreamPurpose::Play, stream } = self.state else {
            return;
        };
        let wanted = match tag.kind() {
            Kind::Audio => self.receive[0],
            Kind::Video => self.receive[1],
            Kind::Script => true,
        };
        if wanted || tag.role() == Role::SequenceHeader {
            self.link.send_tag(stream, tag, timestamp);
        }
    }

    /// Notifies a player that its stream has ended. It may then request another.
    pub fn end_of_stream(&mut self) {
        if let ServerState::Active { purpose: StreamPurpose::Play, stream } = self.state {
            self.state = ServerState::Idle;
            self.link.send_event(STREAM_EOF, &[stream]);
            self.status(stream, "status", "NetStream.Play.UnpublishNotify", "end of stream");
        }
    }

    /// Pings the peer (section 6.2, PingRequest). It responds once it has read all previous
    /// messages.
    pub fn ping(&mut self) {
        self.link.send_event(PING_REQUEST, &[0]);
    }

    fn tag(&mut self, tag: Tag) -> Result<(), Error> {
        match &mut self.state {
            ServerState::Active { purpose: StreamPurpose::Publish, .. } => {
                self.events.push_back(Event::Tag(tag));
            }
            // Some encoders send media before the response. Their stream is unplayable without the
            // sequence headers.
            ServerState::Requested {
                purpose: StreamPurpose::Publish, held, held_bytes, ..
            } => {
                *held_bytes += tag.bytes().len() + TAG_OVERHEAD;
                if *held_bytes > self.max_message.min(MAX_EARLY) {
                    return Err(Error::EarlyMedia);
                }
                held.push_back(tag);
            }
            // For example the last tags of a rejected publisher.
            _ => self.link.charge(tag.bytes().len())?,
        }
        Ok(())
    }

    fn command(&mut self, command: &RtmpCommand) -> Result<(), Error> {
        if command.name == "connect" {
            return self.connect(command);
        }
        if self.connect.is_none() {
            return Err(Error::NotConnected);
        }
        match command.name.as_str() {
            "createStream" => {
                self.created = self.created.wrapping_add(1).max(1);
                let stream = f64::from(self.created);
                self.result(command, &[Value::Null, stream.into()])?;
            }
            "releaseStream" | "FCPublish" | "FCSubscribe" | "_checkbw" => {
                self.result(command, &[Value::Null, Value::Undefined])?;
            }
            "getStreamLength" => self.result(command, &[Value::Null, 0.0.into()])?,
            "publish" => self.on_request(command, StreamPurpose::Publish)?,
            "play" => self.on_request(command, StreamPurpose::Play)?,
            "play2" => {
                self.link.reply()?;
                let description = "switching streams is not supported";
                self.status(command.stream, "error", "NetStream.Play.Failed", description);
            }
            "pause" => self.pause(command)?,
            "receiveAudio" => self.receive[0] = flag(command),
            "receiveVideo" => self.receive[1] = flag(command),
            "closeStream" => self.close(Some(command.stream)),
            "deleteStream" => {
                let id = command.argument(1).and_then(Value::number);
                self.close(id.map(|id| id as u32));
            }
            "FCUnpublish" => {
                if command.transaction != 0.0 {
                    self.result(command, &[Value::Null, Value::Undefined])?;
                }
                self.unpublish();
            }
            _ if command.transaction != 0.0 => {
                self.link.reply()?;
                let info = information("error", "NetConnection.Call.Failed", "unknown command");
                let values = [Value::Null, info];
                self.link.send_command(command.stream, "_error", command.transaction, &values);
            }
            _ => {}
        }
        Ok(())
    }

    fn connect(&mut self, command: &RtmpCommand) -> Result<(), Error> {
        let properties = command.argument(0).unwrap_or(&Value::Null);
        let text = |name| properties.get(name).and_then(Value::text).unwrap_or_default();
        let (app, mut query) = split_query(text("app"));
        if query.is_empty() {
            query = split_query(text("tcUrl")).1;
        }
        self.connect = Some(Request {
            app: app.trim_matches('/').to_owned(),
            stream: String::new(),
            query: query.to_owned(),
            tc_url: text("tcUrl").to_owned(),
            flash_ver: text("flashVer").to_owned(),
            cdn_loop: text(super::CDN_LOOP).to_owned(),
        });
        let mut answer = vec![
            ("fmsVer".to_owned(), "FMS/3,0,1,123".into()),
            ("capabilities".to_owned(), 31.0.into()),
        ];
        // Enhanced RTMP v2, "Enhancing NetConnection connect Command": "The server SHOULD state
        // its support via attributes such as videoFourCcInfoMap, capsEx, and similar properties."
        let enhanced = enhanced_properties(self.multitrack);
        if enhanced.iter().any(|(name, _)| properties.get(name).is_some()) {
            answer.extend(enhanced);
        }
        let info = object([
            ("level", "status".into()),
            ("code", "NetConnection.Connect.Success".into()),
            ("description", "connection succeeded".into()),
            // Peers that on_request for AMF3 (3) get AMF0.
            ("objectEncoding", 0.0.into()),
        ]);
        self.link.reply()?;
        self.link.announce_window();
        self.link.set_peer_bandwidth();
        self.link.set_chunk_size();
        let values = [Value::Object(answer), info];
        self.link.send_command(command.stream, "_result", command.transaction, &values);
        Ok(())
    }

    fn on_request(&mut self, command: &RtmpCommand, purpose: StreamPurpose) -> Result<(), Error> {
        self.link.reply()?;
        if !matches!(self.state, ServerState::Idle) {
            let code = match purpose {
                StreamPurpose::Publish => "NetStream.Publish.BadName",
                StreamPurpose::Play => "NetStream.Play.Failed",
            };
            self.status(command.stream, "error", code, "one stream per connection");
            return Err(Error::SecondStream);
        }
        let Some(connect) = &self.connect else { return Err(Error::NotConnected) };
        let name = command.argument(1).and_then(Value::text);
        let (stream, query) = split_query(name.ok_or(Error::Malformed("stream without a name"))?);
        let separator = if connect.query.is_empty() || query.is_empty() { "" } else { "&" };
        let query = [&connect.query, separator, query].concat();
        let request = Request { stream: stream.to_owned(), query, ..connect.clone() };
        self.state = ServerState::Requested {
            purpose,
            stream: command.stream,
            held: VecDeque::new(),
            held_bytes: 0,
        };
        if purpose == StreamPurpose::Publish {
            self.link.expect_media(MAX_EARLY);
        }
        self.events.push_back(match purpose {
            StreamPurpose::Publish => Event::Publish(request),
            StreamPurpose::Play => Event::Play(request),
        });
        Ok(())
    }

    fn pause(&mut self, command: &RtmpCommand) -> Result<(), Error> {
        if let ServerState::Active { purpose: StreamPurpose::Play, stream } = self.state {
            self.link.reply()?;
            let paused = flag(command);
            let code = if paused { "NetStream.Pause.Notify" } else { "NetStream.Unpause.Notify" };
            self.status(stream, "status", code, "pause state changed");
            self.events.push_back(Event::Paused(paused));
        }
        Ok(())
    }

    /// Ends publishing or playing on message stream `id`.
    fn close(&mut self, id: Option<u32>) {
        let (ServerState::Requested { purpose, stream, .. }
        | ServerState::Active { purpose, stream }) = self.state
        else {
            return;
        };
        if id != Some(stream) {
            return;
        }
        match purpose {
            StreamPurpose::Publish => self.unpublish(),
            StreamPurpose::Play => self.end(Event::StopPlay),
        }
    }

    fn unpublish(&mut self) {
        match self.state {
            ServerState::Active { purpose: StreamPurpose::Publish, stream } => {
                self.status(stream, "status", "NetStream.Unpublish.Success", "unpublished");
            }
            ServerState::Requested { purpose: StreamPurpose::Publish, .. } => {}
            _ => return,
        }
        self.end(Event::Unpublish);
    }

    fn end(&mut self, event: Event) {
        self.state = match self.state {
            ServerState::Requested { .. } => ServerState::Withdrawn,
            _ => ServerState::Idle,
        };
        self.events.push_back(event);
    }

    fn result(&mut self, command: &RtmpCommand, values: &[Value]) -> Result<(), Error> {
        self.link.reply()?;
        self.link.send_command(command.stream, "_result", command.transaction, values);
        Ok(())
    }

    fn status(&mut self, stream: u32, level: &str, code: &str, description: &str) {
        let values = [Value::Null, information(level, code, description)];
        self.link.send_command(stream, "onStatus", 0.0, &values);
    }
}

fn information(level: &str, code: &str, description: &str) -> Value {
    object([("level", level.into()), ("code", code.into()), ("description", description.into())])
}

/// Returns the argument of commands that enable or disable something.
fn flag(command: &RtmpCommand) -> bool {
    matches!(command.argument(1), Some(Value::Boolean(true)))
}

fn split_query(name: &str) -> (&str, &str) {
    name.split_once('?').unwrap_or((name, ""))
}
