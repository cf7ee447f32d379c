//! A live stream as the body of an HTTP response: an FLV file that has no end.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use media::flv;
use relay::Viewer;

/// What is left to send to one viewer.
#[derive(Debug)]
pub struct FlvBody {
    viewer: Viewer,
    started: bool,
}

impl FlvBody {
    /// The whole body for this viewer.
    pub fn new(viewer: Viewer) -> Self {
        Self { viewer, started: false }
    }

    /// The file header, then a tag at a time; `None` when the stream is over.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if !self.started {
            // Players allocate decoders by the header: it has to be right.
            let Some((audio, video)) = ready!(self.viewer.poll_kinds(context)) else {
                return Poll::Ready(None);
            };
            self.started = true;
            return Poll::Ready(Some(flv::file_header(audio, video)));
        }
        self.viewer.poll_next(context).map(|tag| tag.map(|tag| tag.bytes().clone()))
    }
}
