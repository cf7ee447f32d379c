//! Server side: answers requests for segments through the product's HTTP/3 and delivery, as the
//! edge answers requests for files.

use core::task::{Context, Poll, Waker};
use std::io;

use bytes::{Buf as _, Bytes};
use delivery::{Body, Delivery, Filled, FlvStream, Piece};
use http3::OverQuic;
use quic::{Connection, Event};
use units::{StreamId, Timestamp};

use super::video::Video;
use crate::ends::{IDLE_TIMEOUT, pattern};

/// Maximum of bytes read for a response at once, as in the edge.
const READ: u64 = 64 << 10;

/// Rest of a segment.
struct Segment {
    pattern: Bytes,
    /// Position in the pattern.
    at: usize,
    /// Remaining bytes.
    left: u64,
}

impl Body for Segment {
    fn poll_fill(&mut self, _: &mut Context<'_>) -> Poll<io::Result<Option<Piece>>> {
        if self.left == 0 {
            return Poll::Ready(Ok(None));
        }
        let len = ((self.pattern.len() - self.at) as u64).min(self.left).min(READ) as usize;
        let piece = self.pattern.slice(self.at..self.at + len);
        self.at = (self.at + len) % self.pattern.len();
        self.left -= len as u64;
        Poll::Ready(Ok(Some(Bytes::new().chain(piece))))
    }

    fn live(&self) -> Option<&FlvStream> {
        None
    }

    fn is_over(&self) -> bool {
        self.left == 0
    }

    fn on_first_frame(&mut self) {}
}

/// A server of a video.
pub(crate) struct Origin {
    video: Video,
    http: http3::Server,
    pattern: Bytes,
    /// The response in transfer. The player requests one segment at a time.
    response: Option<Delivery<Segment>>,
    /// Size of the first segment, once requested.
    first: Option<u64>,
}

impl Origin {
    pub(crate) fn new(video: Video) -> Self {
        let config = http3::Config {
            request_timeout: IDLE_TIMEOUT,
            unused_timeout: IDLE_TIMEOUT,
            ..http3::Config::default()
        };
        let http = http3::Server::new(config);
        Self { video, http, pattern: pattern(), response: None, first: None }
    }

    /// Size of the first segment in bytes, once requested.
    pub(crate) fn first_size(&self) -> Option<u64> {
        self.first
    }

    /// Handles an event of the connection. Returns the number of requests that it completed.
    pub(crate) fn on_event(
        &mut self,
        now: Timestamp,
        connection: &mut Connection,
        event: Event,
    ) -> usize {
        let t = &mut OverQuic::new(connection, now);
        match event {
            Event::Ready => self.http.start(t),
            Event::Stream(event) => self.http.on_stream_event(t, event),
            _ => {}
        }
        let mut requests = 0;
        while let Some(event) = self.http.poll_event() {
            if let http3::Event::Request { id, head, .. } = event {
                self.respond(t, id, &head.path);
                requests += 1;
            }
        }
        requests
    }

    fn respond(&mut self, t: &mut OverQuic<'_>, id: StreamId, path: &[u8]) {
        let Some((rung, segment)) = self.video.parse(path) else {
            // The client may have cancelled the request.
            let _ = self.http.respond(t, id, 404, &[], true);
            return;
        };
        let left = self.video.size(rung, segment);
        let length = left.to_string();
        let fields = [("content-type", "video/iso.segment"), ("content-length", &length)];
        if self.http.respond(t, id, 200, &fields, false).is_ok() {
            self.first.get_or_insert(left);
            let at = Video::offset(rung, segment);
            let body = Segment { pattern: self.pattern.clone(), at, left };
            self.response = Some(Delivery::new(id, body));
        }
    }

    /// Writes as much as the connection accepts.
    pub(crate) fn fill(&mut self, now: Timestamp, connection: &mut Connection) {
        let Some(response) = &mut self.response else { return };
        let context = &mut Context::from_waker(Waker::noop());
        if response.fill(&mut self.http, now, connection, context) == Filled::Finished {
            self.response = None;
        }
    }
}
