//! The role of an RTMP connection: publisher, player, or none yet.

use std::sync::Arc;

use relay::Viewer;

use crate::ingest::Publishing;
use crate::live::Dismissal;
use crate::play;
use crate::sessions::{Opening, Session};

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

/// An event of the stream for its player or publisher.
pub(super) enum RoleEvent {
    /// The kinds of media are known; `None` if the stream ended before.
    Kinds(Option<(bool, bool)>),
    /// A tag; `None` at the end of the stream or of the player's session.
    Tag(Option<media::Tag>),
    /// The publisher has lost its stream.
    Lost(Dismissal),
}
