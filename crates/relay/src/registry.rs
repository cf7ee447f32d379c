//! The streams of a server by name, and who may publish to them.

use core::fmt;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use media::Tag;

use crate::stream::{Settings, Status, Stream};

/// All streams of a server.
#[derive(Debug)]
pub struct Registry {
    max_streams: usize,
    streams: RwLock<HashMap<String, Arc<Stream>>>,
}

/// Why somebody may not publish.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// The stream is being published.
    Busy,
    /// There are too many streams.
    TooMany,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => "the stream is being published already",
            Self::TooMany => "too many streams",
        })
    }
}

impl Registry {
    /// Room for `max_streams` streams.
    pub fn new(max_streams: usize) -> Self {
        Self { max_streams, streams: RwLock::default() }
    }

    /// The stream of this name, unless it is over.
    pub fn get(&self, name: &str) -> Option<Arc<Stream>> {
        let streams = self.streams.read().unwrap_or_else(PoisonError::into_inner);
        streams.get(name).filter(|stream| stream.status() != Status::Ended).cloned()
    }

    /// All streams, ordered by name.
    pub fn all(&self) -> Vec<Arc<Stream>> {
        let streams = self.streams.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = streams.values().cloned().collect();
        all.sort_by(|a, b| a.name().cmp(b.name()));
        all
    }

    /// The stream of this name, made with `settings` if there is none: viewers may wait for it
    /// before it is published.
    ///
    /// # Errors
    /// There are too many.
    pub fn open(&self, name: &str, settings: Settings) -> Result<Arc<Stream>, Refusal> {
        let mut streams = self.streams.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(stream) = streams.get(name).filter(|stream| stream.status() != Status::Ended) {
            return Ok(stream.clone());
        }
        if streams.len() >= self.max_streams {
            return Err(Refusal::TooMany);
        }
        let stream = Arc::new(Stream::new(name, settings));
        streams.insert(name.to_owned(), stream.clone());
        Ok(stream)
    }

    /// Starts to publish the stream of this name; where viewers wait or a publisher was lost, it is
    /// the same stream that goes on.
    ///
    /// # Errors
    /// Somebody publishes it already, or there are too many streams.
    pub fn publish(&self, name: &str, settings: Settings) -> Result<Publisher, Refusal> {
        let stream = self.open(name, settings)?;
        let number = stream.start().ok_or(Refusal::Busy)?;
        Ok(Publisher { stream, number })
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
        let mut streams = self.streams.write().unwrap_or_else(PoisonError::into_inner);
        let ended = stream.end(publishers);
        if ended && streams.get(stream.name()).is_some_and(|known| Arc::ptr_eq(known, stream)) {
            streams.remove(stream.name());
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
