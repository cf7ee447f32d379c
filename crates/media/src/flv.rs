//! FLV tags as one shared buffer each, and a reader of FLV bodies.
//!
//! A [`Tag`] holds the bytes on the wire: an 11-byte header, the payload, and the size that
//! follows each tag in a file (Adobe's Flash Video File Format Specification 10.1, annex E). It is
//! built once, on reception, and shared from then on.

use core::fmt;
use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};

use crate::amf0::{self, Value};
use crate::codec::{self, Class, Role};
use crate::deviation::{Deviation, Deviations};

/// Bytes before a tag's payload.
pub const HEADER_LEN: usize = 11;
/// Length of the trailer: the tag's size.
pub const TRAILER_LEN: usize = 4;
/// Largest payload: sizes have 24 bits.
pub const MAX_PAYLOAD: usize = 0xff_ffff;
/// The file header, and the size of the tag before the first, which is 0.
const FILE_HEADER_LEN: usize = 13;
/// Bytes that identify a tag in a search: its header and the first payload byte.
const SEARCH_WINDOW: usize = HEADER_LEN + 1;
/// Bytes that are searched for a tag at most.
const MAX_SEARCH: usize = 1 << 20;

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
///
/// ```
/// use mendcast_media::{Kind, Role, Tag};
///
/// let tag = Tag::new(Kind::Video, 40, &[0x17, 1, 0, 0, 0]).unwrap();
/// assert_eq!((tag.role(), tag.timestamp()), (Role::KeyFrame, 40));
/// // Another timestamp for one viewer shares the payload.
/// let (header, rest) = tag.at(0);
/// assert_eq!(header.len() + rest.len(), tag.bytes().len());
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Tag {
    bytes: Bytes,
    kind: Kind,
    role: Role,
}

impl Tag {
    /// A buffer for a payload of `size` bytes with room for the header and trailer, for
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

    /// The tag as in a file, including the trailing size.
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

    /// Role of the tag for a viewer who joins.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Decoding time in milliseconds; wraps after 49 days.
    pub fn timestamp(&self) -> u32 {
        let b = &self.bytes;
        u32::from_be_bytes([b[7], b[4], b[5], b[6]])
    }

    /// The tag at another time: a new header, and the shared rest.
    pub fn at(&self, timestamp: u32) -> ([u8; HEADER_LEN], Bytes) {
        let (header, rest) = self.bytes.split_at(HEADER_LEN);
        let mut head = [0; HEADER_LEN];
        head.copy_from_slice(header);
        let [t0, t1, t2, t3] = timestamp.to_be_bytes();
        head[4..8].copy_from_slice(&[t1, t2, t3, t0]);
        (head, self.bytes.slice_ref(rest))
    }

    /// The same tag at another time. Changes the bytes in place if they are not shared.
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

    /// Codec and role, from the payload's first bytes.
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
            // The payload starts with an AMF0 string, the command's name.
            let is_metadata = payload.starts_with(b"\x02\x00\x0aonMetaData");
            let role = match is_metadata || payload.starts_with(TIME_BASE) {
                true => Role::Metadata,
                false => Role::Other,
            };
            Class { codec: None, role, data_at: 0, composition_time: 0 }
        }
    }
}

/// Name of the script tag that maps a viewer's time 0 to the stream's time.
const TIME_BASE: &[u8] = b"\x02\x00\x0aonMendcast";

/// A script tag that maps time 0 of this FLV or RTMP stream to the time `base` of the relayed
/// stream, in milliseconds: `onMendcast {time: base}`. Each viewer's times start at 0; a pulling
/// server uses the tag to continue in the stream's time.
pub fn time_base_tag(base: u32) -> Tag {
    let mut buffer = Tag::buffer(40);
    buffer.put_slice(TIME_BASE);
    amf0::object([("time", f64::from(base).into())]).write(&mut buffer);
    Tag::assemble(buffer, Kind::Script, 0).expect("some ten bytes are short enough")
}

/// The base in a [`time_base_tag`]; `None` for all other tags.
pub fn time_base(tag: &Tag) -> Option<u32> {
    let payload = payload(&tag.bytes);
    let rest = payload.strip_prefix(TIME_BASE).filter(|_| tag.kind == Kind::Script)?;
    let values = amf0::read(rest).ok()?;
    let base = values.first()?.get("time").and_then(Value::number)?;
    // Times that do not fit 32 bits are invalid.
    (0.0..=f64::from(u32::MAX)).contains(&base).then_some(base as u32)
}

/// Start of an FLV body: the file header with the kinds of tags to expect, and the size of the tag
/// before the first.
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
    /// A tag of sound or pictures is encrypted.
    #[error("encrypted FLV tag")]
    Encrypted,
    /// A tag is larger than the reader's limit.
    #[error("FLV tag of {0} bytes is over the limit")]
    TooLarge(usize),
    /// Only tags of unknown types, one after the other: the reader has lost its place.
    #[error("no FLV tag of a known type where tags should be")]
    Lost,
}

/// Reads the tags of an FLV body that arrives in pieces. Each payload is copied once, into its tag.
///
/// The reader is as tolerant as players: it accepts wrong tag sizes, skips tags of unknown types,
/// and searches for the next tag after stray bytes.
///
/// ```
/// use mendcast_media::flv::{Kind, Reader, Tag, file_header};
///
/// let tag = Tag::new(Kind::Audio, 23, &[0xaf, 1, 0x21]).unwrap();
/// let mut body = file_header(true, false).to_vec();
/// body.extend_from_slice(tag.bytes());
///
/// let mut reader = Reader::new(4 << 20);
/// // Pieces of any size.
/// for piece in body.chunks(5) {
///     reader.read(piece).unwrap();
/// }
/// assert_eq!(reader.next_tag(), Some(tag));
/// assert_eq!(reader.next_tag(), None);
/// ```
#[derive(Debug)]
pub struct Reader {
    max_tag: usize,
    kinds: Option<(bool, bool)>,
    state: State,
    /// Whether the last size was wrong, so that the next tag may not be where it should.
    in_doubt: bool,
    /// Bytes since the last tag that were searched for the next one.
    searched: usize,
    tags: VecDeque<Tag>,
    deviations: Deviations,
}

#[derive(Debug)]
enum State {
    /// Received bytes of a header of this length.
    FileHeader(BytesMut),
    /// The rest of a longer file header.
    Skip(usize),
    /// The size of the tag before the first, which some writers leave out.
    FirstSize(BytesMut),
    TagHeader(BytesMut),
    Payload {
        buffer: BytesMut,
        kind: Kind,
        timestamp: u32,
        missing: usize,
    },
    /// The remaining payload of a skipped tag.
    LeftOut(usize),
    Trailer {
        /// `None` for one that is left out.
        tag: Option<Tag>,
        /// What should be there.
        size: u32,
        bytes: BytesMut,
    },
    /// The last bytes that were searched for a tag.
    Search(BytesMut),
}

impl Reader {
    /// A reader at the start of a body; tags with a payload above `max_tag` bytes are refused.
    pub fn new(max_tag: usize) -> Self {
        Self {
            max_tag: max_tag.min(MAX_PAYLOAD),
            kinds: None,
            state: State::FileHeader(BytesMut::new()),
            in_doubt: false,
            searched: 0,
            tags: VecDeque::new(),
            deviations: Deviations::default(),
        }
    }

    /// Takes the next bytes of the body.
    ///
    /// # Errors
    /// The body is broken; the reader is of no use from then on.
    pub fn read(&mut self, mut input: &[u8]) -> Result<(), Error> {
        while !input.is_empty() {
            match &mut self.state {
                State::FileHeader(bytes) => {
                    if fill(bytes, &mut input, FILE_HEADER_LEN - 4) {
                        let bytes = core::mem::take(bytes);
                        self.on_file_header(&bytes)?;
                    }
                }
                State::Skip(left) => {
                    if skip(left, &mut input) {
                        self.state = State::FirstSize(BytesMut::new());
                    }
                }
                State::FirstSize(bytes) => {
                    if fill(bytes, &mut input, TRAILER_LEN) {
                        let bytes = core::mem::take(bytes);
                        self.on_first_size(bytes);
                    }
                }
                State::TagHeader(bytes) => {
                    if fill(bytes, &mut input, HEADER_LEN) {
                        let bytes = core::mem::take(bytes);
                        self.on_tag_header(&bytes)?;
                    }
                }
                State::Payload { buffer, missing, .. } => {
                    let taken = input.len().min(*missing);
                    buffer.put_slice(&input[..taken]);
                    input = &input[taken..];
                    *missing -= taken;
                    self.finish_payload();
                }
                State::LeftOut(left) => {
                    if skip(left, &mut input) {
                        self.state = State::Trailer { tag: None, size: 0, bytes: BytesMut::new() };
                    }
                }
                State::Trailer { tag, size, bytes } => {
                    if fill(bytes, &mut input, TRAILER_LEN) {
                        self.in_doubt = tag.is_some() && bytes[..] != size.to_be_bytes();
                        // Some writers put 0 there.
                        if self.in_doubt && bytes[..] != [0; TRAILER_LEN] {
                            self.deviations.note(Deviation::FlvTrailer);
                        }
                        self.tags.extend(tag.take());
                        self.state = State::TagHeader(BytesMut::new());
                    }
                }
                State::Search(bytes) => {
                    bytes.put_u8(input[0]);
                    input = &input[1..];
                    self.search()?;
                }
            }
        }
        Ok(())
    }

    /// Whether the file header announces audio, and video; `None` before it arrived.
    pub fn kinds(&self) -> Option<(bool, bool)> {
        self.kinds
    }

    /// The next tag that is complete.
    pub fn next_tag(&mut self) -> Option<Tag> {
        self.tags.pop_front()
    }

    /// Breaches of rules since this was last asked.
    pub fn deviations(&mut self) -> impl Iterator<Item = (Deviation, u32)> + use<> {
        self.deviations.take()
    }

    fn on_file_header(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let length = u32::from_be_bytes([bytes[5], bytes[6], bytes[7], bytes[8]]) as usize;
        if &bytes[..3] != b"FLV" || length >= 1 << 16 {
            return Err(Error::Signature);
        }
        let least = FILE_HEADER_LEN - TRAILER_LEN;
        if length < least || self.kinds.is_some() {
            self.deviations.note(Deviation::FlvHeader);
        }
        self.kinds = Some((bytes[4] & 4 != 0, bytes[4] & 1 != 0));
        self.state = match length.saturating_sub(least) {
            0 => State::FirstSize(BytesMut::new()),
            more => State::Skip(more),
        };
        Ok(())
    }

    fn on_first_size(&mut self, bytes: BytesMut) {
        // No such size has a tag's type for its first byte.
        let is_tag = Kind::from_number(bytes[0]).is_some();
        if is_tag {
            self.deviations.note(Deviation::FlvHeader);
        }
        self.in_doubt = bytes[..] != [0; TRAILER_LEN];
        self.state = State::TagHeader(if is_tag { bytes } else { BytesMut::new() });
    }

    fn on_tag_header(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let size = u32::from_be_bytes([0, bytes[1], bytes[2], bytes[3]]) as usize;
        let timestamp = u32::from_be_bytes([bytes[7], bytes[4], bytes[5], bytes[6]]);
        if bytes.starts_with(b"FLV\x01") {
            let (header, rest) = bytes.split_at(FILE_HEADER_LEN - TRAILER_LEN);
            self.on_file_header(header)?;
            return self.read(rest);
        }
        // The sixth bit marks encrypted tags (annex E.4.1).
        let is_encrypted = bytes[0] & 0x20 != 0;
        match Kind::from_number(bytes[0] & !0x20) {
            Some(Kind::Audio | Kind::Video) if is_encrypted && !self.in_doubt => {
                return Err(Error::Encrypted);
            }
            Some(kind) if !is_encrypted && size <= self.max_tag => {
                let buffer = Tag::buffer(size);
                self.state = State::Payload { buffer, kind, timestamp, missing: size };
                self.searched = 0;
                self.finish_payload();
            }
            Some(_) if size > self.max_tag && !self.in_doubt => return Err(Error::TooLarge(size)),
            _ if !self.in_doubt && bytes[8..] == [0; 3] && size <= self.max_tag => {
                self.deviations.note(Deviation::FlvTagType);
                self.state = match size {
                    0 => State::Trailer { tag: None, size: 0, bytes: BytesMut::new() },
                    size => State::LeftOut(size),
                };
            }
            _ => {
                self.deviations.note(Deviation::FlvTagType);
                self.state = State::Search(BytesMut::new());
                return self.read(bytes);
            }
        }
        Ok(())
    }

    /// Whether a tag starts [`SEARCH_WINDOW`] bytes ago.
    fn search(&mut self) -> Result<(), Error> {
        let State::Search(bytes) = &mut self.state else { return Ok(()) };
        self.searched += 1;
        if self.searched > MAX_SEARCH {
            return Err(Error::Lost);
        }
        if bytes.len() < SEARCH_WINDOW {
            return Ok(());
        }
        let size = u32::from_be_bytes([0, bytes[1], bytes[2], bytes[3]]) as usize;
        let first = bytes[HEADER_LEN];
        let is_payload = match Kind::from_number(bytes[0]) {
            // AAC, MP3, and Enhanced RTMP; AVC and HEVC, or Enhanced RTMP.
            Some(Kind::Audio) => matches!(first >> 4, 2 | 9 | 10 | 14),
            Some(Kind::Video) => first & 0x80 != 0 || matches!(first & 0x0f, 7 | 12),
            Some(Kind::Script) => first == 2,
            None => false,
        };
        if !is_payload || size == 0 || size > self.max_tag || bytes[8..HEADER_LEN] != [0; 3] {
            *bytes = bytes.split_off(1);
            return Ok(());
        }
        let bytes = core::mem::take(bytes);
        self.in_doubt = true;
        self.state = State::TagHeader(BytesMut::new());
        self.read(&bytes)
    }

    fn finish_payload(&mut self) {
        if let State::Payload { buffer, kind, timestamp, missing: 0 } = &mut self.state
            && let Some(tag) = Tag::assemble(core::mem::take(buffer), *kind, *timestamp)
        {
            let size = (tag.bytes().len() - TRAILER_LEN) as u32;
            self.state = State::Trailer { tag: Some(tag), size, bytes: BytesMut::new() };
        }
    }
}

/// Leaves `left` bytes of `input` out. Returns whether all are.
fn skip(left: &mut usize, input: &mut &[u8]) -> bool {
    let skipped = input.len().min(*left);
    *input = &input[skipped..];
    *left -= skipped;
    *left == 0
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
