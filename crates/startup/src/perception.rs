//! Frame perception (Wira, section IV-A and algorithm 1): the size of the first frame, from the
//! bytes of a body on their way to the transport.
//!
//! The *first frame's size* is the number of bytes from the start of the body to the end of video
//! frame Θ_VF. Preceding script data, sequence headers and audio count as bytes, but not as frames.
//! A frame includes the size field after its FLV tag, and ends with its last packet in MPEG-TS. In
//! FLV, fMP4 and RTMP, the answer is known with the frame's own header, which announces the size.
//! In FLV without video, audio frames count.
//!
//! HLS consists of several bodies, separated by [`Perception::end_body`]. Playlists, initialization
//! segments and segments without video count as bytes. The first byte identifies the format of a
//! body, so names and content types are not needed.
//!
//! The answer depends only on the bytes, not on their division into chunks. State is constant in
//! size for any input: a header of at most 40 bytes, and facts about tracks and chunk streams.

use core::num::NonZeroU32;

mod flv;
mod input;
mod mp4;
mod rtmp;
mod ts;

pub use input::Reason;

use flv::Flv;
use input::{ChunkInput, FrameCount, Head};
use mp4::{Mp4, Tracks};
use rtmp::Rtmp;
use ts::{Found, Ts};

/// State of the search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// The end of the first frame is not known yet.
    Reading,
    /// First frame's size in bytes, from the start of the first body. Final.
    Known(u64),
    /// The size cannot be determined. Final.
    GaveUp(Reason),
}

impl Progress {
    /// Returns the first frame's size in bytes, if known.
    pub fn known(self) -> Option<u64> {
        match self {
            Self::Known(size) => Some(size),
            _ => None,
        }
    }
}

/// Default limit of the first frame's end: 4 MiB, 16 times the largest first frame in the paper
/// (section II-A).
pub const DEFAULT_LIMIT: u64 = 4 << 20;

/// Determines the size of the first frame from the bodies sent to one viewer.
///
/// ```
/// use core::num::NonZeroU32;
/// use mendcast_startup::perception::DEFAULT_LIMIT;
/// use mendcast_startup::{Perception, Progress};
///
/// let mut perception = Perception::new(NonZeroU32::MIN, DEFAULT_LIMIT);
/// // FLV header, then a video tag with a key frame of 5 bytes.
/// let mut body = b"FLV\x01\x01\0\0\0\x09\0\0\0\0".to_vec();
/// body.extend([9, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0x17, 1, 0, 0, 0, 0, 0, 0, 16]);
/// let Progress::Known(size) = perception.read(&body) else { panic!("complete") };
/// assert_eq!(size, body.len() as u64);
/// ```
#[derive(Debug)]
pub struct Perception {
    frames: FrameCount,
    limit: u64,
    /// Bytes of completed bodies.
    before: u64,
    /// Bytes read of the current body.
    at: u64,
    body: BodyFormat,
    tracks: Tracks,
    progress: Progress,
}

/// Format of the body.
#[derive(Debug)]
enum BodyFormat {
    /// No bytes yet.
    New,
    Flv(Flv),
    Mp4(Mp4),
    Ts(Ts),
    Rtmp(Box<Rtmp>),
    Playlist(Head<10>),
    /// Counts as bytes, but has no relevant frame.
    Bytes,
}

impl Perception {
    /// Creates a reader at the start of a body.
    ///
    /// `frames` is Θ_VF, the number of video frames in the "first frame": usually 1, more for
    /// players that buffer several before showing any. Gives up on frames that end beyond `limit`
    /// bytes; see [`DEFAULT_LIMIT`].
    pub fn new(frames: NonZeroU32, limit: u64) -> Self {
        Self {
            frames: FrameCount(frames.get()),
            limit,
            before: 0,
            at: 0,
            body: BodyFormat::New,
            tracks: Tracks::default(),
            progress: Progress::Reading,
        }
    }

    /// Creates a reader of RTMP chunks after the handshake. [`Perception::new`] expects the
    /// handshake.
    pub fn of_chunks(frames: NonZeroU32, limit: u64) -> Self {
        Self { body: BodyFormat::Rtmp(Box::new(Rtmp::chunks())), ..Self::new(frames, limit) }
    }

    /// Current result.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Bytes of completed bodies, which [`Progress::Known`] includes.
    pub fn bytes_before(&self) -> u64 {
        self.before
    }

    /// Reads the next bytes of the body. No effect once the result is final.
    #[inline]
    pub fn read(&mut self, bytes: &[u8]) -> Progress {
        if self.progress == Progress::Reading && !bytes.is_empty() {
            self.progress = self.advance(bytes);
        }
        self.progress
    }

    /// Ends the body. Another one may follow. Also ends an MPEG-TS frame, which otherwise ends with
    /// the start of the next one.
    pub fn end_body(&mut self) -> Progress {
        if self.progress == Progress::Reading {
            if let BodyFormat::Ts(ts) = &self.body
                && let Some(end) = ts.end()
            {
                self.progress = self.within(end);
            }
            self.before += self.at;
            self.at = 0;
            self.body = BodyFormat::New;
        }
        self.progress
    }

    fn advance(&mut self, bytes: &[u8]) -> Progress {
        // Bytes beyond the limit are ignored, so that chunk boundaries do not matter.
        let room = self.limit.saturating_sub(self.before + self.at);
        let mut input = ChunkInput { bytes, at: self.at };
        let mut input = input.take(room);
        let read = self.body(&mut input);
        self.at = input.at + input.bytes.len() as u64;
        match read {
            Ok(Some(end)) => self.within(end),
            Ok(None) if self.before + self.at >= self.limit => Progress::GaveUp(Reason::TooFar),
            Ok(None) => Progress::Reading,
            Err(reason) => Progress::GaveUp(reason),
        }
    }

    fn within(&self, end: u64) -> Progress {
        match self.before.checked_add(end).filter(|end| *end <= self.limit) {
            Some(end) => Progress::Known(end),
            None => Progress::GaveUp(Reason::TooFar),
        }
    }

    fn body(&mut self, input: &mut ChunkInput<'_>) -> Result<Option<u64>, Reason> {
        if let BodyFormat::New = self.body {
            let Some(first) = input.bytes.first() else { return Ok(None) };
            self.body = match first {
                b'F' => BodyFormat::Flv(Flv::new()),
                b'G' => BodyFormat::Ts(Ts::new()),
                b'#' | 0xef => BodyFormat::Playlist(Head::EMPTY),
                // First byte of a box size below 16 MiB.
                0 => BodyFormat::Mp4(Mp4::new()),
                3 => BodyFormat::Rtmp(Box::new(Rtmp::new())),
                _ => return Err(Reason::Format),
            };
        }
        match &mut self.body {
            BodyFormat::Flv(flv) => flv.read(input, &mut self.frames),
            BodyFormat::Mp4(mp4) => mp4.read(input, &mut self.frames, &mut self.tracks),
            BodyFormat::Rtmp(rtmp) => rtmp.read(input, &mut self.frames),
            BodyFormat::Ts(ts) => match ts.read(input, &mut self.frames)? {
                Some(Found::End(end)) => Ok(Some(end)),
                Some(Found::NoVideo) => {
                    self.body = BodyFormat::Bytes;
                    Ok(None)
                }
                None => Ok(None),
            },
            BodyFormat::Playlist(head) => {
                let has_mark = head.get().first().or(input.bytes.first()) == Some(&0xef);
                let need = if has_mark { 10 } else { 7 };
                if head.fill(input, need) {
                    let text = head.get().strip_prefix(&[0xef, 0xbb, 0xbf]);
                    if text.unwrap_or(head.get()) != b"#EXTM3U" {
                        return Err(Reason::Format);
                    }
                    self.body = BodyFormat::Bytes;
                }
                Ok(None)
            }
            BodyFormat::Bytes | BodyFormat::New => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests;
