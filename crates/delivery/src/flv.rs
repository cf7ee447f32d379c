//! A viewer's live stream as an endless FLV file.
//!
//! Timestamps are the viewer's own and start near 0. A script tag before the first frame
//! ([`media::flv::time_base_tag`]) maps them to the stream's time, for servers that pull the
//! stream.

use core::num::NonZeroU32;
use core::task::{Context, Poll, ready};
use core::time::Duration;

use bytes::buf::Chain;
use bytes::{Buf as _, Bytes};
use media::{Role, Tag, flv};
use relay::{Viewer, ViewerProgress};

use crate::capping::Playing;

/// A piece of a body: the viewer's own bytes, then shared ones. At least one part is not empty.
pub type Piece = Chain<Bytes, Bytes>;

/// Bytes of the file header and the size field after it.
const FILE_HEADER: u64 = 13;

/// The rest of a viewer's stream.
#[derive(Debug)]
pub struct FlvStream {
    viewer: Viewer,
    started: bool,
    /// Bytes of the time base tag; 0 before it was sent.
    base: u64,
    audio_only: bool,
    /// Number of frames in the first frame.
    needed: NonZeroU32,
    /// Frames delivered, from the first key frame on.
    frames: u64,
    /// Bytes up to the end of the first frame.
    first_frame: Option<u64>,
    /// Media time of the last tag.
    media_time: Option<Duration>,
}

impl FlvStream {
    /// Creates the file of this viewer. `frames` is Wira's Θ_VF, the number of video frames that
    /// make the first frame (`[startup] video_frames`); without video, of audio frames.
    pub fn new(viewer: Viewer, frames: NonZeroU32) -> Self {
        Self {
            viewer,
            started: false,
            base: 0,
            audio_only: false,
            needed: frames,
            frames: 0,
            first_frame: None,
            media_time: None,
        }
    }

    /// Polls for the file header, then for tags; `None` at the end of the stream.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Piece>> {
        if !self.started {
            // Players allocate decoders by the header, so it must be right.
            let Some((audio, video)) = ready!(self.viewer.poll_kinds(context)) else {
                return Poll::Ready(None);
            };
            self.started = true;
            self.audio_only = !video;
            return Poll::Ready(Some(flv::file_header(audio, video).chain(Bytes::new())));
        }
        let Some(tag) = ready!(self.viewer.poll_next(context)) else { return Poll::Ready(None) };
        // Without video, audio frames count.
        self.frames += u64::from(match tag.role() {
            Role::KeyFrame => true,
            Role::InterFrame => self.frames > 0,
            Role::AudioFrame => self.audio_only,
            _ => false,
        });
        let piece = self.piece(&tag);
        if self.frames == u64::from(self.needed.get()) && self.first_frame.is_none() {
            self.first_frame = Some(FILE_HEADER + self.progress().bytes);
        }
        Poll::Ready(Some(piece))
    }

    /// Encodes a tag with the viewer's timestamp, after the time base tag if that is due.
    fn piece(&mut self, tag: &Tag) -> Piece {
        let time = self.viewer.own_time(tag);
        // Metadata has no time of its own.
        let time_line = self.media_time.get_or_insert_default();
        if tag.role() != Role::Metadata {
            *time_line = unwrapped(*time_line, time);
        }
        let (header, rest) = tag.at(time);
        let origin = self.viewer.origin().filter(|_| self.base == 0);
        let Some(base) = origin.map(flv::time_base_tag) else {
            return Bytes::copy_from_slice(&header).chain(rest);
        };
        self.base = base.bytes().len() as u64;
        Bytes::from([&base.bytes()[..], &header].concat()).chain(rest)
    }

    /// Returns the viewer, to change its rendition.
    pub fn viewer_mut(&mut self) -> &mut Viewer {
        &mut self.viewer
    }

    /// Returns the bytes of the file up to the end of the first frame, before any of it is
    /// delivered; `None` if the frame is not cached yet. The time base tag is included, although
    /// streams without an origin have none.
    pub fn first_frame_ahead(&self) -> Option<u64> {
        if self.first_frame.is_some() || self.progress().tags > 0 {
            return self.first_frame;
        }
        let kinds = self.viewer.stream().with_cache(|cache| cache.kinds());
        let audio_only = kinds.is_some_and(|(_, video)| !video);
        let tags = self.viewer.first_frame_ahead(audio_only, self.needed)?;
        let base = flv::time_base_tag(0).bytes().len() as u64;
        Some(FILE_HEADER + base + tags)
    }

    /// Returns the media time of the last tag; `None` before the first.
    pub fn media_time(&self) -> Option<Duration> {
        self.media_time
    }

    /// Returns the state of the stream at this viewer.
    pub fn playing(&self) -> Playing {
        let lag = Duration::from_millis(self.viewer.lag_ms().into());
        Playing { bitrate: self.viewer.stream().bitrate(), lag: Some(lag) }
    }

    /// Returns the number of frames delivered, from the first key frame on.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Returns whether the first frame was delivered.
    pub fn has_frame(&self) -> bool {
        self.first_frame.is_some()
    }

    /// Returns the bytes of the file up to the end of the first frame; `None` before its delivery.
    pub fn first_frame_bytes(&self) -> Option<u64> {
        self.first_frame
    }

    /// Returns the viewer's progress, including the time base tag.
    pub fn progress(&self) -> ViewerProgress {
        let progress = self.viewer.progress();
        ViewerProgress { bytes: progress.bytes + self.base, ..progress }
    }
}

/// Unwraps an FLV timestamp in milliseconds, which wraps after 49.7 days, near the last time.
fn unwrapped(last: Duration, time: u32) -> Duration {
    let last = last.as_millis() as u64;
    let distance = time.wrapping_sub(last as u32) as i32;
    Duration::from_millis(last.saturating_add_signed(distance.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::task::Waker;
    use media::Kind;
    use relay::{Registry, Settings, Start};

    /// A publisher of headers, sound, a key frame of 1,000 bytes, and two small pictures.
    fn published(streams: &Registry) -> relay::Publisher {
        let publisher = streams.publish("live/demo", Settings::default()).expect("free");
        let push = |kind, time, payload: &[u8]| {
            let tag = Tag::new(kind, time, payload).expect("short enough");
            assert!(publisher.push(tag));
        };
        push(Kind::Video, 0, &[0x17, 0, 0, 0, 0, 1]);
        push(Kind::Audio, 0, &[0x2f; 50]);
        push(Kind::Video, 0, &[&[0x17, 1, 0, 0, 0][..], &[7; 1_000]].concat());
        push(Kind::Video, 40, &[0x27, 1, 0, 0, 0, 2]);
        push(Kind::Audio, 60, &[0x2f; 50]);
        push(Kind::Video, 80, &[0x27, 1, 0, 0, 0, 2, 3]);
        publisher
    }

    #[test]
    fn the_size_of_the_first_frame_counts_all_bytes_up_to_its_end() {
        let mut sizes = Vec::new();
        for frames in 1..=4 {
            let streams = Registry::new(1);
            let publisher = published(&streams);
            let viewer = Viewer::new(publisher.stream().clone(), Start::LatestGop).expect("room");
            let frames = NonZeroU32::new(frames).expect("at least 1");
            let mut stream = FlvStream::new(viewer, frames);
            let ahead = stream.first_frame_ahead();
            let context = &mut Context::from_waker(Waker::noop());
            let mut bytes = 0;
            while let Poll::Ready(Some(piece)) = stream.poll_next(context) {
                bytes += piece.remaining() as u64;
                if stream.has_frame() {
                    break;
                }
            }
            assert_eq!(stream.first_frame_bytes(), stream.has_frame().then_some(bytes));
            assert_eq!(ahead, stream.first_frame_bytes(), "known before the first byte");
            assert_eq!(stream.first_frame_ahead(), ahead);
            assert_eq!(stream.frames(), u64::from(frames.get().min(3)));
            let size = stream.first_frame_bytes();
            let _ = stream.poll_next(context);
            assert_eq!(stream.first_frame_bytes(), size, "more frames change nothing");
            sizes.push(size);
        }
        let [Some(one), Some(two), Some(three), None] = sizes[..] else { panic!("{sizes:?}") };
        assert!(one > 1_000, "{one}");
        // Tag header, payload, and size field; the third picture has sound before it.
        assert_eq!((two - one, three - two), (11 + 6 + 4, (11 + 50 + 4) + (11 + 7 + 4)));
    }

    #[test]
    fn the_time_line_continues_when_timestamps_wrap() {
        let ms = Duration::from_millis;
        assert_eq!(unwrapped(ms(80), 40), ms(40), "audio after a picture");
        assert_eq!(unwrapped(ms(u64::from(u32::MAX)), 39), ms((1 << 32) + 39));
        assert_eq!(unwrapped(ms((1 << 32) + 39), u32::MAX), ms(u64::from(u32::MAX)));
        assert_eq!(unwrapped(ms(0), u32::MAX), ms(0), "never before 0");
    }
}
