//! What an RTMP connection is for: to publish, to play, or nothing yet.

use std::sync::Arc;

use relay::Viewer;

use crate::live::{Dismissal, Held};
use crate::play;
use crate::sessions::{Opening, Session};

/// What a connection is for.
pub(super) enum Role {
    Nothing,
    Publishes(Held),
    /// To play as soon as it is known what there is.
    Waits(Box<Waiting>),
    Plays(Box<Player>),
}

/// A player whose stream has not begun.
pub(super) struct Waiting {
    pub(super) viewer: Viewer,
    pub(super) opening: Opening,
    pub(super) places: play::Places,
}

pub(super) struct Player {
    pub(super) viewer: Viewer,
    pub(super) session: Arc<Session>,
    pub(super) paused: bool,
    /// Whether it was told where its time 0 is in the stream's.
    pub(super) based: bool,
}

/// What a stream has for a player, or its publisher.
pub(super) enum Next {
    /// The kinds of media are known; `None` if the stream ended before.
    Kinds(Option<(bool, bool)>),
    /// A tag; `None` at the end of the stream, or of what the player may have of it.
    Tag(Option<media::Tag>),
    /// The publisher has lost its stream.
    Lost(Dismissal),
}
