//! Requests and responses of one QUIC connection, independent of the application protocol. Bodies
//! are pulled: a responder is asked for more when its stream has little unsent data.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use ::quic::Connection;
use ::quic::streams::StreamEvent;
use delivery::{Body as _, Delivery, Filled, FlvStream, Playing, Started};
use startup::Guided;
use units::{StreamId, Timestamp};

use super::application::{Action, Application, Request};
use super::connection_start::{self, ConnectionStart, Issued};
use super::h3::H3;
use super::http09::Http09;
use super::watch::Watch;
use crate::autoplex::ConnectionCap;
use crate::clock::unix_now;
use crate::cohorts::{Assignment, ClientFacts};
use crate::entropy::random;
use crate::http::{self, Answer, Body, Responder};
use crate::limits::Fault;
use crate::path_cookie;
use crate::routes::{self, hls};
use crate::state::State;
use crate::viewer::Unit;

/// Maximum sessions per connection with transport statistics; usually there is one.
const MAX_WATCHES: usize = 32;

/// Unanswered probes after which a drain stops waiting for a client's acknowledgements: at least
/// 1.5 s.
const MAX_UNANSWERED_PROBES: u32 = 8;

/// Interval of updates of the streams' bitrates in sessions.
const BITRATE_PERIOD: Duration = Duration::from_secs(1);

/// Returns a random number for a new viewer's unit; 0 without system randomness, so that the
/// network alone decides.
fn random_number() -> u64 {
    let random = random().unwrap_or_default();
    random.iter().take(8).fold(0, |n, byte| n << 8 | u64::from(*byte))
}

/// A pending response.
struct Waiting {
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
    unvalidated: Vec<(StreamId, Request)>,
    waiting: Vec<Waiting>,
    responses: Vec<Delivery<Responder>>,
    /// Whether to call [`Requests::fill`] even if only an acknowledgement arrived.
    wants_acks: bool,
    /// Transport statistics for the sessions of this connection.
    watches: Vec<Watch>,
    viewer: Option<Assignment>,
    /// Whether a request was answered.
    has_answered: bool,
    /// The AutoPlex cap of the connection, from its first session on.
    cap: Option<ConnectionCap>,
    /// Time of the next bitrate update.
    rates_due: Timestamp,
    /// The start of the connection and the cookies for the next one; `None` before protocol
    /// negotiation.
    start: Option<Box<ConnectionStart>>,
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
            watches: Vec::new(),
            viewer: None,
            has_answered: false,
            cap: None,
            rates_due: Timestamp::ZERO,
            start: None,
            alpn: Vec::new(),
        }
    }

    /// Applies the viewer's cohort after protocol negotiation.
    pub(super) fn on_ready(&mut self, now: Timestamp, connection: &mut Connection) {
        let info = connection.take_handshake_info().unwrap_or_default();
        let cookies = connection_start::handshake_cookies(&info);
        self.alpn = info.alpn;
        let cookie = cookies.iter().find_map(|(_, cookie)| cookie.as_ref().ok().copied());
        let chosen = self.state.cohorts.choose(&ClientFacts {
            unit: cookie.map(|cookie| Unit(cookie.unit)),
            remote: connection.addresses().remote.ip(),
        });
        let unit = self.state.cohorts.next_unit(&chosen, random_number());
        self.start = Some(Box::new(ConnectionStart::new(chosen.cohort.start, cookies, unit)));
        let mut scheme = chosen.cohort.scheme.build(chosen.unit.0 ^ now.as_nanos());
        // Records include the loss correlation.
        scheme.correlation |= self.state.config.records.directory.is_some();
        connection.set_scheme(scheme);
        let client = connection.addresses().remote.ip();
        let rules = connection_start::rules(&self.state.config.startup);
        if let Some(expected) =
            cookie.and_then(|cookie| cookie.expected(client, unix_now(), &rules))
        {
            connection.expect(&expected);
        }
        self.viewer = Some(chosen);
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
        if let Some(start) = &mut self.start {
            start.on_connected(now);
        }
        self.take_actions(now, connection);
        if has_answered {
            self.on_answered(now, connection, false);
        }
    }

    /// Returns when [`Requests::on_timeout`] or [`Requests::issue`] is due.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        let application = self.application.as_ref().and_then(|a| a.deadline());
        let start = self.start.as_ref().and_then(|b| b.deadline());
        [start, application].into_iter().flatten().min()
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
                Action::Request(id, request) if connection.is_validated() => {
                    self.take_request(now, connection, id, &request);
                }
                Action::Request(id, request) => {
                    self.unvalidated.push((id, request));
                    self.wants_acks = true;
                }
                Action::Refused(id, status) => {
                    let response = http::Response::plain(status, SystemTime::now());
                    self.respond(now, connection, id, response);
                }
                Action::Flooding => self.state.limits.count(Fault::QuicCancels),
                Action::Over(id) => {
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
        request: &Request,
    ) {
        let mut head = request.head(connection);
        head.cohort = self.viewer.as_ref().map(|viewer| (viewer.unit, &viewer.cohort));
        if self.state.config.startup.http_cookie
            && let Some(start) = &mut self.start
            && let Some(cookie) = path_cookie::read(&head, &self.state.quic.keys())
        {
            start.on_http_cookie(cookie);
        }
        let answer = routes::respond(&self.state, &head, SystemTime::now());
        match answer.for_method(head.method) {
            Answer::Now(response) => self.respond(now, connection, id, response),
            Answer::Later(answer) => {
                self.waiting.push(Waiting { id, answer });
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
        let startup = &self.state.config.startup;
        if startup.http_cookie
            && path_cookie::may_carry(&response)
            && let Some(start) = &mut self.start
            && let Some(cookie) = start.next_http_cookie(now, connection)
        {
            let field = path_cookie::field(&cookie, &self.state.quic.keys(), startup.lifetime);
            response.headers.push(("set-cookie", field));
        }
        let Some(application) = &mut self.application else { return };
        let is_empty = matches!(response.body, Body::Empty);
        if application.respond(now, connection, id, &response, is_empty) {
            match (&mut self.start, response.header("content-type")) {
                (Some(start), Some(hls::PLAYLIST)) => start.on_playlist(),
                (Some(start), Some(kind)) if kind.starts_with("text/html") => start.on_page(),
                _ => {}
            }
            let body = Responder::from(response.body);
            self.begin(connection, &body);
            if let Some(session) = body.session() {
                self.watches.retain(Watch::is_open);
                let is_known = self.watches.iter().any(|watch| watch.is_of(session));
                if !is_known && self.watches.len() < MAX_WATCHES {
                    self.watches.push(Watch::new(session, now, connection));
                }
                if let (None, Some(viewer)) = (&self.cap, &self.viewer) {
                    let (all, config) = (&self.state.autoplex, &self.state.config.autoplex);
                    let address = connection.addresses().remote.ip();
                    self.cap = ConnectionCap::begin(all, config, address, viewer.unit, session);
                }
            }
            self.responses.push(Delivery::new(id, body));
            self.wants_acks = true;
        } else {
            self.on_answered(now, connection, false);
        }
    }

    /// Makes the startup decision at the first response of some size.
    fn begin(&mut self, connection: &mut Connection, body: &Responder) {
        let (state, Some(start)) = (&self.state, &mut self.start) else { return };
        let first_frame = match body.live() {
            Some(live) => live.first_frame_ahead(),
            None => start.perceive(body.pieces()),
        };
        let (all, config) = (&state.saved_paths, &state.config.startup);
        if let Some(session) = body.session() {
            if let Some(started) = start.on_live(connection, first_frame, all, config) {
                session.on_started(started);
            }
        } else if let Some(length) = body.remaining() {
            start.on_other(connection, length, all, config);
        }
    }

    /// Applies the cap of the user group, and updates the streams' bitrates in sessions.
    fn follow_streams(&mut self, now: Timestamp, connection: &mut Connection) {
        let are_rates_due = now >= self.rates_due;
        let is_cap_due = self.cap.as_ref().is_some_and(|cap| cap.is_due(now));
        if !are_rates_due && !is_cap_due {
            return;
        }
        let media = |response: &Delivery<Responder>| {
            let (body, streams) = (response.body(), &self.state.live.streams);
            let session = body.session()?.clone();
            let playing = body.live().map(FlvStream::playing).unwrap_or_else(|| Playing {
                bitrate: streams.get(&session.opening().stream).and_then(|s| s.bitrate()),
                lag: None,
            });
            Some((session, playing))
        };
        let Some((session, playing)) = self.responses.iter().find_map(media) else { return };
        if let Some(rate) = playing.bitrate.filter(|_| are_rates_due) {
            self.rates_due = now + BITRATE_PERIOD;
            session.on_autoplex(|columns| columns.bitrate = Some(rate));
        }
        if let Some(cap) = self.cap.as_mut().filter(|_| is_cap_due) {
            cap.update(now, connection, &self.state.autoplex, playing);
        }
    }

    /// Notes that a response, of `media` or not, was passed to the transport.
    fn on_answered(&mut self, now: Timestamp, connection: &Connection, media: bool) {
        self.has_answered = true;
        if self.is_idle()
            && let Some(start) = &mut self.start
        {
            start.on_idle(now, connection, media);
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
        for watch in &mut self.watches {
            watch.update(now, connection, false);
        }
        self.follow_streams(now, connection);
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
            if let Some(start) = &mut self.start {
                if expected && !response.expects_first_frame() {
                    start.on_first_frame(now, connection);
                }
                let live = response.body().live().filter(|_| start.awaits_size());
                if let Some((size, session)) =
                    live.and_then(FlvStream::first_frame_ahead).zip(response.body().session())
                    && let Some(started) =
                        start.on_size(connection, size, &self.state.config.startup)
                {
                    session.on_started(started);
                }
            }
            match filled {
                Filled::Finished => {
                    let last = |watch: &mut Watch| watch.update(now, connection, true);
                    self.watches.iter_mut().for_each(last);
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

    /// Updates the sessions' statistics for the last time, as viewers may be about to leave.
    pub(super) fn on_last_chance(&mut self, now: Timestamp, connection: &Connection) {
        self.watches.iter_mut().for_each(|watch| watch.update(now, connection, true));
    }

    /// Returns the ticket or token to send now.
    pub(super) fn issue(&mut self, now: Timestamp, connection: &Connection) -> Option<Issued> {
        self.start.as_mut()?.issue(now, connection, &self.state.saved_paths)
    }

    /// Returns the startup decision, if made.
    pub(super) fn started(&self) -> Option<&Started> {
        self.start.as_ref()?.started()
    }

    /// Notes that the connection is closed.
    pub(super) fn on_closed(&mut self, now: Timestamp, connection: &Connection) {
        self.on_last_chance(now, connection);
        let jump = delivery::guided(connection).map(Guided::verdict).unwrap_or_default();
        self.state.saved_paths.on_verdict(jump);
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
