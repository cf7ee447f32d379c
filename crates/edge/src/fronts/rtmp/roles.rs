//! The role of an RTMP connection: publisher, player, or none yet.

use std::sync::Arc;
use std::task::{Context, Poll};

use media::Tag;
use relay::Viewer;

use crate::ingest::Publishing;
use crate::live::Dismissal;
use crate::play;
use crate::sessions::{Opening, Session};

/// Size in bytes at which a player's bundle is complete.
const BUNDLE: usize = 64 * 1024;

/// The role of a connection.
pub(super) enum RtmpRole {
    Nothing,
    Publishes(Publishing),
    /// A player that waits for the stream's kinds of media.
    Waits(Box<Waiting>),
    Plays(Box<RtmpPlayer>),
}

/// A player that waits for its stream to start.
pub(super) struct Waiting {
    pub(super) viewer: Viewer,
    pub(super) opening: Opening,
    pub(super) permits: play::SessionPermits,
}

pub(super) struct RtmpPlayer {
    pub(super) viewer: Viewer,
    pub(super) session: Arc<Session>,
    pub(super) paused: bool,
    /// Whether the player knows its time origin within the stream.
    pub(super) based: bool,
}

impl RtmpPlayer {
    /// Returns the tags that are available, usually a picture with the sound before it. They leave
    /// in one write. None at the end of the stream.
    pub(super) fn poll_tags(&mut self, context: &mut Context<'_>) -> Poll<Vec<(Tag, u32)>> {
        let mut tags = Vec::new();
        let mut bytes = 0;
        while bytes < BUNDLE {
            match self.viewer.poll_next(context) {
                Poll::Ready(Some(tag)) => {
                    bytes += tag.bytes().len();
                    let time = self.viewer.own_time(&tag);
                    tags.push((tag, time));
                }
                Poll::Pending if tags.is_empty() => return Poll::Pending,
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        Poll::Ready(tags)
    }
}

/// An event of the stream for its player or publisher.
pub(super) enum RoleEvent {
    /// The kinds of media are known; `None` if the stream ended before.
    Kinds(Option<(bool, bool)>),
    /// Tags with their timestamps; none at the end of the stream or of the player's session.
    Tags(Vec<(Tag, u32)>),
    /// The publisher has lost its stream.
    Lost(Dismissal),
}
