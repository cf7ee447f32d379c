//! Common part of RTMP clients and servers: handshake, chunks, acknowledgements, pings
//! (specification 1.0, sections 5.4 and 6.2), commands, and tags of media messages.

use std::collections::VecDeque;

use bytes::{BufMut, BytesMut};

use super::chunk::{ChunkReader, ChunkWriter, Message, u32_at};
use super::handshake::Handshake;
use super::{Config, Error};
use crate::amf0::{self, Value, object};
use crate::codec::Role;
use crate::deviation::{Deviation, Deviations};
use crate::flv::{self, Kind, MAX_PAYLOAD, Tag};

/// Maximum size of a message without media. Commands have some hundred bytes.
const MAX_COMMAND: usize = 64 << 10;
/// Maximum number of queued responses, of at most some hundred bytes each.
const MAX_REPLIES: usize = 1_000;

// Message types (sections 5.4 and 7.1).
const ACKNOWLEDGEMENT: u8 = 3;
const USER_CONTROL: u8 = 4;
const WINDOW_ACK_SIZE: u8 = 5;
const SET_PEER_BANDWIDTH: u8 = 6;
const DATA_AMF3: u8 = 15;
const COMMAND_AMF3: u8 = 17;
const COMMAND: u8 = 20;
const AGGREGATE: u8 = 22;

// User control events (section 6.2 and Flash Media Server's ping).
pub(super) const STREAM_BEGIN: u16 = 0;
pub(super) const STREAM_EOF: u16 = 1;
pub(super) const SET_BUFFER_LENGTH: u16 = 3;
pub(super) const PING_REQUEST: u16 = 6;
const PING_RESPONSE: u16 = 7;

// Chunk streams used by the writer. 2 is for protocol control.
const COMMANDS: u8 = 3;
const AUDIO: u8 = 4;
const DATA: u8 = 5;
const VIDEO: u8 = 6;

/// Enhanced RTMP v2, FourCcInfoMask: can forward, but neither decode nor encode.
const CAN_FORWARD: f64 = 4.0;
/// Enhanced RTMP v2, CapsExMask: several tracks, and ModEx, which passes through.
const CAPS_MULTITRACK: f64 = 2.0;
const CAPS_MOD_EX: f64 = 4.0;

/// Marker of an AMF0 string.
const AMF0_STRING: u8 = 2;
/// AMF0 string that makes a server store the metadata for later viewers.
const SET_DATA_FRAME: &[u8] = b"\x02\x00\x0d@setDataFrame";

#[derive(Debug)]
pub(super) struct RtmpCommand {
    pub(super) name: String,
    /// 0 if no response is expected.
    pub(super) transaction: f64,
    /// The command object, which may be null, and the arguments.
    pub(super) arguments: Vec<Value>,
    pub(super) stream: u32,
}

impl RtmpCommand {
    pub(super) fn argument(&self, index: usize) -> Option<&Value> {
        self.arguments.get(index)
    }
}

#[derive(Debug)]
pub(super) enum Incoming {
    /// The handshake is complete.
    Open,
    Command(RtmpCommand),
    Tag(Tag),
    /// A stream of the server has ended.
    StreamEof,
}

#[derive(Debug)]
pub(super) struct RtmpLink {
    config: Config,
    handshake: Handshake,
    is_open: bool,
    reader: ChunkReader,
    pub(super) writer: ChunkWriter,
    /// Tags of an aggregate message.
    tags: VecDeque<Tag>,
    /// Bytes received from the peer, and bytes acknowledged; both wrap (section 5.4.3).
    received: u32,
    acknowledged: u32,
    /// Acknowledgement window announced by the peer, in bytes; initially 0.
    window: u32,
    /// Responses queued since the queue was last empty.
    replies: usize,
    /// Remaining allowance for messages without media; `None` without a limit.
    allowance: Option<u32>,
}

/// Bytes of a message without media that cost 1 of the allowance.
const BYTES_PER_COST: usize = 1_024;

impl RtmpLink {
    pub(super) fn new(mut config: Config, handshake: Handshake) -> Self {
        config.max_message = config.max_message.min(MAX_PAYLOAD);
        Self {
            reader: ChunkReader::new(config.max_message.min(MAX_COMMAND)),
            config,
            handshake,
            is_open: false,
            writer: ChunkWriter::new(),
            tags: VecDeque::new(),
            received: 0,
            acknowledged: 0,
            window: 0,
            replies: 0,
            allowance: None,
        }
    }

    /// Counts received bytes. Call before [`RtmpLink::read`].
    pub(super) fn count(&mut self, bytes: usize) {
        self.received = self.received.wrapping_add(bytes as u32);
    }

    /// Returns the next item of the input, or `None` at its end.
    pub(super) fn read(&mut self, input: &mut &[u8]) -> Result<Option<Incoming>, Error> {
        if !self.is_open {
            self.handshake.read(input, |bytes| self.writer.raw(bytes))?;
            self.is_open = self.handshake.is_done();
            return Ok(self.is_open.then_some(Incoming::Open));
        }
        loop {
            if let Some(tag) = self.tags.pop_front() {
                return Ok(Some(Incoming::Tag(tag)));
            }
            let Some(message) = self.reader.read(input)? else {
                self.acknowledge()?;
                return Ok(None);
            };
            let bytes = message.payload().len();
            let incoming = self.message(message)?;
            match incoming {
                Some(Incoming::Tag(_)) => {}
                None if !self.tags.is_empty() => {}
                _ => self.charge(bytes)?,
            }
            if incoming.is_some() {
                return Ok(incoming);
            }
        }
    }

    fn message(&mut self, message: Message) -> Result<Option<Incoming>, Error> {
        match message.kind {
            // The caller drains the output, and bounds queued data.
            ACKNOWLEDGEMENT => {}
            USER_CONTROL => return self.user_control(message.payload()),
            WINDOW_ACK_SIZE => {
                self.window =
                    u32_at(message.payload(), 0).ok_or(Error::Malformed("window size"))?;
            }
            SET_PEER_BANDWIDTH => {
                // Section 5.4.5: "The peer receiving this message SHOULD respond with a Window
                // Acknowledgement Size message"
                self.reply()?;
                self.announce_window();
            }
            // Messages of the AMF3 types contain AMF0, with or without a leading zero byte.
            COMMAND | COMMAND_AMF3 => {
                let payload = message.payload();
                let payload = payload.strip_prefix(&[0]).unwrap_or(payload);
                match command(payload, message.stream) {
                    Ok(command) => return Ok(Some(Incoming::Command(command))),
                    Err(error) if is_awaited(payload) => return Err(error),
                    Err(_) => self.reader.deviations.note(Deviation::RtmpMessage),
                }
            }
            AGGREGATE => self.split(&message)?,
            DATA_AMF3 => match message.payload() {
                [0, payload @ ..] | payload @ [AMF0_STRING, ..] => {
                    self.tags.extend(script(message.timestamp, payload));
                }
                [] => {}
                _ => self.reader.deviations.note(Deviation::RtmpMessage),
            },
            kind => match Kind::from_number(kind) {
                // Empty messages are ignored.
                _ if message.payload().is_empty() => {}
                Some(Kind::Script) if message.payload().starts_with(SET_DATA_FRAME) => {
                    self.tags.extend(script(message.timestamp, message.payload()));
                }
                Some(kind) => {
                    let tag = Tag::assemble(message.buffer, kind, message.timestamp);
                    return Ok(tag.map(Incoming::Tag));
                }
                // Shared objects and unknown types.
                None => {}
            },
        }
        Ok(None)
    }

    /// Charges a message without media to the allowance, which bounds the work that a peer can
    /// cause.
    pub(super) fn charge(&mut self, bytes: usize) -> Result<(), Error> {
        let Some(allowance) = &mut self.allowance else { return Ok(()) };
        let cost = u32::try_from(1 + bytes / BYTES_PER_COST).unwrap_or(u32::MAX);
        *allowance = allowance.checked_sub(cost).ok_or(Error::MessageFlood)?;
        Ok(())
    }

    /// Sets the allowance for messages without media. A message costs 1, plus 1 per KiB.
    pub(super) fn allow(&mut self, allowance: u32) {
        self.allowance = Some(allowance);
    }

    /// Returns the remaining allowance for messages without media.
    pub(super) fn allowance(&self) -> Option<u32> {
        self.allowance
    }

    fn user_control(&mut self, payload: &[u8]) -> Result<Option<Incoming>, Error> {
        let Some(([e0, e1], data)) = payload.split_first_chunk() else {
            return Err(Error::Malformed("user control"));
        };
        match u16::from_be_bytes([*e0, *e1]) {
            STREAM_EOF => return Ok(Some(Incoming::StreamEof)),
            PING_REQUEST => {
                let time = u32_at(data, 0).ok_or(Error::Malformed("ping"))?;
                self.reply()?;
                self.send_event(PING_RESPONSE, &[time]);
            }
            _ => {}
        }
        Ok(None)
    }

    /// Splits an aggregate message into tags (section 7.1.6). The time of the first tag corresponds
    /// to that of the message.
    fn split(&mut self, message: &Message) -> Result<(), Error> {
        let mut rest = message.payload();
        let mut first = None;
        while let Some((header, behind)) = rest.split_first_chunk::<{ flv::HEADER_LEN }>() {
            let [kind, s0, s1, s2, t1, t2, t3, t0, ..] = *header;
            let size = u32::from_be_bytes([0, s0, s1, s2]) as usize;
            let time = u32::from_be_bytes([t0, t1, t2, t3]);
            let payload = behind.get(..size).ok_or(Error::Malformed("aggregate"))?;
            let offset = time.wrapping_sub(*first.get_or_insert(time));
            let timestamp = message.timestamp.wrapping_add(offset);
            match Kind::from_number(kind) {
                _ if payload.is_empty() => {}
                Some(Kind::Script) => self.tags.extend(script(timestamp, payload)),
                Some(kind) => self.tags.extend(Tag::new(kind, timestamp, payload)),
                None => {}
            }
            rest = behind.get(size + flv::TRAILER_LEN..).unwrap_or_default();
        }
        Ok(())
    }

    /// Section 5.4.3: "The client or the server MUST send an acknowledgment to the peer after
    /// receiving bytes equal to the window size."
    fn acknowledge(&mut self) -> Result<(), Error> {
        // Many encoders announce no window but wait for acknowledgements, or measure with them.
        let window = match self.window {
            0 => self.config.window_ack,
            window => window.min(self.config.window_ack),
        };
        if self.received.wrapping_sub(self.acknowledged) >= window.max(1) {
            self.acknowledged = self.received;
            self.reply()?;
            self.writer.control(ACKNOWLEDGEMENT, &self.received.to_be_bytes());
        }
        Ok(())
    }

    /// Returns the peer's protocol deviations since the last call.
    pub(super) fn deviations(&mut self) -> &mut Deviations {
        &mut self.reader.deviations
    }

    /// Bounds the responses that a peer can cause. Call before queueing a response.
    pub(super) fn reply(&mut self) -> Result<(), Error> {
        self.replies = if self.writer.queued() == 0 { 1 } else { self.replies + 1 };
        if self.replies > MAX_REPLIES { Err(Error::UnreadResponses) } else { Ok(()) }
    }

    /// Raises the limit of messages to `max` bytes, within the configured limit.
    pub(super) fn expect_media(&mut self, max: usize) {
        self.reader.max_message = self.config.max_message.min(max);
    }

    pub(super) fn announce_window(&mut self) {
        self.writer.control(WINDOW_ACK_SIZE, &self.config.window_ack.to_be_bytes());
    }

    /// Asks the peer to bound its unacknowledged bytes: "dynamic" (2).
    pub(super) fn set_peer_bandwidth(&mut self) {
        let [a, b, c, d] = self.config.window_ack.to_be_bytes();
        self.writer.control(SET_PEER_BANDWIDTH, &[a, b, c, d, 2]);
    }

    pub(super) fn set_chunk_size(&mut self) {
        self.writer.set_chunk_size(self.config.chunk_size);
    }

    pub(super) fn send_event(&mut self, event: u16, numbers: &[u32]) {
        let mut payload = event.to_be_bytes().to_vec();
        numbers.iter().for_each(|number| payload.put_u32(*number));
        self.writer.control(USER_CONTROL, &payload);
    }

    pub(super) fn send_command(
        &mut self,
        stream: u32,
        name: &str,
        transaction: f64,
        values: &[Value],
    ) {
        let mut payload = BytesMut::new();
        Value::from(name).write(&mut payload);
        Value::from(transaction).write(&mut payload);
        values.iter().for_each(|value| value.write(&mut payload));
        self.writer.message(COMMANDS, COMMAND, stream, 0, payload.freeze());
    }

    /// Queues a data message that is not a tag.
    pub(super) fn send_data(&mut self, stream: u32, values: &[Value]) {
        let mut payload = BytesMut::new();
        values.iter().for_each(|value| value.write(&mut payload));
        self.writer.message(DATA, Kind::Script.number(), stream, 0, payload.freeze());
    }

    pub(super) fn send_tag(&mut self, stream: u32, tag: &Tag, timestamp: u32) {
        let id = match tag.kind() {
            Kind::Audio => AUDIO,
            Kind::Video => VIDEO,
            Kind::Script => DATA,
        };
        self.writer.message(id, tag.kind().number(), stream, timestamp, tag.payload());
    }

    /// Like [`RtmpLink::send_tag`], for publishers: marks metadata for servers to store for later
    /// viewers.
    pub(super) fn publish_tag(&mut self, stream: u32, tag: &Tag, timestamp: u32) {
        if tag.role() != Role::Metadata {
            return self.send_tag(stream, tag, timestamp);
        }
        let payload = [SET_DATA_FRAME, &tag.payload()[..]].concat();
        self.writer.message(DATA, Kind::Script.number(), stream, timestamp, payload.into());
    }
}

/// Whether the peer waits for the result of this command, so that it cannot be ignored.
fn is_awaited(payload: &[u8]) -> bool {
    let [AMF0_STRING, 0, length, name @ ..] = payload else { return false };
    let awaited = ["connect", "createStream", "publish", "play"];
    awaited.iter().any(|command| name.get(..usize::from(*length)) == Some(command.as_bytes()))
}

fn command(payload: &[u8], stream: u32) -> Result<RtmpCommand, Error> {
    let mut values = amf0::read(payload)?.into_iter();
    let Some(Value::String(name)) = values.next() else {
        return Err(Error::Malformed("command without a name"));
    };
    let transaction = values.next().and_then(|value| value.number()).unwrap_or(0.0);
    Ok(RtmpCommand { name, transaction, arguments: values.collect(), stream })
}

/// Returns a script tag without the publisher's instruction to store it.
fn script(timestamp: u32, payload: &[u8]) -> Option<Tag> {
    let payload = payload.strip_prefix(SET_DATA_FRAME).unwrap_or(payload);
    (!payload.is_empty()).then(|| Tag::new(Kind::Script, timestamp, payload))?
}

/// Returns our Enhanced RTMP capabilities as members of an object: all codecs pass through.
pub(super) fn enhanced_properties(multitrack: bool) -> [(String, Value); 4] {
    let caps = CAPS_MOD_EX + if multitrack { CAPS_MULTITRACK } else { 0.0 };
    let any = || object([("*", CAN_FORWARD.into())]);
    [
        ("fourCcList".to_owned(), Value::StrictArray(vec!["*".into()])),
        ("videoFourCcInfoMap".to_owned(), any()),
        ("audioFourCcInfoMap".to_owned(), any()),
        ("capsEx".to_owned(), caps.into()),
    ]
}
