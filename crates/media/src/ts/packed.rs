//! Packed audio: a segment of AAC or MP3 frames, preceded by an ID3 tag with its timestamp (RFC
//! 8216, section 3.4).

use crate::codec::Codec;

/// Owner of the ID3 frame with the timestamp of the first sample: 33 bits at 90 kHz.
const OWNER: &[u8] = b"com.apple.streaming.transportStreamTimestamp\0";
/// Size of the header of an ID3 tag, and of a frame in it.
const ID3_HEADER: usize = 10;

/// A segment of packed audio.
pub(super) struct Packed<'a> {
    pub(super) codec: Codec,
    /// `None` if the segment has no timestamp.
    pub(super) time: Option<u64>,
    pub(super) frames: &'a [u8],
}

impl<'a> Packed<'a> {
    /// Parses a segment; `None` if it is not packed audio.
    pub(super) fn read(segment: &'a [u8]) -> Option<Self> {
        let (mut rest, mut time) = (segment, None);
        while let Some(header) = rest.get(..ID3_HEADER).filter(|header| header.starts_with(b"ID3"))
        {
            let end = ID3_HEADER + synchsafe(&header[6..]);
            let tag = rest.get(ID3_HEADER..end)?;
            let owner = tag.windows(OWNER.len()).position(|window| window == OWNER);
            let bytes = owner.and_then(|at| tag.get(at + OWNER.len()..at + OWNER.len() + 8));
            let bytes: Option<[u8; 8]> = bytes.and_then(|bytes| bytes.try_into().ok());
            time = time.or(bytes.map(|bytes| u64::from_be_bytes(bytes) & ((1 << 33) - 1)));
            rest = &rest[end..];
        }
        let codec = match *rest {
            // Layer 0 is ADTS, other layers are MPEG audio.
            [0xff, second, ..] if second & 0xf6 == 0xf0 => Codec::Aac,
            [0xff, second, ..] if second & 0xe0 == 0xe0 && second & 6 != 0 => Codec::Mp3,
            _ => return None,
        };
        Some(Self { codec, time, frames: rest })
    }
}

/// Parses an integer of 28 bits, seven per byte.
fn synchsafe(bytes: &[u8]) -> usize {
    bytes.iter().take(4).fold(0, |number, byte| number << 7 | usize::from(byte & 0x7f))
}
