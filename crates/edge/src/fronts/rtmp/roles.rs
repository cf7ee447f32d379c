//! The role of an RTMP connection: publisher, player, or none yet.

use std::sync::Arc;
use std::task::{Context, Poll};

use media::Tag;
use relay::Viewer;

use crate::fronts::BUNDLE;
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

/// Returns the tags that are available, usually a picture with the sound before it. They leave in
/// one write. Empty at the end of the stream.
pub(super) fn poll_tags(viewer: &mut Viewer, context: &mut Context<'_>) -> Poll<Vec<(Tag, u32)>> {
    let mut tags = Vec::new();
    let mut bytes = 0;
    while bytes < BUNDLE {
        match viewer.poll_next(context) {
            Poll::Ready(Some(tag)) => {
                bytes += tag.bytes().len();
                let time = viewer.own_time(&tag);
                tags.push((tag, time));
            }
            Poll::Pending if tags.is_empty() => return Poll::Pending,
            Poll::Ready(None) | Poll::Pending => break,
        }
    }
    Poll::Ready(tags)
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

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use media::Kind;
    use relay::{Registry, Settings, Start};

    use super::*;

    #[test]
    fn available_tags_leave_together_up_to_the_size_of_a_bundle() {
        let streams = Registry::new(1 << 24);
        let publisher = streams.publish("live/a", Settings::default()).expect("room");
        let frame = |time, len: usize| {
            let payload = [&[0xaf, 1][..], &vec![7; len]].concat();
            publisher.push(Tag::new(Kind::Audio, time, &payload).expect("short"));
        };
        publisher.push(Tag::new(Kind::Audio, 0, &[0xaf, 0, 0x12, 0x10]).expect("short"));
        let stream = streams.get("live/a").expect("published");
        let mut viewer = Viewer::new(stream, Start::LatestGop).expect("room");
        let mut context = Context::from_waker(Waker::noop());
        let mut poll = || match poll_tags(&mut viewer, &mut context) {
            Poll::Ready(tags) => Some(tags.iter().map(|(_, time)| *time).collect::<Vec<_>>()),
            Poll::Pending => None,
        };
        let _joined = poll();
        assert_eq!(poll(), None);
        (1..4).for_each(|n| frame(n * 20, 100));
        assert_eq!(poll().map(|times| times.len()), Some(3));
        assert_eq!(poll(), None);
        (4..8).for_each(|n| frame(n * 20, BUNDLE / 2));
        assert_eq!(poll().map(|times| times.len()), Some(2));
        assert_eq!(poll().map(|times| times.len()), Some(2));
        frame(200, 3 * BUNDLE);
        assert_eq!(poll().map(|times| times.len()), Some(1));
        assert_eq!(poll(), None);
    }
}
