//! RTMP from the server: handshake, then chunks (specification 1.0, sections 5.2 and 5.3). The
//! length in a message's header and the chunk size determine where the last chunk ends.
//!
//! Servers write messages without interleaving. If chunks of other chunk streams interrupt a frame,
//! the answer omits them.

use super::flv::{CLASS_LEN, is_video_frame};
use super::input::{ChunkInput, FrameCount, Head, Reason};

/// Length of S0, S1 and S2.
const HANDSHAKE_LEN: u64 = 1 + 2 * 1_536;
const VERSION: u8 = 3;
const DEFAULT_CHUNK_SIZE: u32 = 128;
/// Timestamp value that indicates an extended timestamp.
const EXTENDED: u32 = 0xff_ffff;
const MAX_CHUNK_STREAMS: usize = 16;

const SET_CHUNK_SIZE: u8 = 1;
const ABORT: u8 = 2;
const VIDEO: u8 = 9;
const AGGREGATE: u8 = 22;

/// State inherited by the chunks of a chunk stream.
#[derive(Clone, Copy, Debug, Default)]
struct ChunkStream {
    id: u32,
    length: u32,
    kind: u8,
    /// The extended timestamp, if the last header with a timestamp had one.
    extended: Option<u32>,
    /// Bytes of the message in later chunks.
    left: u32,
}

#[derive(Debug)]
pub(super) struct Rtmp {
    skip: u64,
    state: RtmpState,
    head: Head<CLASS_LEN>,
    chunk_size: u32,
    streams: [ChunkStream; MAX_CHUNK_STREAMS],
    count: usize,
}

#[derive(Clone, Copy, Debug)]
enum RtmpState {
    Version,
    Header,
    /// The head of a message, in its first chunk of `chunk` bytes. Headers of later chunks have
    /// `header` bytes.
    Message {
        index: usize,
        chunk: u32,
        header: u32,
    },
}

impl Rtmp {
    /// Starts with the handshake.
    pub(super) fn new() -> Self {
        Self { state: RtmpState::Version, ..Self::chunks() }
    }

    /// Starts with the first chunk.
    pub(super) fn chunks() -> Self {
        Self {
            skip: 0,
            state: RtmpState::Header,
            head: Head::EMPTY,
            chunk_size: DEFAULT_CHUNK_SIZE,
            streams: [ChunkStream::default(); MAX_CHUNK_STREAMS],
            count: 0,
        }
    }

    /// Returns the end of the last counted frame.
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
            match self.state {
                RtmpState::Version => {
                    if !self.head.fill(input, 1) {
                        return Ok(None);
                    }
                    if self.head.get() != [VERSION] {
                        return Err(Reason::Format);
                    }
                    self.skip = HANDSHAKE_LEN - 1;
                    self.state = RtmpState::Header;
                }
                RtmpState::Header => {
                    let need = self.header_len()?;
                    if !self.head.fill(input, need) {
                        return Ok(None);
                    }
                    if self.header_len()? > need {
                        continue;
                    }
                    self.header()?;
                }
                RtmpState::Message { index, chunk, header } => {
                    let need = chunk.min(CLASS_LEN as u32);
                    if !self.head.fill(input, need as usize) {
                        return Ok(None);
                    }
                    self.skip = u64::from(chunk - need);
                    self.state = RtmpState::Header;
                    let stream = self.streams[index];
                    if self.message(stream)? && frames.count() {
                        let chunks = stream.length.div_ceil(self.chunk_size);
                        let headers = u64::from(chunks - 1) * u64::from(header);
                        let behind = u64::from(stream.length - need);
                        return Ok(Some(input.at + behind + headers));
                    }
                }
            }
            self.head.clear();
        }
    }

    /// Returns format, chunk stream and length of the basic header, if complete.
    fn basic(&self) -> Option<(u8, u32, usize)> {
        let head = self.head.get();
        let first = *head.first()?;
        let (id, len) = match first & 0x3f {
            0 => (64 + u32::from(*head.get(1)?), 2),
            1 => (64 + u32::from(*head.get(1)?) + 256 * u32::from(*head.get(2)?), 3),
            id => (id.into(), 1),
        };
        Some((first >> 6, id, len))
    }

    fn stream(&self, id: u32) -> Option<usize> {
        self.streams[..self.count].iter().position(|stream| stream.id == id)
    }

    /// Returns the length of the chunk's header, or a lower bound while bytes are missing.
    fn header_len(&self) -> Result<usize, Reason> {
        let Some((format, id, basic)) = self.basic() else {
            return Ok(self.head.get().first().map_or(1, |first| 2 + usize::from(first & 0x3f)));
        };
        let known = self.stream(id);
        // librtmp starts a chunk stream with type 1 for ping responses.
        if known.is_none() && format > 1 {
            return Err(Reason::Malformed);
        }
        let fields = [11, 7, 3, 0][usize::from(format)];
        let has_extended = match (format, known) {
            (3, Some(index)) => self.streams[index].extended.is_some(),
            _ if self.head.get().len() < basic + fields => false,
            _ => self.head.u32_at(basic) >> 8 == EXTENDED,
        };
        Ok(basic + fields + if has_extended { 4 } else { 0 })
    }

    /// Processes a complete chunk header.
    fn header(&mut self) -> Result<(), Reason> {
        let (format, id, basic) = self.basic().ok_or(Reason::Malformed)?;
        let fields = [11, 7, 3, 0][usize::from(format)];
        let index = match self.stream(id) {
            Some(index) => index,
            None if self.count < MAX_CHUNK_STREAMS => {
                self.streams[self.count].id = id;
                self.count += 1;
                self.count - 1
            }
            None => return Err(Reason::Room),
        };
        let len = self.head.get().len();
        let extended = (len > basic + fields).then(|| self.head.u32_at(len - 4));
        let stream = &mut self.streams[index];
        let begins = stream.left == 0;
        if format == 3 {
            // Section 5.3.1.3 requires the extended timestamp here, but some encoders omit it.
            // These bytes are then payload, and all later offsets are uncertain.
            if extended != stream.extended {
                return Err(Reason::Malformed);
            }
        } else {
            if !begins {
                return Err(Reason::Malformed);
            }
            stream.extended = extended;
        }
        if format < 2 {
            stream.length = self.head.u32_at(basic + 2) & 0xff_ffff;
            stream.kind = self.head.get()[basic + 6];
        }
        if begins {
            stream.left = stream.length;
        }
        let chunk = stream.left.min(self.chunk_size);
        stream.left -= chunk;
        if begins && chunk > 0 && matches!(stream.kind, SET_CHUNK_SIZE | ABORT | VIDEO | AGGREGATE)
        {
            // The bytes that identify the message must not be split between chunks.
            if chunk < stream.length && chunk < CLASS_LEN as u32 {
                return Err(Reason::Unsupported);
            }
            let header = basic as u32 + if stream.extended.is_some() { 4 } else { 0 };
            self.state = RtmpState::Message { index, chunk, header };
        } else {
            self.skip = chunk.into();
        }
        Ok(())
    }

    /// Processes the head of a message. Returns true for a video frame.
    fn message(&mut self, stream: ChunkStream) -> Result<bool, Reason> {
        let number = |head: &Head<CLASS_LEN>| match head.get().len() {
            4.. => Ok(head.u32_at(0)),
            _ => Err(Reason::Malformed),
        };
        match stream.kind {
            SET_CHUNK_SIZE => {
                // Section 5.4.1: "the first bit MUST be zero", and "at least 1".
                self.chunk_size = match number(&self.head)? {
                    size @ 1..=0x7fff_ffff => size,
                    _ => return Err(Reason::Malformed),
                };
            }
            ABORT => {
                let id = number(&self.head)?;
                if let Some(index) = self.stream(id) {
                    self.streams[index].left = 0;
                }
            }
            AGGREGATE => return Err(Reason::Unsupported),
            _ => return is_video_frame(self.head.get(), stream.length.into()),
        }
        Ok(false)
    }
}
