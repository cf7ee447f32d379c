//! FLV tags, each in one shared buffer, and a reader of FLV bodies.
//!
//! A [`Tag`] holds the bytes on the wire: an 11-byte header, the payload, and the size that
//! follows each tag in a file (Adobe's Flash Video File Format Specification 10.1, annex E). It is
//! built once, on reception, and shared from then on.

use core::fmt;

use bytes::{BufMut, Bytes, BytesMut};

use crate::amf0::{self, Value};
use crate::codec::{self, Class, Role};

mod read;

pub use read::{Error, Reader};

/// Bytes before a tag's payload.
pub const HEADER_LEN: usize = 11;
/// Length of the trailer: the tag's size.
pub const TRAILER_LEN: usize = 4;
/// Largest payload: sizes have 24 bits.
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

#[cfg(test)]
mod tests;
