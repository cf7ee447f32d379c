//! Client of an RTMP connection: plays from a server or publishes to it.
//!
//! Adobe's RTMP specification 1.0, section 7.2: `connect`, `createStream`, then `play` or
//! `publish`. `releaseStream` and `FCPublish` precede `publish`, because older servers wait for
//! them.

use std::collections::VecDeque;

use bytes::Bytes;

use super::handshake::{Handshake, Random};
use super::link::{Incoming, RtmpCommand, RtmpLink, SET_BUFFER_LENGTH, enhanced_properties};
use super::{Config, Error, Url};
use crate::amf0::Value;
use crate::flv::{Kind, Tag};

/// Announced buffer length in milliseconds, as sent by ffmpeg.
const BUFFER_MS: u32 = 3_000;

// Transaction IDs. Responses to other commands are ignored.
const CONNECT: f64 = 1.0;
const RELEASE_STREAM: f64 = 2.0;
const FC_PUBLISH: f64 = 3.0;
const CREATE_STREAM: f64 = 4.0;
const FINAL: f64 = 5.0;

/// Purpose of a client connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Intent {
    /// Play a stream.
    Play,
    /// Publish a stream.
    Publish,
}

/// Event of a connection. A server that only closes the connection causes no event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientEvent {
    /// The server has accepted `play`; tags follow.
    Playing,
    /// The server has accepted `publish`: [`Client::send_tag`] may be used.
    Publishing,
    /// A tag of the played stream, with the server's timestamp.
    Tag(Tag),
    /// The server has rejected the request, with this description. The connection cannot be used
    /// further.
    Refused(String),
    /// The server has ended the stream.
    Ended,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ClientState {
    /// Waiting for the response to `connect`.
    Connecting,
    /// Waiting for the response to `createStream`.
    Creating,
    /// Waiting for the response to `play` or `publish` on this message stream.
    Requested(u32),
    Active(u32),
    Closed,
}

/// Client of an RTMP connection.
///
/// ```
/// use mendcast_media::rtmp::{Client, ClientEvent, Config, Event, Intent, Server, Url};
///
/// let url = Url::parse("rtmp://origin.example/live/demo").unwrap();
/// let mut client = Client::new(url, Intent::Publish, Config::default(), &[1; 1_528]);
/// let mut server = Server::new(Config::default(), &[2; 1_528]);
/// // Without sockets: the output of each side is the input of the other.
/// for _ in 0..10 {
///     while let Some(bytes) = client.poll_output() {
///         server.handle(&bytes).unwrap();
///     }
///     if let Some(Event::Publish(request)) = server.poll_event() {
///         assert_eq!(request.stream, "demo");
///         server.accept();
///     }
///     while let Some(bytes) = server.poll_output() {
///         client.handle(&bytes).unwrap();
///     }
/// }
/// assert_eq!(client.poll_event(), Some(ClientEvent::Publishing));
/// ```
#[derive(Debug)]
pub struct Client {
    link: RtmpLink,
    url: Url,
    intent: Intent,
    /// Servers that the published stream passed; empty if unknown.
    passed: String,
    state: ClientState,
    events: VecDeque<ClientEvent>,
}

impl Client {
    /// Creates a client for a new connection to the URL's host and port. Output is available at
    /// once.
    pub fn new(url: Url, intent: Intent, config: Config, random: &Random) -> Self {
        let (handshake, hello) = Handshake::client(random);
        let mut link = RtmpLink::new(config, handshake);
        link.writer.raw(hello);
        let (passed, state) = (String::new(), ClientState::Connecting);
        Self { link, url, intent, passed, state, events: VecDeque::new() }
    }

    /// Announces the servers that the published stream passed, in the form of a CDN-Loop field
    /// (RFC 8586), as the property [`CDN_LOOP`](super::CDN_LOOP) of `connect`. Must be called
    /// before the first [`Client::handle`].
    #[must_use]
    pub fn with_passed_servers(mut self, passed: String) -> Self {
        self.passed = passed;
        self
    }

    /// Handles bytes from the server. Drain events and output after each call.
    ///
    /// # Errors
    /// The server violated the protocol or a limit: the connection must be closed. Queued events
    /// remain valid, but no further input is allowed.
    pub fn handle(&mut self, mut input: &[u8]) -> Result<(), Error> {
        self.link.count(input.len());
        while let Some(incoming) = self.link.read(&mut input)? {
            match incoming {
                Incoming::Open => self.connect(),
                Incoming::Command(command) => self.command(&command),
                Incoming::Tag(tag) => self.tag(tag),
                Incoming::StreamEof if matches!(self.state, ClientState::Active(_)) => {
                    self.end(ClientEvent::Ended);
                }
                Incoming::StreamEof => {}
            }
        }
        Ok(())
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    /// Returns the next bytes for the server.
    pub fn poll_output(&mut self) -> Option<Bytes> {
        self.link.writer.pop()
    }

    /// Returns the number of bytes that [`Client::poll_output`] has not returned yet.
    pub fn queued(&self) -> usize {
        self.link.writer.queued()
    }

    /// Queues a tag of the published stream. Ignored before [`ClientEvent::Publishing`].
    pub fn send_tag(&mut self, tag: &Tag) {
        self.send_tag_at(tag, tag.timestamp());
    }

    /// Like [`Client::send_tag`], with another timestamp.
    pub fn send_tag_at(&mut self, tag: &Tag, timestamp: u32) {
        if let (Intent::Publish, ClientState::Active(stream)) = (self.intent, self.state) {
            self.link.publish_tag(stream, tag, timestamp);
        }
    }

    /// Ends the stream regularly. The connection may be closed once the output has been sent.
    pub fn close(&mut self) {
        if let ClientState::Requested(stream) | ClientState::Active(stream) = self.state {
            if self.intent == Intent::Publish {
                let name = self.url.stream.as_str().into();
                self.link.send_command(0, "FCUnpublish", FINAL, &[Value::Null, name]);
            }
            let arguments = [Value::Null, f64::from(stream).into()];
            self.link.send_command(0, "deleteStream", 0.0, &arguments);
        }
        self.state = ClientState::Closed;
    }

    fn end(&mut self, event: ClientEvent) {
        if self.state != ClientState::Closed {
            self.state = ClientState::Closed;
            self.events.push_back(event);
        }
    }

    fn connect(&mut self) {
        let member = |name: &str, value: Value| (name.to_owned(), value);
        let mut properties = vec![
            member("app", self.url.app.as_str().into()),
            member("tcUrl", self.url.tc_url().as_str().into()),
            member("objectEncoding", 0.0.into()),
        ];
        match self.intent {
            // Some servers require that publishers identify as a Flash Media Live Encoder.
            Intent::Publish => properties.extend([
                member("flashVer", "FMLE/3.0 (compatible; Mendcast)".into()),
                member("type", "nonprivate".into()),
            ]),
            // Players announce all legacy codecs.
            Intent::Play => properties.extend([
                member("flashVer", "LNX 9,0,124,2".into()),
                member("fpad", false.into()),
                member("capabilities", 15.0.into()),
                member("audioCodecs", 4_071.0.into()),
                member("videoCodecs", 252.0.into()),
                member("videoFunction", 1.0.into()),
            ]),
        }
        if !self.passed.is_empty() {
            properties.push(member(super::CDN_LOOP, self.passed.as_str().into()));
        }
        properties.extend(enhanced_properties(false));
        self.link.set_chunk_size();
        self.link.announce_window();
        self.link.send_command(0, "connect", CONNECT, &[Value::Object(properties)]);
    }

    fn command(&mut self, command: &RtmpCommand) {
        match (command.name.as_str(), self.state) {
            ("_result", ClientState::Connecting) if command.transaction == CONNECT => {
                self.state = ClientState::Creating;
                if self.intent == Intent::Publish {
                    let arguments = [Value::Null, self.url.stream.as_str().into()];
                    self.link.send_command(0, "releaseStream", RELEASE_STREAM, &arguments);
                    self.link.send_command(0, "FCPublish", FC_PUBLISH, &arguments);
                }
                self.link.send_command(0, "createStream", CREATE_STREAM, &[Value::Null]);
            }
            ("_result", ClientState::Creating) if command.transaction == CREATE_STREAM => {
                match command.argument(1).and_then(Value::number) {
                    Some(stream) => self.request_stream(stream as u32),
                    None => self.end(ClientEvent::Refused("server created no stream".to_owned())),
                }
            }
            // Servers without releaseStream or FCPublish report an error, which is harmless.
            (
                "_error",
                ClientState::Connecting | ClientState::Creating | ClientState::Requested(_),
            ) if matches!(command.transaction, CONNECT | CREATE_STREAM | FINAL) => {
                self.end(ClientEvent::Refused(reason(command)));
            }
            ("onStatus", _) => self.status(command),
            ("close", _) => self.end(ClientEvent::Ended),
            _ => {}
        }
    }

    fn request_stream(&mut self, stream: u32) {
        self.state = ClientState::Requested(stream);
        let name = self.url.stream.as_str().into();
        match self.intent {
            Intent::Play => {
                self.link.expect_media(usize::MAX);
                // -2: live if such a stream exists, otherwise recorded.
                let arguments = [Value::Null, name, (-2.0).into()];
                self.link.send_command(stream, "play", FINAL, &arguments);
                self.link.send_event(SET_BUFFER_LENGTH, &[stream, BUFFER_MS]);
            }
            Intent::Publish => {
                let arguments = [Value::Null, name, "live".into()];
                self.link.send_command(stream, "publish", FINAL, &arguments);
            }
        }
    }

    fn status(&mut self, command: &RtmpCommand) {
        let text = |name| command.argument(1)?.get(name)?.text();
        let code = text("code").unwrap_or_default();
        match (text("level"), code, self.state) {
            (Some("error"), ..) => self.end(ClientEvent::Refused(reason(command))),
            (_, "NetStream.Play.Start", ClientState::Requested(stream)) => {
                self.state = ClientState::Active(stream);
                self.events.push_back(ClientEvent::Playing);
            }
            (_, "NetStream.Publish.Start", ClientState::Requested(stream)) => {
                self.state = ClientState::Active(stream);
                self.events.push_back(ClientEvent::Publishing);
            }
            (
                _,
                "NetStream.Play.Stop"
                | "NetStream.Play.Complete"
                | "NetStream.Play.UnpublishNotify"
                | "NetStream.Unpublish.Success",
                _,
            ) => self.end(ClientEvent::Ended),
            _ => {}
        }
    }

    fn tag(&mut self, tag: Tag) {
        // Messages of the server to its player are not part of the stream.
        let payload = tag.payload();
        let is_own = [&b"\x02\x00\x11|RtmpSampleAccess"[..], b"\x02\x00\x08onStatus"]
            .iter()
            .any(|name| payload.starts_with(name));
        if self.intent == Intent::Publish || tag.kind() == Kind::Script && is_own {
            return;
        }
        match self.state {
            // Some servers send media before the status message, or never send one.
            ClientState::Requested(stream) => {
                self.state = ClientState::Active(stream);
                self.events.extend([ClientEvent::Playing, ClientEvent::Tag(tag)]);
            }
            ClientState::Active(_) => self.events.push_back(ClientEvent::Tag(tag)),
            ClientState::Connecting | ClientState::Creating | ClientState::Closed => {}
        }
    }
}

/// Returns the description of a status, or its code.
fn reason(command: &RtmpCommand) -> String {
    let text = |name| command.argument(1)?.get(name)?.text().filter(|text| !text.is_empty());
    text("description").or(text("code")).unwrap_or("no reason given").to_owned()
}
