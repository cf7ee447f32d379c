//! Requests and responses of one QUIC connection, independent of the application protocol. Bodies
//! are pulled: a responder is asked for more when its stream has little unsent data. How the
//! connection uses its path is the [`PathPolicy`]'s part.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::SystemTime;

use ::quic::Connection;
use ::quic::streams::StreamEvent;
use delivery::{Delivery, Filled, Started};
use units::{StreamId, Timestamp};

use super::application::{Application, ClientAction, ReceivedRequest};
use super::connection_start::Issued;
use super::h3::H3;
use super::http09::Http09;
use super::path_policy::PathPolicy;
use crate::http::{self, Answer, Body, Responder};
use crate::limits::Fault;
use crate::routes;
use crate::state::State;

/// Unanswered probes after which a drain stops waiting for a client's acknowledgements: at least
/// 1.5 s.
const MAX_UNANSWERED_PROBES: u32 = 8;

/// A pending response.
struct PendingResponse {
    id: StreamId,
    answer: Pin<Box<dyn Future<Output = http::Response> + Send>>,
}

/// The application state of a connection.
pub(super) struct Requests {
    state: Arc<State>,
    /// `None` before protocol negotiation.
    application: Option<Box<dyn Application>>,
    /// Wakes the connection when a response or body can continue.
    waker: Waker,
    /// Requests that wait for address validation: 0-RTT data, or a new address, may be spoofed, and
    /// sessions count against the address.
    unvalidated: Vec<(StreamId, ReceivedRequest)>,
    waiting: Vec<PendingResponse>,
    responses: Vec<Delivery<Responder>>,
    /// Whether to call [`Requests::fill`] even if only an acknowledgement arrived.
    wants_acks: bool,
    /// Whether a request was answered.
    has_answered: bool,
    /// `None` before protocol negotiation.
    policy: Option<Box<PathPolicy>>,
    pub alpn: Vec<u8>,
}

impl Requests {
    pub(super) fn new(state: Arc<State>, waker: Waker) -> Self {
        Self {
            state,
            application: None,
            waker,
            unvalidated: Vec::new(),
            waiting: Vec::new(),
            responses: Vec::new(),
            wants_acks: false,
            has_answered: false,
            policy: None,
            alpn: Vec::new(),
        }
    }

    /// Starts path policy and application protocol after protocol negotiation.
    pub(super) fn on_ready(&mut self, now: Timestamp, connection: &mut Connection) {
        let info = connection.take_handshake_info().unwrap_or_default();
        self.policy = Some(Box::new(PathPolicy::opened(now, connection, &self.state, &info)));
        self.alpn = info.alpn;
        let quic = &self.state.config.quic;
        self.application = Some(match &self.alpn[..] {
            b"hq-interop" => Box::new(Http09::new(now, quic.request_timeout, quic.unused_timeout)),
            _ => Box::new(H3::start(now, connection, quic)),
        });
    }

    /// Notes that the handshake is confirmed.
    pub(super) fn on_connected(&mut self, now: Timestamp, connection: &mut Connection) {
        if let Some(application) = &mut self.application {
            application.on_connected();
        }
        let has_answered = self.has_answered;
        if let Some(policy) = &mut self.policy {
            policy.on_connected(now);
        }
        self.take_actions(now, connection);
        if has_answered {
            self.on_answered(now, connection, false);
        }
    }

    /// Returns when [`Requests::on_timeout`] or [`Requests::issue`] is due.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        let application = self.application.as_ref().and_then(|a| a.deadline());
        let policy = self.policy.as_ref().and_then(|policy| policy.deadline());
        [policy, application].into_iter().flatten().min()
    }

    /// Ends timed-out requests, or the connection.
    pub(super) fn on_timeout(&mut self, now: Timestamp, connection: &mut Connection) {
        if let Some(application) = &mut self.application {
            application.on_timeout(now, connection);
        }
        self.take_actions(now, connection);
    }

    pub(super) fn on_stream(
        &mut self,
        now: Timestamp,
        connection: &mut Connection,
        event: StreamEvent,
    ) {
        if let Some(application) = &mut self.application {
            application.on_stream(now, connection, event);
        }
        self.take_actions(now, connection);
    }

    fn take_actions(&mut self, now: Timestamp, connection: &mut Connection) {
        while let Some(action) = self.application.as_mut().and_then(|a| a.poll()) {
            match action {
                ClientAction::Request(id, request) if connection.is_validated() => {
                    self.take_request(now, connection, id, &request);
                }
                ClientAction::Request(id, request) => {
                    self.unvalidated.push((id, request));
                    self.wants_acks = true;
                }
                ClientAction::Refused(id, status) => {
                    let response = http::Response::plain(status, SystemTime::now());
                    self.respond(now, connection, id, response);
                }
                ClientAction::Flooding => self.state.limits.count(Fault::QuicCancels),
                ClientAction::Over(id) => {
                    self.on_last_chance(now, connection);
                    self.responses.retain(|response| response.id() != id);
                    self.unvalidated.retain(|(unvalidated, _)| *unvalidated != id);
                    self.waiting.retain(|waiting| waiting.id != id);
                }
            }
        }
    }

    fn take_request(
        &mut self,
        now: Timestamp,
        connection: &mut Connection,
        id: StreamId,
        request: &ReceivedRequest,
    ) {
        let mut head = request.head(connection);
        if let Some(policy) = &mut self.policy {
            policy.on_request(&self.state, &head);
            head.cohort = Some(policy.cohort());
            if head.path().ends_with(".flv") {
                head.path_rate = policy.rate(connection, &self.state);
            }
        }
        let answer = routes::respond(&self.state, &head, SystemTime::now());
        match answer.for_method(head.method) {
            Answer::Now(response) => self.respond(now, connection, id, response),
            Answer::Later(answer) => {
                self.waiting.push(PendingResponse { id, answer });
                self.wants_acks = true;
            }
        }
    }

    fn respond(
        &mut self,
        now: Timestamp,
        connection: &mut Connection,
        id: StreamId,
        mut response: http::Response,
    ) {
        if let Some(policy) = &mut self.policy
            && let Some(field) = policy.next_http_cookie(now, connection, &self.state, &response)
        {
            response.headers.push(("set-cookie", field));
        }
        let Some(application) = &mut self.application else { return };
        let is_empty = matches!(response.body, Body::Empty);
        if application.respond(now, connection, id, &response, is_empty) {
            let body = Responder::from(core::mem::replace(&mut response.body, Body::Empty));
            if let Some(policy) = &mut self.policy {
                let content_type = response.header("content-type");
                policy.on_response(now, connection, &self.state, content_type, &body);
            }
            // Most viewers have one response at a time, and a vector makes room for four.
            self.responses.reserve_exact(1);
            self.responses.push(Delivery::new(id, body));
            self.wants_acks = true;
        } else {
            self.on_answered(now, connection, false);
        }
    }

    /// Notes that a response, of `media` or not, was passed to the transport.
    fn on_answered(&mut self, now: Timestamp, connection: &Connection, media: bool) {
        self.has_answered = true;
        if self.is_idle()
            && let Some(policy) = &mut self.policy
        {
            policy.on_idle(now, connection, media);
        }
    }

    /// Sends completed responses, and fills streams with body data. Returns true if
    /// more can be written as soon as data was sent; otherwise the waker is called.
    pub(super) fn fill(&mut self, now: Timestamp, connection: &mut Connection) -> bool {
        if connection.is_validated() {
            for (id, request) in core::mem::take(&mut self.unvalidated) {
                self.take_request(now, connection, id, &request);
            }
        }
        let mut index = 0;
        while let Some(waiting) = self.waiting.get_mut(index) {
            match waiting.answer.as_mut().poll(&mut Context::from_waker(&self.waker)) {
                Poll::Ready(response) => {
                    let id = self.waiting.swap_remove(index).id;
                    self.respond(now, connection, id, response);
                }
                Poll::Pending => index += 1,
            }
        }
        if let Some(policy) = &mut self.policy {
            policy.on_progress(now, connection, &self.state, &self.responses);
        }
        let context = &mut Context::from_waker(&self.waker);
        let mut more = false;
        let mut expects = false;
        // Whether responses ended, and whether one was media.
        let mut ended = None;
        index = 0;
        let Some(application) = &mut self.application else { return false };
        while let Some(response) = self.responses.get_mut(index) {
            let expected = response.expects_first_frame();
            let filled = response.fill(application.framing(), now, connection, context);
            if let Some(policy) = &mut self.policy {
                let has_shown = expected && !response.expects_first_frame();
                policy.on_filled(now, connection, &self.state, response, has_shown);
            }
            match filled {
                Filled::Finished => {
                    if let Some(policy) = &mut self.policy {
                        policy.on_last_chance(now, connection);
                    }
                    let over = self.responses.swap_remove(index);
                    ended = Some(ended == Some(true) || over.body().session().is_some());
                }
                filled => {
                    more |= filled == Filled::Enough;
                    expects |= response.expects_first_frame();
                    index += 1;
                }
            }
        }
        self.wants_acks = more || expects || !self.unvalidated.is_empty();
        if let Some(media) = ended {
            self.on_answered(now, connection, media);
        }
        more
    }

    /// Whether [`Requests::fill`] must be called even without a wake-up.
    pub(super) fn wants_acks(&self) -> bool {
        self.wants_acks
    }

    fn on_last_chance(&mut self, now: Timestamp, connection: &Connection) {
        if let Some(policy) = &mut self.policy {
            policy.on_last_chance(now, connection);
        }
    }

    /// Returns the ticket or token to send now.
    pub(super) fn issue(&mut self, now: Timestamp, connection: &Connection) -> Option<Issued> {
        self.policy.as_mut()?.issue(now, connection, &self.state)
    }

    /// Returns the startup decision, if made.
    pub(super) fn started(&self) -> Option<&Started> {
        self.policy.as_ref()?.started()
    }

    /// Notes that the connection is closed.
    pub(super) fn on_closed(&mut self, now: Timestamp, connection: &Connection) {
        if let Some(policy) = &mut self.policy {
            policy.on_closed(now, connection, &self.state);
        }
    }

    /// Whether no response is in progress.
    pub(super) fn is_idle(&self) -> bool {
        self.responses.is_empty() && self.waiting.is_empty() && self.unvalidated.is_empty()
    }

    /// Whether all responses are delivered and the client knows which requests were accepted, or
    /// the client is gone without a close.
    pub(super) fn is_drained(&self, connection: &Connection) -> bool {
        let is_gone = connection.unanswered_probes() >= MAX_UNANSWERED_PROBES;
        self.is_idle() && (is_gone || self.application.as_ref().is_none_or(|a| a.is_drained()))
    }

    /// Sends GOAWAY.
    pub(super) fn go_away(&mut self, now: Timestamp, connection: &mut Connection) {
        if let Some(application) = &mut self.application {
            application.go_away(now, connection);
        }
    }
}
