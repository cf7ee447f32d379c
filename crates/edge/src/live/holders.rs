//! Who publishes which stream over a connection of its own, so that another one can take its place.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};

use aws_lc_rs::digest::{Digest, SHA256, digest};
use relay::{Publisher, Refusal, Registry, Stream};
use tokio::sync::oneshot;

use crate::ingest::Entry;
use crate::sync::lock;

/// Why a publisher has lost its stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dismissal {
    /// Another publisher has taken it over.
    TakenOver,
    /// The operator has ended it.
    Ended,
}

/// The publishers of the process that came by themselves, by stream.
#[derive(Debug, Default)]
pub struct Holders(Mutex<HashMap<String, Holder>>);

/// Who publishes a stream.
#[derive(Debug)]
pub struct Holder {
    stream: Weak<Stream>,
    number: u64,
    /// The digest of its key: keys are not kept.
    key: Option<Digest>,
    lost: oneshot::Sender<Dismissal>,
}

impl Holder {
    /// Whether the publisher was let in by this key; never without one.
    pub fn has_key(&self, key: Option<&str>) -> bool {
        let known = self.key.as_ref().map(Digest::as_ref);
        known.is_some() && known == key.map(sha256).as_ref().map(Digest::as_ref)
    }

    /// Takes its stream over; `None` if it publishes no more.
    pub fn replace(&self, streams: &Registry) -> Option<Publisher> {
        streams.take_over(&self.stream.upgrade()?, self.number)
    }
}

fn sha256(key: &str) -> Digest {
    digest(&SHA256, key.as_bytes())
}

/// The right to publish a stream until it is dropped or lost.
#[derive(Debug)]
pub struct Held {
    /// The publisher.
    pub publisher: Entry,
    lost: oneshot::Receiver<Dismissal>,
}

impl Held {
    /// Waits until the stream is lost. Not to be asked again after that.
    pub fn poll_lost(&mut self, context: &mut Context<'_>) -> Poll<Dismissal> {
        Pin::new(&mut self.lost).poll(context).map(|loss| loss.unwrap_or(Dismissal::TakenOver))
    }

    /// Why the stream takes no more tags. Instead of [`Held::poll_lost`].
    pub fn loss(&mut self) -> Dismissal {
        // One who takes over does so before it says so.
        self.lost.try_recv().unwrap_or(Dismissal::TakenOver)
    }
}

impl Holders {
    /// Notes who publishes `name` with the key that let it in, if `publish` lets it. That is handed the
    /// one who held the stream last, who is told if it is another one's then.
    ///
    /// # Errors
    /// Those of `publish`.
    pub fn hold(
        &self,
        name: &str,
        key: Option<&str>,
        publish: impl FnOnce(Option<&Holder>) -> Result<Publisher, Refusal>,
    ) -> Result<Held, Refusal> {
        // One at a time, so that each finds the key of the very publisher that it replaces.
        let mut holders = lock(&self.0);
        holders.retain(|_, holder| !holder.lost.is_closed());
        let publisher = publish(holders.get(name))?;
        let (told, lost) = oneshot::channel();
        let stream = Arc::downgrade(publisher.stream());
        let (number, key) = (publisher.number(), key.map(sha256));
        let holder = Holder { stream, number, key, lost: told };
        if let Some(last) = holders.insert(name.to_owned(), holder) {
            // It may be gone by itself meanwhile.
            let _ = last.lost.send(Dismissal::TakenOver);
        }
        Ok(Held { publisher: Entry::new(publisher), lost })
    }

    /// Tells the publisher of `name` that the operator ends its stream. Returns whether there is one.
    pub fn end(&self, name: &str) -> bool {
        let holder = lock(&self.0).remove(name);
        holder.is_some_and(|holder| holder.lost.send(Dismissal::Ended).is_ok())
    }
}
