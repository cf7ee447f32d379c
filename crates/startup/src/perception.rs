//! Frame perception (Wira, section IV-A and algorithm 1): the size of a first frame, from the bytes
//! of a body as they are handed to the transport.
//!
//! The *first frame's size* is the number of bytes from the start of the body to the end of the
//! Θ_VF-th video frame. Script data, sequence headers and sound before it count as bytes and not as
//! frames. For FLV the size field behind the tag belongs to it; for MPEG-TS it is the end of the
//! frame's last packet. Sizes that headers announce are enough: for FLV, fMP4 and RTMP the answer is
//! there when the frame's own header is. A file of FLV without video counts frames of sound.
//!
//! HLS comes as several bodies. [`Perception::end_body`] says where one ends; a playlist, an
//! initialisation segment and a segment without video count as bytes of the answer. Which kind a body
//! is follows from its first byte, so that names and content types need not be known.
//!
//! The answer depends on the bytes alone, not on how they are cut into pieces. What is kept is the
//! header being read, at most 40 bytes, and what is known about tracks and chunk streams: a constant
//! size, whatever a stranger sends.

use core::num::NonZeroU32;

mod flv;
mod input;
mod mp4;
mod rtmp;
mod ts;

pub use input::Reason;

use flv::Flv;
use input::{Frames, Head, Input};
use mp4::{Mp4, Tracks};
use rtmp::Rtmp;
use ts::{Found, Ts};

/// How far perception has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// The first frame's end is not in sight.
    Reading,
    /// The first frame's size in bytes, from the start of the first body on. Final.
    Known(u64),
    /// It will not be known. Final.
    GaveUp(Reason),
}

impl Progress {
    /// The first frame's size in bytes, if it is known.
    pub fn known(self) -> Option<u64> {
        match self {
            Self::Known(size) => Some(size),
            _ => None,
        }
    }
}

/// Where a frame may end at the latest if nothing else is said: 4 MiB, sixteen times the largest
/// first frame that the paper saw (section II-A).
pub const DEFAULT_LIMIT: u64 = 4 << 20;

/// Reads the bodies that one viewer is sent, until the size of the first frame is known.
#[derive(Debug)]
pub struct Perception {
    frames: Frames,
    limit: u64,
    /// Bytes of the bodies that have ended.
    before: u64,
    /// Bytes of this body so far.
    at: u64,
    body: Body,
    tracks: Tracks,
    progress: Progress,
}

/// What the body is.
#[derive(Debug)]
enum Body {
    /// Nothing of it was seen.
    New,
    Flv(Flv),
    Mp4(Mp4),
    Ts(Ts),
    Rtmp(Box<Rtmp>),
    Playlist(Head<10>),
    /// It has no frame that counts, but its bytes do.
    Bytes,
}

impl Perception {
    /// A reader at the start of a body. `frames` is Θ_VF, the video frames that make up what is
    /// called the first frame; 1 is usual, more suit players that wait for more. A frame that ends
    /// behind `limit` bytes is given up; see [`DEFAULT_LIMIT`].
    pub fn new(frames: NonZeroU32, limit: u64) -> Self {
        Self {
            frames: Frames(frames.get()),
            limit,
            before: 0,
            at: 0,
            body: Body::New,
            tracks: Tracks::default(),
            progress: Progress::Reading,
        }
    }

    /// A reader of the RTMP chunks behind a handshake. [`Perception::new`] takes RTMP from the
    /// handshake on.
    pub fn of_chunks(frames: NonZeroU32, limit: u64) -> Self {
        Self { body: Body::Rtmp(Box::new(Rtmp::chunks())), ..Self::new(frames, limit) }
    }

    /// What is known so far.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Bytes of the bodies that have ended: what [`Progress::Known`] counts before this body.
    pub fn bytes_before(&self) -> u64 {
        self.before
    }

    /// Takes the next bytes of the body. Does nothing once the answer is final.
    #[inline]
    pub fn read(&mut self, bytes: &[u8]) -> Progress {
        if self.progress == Progress::Reading && !bytes.is_empty() {
            self.progress = self.advance(bytes);
        }
        self.progress
    }

    /// The body has ended, and another one follows, if any. A frame of MPEG-TS that had to wait for
    /// the start of the next one ends here.
    pub fn end_body(&mut self) -> Progress {
        if self.progress == Progress::Reading {
            if let Body::Ts(ts) = &self.body
                && let Some(end) = ts.end()
            {
                self.progress = self.within(end);
            }
            self.before += self.at;
            self.at = 0;
            self.body = Body::New;
        }
        self.progress
    }

    fn advance(&mut self, bytes: &[u8]) -> Progress {
        // Bytes behind the limit are not looked at: else it would matter how the body is cut.
        let room = self.limit.saturating_sub(self.before + self.at);
        let mut input = Input { bytes, at: self.at };
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

    fn body(&mut self, input: &mut Input<'_>) -> Result<Option<u64>, Reason> {
        if let Body::New = self.body {
            let Some(first) = input.bytes.first() else { return Ok(None) };
            self.body = match first {
                b'F' => Body::Flv(Flv::new()),
                b'G' => Body::Ts(Ts::new()),
                b'#' | 0xef => Body::Playlist(Head::EMPTY),
                // The size of a box below 16 MiB.
                0 => Body::Mp4(Mp4::new()),
                3 => Body::Rtmp(Box::new(Rtmp::new())),
                _ => return Err(Reason::Format),
            };
        }
        match &mut self.body {
            Body::Flv(flv) => flv.read(input, &mut self.frames),
            Body::Mp4(mp4) => mp4.read(input, &mut self.frames, &mut self.tracks),
            Body::Rtmp(rtmp) => rtmp.read(input, &mut self.frames),
            Body::Ts(ts) => match ts.read(input, &mut self.frames)? {
                Some(Found::End(end)) => Ok(Some(end)),
                Some(Found::NoVideo) => {
                    self.body = Body::Bytes;
                    Ok(None)
                }
                None => Ok(None),
            },
            Body::Playlist(head) => {
                let has_mark = head.get().first().or(input.bytes.first()) == Some(&0xef);
                let need = if has_mark { 10 } else { 7 };
                if head.fill(input, need) {
                    let text = head.get().strip_prefix(&[0xef, 0xbb, 0xbf]);
                    if text.unwrap_or(head.get()) != b"#EXTM3U" {
                        return Err(Reason::Format);
                    }
                    self.body = Body::Bytes;
                }
                Ok(None)
            }
            Body::Bytes | Body::New => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests;
