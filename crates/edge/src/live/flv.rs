//! A live stream as an HTTP response body, until the viewer's session ends.

use core::num::NonZeroU32;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use delivery::{FlvStream, Piece};
use relay::Viewer;

use crate::sessions::Session;

/// The FLV response body of one viewer.
#[derive(Debug)]
pub struct FlvBody {
    stream: FlvStream,
    session: Arc<Session>,
}

impl FlvBody {
    /// Creates the body of this viewer, with this number of video frames in the first frame.
    pub fn new(viewer: Viewer, session: Arc<Session>, frames: NonZeroU32) -> Self {
        Self { stream: FlvStream::new(viewer, frames), session }
    }

    /// Polls for the file header, then tags; `None` at the end of the stream or session.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Piece>> {
        if self.session.stay().poll_over(context).is_ready() {
            return Poll::Ready(None);
        }
        let piece = ready!(self.stream.poll_next(context));
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
