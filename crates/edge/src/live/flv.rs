//! A live stream as the body of an HTTP response: an FLV file that has no end.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use media::{Role, flv};
use relay::Viewer;

use crate::sessions::Session;

/// What is left to send to one viewer.
#[derive(Debug)]
pub struct FlvBody {
    viewer: Viewer,
    session: Arc<Session>,
    started: bool,
    sound_alone: bool,
    has_frame: bool,
}

impl FlvBody {
    /// The whole body for this viewer.
    pub fn new(viewer: Viewer, session: Arc<Session>) -> Self {
        Self { viewer, session, started: false, sound_alone: false, has_frame: false }
    }

    /// The file header, then a tag at a time; `None` when the stream is over.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if !self.started {
            // Players allocate decoders by the header: it has to be right.
            let Some((audio, video)) = ready!(self.viewer.poll_kinds(context)) else {
                return Poll::Ready(None);
            };
            self.started = true;
            self.sound_alone = !video;
            return Poll::Ready(Some(flv::file_header(audio, video)));
        }
        let Some(tag) = ready!(self.viewer.poll_next(context)) else { return Poll::Ready(None) };
        let progress = self.viewer.progress();
        self.session.on_media(progress.bytes, progress.skips, progress.skipped_ms);
        // In a stream of sound alone, that is a frame of sound.
        self.has_frame |= match tag.role() {
            Role::KeyFrame => true,
            Role::AudioFrame => self.sound_alone,
            _ => false,
        };
        Poll::Ready(Some(tag.bytes().clone()))
    }

    /// Whether the first frame was handed out.
    pub fn has_frame(&self) -> bool {
        self.has_frame
    }

    /// The viewer's session.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }
}
