//! The streams of a server by name, and the right to publish them.

use core::fmt;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard, Weak};

use media::Tag;

use crate::memory::{self, Memory, Share};
use crate::stream::{Settings, Stats, Status, Stream};

/// All streams of a server.
///
/// ```
/// use mendcast_relay::{Registry, Settings, Start, Viewer};
///
/// let streams = Registry::new(100);
/// let publisher = streams.publish("live/demo", Settings::default()).expect("not published yet");
/// let stream = streams.get("live/demo").expect("published");
/// let viewer = Viewer::new(stream, Start::LatestGop).expect("below the limit of viewers");
/// assert_eq!(viewer.progress().tags, 0);
/// # drop(publisher);
/// ```
#[derive(Debug)]
pub struct Registry {
    max_streams: usize,
    memory: Arc<Memory>,
    streams: RwLock<NamedStreams>,
}

#[derive(Debug, Default)]
struct NamedStreams {
    by_name: HashMap<String, Arc<Stream>>,
    /// Ended streams that viewers still reference.
    over: Vec<Weak<Stream>>,
    /// Statistics of ended streams.
    past: Stats,
}

impl NamedStreams {
    fn open(&mut self, name: &str, settings: Settings, memory: &Arc<Memory>) -> Arc<Stream> {
        let known = self.by_name.get(name).filter(|stream| stream.status() != Status::Ended);
        if let Some(stream) = known {
            return stream.clone();
        }
        let stream = Arc::new(Stream::new(name, settings, Share::new(memory)));
        self.by_name.insert(name.to_owned(), stream.clone());
        stream
    }
}

/// Reason to reject a publisher.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// The stream already has a publisher.
    Busy,
    /// The limit of streams is reached.
    TooMany,
    /// No memory is left for another stream.
    NoMemory,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => "the stream already has a publisher",
            Self::TooMany => "too many streams",
            Self::NoMemory => "no memory is left for another stream",
        })
    }
}

impl Registry {
    /// Creates a registry for at most `max_streams` published streams. Streams that only have
    /// waiting viewers do not count.
    pub fn new(max_streams: usize) -> Self {
        Self { max_streams, memory: Arc::default(), streams: RwLock::default() }
    }

    /// Memory of all streams, unlimited by default.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Shrinks streams if too much memory is used, and decides whether new streams are accepted.
    ///
    /// Must be called periodically, and whenever [`Memory::poll_pressed`] completes. `trim` shrinks
    /// media held outside the relay.
    pub fn enforce_memory_limit(&self, trim: impl Fn()) {
        let streams: Vec<Arc<Stream>> = {
            let NamedStreams { by_name, over, .. } = &mut *self.write();
            over.retain(|stream| stream.strong_count() > 0);
            let over = over.iter().filter_map(Weak::upgrade);
            by_name.values().cloned().chain(over).collect()
        };
        let shares = streams.iter().map(|stream| stream.memory().held()).collect();
        self.memory.divide(shares, || {
            streams.iter().for_each(|stream| stream.trim());
            trim();
        });
    }

    /// Returns the stream of this name, unless it has ended.
    pub fn get(&self, name: &str) -> Option<Arc<Stream>> {
        let streams = self.streams.read().unwrap_or_else(PoisonError::into_inner);
        streams.by_name.get(name).filter(|stream| stream.status() != Status::Ended).cloned()
    }

    /// Returns all streams, ordered by name.
    pub fn all(&self) -> Vec<Arc<Stream>> {
        let streams = self.streams.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = streams.by_name.values().cloned().collect();
        all.sort_by(|a, b| a.name().cmp(b.name()));
        all
    }

    /// Number of streams.
    pub fn len(&self) -> usize {
        self.streams.read().unwrap_or_else(PoisonError::into_inner).by_name.len()
    }

    /// Returns true without streams.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the sums over all streams, including ended ones. Activity of viewers after the end
    /// of a stream is not counted.
    pub fn totals(&self) -> Stats {
        let streams = self.streams.read().unwrap_or_else(PoisonError::into_inner);
        let mut totals = streams.past;
        streams.by_name.values().for_each(|stream| totals.add(&stream.stats()));
        totals
    }

    /// Returns the stream of this name, and creates it with `settings` if needed so that viewers
    /// can wait for its publisher. The caller limits the number of such streams.
    pub fn open(&self, name: &str, settings: Settings) -> Arc<Stream> {
        self.write().open(name, settings, &self.memory)
    }

    /// Starts to publish. Continues the existing stream if viewers wait for it or it lost its
    /// publisher.
    ///
    /// # Errors
    /// If the stream already has a publisher, or the limit of streams or memory is reached.
    pub fn publish(&self, name: &str, settings: Settings) -> Result<Publisher, Refusal> {
        let mut streams = self.write();
        let counts = |stream: &Arc<Stream>| stream.status() != Status::Waiting;
        let is_new = !streams.by_name.get(name).is_some_and(counts);
        let published = || streams.by_name.values().filter(|&stream| counts(stream)).count();
        if is_new && published() >= self.max_streams {
            return Err(Refusal::TooMany);
        }
        if is_new && self.memory.is_full() {
            self.memory.count(memory::Event::Refused);
            return Err(Refusal::NoMemory);
        }
        let stream = streams.open(name, settings, &self.memory);
        let number = stream.start().ok_or(Refusal::Busy)?;
        Ok(Publisher { stream, number })
    }

    /// Replaces publisher `number` of a stream and keeps the viewers. Further tags of the old
    /// publisher are rejected. Returns `None` if `number` is not the current publisher.
    pub fn take_over(&self, stream: &Arc<Stream>, number: u64) -> Option<Publisher> {
        let number = stream.replace(number)?;
        Some(Publisher { stream: stream.clone(), number })
    }

    fn write(&self) -> RwLockWriteGuard<'_, NamedStreams> {
        self.streams.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a stream. Its viewers receive the remaining tags, then the end.
    pub fn end(&self, stream: &Arc<Stream>) {
        self.end_since(stream, None);
    }

    /// Ends a stream that had no publisher since publisher `number`. Returns true if it has ended.
    pub fn end_after(&self, stream: &Arc<Stream>, number: u64) -> bool {
        self.end_since(stream, Some(number))
    }

    fn end_since(&self, stream: &Arc<Stream>, publishers: Option<u64>) -> bool {
        // Held throughout: nobody may open the stream between its end and its removal.
        let mut streams = self.write();
        let ended = stream.end(publishers);
        let known = streams.by_name.get(stream.name());
        if ended && known.is_some_and(|known| Arc::ptr_eq(known, stream)) {
            streams.by_name.remove(stream.name());
            streams.over.push(Arc::downgrade(stream));
            streams.past.add(&Stats { viewers: 0, ..stream.stats() });
        }
        ended
    }
}

/// The right to publish a stream. Dropping it interrupts the stream.
#[derive(Debug)]
pub struct Publisher {
    stream: Arc<Stream>,
    number: u64,
}

impl Publisher {
    /// Starts the timeline of a new stream at `start`, in wrapping milliseconds. Only differences
    /// between the publisher's timestamps are used then.
    ///
    /// Without this call, the first publisher's timestamps define the timeline, which servers that
    /// pull from the same upstream have in common.
    pub fn begin_at(&self, start: u32) {
        self.stream.begin_at(start);
    }

    /// Maps the publisher's time 0 to `base` in the stream's time, in wrapping milliseconds. Must
    /// be called before the publisher's first tag. Tags at times that the stream already has are
    /// dropped, so a base in the past costs the first group of pictures.
    pub fn align(&self, base: u32) {
        self.stream.align(base);
    }

    /// Appends a tag with the publisher's timestamp. Returns false if the stream rejects it.
    pub fn push(&self, tag: Tag) -> bool {
        self.stream.push(self.number, tag)
    }

    /// Whether the stream accepts tags of this publisher: it has neither ended nor another one.
    pub fn is_current(&self) -> bool {
        self.stream.has_publisher(self.number)
    }

    /// The stream.
    pub fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Number of this publisher, from 1, for [`Registry::end_after`].
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.stream.interrupt(self.number);
    }
}
