//! The server with a mock transport and a client that writes frames by hand.

mod errors;
mod random;
mod requests;
mod shutdown;
mod timeouts;

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};
use quic::streams::{ReadOutcome, UnknownStream, WriteError};
use quic::wire::{Reader, put_varint};
use units::{Direction, Side, StreamId, Timestamp};

use crate::frame::{DATA, HEADERS, SETTINGS};
use crate::qpack;
use crate::{BodyRead, Config, Event, Priority, Server, Transport};

/// The client's first three unidirectional streams.
const CONTROL: StreamId = StreamId::new(Side::Client, Direction::Unidirectional, 0);
const ENCODER: StreamId = StreamId::new(Side::Client, Direction::Unidirectional, 1);
const DECODER: StreamId = StreamId::new(Side::Client, Direction::Unidirectional, 2);
/// Reads a variable-length integer from the start of `input`.
fn take_varint(input: &mut &[u8]) -> Option<u64> {
    let mut reader = Reader::new(input);
    let value = reader.varint().ok()?;
    *input = reader.rest();
    Some(value)
}

/// Valid requests.
const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "https"), (":authority", "edge.test"), (":path", "/")];
const POST: [(&str, &str); 4] =
    [(":method", "POST"), (":scheme", "https"), (":authority", "edge.test"), (":path", "/in")];

/// Returns the stream of the client's request number `index`.
fn request(index: u64) -> StreamId {
    StreamId::new(Side::Client, Direction::Bidirectional, index)
}

/// Returns the server's unidirectional stream number `index`.
fn server_uni(index: u64) -> StreamId {
    StreamId::new(Side::Server, Direction::Unidirectional, index)
}

fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, kind);
    put_varint(&mut out, payload.len() as u64);
    out.extend_from_slice(payload);
    out
}

fn headers(fields: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, &qpack::encode(fields.iter().copied()))
}

fn data(payload: &[u8]) -> Vec<u8> {
    frame(DATA, payload)
}

fn varint(value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, value);
    out
}

/// A stream of the mock transport.
#[derive(Debug, Default)]
struct MockStream {
    incoming: VecDeque<u8>,
    fin: bool,
    /// Whether everything up to the end was read.
    read: bool,
    peer_reset: Option<u64>,
    sent: Vec<u8>,
    chunks: Vec<Bytes>,
    finished: bool,
    reset: Option<u64>,
    stopped: Option<u64>,
    priority: Option<(u8, bool)>,
    /// Whether the server was notified of the stream's end.
    closed: bool,
}

impl MockStream {
    /// Whether the transport is done with stream `id` once the client has acknowledged everything.
    fn is_over(&self, id: StreamId) -> bool {
        let both = id.direction() == Direction::Bidirectional;
        let sends = both || id.initiator() == Side::Server;
        let receives = both || id.initiator() == Side::Client;
        let is_known = self.fin || self.peer_reset.is_some();
        (!sends || self.finished || self.reset.is_some())
            && (!receives || self.read || (self.stopped.is_some() && is_known))
    }
}

/// A transport that delivers the test's input.
#[derive(Debug)]
struct Mock {
    streams: BTreeMap<StreamId, MockStream>,
    closed: Option<(u64, &'static str)>,
    max_uni: u64,
    opened: u64,
    /// Maximum size of a read.
    chunk: usize,
    early: bool,
    /// Number of reads.
    reads: usize,
    now: Timestamp,
    request_limit: u64,
}

impl Mock {
    fn stream(&mut self, id: StreamId) -> &mut MockStream {
        self.streams.entry(id).or_default()
    }
}

impl Transport for Mock {
    fn now(&self) -> Timestamp {
        self.now
    }

    fn request_limit(&self) -> u64 {
        self.request_limit
    }

    fn open_uni(&mut self) -> Option<StreamId> {
        if self.opened == self.max_uni {
            return None;
        }
        self.opened += 1;
        Some(server_uni(self.opened - 1))
    }

    fn write(&mut self, id: StreamId, data: Bytes) -> Result<(), WriteError> {
        let stream = self.stream(id);
        if stream.finished || stream.reset.is_some() {
            return Err(WriteError::Finished);
        }
        stream.sent.extend_from_slice(&data);
        stream.chunks.push(data);
        Ok(())
    }

    fn finish(&mut self, id: StreamId) {
        self.stream(id).finished = true;
    }

    fn reset(&mut self, id: StreamId, code: u64) {
        self.stream(id).reset.get_or_insert(code);
    }

    fn stop_sending(&mut self, id: StreamId, code: u64) {
        self.stream(id).stopped.get_or_insert(code);
    }

    fn read(&mut self, id: StreamId, max: usize) -> Result<ReadOutcome, UnknownStream> {
        let max = max.min(self.chunk);
        self.reads += 1;
        let stream = self.streams.get_mut(&id).ok_or(UnknownStream)?;
        assert!(max > 0, "a read of nothing");
        if stream.stopped.is_some() {
            return Err(UnknownStream);
        }
        Ok(if let Some(code) = stream.peer_reset {
            ReadOutcome::Reset(code)
        } else if !stream.incoming.is_empty() {
            let length = max.min(stream.incoming.len());
            ReadOutcome::Data(stream.incoming.drain(..length).collect())
        } else if stream.fin {
            stream.read = true;
            ReadOutcome::Finished
        } else {
            ReadOutcome::Blocked
        })
    }

    fn unsent(&self, id: StreamId) -> u64 {
        self.streams.get(&id).map_or(0, |stream| stream.sent.len() as u64)
    }

    fn set_priority(&mut self, id: StreamId, priority: Priority) {
        self.stream(id).priority = Some((priority.urgency, priority.incremental));
    }

    fn close(&mut self, code: u64, reason: &'static str) {
        assert_eq!(self.closed, None, "closed twice");
        self.closed = Some((code, reason));
    }

    fn is_early(&self) -> bool {
        self.early
    }
}

/// A server with its mock transport.
#[derive(Debug)]
struct Pair {
    server: Server,
    t: Mock,
}

impl Pair {
    /// Starts a server, and a client that has sent nothing.
    fn silent(config: Config) -> Self {
        let t = Mock {
            streams: BTreeMap::new(),
            closed: None,
            max_uni: 3,
            opened: 0,
            chunk: usize::MAX,
            early: false,
            reads: 0,
            now: Timestamp::from_millis(1),
            request_limit: 200,
        };
        let mut pair = Self { server: Server::new(config), t };
        pair.server.start(&mut pair.t);
        pair
    }

    /// Starts a server, and a client that has opened its three streams and sent empty SETTINGS.
    fn new() -> Self {
        Self::with(Config::default())
    }

    fn with(config: Config) -> Self {
        let mut pair = Self::silent(config);
        pair.send(CONTROL, &[vec![0x00], frame(SETTINGS, &[])].concat());
        pair.send(ENCODER, &[0x02]);
        pair.send(DECODER, &[0x03]);
        pair
    }

    /// Sends `bytes` from the client, and optionally the end of the stream.
    fn put(&mut self, id: StreamId, bytes: &[u8], fin: bool) {
        let stream = self.t.stream(id);
        stream.incoming.extend(bytes);
        stream.fin |= fin;
        self.server.on_readable(&mut self.t, id);
    }

    fn send(&mut self, id: StreamId, bytes: &[u8]) {
        self.put(id, bytes, false);
    }

    fn send_fin(&mut self, id: StreamId, bytes: &[u8]) {
        self.put(id, bytes, true);
    }

    fn reset(&mut self, id: StreamId, code: u64) {
        let stream = self.t.stream(id);
        stream.peer_reset = Some(code);
        stream.read = true;
        self.server.on_reset(&mut self.t, id, code);
    }

    /// Sends STOP_SENDING from the client; the transport resets the stream (RFC 9000, section 3.5).
    fn stop(&mut self, id: StreamId, code: u64) {
        let stream = self.t.stream(id);
        if !stream.finished {
            stream.reset.get_or_insert(code);
        }
        self.server.on_stopped(&mut self.t, id, code);
    }

    /// Acknowledges everything from the client; the transport reports finished streams.
    fn acknowledge(&mut self) {
        let over: Vec<StreamId> = self
            .t
            .streams
            .iter()
            .filter(|(id, s)| !s.closed && s.is_over(**id))
            .map(|(&id, _)| id)
            .collect();
        for id in over {
            self.t.stream(id).closed = true;
            self.server.on_delivered(&mut self.t, id);
            self.server.on_stream_closed(&mut self.t, id);
        }
    }

    /// Advances the time, and handles the timeouts on the way.
    fn wait(&mut self, time: Duration) {
        let end = self.t.now + time;
        while let Some(at) = self.server.deadline().filter(|&at| at <= end) {
            assert!(at >= self.t.now, "a deadline in the past");
            self.t.now = at;
            self.server.on_timeout(&mut self.t);
            assert!(self.server.deadline().is_none_or(|next| next > at), "it stays due");
        }
        self.t.now = end;
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.server.poll_event()).collect()
    }

    /// Reads all available content. Returns it and the final result.
    fn body(&mut self, id: StreamId) -> (Vec<u8>, BodyRead) {
        let mut content = Vec::new();
        loop {
            match self.server.read_body(&mut self.t, id, 1_000) {
                BodyRead::Data(data) => content.extend_from_slice(&data),
                other => return (content, other),
            }
        }
    }

    /// Returns the error code with which the connection was closed.
    fn close_code(&self) -> Option<u64> {
        self.t.closed.map(|(code, _)| code)
    }

    /// Returns the server's field sections and content on a request stream.
    fn response(&mut self, id: StreamId) -> (Vec<Vec<(String, String)>>, Vec<u8>) {
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let (mut sections, mut content) = (Vec::new(), BytesMut::new());
        let sent = &self.t.stream(id).sent;
        let mut rest = &sent[..];
        while !rest.is_empty() {
            let kind = take_varint(&mut rest).expect("a frame type");
            let length = take_varint(&mut rest).expect("a frame length") as usize;
            let payload = &rest[..length];
            rest = &rest[length..];
            match kind {
                HEADERS => {
                    let fields = qpack::decode(payload, u64::MAX).expect("a field section");
                    let lines = fields.iter().map(|f| (text(&f.name), text(&f.value)));
                    sections.push(lines.collect());
                }
                DATA => content.extend_from_slice(payload),
                other => panic!("frame {other:#x} in a response"),
            }
        }
        (sections, content.to_vec())
    }
}
