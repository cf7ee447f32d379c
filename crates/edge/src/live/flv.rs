//! A live stream as the body of an HTTP response: an FLV file that has no end.
//!
//! Its times are the viewer's own and begin near 0. Where that is in the stream's time, a script tag
//! before the first frame says ([`media::flv::time_base_tag`]), for servers that pull the stream.

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::buf::Chain;
use bytes::{Buf as _, Bytes, BytesMut};
use media::{Role, Tag, flv};
use relay::Viewer;
use units::{Mark, Timestamp};

use crate::sessions::Session;

/// A piece of a body: what is this viewer's own, then what viewers share. Not both are empty.
pub type Piece = Chain<Bytes, Bytes>;

/// What is left to send to one viewer.
#[derive(Debug)]
pub struct FlvBody {
    viewer: Viewer,
    session: Arc<Session>,
    started: bool,
    /// Bytes of the tag that says where the viewer's times begin; 0 before it was sent.
    base: u64,
    sound_alone: bool,
    has_frame: bool,
    /// Where the tag that was handed out last stands on the viewer's time line.
    media_time: Option<Duration>,
}

impl FlvBody {
    /// The whole body for this viewer, for as long as its session may go on.
    pub fn new(viewer: Viewer, session: Arc<Session>) -> Self {
        Self {
            viewer,
            session,
            started: false,
            base: 0,
            sound_alone: false,
            has_frame: false,
            media_time: None,
        }
    }

    /// The file header, then tags; `None` when the stream is over.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Piece>> {
        if self.session.stay().poll_over(context).is_ready() {
            return Poll::Ready(None);
        }
        if !self.started {
            // Players allocate decoders by the header: it has to be right.
            let Some((audio, video)) = ready!(self.viewer.poll_kinds(context)) else {
                return Poll::Ready(None);
            };
            self.started = true;
            self.sound_alone = !video;
            return Poll::Ready(Some(flv::file_header(audio, video).chain(Bytes::new())));
        }
        let Some(tag) = ready!(self.viewer.poll_next(context)) else { return Poll::Ready(None) };
        // In a stream of sound alone, that is a frame of sound.
        self.has_frame |= match tag.role() {
            Role::KeyFrame => true,
            Role::AudioFrame => self.sound_alone,
            _ => false,
        };
        let piece = self.piece(&tag);
        let progress = self.viewer.progress();
        let bytes = progress.bytes + self.base;
        self.session.on_media(bytes, progress.skips, progress.skipped_ms);
        Poll::Ready(Some(piece))
    }

    /// A tag at the viewer's time, behind the base of times if that is due.
    fn piece(&mut self, tag: &Tag) -> Piece {
        let time = self.viewer.own_time(tag);
        self.media_time = Some(Duration::from_millis(time.into()));
        let mut own = BytesMut::new();
        if let Some(origin) = self.viewer.origin().filter(|_| self.base == 0) {
            own.extend_from_slice(flv::time_base_tag(origin).bytes());
            self.base = own.len() as u64;
        }
        let (header, rest) = tag.at(time);
        own.extend_from_slice(&header);
        own.freeze().chain(rest)
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
