//! Viewer of a stream: pulls tags and waits for new ones.

use core::num::NonZeroU32;
use core::task::{Context, Poll, Waker};
use std::sync::Arc;

use media::{GopCache, Role, Tag};

use crate::cursor::{Cursor, Lags, Next, Start};
use crate::stream::{LiveState, Status, Stream};

/// Tags searched for the first frame, as headers and audio may precede it.
const LOOK_AHEAD: usize = 64;

/// A viewer. Dropping it leaves the stream.
///
/// ```
/// use core::task::{Context, Poll, Waker};
/// use media::{Kind, Tag};
/// use mendcast_relay::{Registry, Settings, Start, Viewer};
///
/// let streams = Registry::new(1);
/// let mut publisher = streams.publish("live/a", Settings::default()).unwrap();
/// // A key frame of H.264, 40 ms into the stream.
/// publisher.push(Tag::new(Kind::Video, 40, &[0x17, 1, 0, 0, 0]).unwrap());
///
/// let mut viewer = Viewer::new(streams.get("live/a").unwrap(), Start::LatestGop).unwrap();
/// let mut context = Context::from_waker(Waker::noop());
/// let Poll::Ready(Some(tag)) = viewer.poll_next(&mut context) else { panic!("cached") };
/// assert_eq!(tag.timestamp(), 40);
/// // The viewer's task is woken by the next tag.
/// assert!(viewer.poll_next(&mut context).is_pending());
/// ```
#[derive(Debug)]
pub struct Viewer {
    stream: Arc<Stream>,
    /// Whether it counts among the stream's viewers.
    is_counted: bool,
    cursor: Cursor,
    /// Registered waker, and the stream's wake count at registration.
    registered: Option<(Waker, u64)>,
    progress: ViewerProgress,
    /// Stream time of the last frame passed to [`Viewer::own_time`], and its offset from the first
    /// frame in milliseconds.
    own: Option<(u32, i64)>,
    /// Latest time returned by [`Viewer::own_time`].
    latest: u32,
}

/// Delivery counts of a viewer.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct ViewerProgress {
    /// Tags, including headers.
    pub tags: u64,
    /// Bytes of tags.
    pub bytes: u64,
    /// Number of skips.
    pub skips: u64,
    /// Skipped media in milliseconds.
    pub skipped_ms: u64,
    /// Disposable frames dropped while the viewer was behind.
    pub thinned: u64,
}

impl Viewer {
    /// Creates a viewer that joins at `start`. Returns `None` at the limit of viewers.
    pub fn new(stream: Arc<Stream>, start: Start) -> Option<Self> {
        stream.enter().then(|| {
            let cursor = Cursor::new(start, stream.settings().lags);
            Self::with(stream, cursor)
        })
    }

    /// Creates a viewer of the server's own, such as a recording. It does not count among the
    /// stream's viewers, so that it neither keeps a pull running nor meets their limit.
    pub fn attendant(stream: Arc<Stream>, start: Start, lags: Lags) -> Self {
        let mut viewer = Self::with(stream, Cursor::new(start, lags));
        viewer.is_counted = false;
        viewer
    }

    /// Creates a viewer for packagers. It joins at the oldest cached group of pictures and skips
    /// only evicted media. Returns `None` at the limit of viewers.
    pub fn packager(stream: Arc<Stream>) -> Option<Self> {
        stream.enter().then(|| Self::with(stream, Cursor::new(Start::Oldest, Lags::ANY)))
    }

    /// As [`Viewer::packager`], but leaves out media of earlier publishers.
    pub fn packager_of_publisher(stream: Arc<Stream>) -> Option<Self> {
        let start = Start::OldestOfPublisher;
        stream.enter().then(|| Self::with(stream, Cursor::new(start, Lags::ANY)))
    }

    fn with(stream: Arc<Stream>, cursor: Cursor) -> Self {
        Self {
            stream,
            is_counted: true,
            cursor,
            registered: None,
            progress: ViewerProgress::default(),
            own: None,
            latest: 0,
        }
    }

    /// Returns the next tag, or `None` at the end of the stream. If pending, the context is woken
    /// by new tags.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Tag>> {
        let live = self.stream.read();
        let next = self.cursor.next(&live.cache);
        let ((skips, skipped_ms), thinned) = (self.cursor.skips(), self.cursor.thinned());
        let before = self.progress;
        let now = ViewerProgress { skips, skipped_ms, thinned, ..before };
        if now != before {
            let ms = skipped_ms - before.skipped_ms;
            self.stream.count_skipped(skips - before.skips, ms, thinned - before.thinned);
            self.progress = now;
        }
        match next {
            Next::Tag(tag) => {
                self.progress.tags += 1;
                self.progress.bytes += tag.bytes().len() as u64;
                Poll::Ready(Some(tag))
            }
            Next::Wait if live.status == Status::Ended => Poll::Ready(None),
            Next::Wait => wait(&mut self.registered, &self.stream, &live, context),
        }
    }

    /// Returns whether the stream has audio and video, once known. Returns `None` if the stream
    /// ends without either.
    pub fn poll_kinds(&mut self, context: &mut Context<'_>) -> Poll<Option<(bool, bool)>> {
        let live = self.stream.read();
        match live.cache.kinds() {
            None if live.status != Status::Ended => {
                wait(&mut self.registered, &self.stream, &live, context)
            }
            kinds => Poll::Ready(kinds),
        }
    }

    /// Returns the timestamp of the next tag if it is available and a key frame, at which
    /// [`Viewer::switch`] is possible.
    pub fn next_key(&self) -> Option<u32> {
        self.stream.with_cache(|cache| self.cursor.next_key(cache))
    }

    /// Waits for the next change of the stream, although a tag may be available.
    pub fn poll_change(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let live = self.stream.read();
        wait(&mut self.registered, &self.stream, &live, context)
    }

    /// Returns true if the viewer is about to skip to a newer key frame.
    pub fn must_skip(&self) -> bool {
        self.stream.with_cache(|cache| self.cursor.must_skip(cache))
    }

    /// Continues with another stream of the same content and time line, at its key frame of this
    /// time, which must be the time of the [next tag](Viewer::next_key). No frame is lost or
    /// repeated. Returns false, without a change, if the key frame is not cached, the codecs
    /// differ, or the other stream is full.
    pub fn switch(&mut self, stream: &Arc<Stream>, key_ms: u32) -> bool {
        self.move_to(stream, |cursor, cache| cursor.switch(cache, key_ms))
    }

    /// Continues with another stream of the same content and time line, at its first key frame
    /// after the delivered media, or at its newest one if it has several of them. Counts a skip.
    /// Returns false, without a change, if the codecs differ or the other stream is full.
    pub fn restart(&mut self, stream: &Arc<Stream>) -> bool {
        self.move_to(stream, Cursor::restart)
    }

    fn move_to(
        &mut self,
        stream: &Arc<Stream>,
        move_cursor: impl FnOnce(&mut Cursor, &GopCache) -> bool,
    ) -> bool {
        if self.is_counted && !stream.enter() {
            return false;
        }
        let has_moved = stream.with_cache(|cache| move_cursor(&mut self.cursor, cache));
        let left = match has_moved {
            true => core::mem::replace(&mut self.stream, stream.clone()),
            false => stream.clone(),
        };
        if self.is_counted {
            left.leave();
        }
        if has_moved {
            self.registered = None;
        }
        has_moved
    }

    /// Offset of this viewer's timeline in the stream's, in wrapping milliseconds. `None` before
    /// the first frame is known.
    pub fn origin(&self) -> Option<u32> {
        self.cursor.origin()
    }

    /// Returns the time of a delivered tag since this viewer's first frame, in milliseconds.
    ///
    /// Players that read timestamps as signed numbers break at 2^31 ms. With this timeline, that is
    /// after 24.8 days of watching instead of publishing. Must be called once per tag, in order.
    /// Headers get the latest returned time. Metadata gets 0, as some players take later script
    /// tags for subtitles.
    pub fn own_time(&mut self, tag: &Tag) -> u32 {
        if tag.role() == Role::Metadata {
            return 0;
        }
        let origin = self.origin().map(|origin| (origin, 0));
        let Some((last, time)) = self.own.or(origin).filter(|_| !tag.role().is_header()) else {
            return self.latest;
        };
        let time = time + i64::from(tag.timestamp().wrapping_sub(last) as i32);
        self.own = Some((tag.timestamp(), time));
        let own = time.max(0) as u32;
        // Wraps like all FLV timestamps.
        if own.wrapping_sub(self.latest) < 1 << 31 {
            self.latest = own;
        }
        own
    }

    /// Returns the size in bytes of the available tags up to and including the first frame: a key
    /// frame and the video frames after it, as many as `frames` in total, or as many audio frames
    /// if `sound_alone`. Returns `None` if its end is not among the next `LOOK_AHEAD` available
    /// tags.
    pub fn first_frame_ahead(&self, sound_alone: bool, frames: NonZeroU32) -> Option<u64> {
        let (mut cursor, mut bytes, mut found) = (self.cursor.clone(), 0, 0);
        self.stream.with_cache(|cache| {
            for _ in 0..LOOK_AHEAD {
                let Next::Tag(tag) = cursor.next(cache) else { return None };
                bytes += tag.bytes().len() as u64;
                match tag.role() {
                    Role::KeyFrame => found += 1,
                    Role::InterFrame if found > 0 => found += 1,
                    Role::AudioFrame if sound_alone => found += 1,
                    _ => {}
                }
                if found == frames.get() {
                    return Some(bytes);
                }
            }
            None
        })
    }

    /// The stream.
    pub fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Delivery counts.
    pub fn progress(&self) -> ViewerProgress {
        self.progress
    }

    /// Milliseconds of media between the last delivered and the newest frame.
    pub fn lag_ms(&self) -> u32 {
        self.stream.with_cache(|cache| self.cursor.lag_ms(cache))
    }
}

/// Registers the context to be woken once by the next change of the stream.
fn wait<T>(
    registered: &mut Option<(Waker, u64)>,
    stream: &Stream,
    live: &LiveState,
    context: &Context<'_>,
) -> Poll<T> {
    match registered {
        Some((waker, wakes)) if *wakes == live.wakes && waker.will_wake(context.waker()) => {}
        Some((waker, wakes)) if waker.will_wake(context.waker()) => {
            stream.register(waker.clone());
            *wakes = live.wakes;
        }
        _ => {
            stream.register(context.waker().clone());
            *registered = Some((context.waker().clone(), live.wakes));
        }
    }
    Poll::Pending
}

impl Drop for Viewer {
    fn drop(&mut self) {
        if self.is_counted {
            self.stream.leave();
        }
    }
}
