//! The publishing of an RTMP connection: a stream, or a ladder with a stream per video track.

use std::sync::Arc;
use std::task::{Context, Poll};

use media::tracks::other_track;
use media::{Kind, Tag};

use super::multitrack::LadderPublication;
use super::publish::{Rejection, end, lose, publish};
use super::pull::Via;
use crate::ladder;
use crate::live::{Admission, Dismissal, Publication};
use crate::state::State;

/// The right to publish a stream or ladder until it is dropped or lost.
pub(crate) enum Publishing {
    Stream(StreamPublication),
    Ladder(Box<LadderPublication>),
}

pub(crate) struct StreamPublication {
    publication: Publication,
    /// Whether the log has named a dropped audio track, and a dropped video track.
    has_reported: [bool; 2],
}

impl StreamPublication {
    /// Logs the first audio and video track that the stream drops.
    fn report(&mut self, tag: &Tag) {
        let (kind, advice) = match tag.kind() {
            Kind::Audio => ("audio", ""),
            Kind::Video => ("video", "; a [[ladder]] with multitrack = true takes all of them"),
            Kind::Script => return,
        };
        let has_reported = &mut self.has_reported[tag.kind() as usize];
        if !*has_reported && let Some(id) = other_track(tag) {
            *has_reported = true;
            let name = self.publication.publisher.stream().name();
            tracing::warn!("{name}: {kind} track {id} dropped: a stream has track 0 only{advice}");
        }
    }
}

impl Publishing {
    /// Starts to publish the stream or ladder `name`, which passed the servers of `via`.
    ///
    /// # Errors
    /// The reason, as text for the publisher's user.
    pub(crate) fn start(
        state: &Arc<State>,
        name: &str,
        admission: Admission,
        via: Via,
    ) -> Result<Self, Rejection> {
        if ladder::get(&state.config, name).is_some() {
            let publication = LadderPublication::start(state, name, admission, via)?;
            return Ok(Self::Ladder(Box::new(publication)));
        }
        let publication = publish(&state.live, &state.bans, &state.config, name, &admission)?;
        state.live.pushes.set_passed(name, via);
        Ok(Self::Stream(StreamPublication { publication, has_reported: [false; 2] }))
    }

    /// Returns the name of the stream or ladder.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Stream(stream) => stream.publication.publisher.stream().name(),
            Self::Ladder(ladder) => ladder.name(),
        }
    }

    /// Appends a tag with the publisher's timestamp.
    ///
    /// # Errors
    /// If the name is lost.
    pub(crate) fn push(&mut self, tag: Tag, state: &State) -> Result<(), Dismissal> {
        match self {
            Self::Stream(stream) => {
                stream.report(&tag);
                let Publication { publisher, .. } = &mut stream.publication;
                let is_accepted = publisher.push(tag, &state.live.repairs);
                if is_accepted { Ok(()) } else { Err(stream.publication.loss()) }
            }
            Self::Ladder(ladder) => ladder.push(tag),
        }
    }

    /// Waits until the name is lost.
    pub(crate) fn poll_lost(&mut self, context: &mut Context<'_>) -> Poll<Dismissal> {
        match self {
            Self::Stream(stream) => stream.publication.poll_lost(context),
            Self::Ladder(ladder) => ladder.poll_lost(context),
        }
    }

    /// Drops the publisher. Its streams end after `[live] linger`, unless a publisher returns.
    pub(crate) fn leave(self, state: &State) {
        match self {
            Self::Stream(StreamPublication { publication, .. }) => {
                lose(&state.live, publication.publisher, state.config.live.linger);
            }
            Self::Ladder(ladder) => ladder.leave(),
        }
    }

    /// Ends the publisher and its streams. Has no effect on streams that another publisher has
    /// taken over.
    pub(crate) fn end(self, state: &State) {
        match self {
            Self::Stream(StreamPublication { publication, .. }) => {
                end(&state.live, publication.publisher);
            }
            Self::Ladder(ladder) => ladder.end(),
        }
    }
}
