//! RTMP chunk streams (specification 1.0, section 5.3): assembles messages from chunks, and splits
//! messages into chunks.
//!
//! The reader assembles each message in a buffer that becomes a [`Tag`] without a copy. Its memory
//! is bounded by the number of chunk streams, the size of a message, and the total size of
//! incomplete messages. The writer queues small headers and slices of its input.

use std::collections::{BTreeMap, VecDeque};

use bytes::{BufMut, Bytes, BytesMut};

use super::error::{Error, MAX_CHUNK_STREAMS};
use crate::deviation::{Deviation, Deviations};
use crate::flv::{HEADER_LEN, MAX_PAYLOAD, Tag};

/// Section 5.4.1: "The maximum chunk size defaults to 128 bytes"
const DEFAULT_CHUNK_SIZE: usize = 128;
/// Value of the timestamp field that indicates an extended timestamp.
const EXTENDED: u32 = 0xff_ffff;

/// Message types that concern the chunk stream itself.
const SET_CHUNK_SIZE: u8 = 1;
const ABORT: u8 = 2;

/// Chunk stream and message stream of protocol control messages.
const CONTROL_CHUNK_STREAM: u8 = 2;
const CONTROL_STREAM: u32 = 0;

/// A complete message.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) kind: u8,
    pub(super) stream: u32,
    pub(super) timestamp: u32,
    /// A [`Tag::buffer`] with the payload.
    pub(super) buffer: BytesMut,
}

impl Message {
    pub(super) fn payload(&self) -> &[u8] {
        &self.buffer[HEADER_LEN..]
    }
}

/// Header fields that later chunks of a chunk stream inherit.
#[derive(Clone, Copy, Debug, Default)]
struct ChunkHeader {
    /// Timestamp of the newest message.
    timestamp: u32,
    /// Timestamp field of the last header that had one: absolute in type 0, otherwise a delta.
    field: u32,
    /// Whether this field was extended.
    extended: bool,
    length: usize,
    kind: u8,
    stream: u32,
}

#[derive(Debug)]
struct ChunkStream {
    header: ChunkHeader,
    /// The incomplete message.
    partial: Option<BytesMut>,
}

/// Parser of messages.
#[derive(Debug, Default)]
pub(super) struct ChunkReader {
    /// Maximum size of a message, in bytes.
    pub(super) max_message: usize,
    chunk_size: usize,
    streams: BTreeMap<u32, ChunkStream>,
    /// Total length of incomplete messages, including the missing bytes.
    unfinished: usize,
    /// Incomplete chunk header, below 18 bytes.
    buffered: Vec<u8>,
    /// Chunk stream of the current chunk, and the number of missing bytes.
    current: Option<(u32, usize)>,
    pub(super) deviations: Deviations,
}

impl ChunkReader {
    pub(super) fn new(max_message: usize) -> Self {
        Self { max_message, chunk_size: DEFAULT_CHUNK_SIZE, ..Self::default() }
    }

    /// Returns the next message, or `None` once the input is consumed.
    pub(super) fn read(&mut self, input: &mut &[u8]) -> Result<Option<Message>, Error> {
        loop {
            let mut buffered = core::mem::take(&mut self.buffered);
            if buffered.is_empty() {
                let (used, message) = self.step(input)?;
                *input = &input[used..];
                if message.is_some() {
                    return Ok(message);
                }
                if used == 0 {
                    self.buffered = input.to_vec();
                    *input = &[];
                    return Ok(None);
                }
            } else {
                // Retry the buffered bytes with one more byte. Once the header is known, some of
                // them may turn out to be payload.
                let (used, message) = self.step(&buffered)?;
                buffered.drain(..used);
                if used == 0 {
                    let Some((first, rest)) = input.split_first() else {
                        self.buffered = buffered;
                        return Ok(None);
                    };
                    buffered.push(*first);
                    *input = rest;
                }
                self.buffered = buffered;
                if message.is_some() {
                    return Ok(message);
                }
            }
        }
    }

    /// Parses a header, or payload. Returns the number of consumed bytes, which is 0 for an
    /// incomplete header, and the message if it is now complete.
    fn step(&mut self, input: &[u8]) -> Result<(usize, Option<Message>), Error> {
        let (id, used) = match self.current {
            None => {
                let Some((id, used)) = self.header(input)? else { return Ok((0, None)) };
                (id, used)
            }
            Some((id, missing)) => {
                let used = input.len().min(missing);
                if let Some(buffer) = self.streams.get_mut(&id).and_then(|s| s.partial.as_mut()) {
                    buffer.put_slice(&input[..used]);
                }
                self.current = (missing > used).then_some((id, missing - used));
                (id, used)
            }
        };
        match self.finish(id) {
            Some(message) => Ok((used, self.control(message)?)),
            None => Ok((used, None)),
        }
    }

    /// Parses a chunk header. Returns its chunk stream and length; `None` if the header is
    /// incomplete.
    fn header(&mut self, input: &[u8]) -> Result<Option<(u32, usize)>, Error> {
        let Some((format, id, mut at)) = basic_header(input) else { return Ok(None) };
        let fields_len = [11, 7, 3, 0][usize::from(format)];
        let Some(fields) = input.get(at..at + fields_len) else { return Ok(None) };
        at += fields_len;

        let known = self.streams.get(&id);
        let unfinished = known.is_some_and(|stream| stream.partial.is_some());
        if known.is_none() && self.streams.len() >= MAX_CHUNK_STREAMS {
            return Err(Error::ChunkStreams);
        }
        // librtmp starts a chunk stream with type 1 when it answers a ping.
        if known.is_none() && format > 1 {
            return Err(Error::ChunkHeader);
        }
        let before = known.map_or_else(ChunkHeader::default, |stream| stream.header);
        let mut header = before;
        if let [t0, t1, t2, ..] = *fields {
            header.field = u32::from_be_bytes([0, t0, t1, t2]);
            header.extended = header.field == EXTENDED;
        }
        if let [_, _, _, l0, l1, l2, kind, ..] = *fields {
            header.length = u32::from_be_bytes([0, l0, l1, l2]) as usize;
            header.kind = kind;
        }
        if let [.., s0, s1, s2, s3] = *fields
            && format == 0
        {
            header.stream = u32::from_le_bytes([s0, s1, s2, s3]);
        }
        if header.extended {
            let extended = &input[at..input.len().min(at + 4)];
            if format < 3 {
                let Ok(field) = extended.try_into() else { return Ok(None) };
                header.field = u32::from_be_bytes(field);
                at += 4;
            } else if header.field.to_be_bytes().starts_with(extended) {
                // Section 5.3.1.3: "This field is present in Type 3 chunks when the most recent
                // Type 0, 1, or 2 chunk for the same chunk stream ID indicated the presence of an
                // extended timestamp field." Some encoders omit it: a different value is payload.
                if extended.len() < 4 {
                    return Ok(None);
                }
                at += 4;
            }
        }
        // Some encoders repeat the header before each chunk of a message. Like FFmpeg and SRS,
        // continue the message if the length matches. Only a new message can have all fields.
        let same = format == 2
            || format == 1 && (header.length, header.kind) == (before.length, before.kind);
        if unfinished && format < 3 {
            match same {
                true => header = before,
                false => self.abandon(id),
            }
            self.deviations.note(match same {
                true => Deviation::RtmpContinuation,
                false => Deviation::RtmpRestart,
            });
        }
        let received = self.begin(id, format, &mut header)?;
        let missing = (header.length - received).min(self.chunk_size);
        self.current = (missing > 0).then_some((id, missing));
        Ok(Some((id, at)))
    }

    /// Starts a message with this header, or continues an incomplete one. Returns the number of
    /// bytes already received.
    fn begin(&mut self, id: u32, format: u8, header: &mut ChunkHeader) -> Result<usize, Error> {
        let mut received = 0;
        let stream =
            self.streams.entry(id).or_insert(ChunkStream { header: *header, partial: None });
        if let Some(buffer) = &stream.partial {
            received = buffer.len() - HEADER_LEN;
        } else {
            if header.length > self.max_message {
                return Err(Error::MessageTooLarge(header.length));
            }
            if self.unfinished + header.length > 2 * self.max_message {
                return Err(Error::Unfinished);
            }
            // Section 5.3.1.2.4: "If a Type 3 chunk follows a Type 0 chunk, then the timestamp
            // delta for this Type 3 chunk is the same as the timestamp of the Type 0 chunk."
            header.timestamp = match format {
                0 => header.field,
                _ => header.timestamp.wrapping_add(header.field),
            };
            self.unfinished += header.length;
            stream.partial = Some(Tag::buffer(header.length));
        }
        stream.header = *header;
        Ok(received)
    }

    /// Drops the incomplete message of a chunk stream.
    fn abandon(&mut self, id: u32) {
        if let Some(stream) = self.streams.get_mut(&id)
            && stream.partial.take().is_some()
        {
            self.unfinished -= stream.header.length;
        }
    }

    /// Returns the message of a chunk stream, if it is complete.
    fn finish(&mut self, id: u32) -> Option<Message> {
        let stream = self.streams.get_mut(&id)?;
        let ChunkHeader { timestamp, length, kind, stream: message_stream, .. } = stream.header;
        let buffer = stream.partial.take_if(|buffer| buffer.len() == HEADER_LEN + length)?;
        self.unfinished -= length;
        Some(Message { kind, stream: message_stream, timestamp, buffer })
    }

    /// Handles messages to the chunk stream, and returns others.
    fn control(&mut self, message: Message) -> Result<Option<Message>, Error> {
        if !matches!(message.kind, SET_CHUNK_SIZE | ABORT) {
            return Ok(Some(message));
        }
        let value = u32_at(message.payload(), 0).ok_or(Error::Malformed("chunk control"))?;
        if message.kind == SET_CHUNK_SIZE {
            // Section 5.4.1: "the first bit MUST be zero", and "at least 1".
            self.chunk_size = match value {
                1..=0x7fff_ffff => value as usize,
                _ => return Err(Error::ChunkSize(value)),
            };
        } else {
            self.abandon(value);
        }
        Ok(None)
    }
}

/// Returns format, chunk stream and length of a basic header (section 5.3.1.1).
fn basic_header(input: &[u8]) -> Option<(u8, u32, usize)> {
    let first = *input.first()?;
    let (id, len) = match first & 0x3f {
        0 => (64 + u32::from(*input.get(1)?), 2),
        1 => (64 + u32::from(*input.get(1)?) + 256 * u32::from(*input.get(2)?), 3),
        id => (u32::from(id), 1),
    };
    Some((first >> 6, id, len))
}

/// Returns the integer at offset `at` of a control message.
pub(super) fn u32_at(payload: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(payload.get(at..at + 4)?.try_into().ok()?))
}

/// Writer of messages.
#[derive(Debug, Default)]
pub(super) struct ChunkWriter {
    chunk_size: usize,
    /// Message stream and timestamp of the last message of each chunk stream.
    last: [Option<(u32, u32)>; 8],
    /// Buffer that headers are split from, to save allocations.
    arena: BytesMut,
    queue: VecDeque<Bytes>,
    queued: usize,
}

impl ChunkWriter {
    pub(super) fn new() -> Self {
        let arena = BytesMut::with_capacity(1_024);
        Self { chunk_size: DEFAULT_CHUNK_SIZE, arena, ..Self::default() }
    }

    /// Returns the number of queued bytes.
    pub(super) fn queued(&self) -> usize {
        self.queued
    }

    pub(super) fn pop(&mut self) -> Option<Bytes> {
        let bytes = self.queue.pop_front()?;
        self.queued -= bytes.len();
        Some(bytes)
    }

    /// Queues bytes outside of chunks.
    pub(super) fn raw(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.queued += bytes.len();
            self.queue.push_back(bytes);
        }
    }

    /// Announces and uses this chunk size, clamped to the allowed range.
    pub(super) fn set_chunk_size(&mut self, size: u32) {
        let size = size.clamp(1, MAX_PAYLOAD as u32);
        self.control(SET_CHUNK_SIZE, &size.to_be_bytes());
        self.chunk_size = size as usize;
    }

    /// Queues a protocol control message.
    pub(super) fn control(&mut self, kind: u8, payload: &[u8]) {
        let payload = Bytes::copy_from_slice(payload);
        self.message(CONTROL_CHUNK_STREAM, kind, CONTROL_STREAM, 0, payload);
    }

    /// Queues a message on chunk stream `id`, which is 2 to 7.
    pub(super) fn message(
        &mut self,
        id: u8,
        kind: u8,
        stream: u32,
        timestamp: u32,
        mut payload: Bytes,
    ) {
        let last = &mut self.last[usize::from(id & 7)];
        // Prefer type 1, which omits the message stream. If time decreases, an absolute time is
        // needed.
        let delta = last
            .filter(|(last_stream, _)| *last_stream == stream)
            .map(|(_, last)| timestamp.wrapping_sub(last))
            .filter(|delta| *delta < EXTENDED);
        *last = Some((stream, timestamp));
        let extended = (delta.is_none() && timestamp >= EXTENDED).then_some(timestamp);

        self.arena.reserve(32);
        self.arena.put_u8(id | u8::from(delta.is_some()) << 6);
        let field = delta.unwrap_or(timestamp).min(EXTENDED);
        self.arena.put_uint(u64::from(field), 3);
        self.arena.put_uint(payload.len() as u64, 3);
        self.arena.put_u8(kind);
        if delta.is_none() {
            self.arena.put_u32_le(stream);
        }
        extended.into_iter().for_each(|time| self.arena.put_u32(time));
        let header = self.arena.split().freeze();
        self.raw(header);
        let first = payload.split_to(payload.len().min(self.chunk_size));
        self.raw(first);

        self.arena.put_u8(id | 3 << 6);
        extended.into_iter().for_each(|time| self.arena.put_u32(time));
        let continuation = self.arena.split().freeze();
        while !payload.is_empty() {
            self.raw(continuation.clone());
            let next = payload.split_to(payload.len().min(self.chunk_size));
            self.raw(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], piece: usize) -> Vec<Message> {
        let mut reader = ChunkReader::new(1_000);
        let mut messages = Vec::new();
        for mut piece in bytes.chunks(piece) {
            while let Some(message) = reader.read(&mut piece).expect("allowed") {
                messages.push(message);
            }
        }
        messages
    }

    #[test]
    fn extended_timestamps_may_be_repeated_or_not() {
        let time = [1, 2, 3, 4];
        let payload: Vec<u8> = (0..300).map(|i| i as u8).collect();
        let head = [&[4, 0xff, 0xff, 0xff, 0, 1, 0x2c, 9, 1, 0, 0, 0][..], &time].concat();
        let with = |repeated: &[u8], payload: &[u8]| {
            let mut bytes = [&head[..], &payload[..128]].concat();
            for rest in payload[128..].chunks(128) {
                bytes.extend([&[0xc4][..], repeated, rest].concat());
            }
            bytes
        };
        // The last payload starts like the timestamp, but continues differently.
        let mut tricky = payload.clone();
        tricky[128..131].copy_from_slice(&time[..3]);
        for (bytes, payload) in [
            (with(&time, &payload), &payload),
            (with(&[], &payload), &payload),
            (with(&[], &tricky), &tricky),
        ] {
            for piece in [1, 3, 1_000] {
                let got = read(&bytes, piece);
                assert_eq!(got.len(), 1);
                assert_eq!((got[0].timestamp, got[0].payload()), (0x0102_0304, &payload[..]));
            }
        }
    }

    #[test]
    fn a_type_3_chunk_starts_a_message_with_the_previous_header() {
        let mut bytes = vec![4, 0, 0, 100, 0, 0, 1, 9, 1, 0, 0, 0, 0x17];
        bytes.extend([0x44, 0, 0, 10, 0, 0, 1, 8, 0xaf, 0xc4, 0xaf, 0x84, 0, 0, 5, 0xaf]);
        let read: Vec<_> =
            read(&bytes, 1).iter().map(|m| (m.timestamp, m.kind, m.stream)).collect();
        assert_eq!(read, [(100, 9, 1), (110, 8, 1), (120, 8, 1), (125, 8, 1)]);
    }

    #[test]
    fn messages_of_several_chunk_streams_may_interleave() {
        let head = |id: u8, kind: u8, len: u8| [id, 0, 0, 0, 0, 0, len, kind, 1, 0, 0, 0].to_vec();
        let video = [head(6, 9, 200), vec![0x17; 128]].concat();
        let audio = [head(4, 8, 2), vec![0xaf, 1]].concat();
        let rest = [vec![0xc6], vec![0x17; 72]].concat();
        for piece in [1, 1_000] {
            let got = read(&[&video[..], &audio, &rest].concat(), piece);
            let got: Vec<_> = got.iter().map(|m| (m.kind, m.payload().len())).collect();
            assert_eq!(got, [(8, 2), (9, 200)]);
        }
    }

    #[test]
    fn headers_are_compressed_and_extended_timestamps_are_repeated() {
        let mut writer = ChunkWriter::new();
        writer.set_chunk_size(2);
        let mut written = |timestamp, payload: &'static [u8]| -> Vec<u8> {
            core::iter::from_fn(|| writer.pop()).for_each(drop);
            writer.message(6, 9, 1, timestamp, Bytes::from_static(payload));
            core::iter::from_fn(|| writer.pop()).flatten().collect()
        };
        let first = written(10, b"abc");
        assert_eq!(first, *b"\x06\x00\x00\x0a\x00\x00\x03\x09\x01\x00\x00\x00ab\xc6c");
        assert_eq!(written(15, b"d"), *b"\x46\x00\x00\x05\x00\x00\x01\x09d", "a delta");
        let back = written(14, b"e");
        assert_eq!(back, *b"\x06\x00\x00\x0e\x00\x00\x01\x09\x01\x00\x00\x00e");
        let extended = written(0x0102_0304, b"fgh");
        let expected = b"\x06\xff\xff\xff\x00\x00\x03\x09\x01\x00\x00\x00\x01\x02\x03\x04\
            fg\xc6\x01\x02\x03\x04h";
        assert_eq!(extended, *expected);
    }
}
