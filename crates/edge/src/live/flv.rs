//! A live stream as an HTTP response body, until the viewer's session ends.

use core::num::NonZeroU32;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Buf as _;
use delivery::{FlvStream, Piece};
use relay::Viewer;
use units::Rate;

use super::RenditionFollower;
use crate::sessions::Session;

/// The FLV response body of one viewer.
#[derive(Debug)]
pub struct FlvBody {
    stream: FlvStream,
    session: Arc<Session>,
    /// Set for viewers of a ladder.
    follower: Option<Box<RenditionFollower>>,
}

impl FlvBody {
    /// Creates the body of this viewer, with this number of video frames in the first frame.
    pub fn new(viewer: Viewer, session: Arc<Session>, frames: NonZeroU32) -> Self {
        Self { stream: FlvStream::new(viewer, frames), session, follower: None }
    }

    /// Sets the rule for the viewer's changes between renditions.
    pub(crate) fn following(self, follower: RenditionFollower) -> Self {
        Self { follower: Some(Box::new(follower)), ..self }
    }

    /// Handles a measurement of the path.
    pub(crate) fn on_path_rate(&mut self, rate: Rate) {
        if let Some(follower) = &mut self.follower {
            follower.on_path(rate);
        }
    }

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Piece>> {
        let Self { stream, follower, .. } = self;
        let Some(follower) = follower else { return stream.poll_next(context) };
        ready!(follower.poll_change(stream.viewer_mut(), context));
        let mut polled = stream.poll_next(context);
        if !matches!(polled, Poll::Ready(Some(_))) && follower.replace_lost(stream.viewer_mut()) {
            polled = stream.poll_next(context);
        }
        follower.on_polled(match &polled {
            Poll::Ready(Some(piece)) => Some(piece.remaining()),
            _ => None,
        });
        polled
    }

    /// Polls for the file header, then tags; `None` at the end of the stream or session.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Piece>> {
        if self.session.stay().poll_over(context).is_ready() {
            return Poll::Ready(None);
        }
        let piece = ready!(self.poll_piece(context));
        let progress = self.stream.progress();
        if progress.tags > 0 {
            self.session.on_media(&progress);
        }
        if let Some(bytes) = self.stream.first_frame_bytes() {
            self.session.on_first_frame_bytes(bytes);
        }
        Poll::Ready(piece)
    }

    /// Returns the stream.
    pub fn stream(&self) -> &FlvStream {
        &self.stream
    }

    /// Returns the viewer's session.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }
}
