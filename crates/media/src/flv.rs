//! FLV tags as one shared buffer each, and a reader of FLV bodies.
//!
//! A [`Tag`] holds what goes on the wire: 11 bytes of header, the payload, and the size that
//! follows each tag in a file (Adobe's Flash Video File Format Specification 10.1, annex E). It is
//! made once, where a tag is received, and then only shared.

use core::fmt;
use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};

use crate::amf0::{self, Value};
use crate::codec::{self, Class, Role};

/// Bytes before a tag's payload.
pub const HEADER_LEN: usize = 11;
/// Bytes behind it.
pub const TRAILER_LEN: usize = 4;
/// The largest payload, whose size is a 24-bit number.
pub const MAX_PAYLOAD: usize = 0xff_ffff;
/// The file header, and the size of the tag before the first, which is 0.
const FILE_HEADER_LEN: usize = 13;

/// A tag's type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Type 8.
    Audio,
    /// Type 9.
    Video,
    /// Type 18: AMF0 data, for example `onMetaData`.
    Script,
}

impl Kind {
    /// The number in the tag's header, which is RTMP's message type as well.
    pub const fn number(self) -> u8 {
        match self {
            Self::Audio => 8,
            Self::Video => 9,
            Self::Script => 18,
        }
    }

    /// The kind with this number.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            8 => Some(Self::Audio),
            9 => Some(Self::Video),
            18 => Some(Self::Script),
            _ => None,
        }
    }
}

/// A complete FLV tag. A clone shares the bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Tag {
    bytes: Bytes,
    kind: Kind,
    role: Role,
}

impl Tag {
    /// A buffer for a payload of `size` bytes, with room around it for what a tag needs: for
    /// [`Tag::assemble`].
    pub fn buffer(size: usize) -> BytesMut {
        let mut buffer = BytesMut::with_capacity(HEADER_LEN + size + TRAILER_LEN);
        buffer.put_bytes(0, HEADER_LEN);
        buffer
    }

    /// Makes a tag of a [`Tag::buffer`] to which the payload was appended. `timestamp` is in
    /// milliseconds. `None` if the payload is too long for a tag.
    pub fn assemble(mut buffer: BytesMut, kind: Kind, timestamp: u32) -> Option<Self> {
        let size = buffer.len().checked_sub(HEADER_LEN).filter(|size| *size <= MAX_PAYLOAD)?;
        let [s1, s2, s3] = [size >> 16, size >> 8, size].map(|n| n as u8);
        let [t0, t1, t2, t3] = timestamp.to_be_bytes();
        buffer[..HEADER_LEN].copy_from_slice(&[kind.number(), s1, s2, s3, t1, t2, t3, t0, 0, 0, 0]);
        buffer.put_u32((HEADER_LEN + size) as u32);
        let bytes = buffer.freeze();
        let role = class(kind, payload(&bytes)).role;
        Some(Self { bytes, kind, role })
    }

    /// A tag with a copy of this payload; `None` if that is too long.
    pub fn new(kind: Kind, timestamp: u32, payload: &[u8]) -> Option<Self> {
        let mut buffer = Self::buffer(payload.len());
        buffer.put_slice(payload);
        Self::assemble(buffer, kind, timestamp)
    }

    /// The tag as it stands in a file, with the size behind it.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The tag's payload, shared.
    pub fn payload(&self) -> Bytes {
        self.bytes.slice(HEADER_LEN..self.bytes.len() - TRAILER_LEN)
    }

    /// The tag's type.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What the tag is to somebody who joins.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Decoding time in milliseconds; wraps after 49 days.
    pub fn timestamp(&self) -> u32 {
        let b = &self.bytes;
        u32::from_be_bytes([b[7], b[4], b[5], b[6]])
    }

    /// The tag at another time: its header, and all that is behind it, shared.
    pub fn at(&self, timestamp: u32) -> ([u8; HEADER_LEN], Bytes) {
        let (header, rest) = self.bytes.split_at(HEADER_LEN);
        let mut head = [0; HEADER_LEN];
        head.copy_from_slice(header);
        let [t0, t1, t2, t3] = timestamp.to_be_bytes();
        head[4..8].copy_from_slice(&[t1, t2, t3, t0]);
        (head, self.bytes.slice_ref(rest))
    }

    /// The same tag at another time. The bytes are changed in place where nobody else has them.
    #[must_use]
    pub fn with_timestamp(self, timestamp: u32) -> Self {
        if timestamp == self.timestamp() {
            return self;
        }
        let mut bytes = self.bytes.try_into_mut().unwrap_or_else(|shared| shared[..].into());
        let [t0, t1, t2, t3] = timestamp.to_be_bytes();
        bytes[4..8].copy_from_slice(&[t1, t2, t3, t0]);
        Self { bytes: bytes.freeze(), ..self }
    }

    /// What the payload's first bytes say.
    pub fn class(&self) -> Class {
        class(self.kind, payload(&self.bytes))
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?} at {} ms, ", self.kind, self.role, self.timestamp())?;
        write!(f, "{} B", self.bytes.len() - HEADER_LEN - TRAILER_LEN)
    }
}

fn payload(tag: &[u8]) -> &[u8] {
    &tag[HEADER_LEN..tag.len() - TRAILER_LEN]
}

fn class(kind: Kind, payload: &[u8]) -> Class {
    match kind {
        Kind::Audio => codec::audio(payload),
        Kind::Video => codec::video(payload),
        Kind::Script => {
            // An AMF0 string, the command's name, stands first.
            let is_metadata = payload.starts_with(b"\x02\x00\x0aonMetaData");
            let role = match is_metadata || payload.starts_with(TIME_BASE) {
                true => Role::Metadata,
                false => Role::Other,
            };
            Class { codec: None, role, data_at: 0, composition_time: 0 }
        }
    }
}

/// The name of the script tag that says where a viewer's time 0 stands in the stream.
const TIME_BASE: &[u8] = b"\x02\x00\x0aonMendcast";

/// A script tag that says that times of 0 in this FLV or RTMP stream are the time `base` of the stream
/// that it relays, in milliseconds: `onMendcast {time: base}`. Viewers' times begin at 0 each for
/// itself; a server that pulls goes on with the stream's by this.
pub fn time_base_tag(base: u32) -> Tag {
    let mut buffer = Tag::buffer(40);
    buffer.put_slice(TIME_BASE);
    amf0::object([("time", f64::from(base).into())]).write(&mut buffer);
    Tag::assemble(buffer, Kind::Script, 0).expect("some ten bytes are short enough")
}

/// The base that a [`time_base_tag`] says; `None` for all other tags.
pub fn time_base(tag: &Tag) -> Option<u32> {
    let payload = payload(&tag.bytes);
    let rest = payload.strip_prefix(TIME_BASE).filter(|_| tag.kind == Kind::Script)?;
    let values = amf0::read(rest).ok()?;
    let base = values.first()?.get("time").and_then(Value::number)?;
    // What is no time of 32 bits is nobody's time.
    (0.0..=f64::from(u32::MAX)).contains(&base).then_some(base as u32)
}

/// What an FLV body starts with: the file header, which says what kinds of tags to expect, and the
/// size of the tag before the first.
pub fn file_header(audio: bool, video: bool) -> Bytes {
    let flags = u8::from(audio) << 2 | u8::from(video);
    Bytes::copy_from_slice(&[b'F', b'L', b'V', 1, flags, 0, 0, 0, 9, 0, 0, 0, 0])
}

/// Why an FLV body cannot be read on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// It does not start as FLV does.
    #[error("no FLV signature")]
    Signature,
    /// A tag of a type that does not exist.
    #[error("FLV tag of unknown type {0}")]
    TagType(u8),
    /// A tag is encrypted.
    #[error("encrypted FLV tag")]
    Encrypted,
    /// A tag is larger than the reader's limit.
    #[error("FLV tag of {0} bytes is over the limit")]
    TooLarge(usize),
    /// The size behind a tag is wrong: the reader has lost its place.
    #[error("FLV tag with a wrong size behind it")]
    Trailer,
}

/// Reads the tags of an FLV body that arrives in pieces. Each payload is copied once, into its tag.
#[derive(Debug)]
pub struct Reader {
    max_tag: usize,
    kinds: Option<(bool, bool)>,
    state: State,
    tags: VecDeque<Tag>,
}

#[derive(Debug)]
enum State {
    /// The bytes of a header of this length that are there.
    FileHeader(BytesMut),
    /// The rest of a longer file header, then the first size.
    Skip(usize),
    TagHeader(BytesMut),
    Payload {
        buffer: BytesMut,
        kind: Kind,
        timestamp: u32,
        missing: usize,
    },
    Trailer {
        tag: Tag,
        bytes: BytesMut,
    },
}

impl Reader {
    /// A reader at the start of a body; tags with a payload above `max_tag` bytes are refused.
    pub fn new(max_tag: usize) -> Self {
        let max_tag = max_tag.min(MAX_PAYLOAD);
        let state = State::FileHeader(BytesMut::new());
        Self { max_tag, kinds: None, state, tags: VecDeque::new() }
    }

    /// Takes the next bytes of the body.
    ///
    /// # Errors
    /// The body is broken; the reader is of no use from then on.
    pub fn read(&mut self, mut input: &[u8]) -> Result<(), Error> {
        while !input.is_empty() {
            match &mut self.state {
                State::FileHeader(bytes) => {
                    if !fill(bytes, &mut input, FILE_HEADER_LEN - 4) {
                        return Ok(());
                    }
                    let offset = u32::from_be_bytes([bytes[5], bytes[6], bytes[7], bytes[8]]);
                    if &bytes[..3] != b"FLV" || !(9..1 << 16).contains(&offset) {
                        return Err(Error::Signature);
                    }
                    self.kinds = Some((bytes[4] & 4 != 0, bytes[4] & 1 != 0));
                    self.state = State::Skip(offset as usize - 9 + TRAILER_LEN);
                }
                State::Skip(left) => {
                    let skipped = input.len().min(*left);
                    input = &input[skipped..];
                    *left -= skipped;
                    if *left == 0 {
                        self.state = State::TagHeader(BytesMut::new());
                    }
                }
                State::TagHeader(bytes) => {
                    if !fill(bytes, &mut input, HEADER_LEN) {
                        return Ok(());
                    }
                    let size = u32::from_be_bytes([0, bytes[1], bytes[2], bytes[3]]) as usize;
                    let timestamp = u32::from_be_bytes([bytes[7], bytes[4], bytes[5], bytes[6]]);
                    let kind = match bytes[0] {
                        number if number & 0x20 != 0 => return Err(Error::Encrypted),
                        number => Kind::from_number(number).ok_or(Error::TagType(number))?,
                    };
                    if size > self.max_tag {
                        return Err(Error::TooLarge(size));
                    }
                    let buffer = Tag::buffer(size);
                    self.state = State::Payload { buffer, kind, timestamp, missing: size };
                    self.finish_payload();
                }
                State::Payload { buffer, missing, .. } => {
                    let taken = input.len().min(*missing);
                    buffer.put_slice(&input[..taken]);
                    input = &input[taken..];
                    *missing -= taken;
                    self.finish_payload();
                }
                State::Trailer { tag, bytes } => {
                    if !fill(bytes, &mut input, TRAILER_LEN) {
                        return Ok(());
                    }
                    // Some writers put 0 there; anything else is a sign of confusion.
                    let tag_bytes = tag.bytes();
                    if bytes[..] != tag_bytes[tag_bytes.len() - TRAILER_LEN..]
                        && bytes[..] != [0; 4]
                    {
                        return Err(Error::Trailer);
                    }
                    self.tags.push_back(tag.clone());
                    self.state = State::TagHeader(BytesMut::new());
                }
            }
        }
        Ok(())
    }

    /// Whether the file header announces audio, and video; `None` before it is there.
    pub fn kinds(&self) -> Option<(bool, bool)> {
        self.kinds
    }

    /// The next tag that is complete.
    pub fn next_tag(&mut self) -> Option<Tag> {
        self.tags.pop_front()
    }

    fn finish_payload(&mut self) {
        if let State::Payload { buffer, kind, timestamp, missing: 0 } = &mut self.state
            && let Some(tag) = Tag::assemble(core::mem::take(buffer), *kind, *timestamp)
        {
            self.state = State::Trailer { tag, bytes: BytesMut::new() };
        }
    }
}

/// Moves bytes from `input` until `bytes` has `len`. Returns whether it has.
fn fill(bytes: &mut BytesMut, input: &mut &[u8], len: usize) -> bool {
    let taken = input.len().min(len - bytes.len());
    bytes.put_slice(&input[..taken]);
    *input = &input[taken..];
    bytes.len() == len
}

#[cfg(test)]
mod tests;
