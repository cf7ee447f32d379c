//! FLV: the tag header contains the tag's length, and the first bytes of the payload identify
//! frames (Adobe's Flash Video File Format Specification 10.1, annex E; algorithm 1 of Wira).

use media::codec::{self, Role};
use media::flv::{HEADER_LEN, Kind, TRAILER_LEN};

use super::input::{ChunkInput, FrameCount, Head, Reason};

/// Length of a file header without extension.
const FILE_HEADER_LEN: usize = 9;
/// Inspected bytes of a payload. In practice, no frame header is longer.
pub(super) const CLASS_LEN: usize = 32;

#[derive(Debug)]
pub(super) struct Flv {
    skip: u64,
    state: FlvState,
    head: Head<CLASS_LEN>,
    /// Kind of frames to count: audio in files without video.
    counted: Kind,
}

#[derive(Clone, Copy, Debug)]
enum FlvState {
    FileHeader,
    TagHeader,
    /// The head of a payload of this many bytes.
    Payload(u64),
}

impl Flv {
    pub(super) fn new() -> Self {
        Self { skip: 0, state: FlvState::FileHeader, head: Head::EMPTY, counted: Kind::Video }
    }

    /// Returns the end of the last counted frame, including its size field.
    pub(super) fn read(
        &mut self,
        input: &mut ChunkInput<'_>,
        frames: &mut FrameCount,
    ) -> Result<Option<u64>, Reason> {
        loop {
            input.skip(&mut self.skip);
            if input.bytes.is_empty() {
                return Ok(None);
            }
            let need = match self.state {
                FlvState::FileHeader => FILE_HEADER_LEN,
                FlvState::TagHeader => HEADER_LEN,
                FlvState::Payload(size) => size.min(CLASS_LEN as u64) as usize,
            };
            if !self.head.fill(input, need) {
                return Ok(None);
            }
            self.state = match self.state {
                FlvState::FileHeader => self.file_header()?,
                FlvState::TagHeader => self.tag_header()?,
                FlvState::Payload(size) => {
                    self.skip = size - need as u64 + TRAILER_LEN as u64;
                    if self.is_frame(size)? && frames.count() {
                        return Ok(Some(input.at + self.skip));
                    }
                    FlvState::TagHeader
                }
            };
            self.head.clear();
        }
    }

    fn file_header(&mut self) -> Result<FlvState, Reason> {
        let offset = self.head.u32_at(5);
        let known = self.head.get().starts_with(b"FLV");
        if !known || !(FILE_HEADER_LEN as u32..1 << 16).contains(&offset) {
            return Err(if known { Reason::Malformed } else { Reason::Format });
        }
        let flags = self.head.get()[4];
        if flags & 0b101 == 0b100 {
            self.counted = Kind::Audio;
        }
        self.skip = u64::from(offset) - FILE_HEADER_LEN as u64 + TRAILER_LEN as u64;
        Ok(FlvState::TagHeader)
    }

    fn tag_header(&mut self) -> Result<FlvState, Reason> {
        let kind = self.head.get()[0];
        if kind & 0x20 != 0 {
            return Err(Reason::Encrypted);
        }
        let kind = Kind::from_number(kind).ok_or(Reason::Malformed)?;
        let size = u64::from(self.head.u32_at(0) & 0xff_ffff);
        if kind == self.counted && size > 0 {
            return Ok(FlvState::Payload(size));
        }
        self.skip = size + TRAILER_LEN as u64;
        Ok(FlvState::TagHeader)
    }

    fn is_frame(&self, size: u64) -> Result<bool, Reason> {
        let head = self.head.get();
        match self.counted {
            Kind::Video => is_video_frame(head, size),
            _ => Ok(codec::audio(head).role == Role::AudioFrame),
        }
    }
}

/// Returns true if VIDEODATA of `size` bytes with this head is a frame, not a header or a command.
pub(super) fn is_video_frame(head: &[u8], size: u64) -> Result<bool, Reason> {
    let class = codec::video(head);
    // Enhanced RTMP: only commands (frame type 5) may omit the codec.
    let is_enhanced = head.first().is_some_and(|first| first & 0x80 != 0 && first >> 4 != 0xd);
    let is_cut = is_enhanced && class.codec.is_none() && class.role == Role::Other;
    if is_cut && size > head.len() as u64 {
        return Err(Reason::Unsupported);
    }
    Ok(matches!(class.role, Role::KeyFrame | Role::InterFrame))
}
