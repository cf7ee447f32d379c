//! The streams of a server by name, and who may publish to them.

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
/// let publisher = streams.publish("live/demo", Settings::default()).expect("nobody publishes it");
/// let stream = streams.get("live/demo").expect("it is there now");
/// let viewer = Viewer::new(stream, Start::LatestGop).expect("there is room");
/// assert_eq!(viewer.progress().tags, 0);
/// # drop(publisher);
/// ```
#[derive(Debug)]
pub struct Registry {
    max_streams: usize,
    memory: Arc<Memory>,
    streams: RwLock<Streams>,
}

#[derive(Debug, Default)]
struct Streams {
    by_name: HashMap<String, Arc<Stream>>,
    /// Those that are over, as long as somebody holds them.
    over: Vec<Weak<Stream>>,
    /// What happened in those that are over.
    past: Stats,
}

impl Streams {
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

/// Why somebody may not publish.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// The stream is being published.
    Busy,
    /// There are too many streams.
    TooMany,
    /// There is no memory for another stream.
    NoMemory,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => "the stream is being published already",
            Self::TooMany => "too many streams",
            Self::NoMemory => "no memory is left for another stream",
        })
    }
}

impl Registry {
    /// Room for `max_streams` streams that are or were published; those that viewers only wait for
    /// do not count.
    pub fn new(max_streams: usize) -> Self {
        Self { max_streams, memory: Arc::default(), streams: RwLock::default() }
    }

    /// What the streams keep, without a bound unless one is set there.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Has streams give up what is too much, if too much is held, and decides whether there is room for
    /// further ones. To be called when [`Memory::poll_pressed`] says so, and now and then. `trim`
    /// has others who keep media of streams look at their accounts.
    pub fn keep_within_memory(&self, trim: impl Fn()) {
        let streams: Vec<Arc<Stream>> = {
            let Streams { by_name, over, .. } = &mut *self.write();
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

    /// The stream of this name, unless it is over.
    pub fn get(&self, name: &str) -> Option<Arc<Stream>> {
        let streams = self.streams.read().unwrap_or_else(PoisonError::into_inner);
        streams.by_name.get(name).filter(|stream| stream.status() != Status::Ended).cloned()
    }

    /// All streams, ordered by name.
    pub fn all(&self) -> Vec<Arc<Stream>> {
        let streams = self.streams.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = streams.by_name.values().cloned().collect();
        all.sort_by(|a, b| a.name().cmp(b.name()));
        all
    }

    /// How many streams there are.
    pub fn len(&self) -> usize {
        self.streams.read().unwrap_or_else(PoisonError::into_inner).by_name.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What happened in all streams so far, those that are over included. A stream's counts are taken
    /// when it ends: what its last viewers do after that is in none.
    pub fn totals(&self) -> Stats {
        let streams = self.streams.read().unwrap_or_else(PoisonError::into_inner);
        let mut totals = streams.past;
        streams.by_name.values().for_each(|stream| totals.add(&stream.stats()));
        totals
    }

    /// The stream of this name, made with `settings` if there is none: viewers may wait for it
    /// before it is published. The caller bounds how many streams wait so.
    pub fn open(&self, name: &str, settings: Settings) -> Arc<Stream> {
        self.write().open(name, settings, &self.memory)
    }

    /// Starts to publish the stream of this name; where viewers wait or a publisher was lost, it is
    /// the same stream that goes on.
    ///
    /// # Errors
    /// Somebody publishes it already, or there are too many streams, or no memory for another.
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

    /// Starts to publish a stream in place of its publisher number `number`, whose tags are taken no
    /// more; the viewers stay. `None` if that one does not publish it any more.
    pub fn take_over(&self, stream: &Arc<Stream>, number: u64) -> Option<Publisher> {
        let number = stream.replace(number)?;
        Some(Publisher { stream: stream.clone(), number })
    }

    fn write(&self) -> RwLockWriteGuard<'_, Streams> {
        self.streams.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a stream: its viewers get what is left and then the end.
    pub fn end(&self, stream: &Arc<Stream>) {
        self.end_since(stream, None);
    }

    /// Ends a stream that nobody has published since publisher number `number`. Returns whether it
    /// is over.
    pub fn end_after(&self, stream: &Arc<Stream>, number: u64) -> bool {
        self.end_since(stream, Some(number))
    }

    fn end_since(&self, stream: &Arc<Stream>, publishers: Option<u64>) -> bool {
        // The lock is held meanwhile, so that nobody opens the stream between its end and its
        // removal.
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

/// The right to publish a stream, until it is dropped; then the stream is interrupted.
#[derive(Debug)]
pub struct Publisher {
    stream: Arc<Stream>,
    number: u64,
}

impl Publisher {
    /// The stream's time begins at `start` (milliseconds, which wrap), if it has not begun, and the
    /// publisher's own times say only how far its tags are apart. Without this, the stream's time is
    /// its first publisher's own, which is what servers that pull the same upstream share.
    pub fn begin_at(&self, start: u32) {
        self.stream.begin_at(start);
    }

    /// Appends a tag with the publisher's own time. Returns whether the stream still takes it.
    pub fn push(&self, tag: Tag) -> bool {
        self.stream.push(self.number, tag)
    }

    /// The stream.
    pub fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Which publisher of the stream this is, from 1: for [`Registry::end_after`].
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.stream.interrupt(self.number);
    }
}
