//! HTTP/0.9 over QUIC (ALPN `hq-interop`) for interoperability tests: one request line per stream.
//!
//! The connection is closed if a line is slow or too long, or if it stays without requests.

use core::time::Duration;
use std::collections::VecDeque;

use ::quic::Connection;
use ::quic::streams::{ReadOutcome, StreamEvent};
use bytes::BytesMut;
use delivery::{Framing, Piece};
use http3::{OverQuic, Transport as _, code};
use units::{Direction, StreamId, Timestamp};

use super::application::{Application, ClientAction, ReceivedRequest};
use crate::http::Response;
use crate::viewer::Protocol;

/// Maximum length of a request line, in bytes.
const MAX_LINE: usize = 4_096;
/// Maximum bytes of incomplete lines per connection.
const MAX_LINES: usize = 64 * 1024;

/// An incomplete request line.
#[derive(Debug)]
struct RequestLine {
    id: StreamId,
    since: Timestamp,
    text: Vec<u8>,
}

/// HTTP/0.9 on one connection.
pub(super) struct Http09 {
    /// In order of arrival.
    lines: Vec<RequestLine>,
    actions: VecDeque<ClientAction>,
    /// Number of open request streams.
    open: usize,
    last_use: Timestamp,
    request_timeout: Duration,
    unused_timeout: Duration,
    is_closed: bool,
}

impl Http09 {
    /// Creates the state of a new connection. `request_timeout` limits the time per line,
    /// `unused_timeout` the time without requests.
    pub(super) fn new(now: Timestamp, request_timeout: Duration, unused_timeout: Duration) -> Self {
        Self {
            lines: Vec::new(),
            actions: VecDeque::new(),
            open: 0,
            last_use: now,
            request_timeout,
            unused_timeout,
            is_closed: false,
        }
    }

    fn on_readable(&mut self, now: Timestamp, connection: &mut Connection, id: StreamId) {
        let place = self.lines.iter().position(|line| line.id == id).unwrap_or_else(|| {
            self.lines.push(RequestLine { id, since: now, text: Vec::new() });
            self.lines.len() - 1
        });
        loop {
            let text = &mut self.lines[place].text;
            match connection.read(id, MAX_LINE) {
                Ok(ReadOutcome::Data(data)) => text.extend_from_slice(&data),
                Ok(ReadOutcome::Finished) => break,
                // Other ends of a stream are reported by a separate event.
                Ok(ReadOutcome::Blocked | ReadOutcome::Reset(_)) | Err(_) => return,
            }
            let is_long = text.len() > MAX_LINE;
            if is_long || self.lines.iter().map(|line| line.text.len()).sum::<usize>() > MAX_LINES {
                self.close(now, connection, code::H3_EXCESSIVE_LOAD, "request lines are too long");
                return;
            }
        }
        let line = self.lines.remove(place);
        let line = String::from_utf8_lossy(&line.text);
        let request = ReceivedRequest {
            method: "GET".to_owned(),
            authority: String::new(),
            target: line.trim_end().strip_prefix("GET ").unwrap_or("/").to_owned(),
            fields: Vec::new(),
            body: BytesMut::new(),
            protocol: Protocol::Http09,
        };
        self.actions.push_back(ClientAction::Request(id, request));
    }

    fn close(
        &mut self,
        now: Timestamp,
        connection: &mut Connection,
        code: u64,
        reason: &'static str,
    ) {
        self.is_closed = true;
        connection.close(now, code, reason);
    }
}

impl Framing for Http09 {
    fn send(&mut self, t: &mut OverQuic<'_>, id: StreamId, piece: Piece) -> bool {
        let (own, shared) = piece.into_inner();
        let mut pieces = [own, shared].into_iter().filter(|data| !data.is_empty());
        pieces.all(|data| t.write(id, data).is_ok())
    }

    fn finish(&mut self, t: &mut OverQuic<'_>, id: StreamId) {
        t.finish(id);
    }

    fn abort(&mut self, t: &mut OverQuic<'_>, id: StreamId) {
        t.reset(id, code::H3_INTERNAL_ERROR);
    }
}

impl Application for Http09 {
    fn framing(&mut self) -> &mut dyn Framing {
        self
    }

    fn on_stream(&mut self, now: Timestamp, connection: &mut Connection, event: StreamEvent) {
        match event {
            _ if self.is_closed => {}
            StreamEvent::Opened(id) if id.direction() == Direction::Bidirectional => self.open += 1,
            StreamEvent::Closed(id) if id.direction() == Direction::Bidirectional => {
                self.open = self.open.saturating_sub(1);
                self.last_use = now;
            }
            StreamEvent::Readable(id) if id.direction() == Direction::Bidirectional => {
                self.on_readable(now, connection, id);
            }
            StreamEvent::Reset { id, .. } | StreamEvent::Stopped { id, .. } => {
                self.lines.retain(|line| line.id != id);
                // Without a complete request no response would end our side.
                let _ = connection.reset(id, code::H3_REQUEST_CANCELLED);
                self.actions.push_back(ClientAction::Over(id));
            }
            _ => {}
        }
    }

    fn poll(&mut self) -> Option<ClientAction> {
        self.actions.pop_front()
    }

    fn deadline(&self) -> Option<Timestamp> {
        let line = self.lines.first().map(|line| line.since + self.request_timeout);
        let unused = (self.open == 0).then(|| self.last_use + self.unused_timeout);
        [line, unused].into_iter().flatten().min().filter(|_| !self.is_closed)
    }

    fn on_timeout(&mut self, now: Timestamp, connection: &mut Connection) {
        if self.deadline().is_some_and(|at| at <= now) {
            self.close(now, connection, code::H3_NO_ERROR, "no request within the idle timeout");
        }
    }

    fn is_drained(&self) -> bool {
        self.open == 0
    }

    /// Sends the body without a status code. An unsuccessful response resets the stream. Returns
    /// true even for an empty body, which still needs a FIN.
    fn respond(
        &mut self,
        _: Timestamp,
        connection: &mut Connection,
        id: StreamId,
        response: &Response,
        _is_empty: bool,
    ) -> bool {
        if response.status != 200 {
            let _ = connection.reset(id, code::H3_REQUEST_REJECTED);
        }
        response.status == 200
    }
}
