//! Regular end of a connection: graceful shutdown (RFC 9114, section 5.2), and timeouts of
//! incomplete requests and unused connections.

use core::time::Duration;

use quic::wire::{VARINT_MAX, put_varint};
use units::{StreamId, Timestamp};

use crate::error::{ConnectionError, code};
use crate::frame::{self, write_frame};
use crate::server::{RequestState, Server};
use crate::transport::Transport;

/// Minimum interval between checks of all requests.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Time from the GOAWAY on an unused connection to its close. Longer than most round trips, so that
/// the client learns that a request sent meanwhile was not processed.
const GRACE: Duration = Duration::from_secs(1);

impl Server {
    /// Starts a graceful shutdown (RFC 9114, section 5.2), or completes it on the second call. The
    /// first GOAWAY makes the client stop sending requests. The second one, about a round trip
    /// later, names the last request that is served. Later requests are rejected.
    pub fn go_away(&mut self, t: &mut impl Transport) {
        let limit = match self.goaway {
            // The largest identifier of a request stream, 2^62 - 4.
            None => VARINT_MAX - 3,
            Some(_) => self.next_request,
        };
        self.send_goaway(t, limit);
    }

    /// Sends GOAWAY: requests from the identifier `limit` on are not served.
    fn send_goaway(&mut self, t: &mut impl Transport, limit: u64) {
        let Some(id) = self.control.filter(|_| !self.is_closed) else { return };
        if self.goaway == Some(limit) {
            return;
        }
        self.goaway = Some(limit);
        // Gives the client time to react.
        self.last_use = Some(t.now());
        let mut payload = Vec::with_capacity(8);
        put_varint(&mut payload, limit);
        // Without its control stream, the connection is about to be closed anyway.
        let _ = write_frame(t, id, frame::GOAWAY, &[], payload.into());
    }

    /// Whether a graceful shutdown is complete: the last GOAWAY has been sent, and the transport
    /// has reported the end of all request streams. The connection may then be closed with
    /// [`code::H3_NO_ERROR`].
    pub fn is_drained(&self) -> bool {
        self.goaway == Some(self.next_request) && self.requests.is_empty()
    }

    /// Returns the time of the next [`Server::on_timeout`], if any.
    pub fn deadline(&self) -> Option<Timestamp> {
        if self.is_closed {
            None
        } else {
            [self.check_at, self.unused_at()].into_iter().flatten().min()
        }
    }

    /// Returns the time at which the connection counts as unused.
    fn unused_at(&self) -> Option<Timestamp> {
        let is_final_goaway = self.goaway == Some(self.next_request);
        let timeout = if is_final_goaway { GRACE } else { self.config.unused_timeout };
        let since = self.last_use.filter(|_| self.active + self.answered == 0)?;
        Some(since + timeout)
    }

    /// Handles expired timeouts. Does nothing before [`Server::deadline`].
    pub fn on_timeout(&mut self, t: &mut impl Transport) {
        let now = t.now();
        if self.is_closed {
            return;
        }
        if self.check_at.is_some_and(|at| at <= now) {
            self.reset_slow_requests(t, now);
        }
        if self.unused_at().is_some_and(|at| at <= now) {
            if self.goaway == Some(self.next_request) {
                let reason = "no request within the idle timeout";
                self.close(t, ConnectionError::new(code::H3_NO_ERROR, reason));
            } else {
                // RFC 9114, section 3.3: "the terminating endpoint SHOULD first send a GOAWAY
                // frame".
                self.send_goaway(t, self.next_request);
            }
        }
    }

    /// Schedules the check of a request's timeout.
    pub(crate) fn watch(&mut self, id: StreamId) {
        let timeout = self.config.request_timeout;
        if let Some(due) = self.live(id).and_then(|request| request.due(timeout)) {
            self.check_at = Some(self.check_at.map_or(due, |at| at.min(due)));
        }
    }

    fn reset_slow_requests(&mut self, t: &mut impl Transport, now: Timestamp) {
        let timeout = self.config.request_timeout;
        let mut slow = Vec::new();
        let mut next: Option<Timestamp> = None;
        for (&id, request) in &self.requests {
            let RequestState::Open(request) = request else { continue };
            match request.due(timeout) {
                Some(due) if due <= now => slow.push(id),
                Some(due) => next = Some(next.map_or(due, |at| at.min(due))),
                None => {}
            }
        }
        self.check_at = next.map(|at| at.max(now + CHECK_INTERVAL));
        for id in slow {
            let code = code::H3_REQUEST_INCOMPLETE;
            self.abort(t, id, code, code);
        }
    }
}
