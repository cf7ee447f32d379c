//! One viewer of a stream: pulls tags, waits, and leaves.

use core::task::{Context, Poll, Waker};
use std::sync::Arc;

use media::{Role, Tag};

use crate::cursor::{Cursor, Lags, Next, Start};
use crate::stream::{Live, Status, Stream};

/// Tags that are looked at for the first frame: headers and the sound before it.
const LOOK_AHEAD: usize = 64;

/// A viewer. It leaves the stream when it is dropped.
#[derive(Debug)]
pub struct Viewer {
    stream: Arc<Stream>,
    cursor: Cursor,
    /// Who is woken, and after how many wakes of all that was asked for.
    registered: Option<(Waker, u64)>,
    progress: Progress,
    /// The time in the stream of the last frame that [`Viewer::own_time`] was asked for, and its
    /// distance from the viewer's first.
    own: Option<(u32, i64)>,
    /// The latest of all times that it gave.
    latest: u32,
}

/// What a viewer got so far.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Tags, headers included.
    pub tags: u64,
    /// Bytes of tags.
    pub bytes: u64,
    /// Times that it skipped.
    pub skips: u64,
    /// Milliseconds of media that it skipped.
    pub skipped_ms: u64,
    /// Pictures that no other needs and that it did not get because it was behind.
    pub thinned: u64,
}

impl Viewer {
    /// A viewer of `stream` who is to begin at `start`; `None` if there are too many.
    pub fn new(stream: Arc<Stream>, start: Start) -> Option<Self> {
        stream.enter().then(|| {
            let cursor = Cursor::new(start, stream.settings().lags);
            Self::with(stream, cursor)
        })
    }

    /// One that packs the stream for others: it begins with the oldest group of pictures, and only
    /// skips what is no longer kept. `None` if there are too many viewers.
    pub fn packager(stream: Arc<Stream>) -> Option<Self> {
        stream.enter().then(|| Self::with(stream, Cursor::new(Start::Oldest, Lags::ANY)))
    }

    fn with(stream: Arc<Stream>, cursor: Cursor) -> Self {
        Self {
            stream,
            cursor,
            registered: None,
            progress: Progress::default(),
            own: None,
            latest: 0,
        }
    }

    /// The next tag; `None` when the stream is over. Where it is pending, the context is woken when
    /// the stream goes on.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Tag>> {
        let live = self.stream.read();
        let next = self.cursor.next(&live.cache);
        let ((skips, skipped_ms), thinned) = (self.cursor.skips(), self.cursor.thinned());
        let before = self.progress;
        let now = Progress { skips, skipped_ms, thinned, ..before };
        if now != before {
            let ms = skipped_ms - before.skipped_ms;
            self.stream.left_out(skips - before.skips, ms, thinned - before.thinned);
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

    /// Whether the stream has audio, and whether it has video, as soon as that is known; `None`
    /// when the stream is over without having had either.
    pub fn poll_kinds(&mut self, context: &mut Context<'_>) -> Poll<Option<(bool, bool)>> {
        let live = self.stream.read();
        match live.cache.kinds() {
            None if live.status != Status::Ended => {
                wait(&mut self.registered, &self.stream, &live, context)
            }
            kinds => Poll::Ready(kinds),
        }
    }

    /// Where this viewer's own time begins in the stream's, in milliseconds that wrap; `None` before
    /// its first frame is known.
    pub fn origin(&self) -> Option<u32> {
        self.cursor.origin()
    }

    /// The viewer's own time of a tag that it just got, in milliseconds since its first frame: players
    /// that read times as signed numbers break when they pass 2^31 ms, which so comes after 24.8 days of
    /// watching instead of publishing. To be asked once for each tag, in their order. A header has the
    /// latest time that was given, and metadata 0: some readers take script tags of later times for
    /// subtitles.
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
        // It wraps, as all times of FLV do.
        if own.wrapping_sub(self.latest) < 1 << 31 {
            self.latest = own;
        }
        own
    }

    /// Bytes of the tags that are ready from here up to the end of the first frame, that one included (of sound, where
    /// `sound_alone`); `None` where it is not there yet, or not among the next `LOOK_AHEAD` tags.
    pub fn first_frame_ahead(&self, sound_alone: bool) -> Option<u64> {
        let (mut cursor, mut bytes) = (self.cursor.clone(), 0);
        self.stream.with_cache(|cache| {
            for _ in 0..LOOK_AHEAD {
                let Next::Tag(tag) = cursor.next(cache) else { return None };
                bytes += tag.bytes().len() as u64;
                match tag.role() {
                    Role::KeyFrame => return Some(bytes),
                    Role::AudioFrame if sound_alone => return Some(bytes),
                    _ => {}
                }
            }
            None
        })
    }

    /// The stream.
    pub fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// What it got so far.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Milliseconds of media between the frame that it got last and the newest one.
    pub fn lag_ms(&self) -> u32 {
        self.stream.with_cache(|cache| self.cursor.lag_ms(cache))
    }
}

/// Sees to it that the context is woken, once, when the stream goes on.
fn wait<T>(
    registered: &mut Option<(Waker, u64)>,
    stream: &Stream,
    live: &Live,
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
        self.stream.leave();
    }
}
