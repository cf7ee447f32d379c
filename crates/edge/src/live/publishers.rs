//! Publishers with a connection of their own, by stream, so that another publisher can take over.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};

use aws_lc_rs::digest::{Digest, SHA256, digest};
use relay::{Publisher, Refusal, Registry, Stream};
use tokio::sync::oneshot;

use crate::ingest::PublisherInput;
use crate::sync::lock;

/// Reason why a publisher lost its stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dismissal {
    /// Another publisher took it over.
    TakenOver,
    /// The operator ended it.
    Ended,
}

/// The active publishers, by stream.
#[derive(Debug, Default)]
pub struct ActivePublishers(Mutex<HashMap<String, ActivePublisher>>);

/// The active publisher of a stream.
#[derive(Debug)]
pub struct ActivePublisher {
    stream: Weak<Stream>,
    number: u64,
    /// Digest of its key. Keys are not stored.
    key: Option<Digest>,
    lost: oneshot::Sender<Dismissal>,
}

impl ActivePublisher {
    /// Returns true if this key authorized the publisher; false without a key.
    pub fn has_key(&self, key: Option<&str>) -> bool {
        let known = self.key.as_ref().map(Digest::as_ref);
        known.is_some() && known == key.map(sha256).as_ref().map(Digest::as_ref)
    }

    /// Takes its stream over; `None` if it no longer publishes.
    pub fn replace(&self, streams: &Registry) -> Option<Publisher> {
        streams.take_over(&self.stream.upgrade()?, self.number)
    }
}

fn sha256(key: &str) -> Digest {
    digest(&SHA256, key.as_bytes())
}

/// The right to publish a stream until it is dropped or lost.
#[derive(Debug)]
pub struct Publication {
    /// The publisher.
    pub publisher: PublisherInput,
    lost: oneshot::Receiver<Dismissal>,
}

impl Publication {
    /// Waits until the stream is lost. Must not be polled again after completion.
    pub fn poll_lost(&mut self, context: &mut Context<'_>) -> Poll<Dismissal> {
        Pin::new(&mut self.lost).poll(context).map(|loss| loss.unwrap_or(Dismissal::TakenOver))
    }

    /// Returns why the stream rejects further tags. An alternative to [`Publication::poll_lost`].
    pub fn loss(&mut self) -> Dismissal {
        // A take-over happens before its notification is sent.
        self.lost.try_recv().unwrap_or(Dismissal::TakenOver)
    }
}

impl ActivePublishers {
    /// Registers the publisher of `name`, authorized by `key`, if `publish` accepts it. `publish`
    /// gets the previous publisher, which is notified if it loses the stream.
    ///
    /// # Errors
    /// As `publish`.
    pub fn publish_as(
        &self,
        name: &str,
        key: Option<&str>,
        publish: impl FnOnce(Option<&ActivePublisher>) -> Result<Publisher, Refusal>,
    ) -> Result<Publication, Refusal> {
        // The lock covers `publish`, so that the key compared belongs to the replaced publisher.
        let mut active = lock(&self.0);
        active.retain(|_, holder| !holder.lost.is_closed());
        let publisher = publish(active.get(name))?;
        let (sender, lost) = oneshot::channel();
        let stream = Arc::downgrade(publisher.stream());
        let (number, key) = (publisher.number(), key.map(sha256));
        let new = ActivePublisher { stream, number, key, lost: sender };
        if let Some(previous) = active.insert(name.to_owned(), new) {
            // It may have left on its own.
            let _ = previous.lost.send(Dismissal::TakenOver);
        }
        Ok(Publication { publisher: PublisherInput::new(publisher), lost })
    }

    /// Notifies the publisher of `name` that the operator ended its stream. Returns false if there
    /// is none.
    pub fn end(&self, name: &str) -> bool {
        let publisher = lock(&self.0).remove(name);
        publisher.is_some_and(|publisher| publisher.lost.send(Dismissal::Ended).is_ok())
    }
}
