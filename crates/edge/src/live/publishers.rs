//! Publishers with a connection of their own, by name, so that another publisher can take over.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};

use aws_lc_rs::digest::{Digest, SHA256, digest};
use relay::{Publisher, Refusal, Registry, Stream};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use crate::config::TakeOver;
use crate::hooks::Grant;
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

/// The grounds on which a publisher was admitted. They decide about take-overs.
#[derive(Clone, Debug)]
pub struct Admission {
    /// Digest of its key. Keys are not stored.
    key: Option<Digest>,
    grant: Grant,
}

impl Admission {
    /// Creates the admission of a publisher with this key, if a rule required one.
    pub fn new(key: Option<&str>, grant: Grant) -> Self {
        Self { key: key.map(|key| digest(&SHA256, key.as_bytes())), grant }
    }

    /// Whether this publisher may replace one that was admitted by `other`.
    fn may_replace(&self, other: &Self, take_over: TakeOver) -> bool {
        let [own, known] =
            [self, other].map(|admission| admission.key.as_ref().map(Digest::as_ref));
        match take_over {
            TakeOver::Refuse => false,
            TakeOver::SameKey => self.grant == Grant::Hook || own.is_some() && own == known,
        }
    }
}

/// The active publishers, by the name of their stream or ladder.
#[derive(Debug, Default)]
pub struct ActivePublishers(Mutex<HashMap<String, ActivePublisher>>);

#[derive(Debug)]
struct ActivePublisher {
    /// Its stream and number; `None` for a ladder, whose tracks are streams.
    stream: Option<(Weak<Stream>, u64)>,
    admission: Admission,
    lost: oneshot::Sender<Dismissal>,
}

impl ActivePublisher {
    /// Takes its stream over; `None` if it no longer publishes.
    fn replace(&self, streams: &Registry) -> Option<Publisher> {
        let (stream, number) = self.stream.as_ref()?;
        streams.take_over(&stream.upgrade()?, *number)
    }
}

/// The right to publish under a name until it is dropped or lost.
#[derive(Debug)]
pub struct Claim {
    lost: oneshot::Receiver<Dismissal>,
    loss: Option<Dismissal>,
}

impl Claim {
    /// Waits until the name is lost.
    pub fn poll_lost(&mut self, context: &mut Context<'_>) -> Poll<Dismissal> {
        if self.loss.is_none() {
            let Poll::Ready(loss) = Pin::new(&mut self.lost).poll(context) else {
                return Poll::Pending;
            };
            self.loss = Some(loss.unwrap_or(Dismissal::TakenOver));
        }
        self.loss.map_or(Poll::Pending, Poll::Ready)
    }

    /// Returns the loss, if the name is lost.
    pub fn loss(&mut self) -> Option<Dismissal> {
        if self.loss.is_none() {
            self.loss = match self.lost.try_recv() {
                Ok(loss) => Some(loss),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Closed) => Some(Dismissal::TakenOver),
            };
        }
        self.loss
    }
}

/// The right to publish a stream until it is dropped or lost.
#[derive(Debug)]
pub struct Publication {
    /// The publisher.
    pub publisher: PublisherInput,
    claim: Claim,
}

impl Publication {
    /// Waits until the stream is lost.
    pub fn poll_lost(&mut self, context: &mut Context<'_>) -> Poll<Dismissal> {
        self.claim.poll_lost(context)
    }

    /// Returns why the stream rejects further tags. An alternative to [`Publication::poll_lost`].
    pub fn loss(&mut self) -> Dismissal {
        // A take-over happens before its notification is sent.
        self.claim.loss().unwrap_or(Dismissal::TakenOver)
    }
}

impl ActivePublishers {
    /// Registers the publisher of stream `name`, if the stream accepts it or `take_over` lets it
    /// replace the current publisher, which is then notified. `start` asks the stream. A track of
    /// a ladder is rejected once its `ladder` is lost.
    ///
    /// # Errors
    /// As `start`, or [`Refusal::Busy`].
    pub fn publish_as(
        &self,
        name: &str,
        admission: &Admission,
        (streams, take_over): (&Registry, TakeOver),
        ladder: Option<&mut Claim>,
        start: impl FnOnce() -> Result<Publisher, Refusal>,
    ) -> Result<Publication, Refusal> {
        // The lock covers `start`, so that the key compared belongs to the replaced publisher, and
        // a publisher that is being replaced takes no track back.
        let mut active = lock(&self.0);
        if ladder.is_some_and(|ladder| ladder.loss().is_some()) {
            return Err(Refusal::Busy);
        }
        active.retain(|_, holder| !holder.lost.is_closed());
        let publisher = match start() {
            Err(Refusal::Busy) => {
                let previous = active.get(name);
                let may_replace = |previous: &&ActivePublisher| {
                    admission.may_replace(&previous.admission, take_over)
                };
                let replaced = previous.filter(may_replace);
                replaced.and_then(|previous| previous.replace(streams)).ok_or(Refusal::Busy)?
            }
            other => other?,
        };
        let stream = Some((Arc::downgrade(publisher.stream()), publisher.number()));
        let claim = register(&mut active, name, stream, admission);
        Ok(Publication { publisher: PublisherInput::new(publisher), claim })
    }

    /// Registers the publisher of a ladder, unless the ladder has one that it may not replace.
    /// A replaced publisher is notified.
    ///
    /// # Errors
    /// [`Refusal::Busy`].
    pub fn claim(
        &self,
        ladder: &str,
        admission: &Admission,
        take_over: TakeOver,
    ) -> Result<Claim, Refusal> {
        let mut active = lock(&self.0);
        active.retain(|_, holder| !holder.lost.is_closed());
        let is_busy =
            |previous: &ActivePublisher| !admission.may_replace(&previous.admission, take_over);
        if active.get(ladder).is_some_and(is_busy) {
            return Err(Refusal::Busy);
        }
        Ok(register(&mut active, ladder, None, admission))
    }

    /// Notifies the publisher of `name` that the operator ended it. Returns false if there is none.
    pub fn end(&self, name: &str) -> bool {
        let publisher = lock(&self.0).remove(name);
        publisher.is_some_and(|publisher| publisher.lost.send(Dismissal::Ended).is_ok())
    }

    /// Whether `name` has a publisher.
    pub fn has(&self, name: &str) -> bool {
        lock(&self.0).get(name).is_some_and(|publisher| !publisher.lost.is_closed())
    }
}

fn register(
    active: &mut HashMap<String, ActivePublisher>,
    name: &str,
    stream: Option<(Weak<Stream>, u64)>,
    admission: &Admission,
) -> Claim {
    let (sender, lost) = oneshot::channel();
    let new = ActivePublisher { stream, admission: admission.clone(), lost: sender };
    if let Some(previous) = active.insert(name.to_owned(), new) {
        // It may have left on its own.
        let _ = previous.lost.send(Dismissal::TakenOver);
    }
    Claim { lost, loss: None }
}
