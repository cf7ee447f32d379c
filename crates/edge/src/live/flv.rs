//! A live stream as the body of an HTTP response: an FLV file that has no end.

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use media::{Role, flv};
use relay::Viewer;
use units::{Mark, Timestamp};

use crate::sessions::Session;

/// What is left to send to one viewer.
#[derive(Debug)]
pub struct FlvBody {
    viewer: Viewer,
    session: Arc<Session>,
    started: bool,
    sound_alone: bool,
    has_frame: bool,
    /// Where the tag that was handed out last stands on the media's time line.
    media_time: Option<Duration>,
    /// When the permission to play ends.
    until: Option<SystemTime>,
}

impl FlvBody {
    /// The whole body for this viewer, which ends at `until`.
    pub fn new(viewer: Viewer, session: Arc<Session>, until: Option<SystemTime>) -> Self {
        Self {
            viewer,
            session,
            started: false,
            sound_alone: false,
            has_frame: false,
            media_time: None,
            until,
        }
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
        if self.until.is_some_and(|until| SystemTime::now() > until) {
            return Poll::Ready(None);
        }
        let Some(tag) = ready!(self.viewer.poll_next(context)) else { return Poll::Ready(None) };
        let progress = self.viewer.progress();
        self.session.on_media(progress.bytes, progress.skips, progress.skipped_ms);
        self.media_time = Some(Duration::from_millis(tag.timestamp().into()));
        // In a stream of sound alone, that is a frame of sound.
        self.has_frame |= match tag.role() {
            Role::KeyFrame => true,
            Role::AudioFrame => self.sound_alone,
            _ => false,
        };
        Poll::Ready(Some(tag.bytes().clone()))
    }

    /// What loss recovery gets to know of the data that was handed out last: its place on the time line,
    /// and until when it is of use, which is known from players that report their buffer.
    pub fn mark(&self, now: Timestamp) -> Option<Mark> {
        let deadline = self.session.slack().map(|slack| now + slack);
        self.media_time.map(|media_time| Mark { media_time, deadline })
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
