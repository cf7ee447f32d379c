//! The requests of one QUIC connection and their answers, whatever the application protocol. Bodies are
//! pulled: a responder is asked for more when its stream has little unsent.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use ::quic::Connection;
use ::quic::streams::StreamEvent;
use delivery::{Body as _, Delivery, Filled, FlvStream, Playing, Started};
use startup::Guided;
use units::{StreamId, Timestamp};

use super::application::{Application, Asked, Request};
use super::beginning::{self, Beginning, Handed};
use super::h3::H3;
use super::http09::Http09;
use super::watch::Watch;
use crate::autoplex::Hold;
use crate::clock::unix_now;
use crate::cohorts::{Chosen, Facts};
use crate::entropy::random;
use crate::http::{self, Answer, Body, Responder};
use crate::limits::Fault;
use crate::path_cookie;
use crate::routes::{self, hls};
use crate::state::State;
use crate::viewer::Unit;

/// Viewers of one connection who are told how it does: one, as a rule.
const MAX_WATCHES: usize = 32;

/// Unanswered probes after which a drain waits no longer for a client's acknowledgements: at least
/// a second and a half.
const GONE: u32 = 8;

/// How often sessions are told how fast their streams are.
const RATES_EVERY: Duration = Duration::from_secs(1);

/// For the unit of a viewer who is new; 0 where the system has no random numbers, and then the network's number alone decides.
fn random_number() -> u64 {
    let random = random().unwrap_or_default();
    random.iter().take(8).fold(0, |n, byte| n << 8 | u64::from(*byte))
}

/// An answer that is not there yet.
struct Waiting {
    id: StreamId,
    answer: Pin<Box<dyn Future<Output = http::Response> + Send>>,
}

/// What the edge keeps of a connection beside the transport's state.
pub(super) struct Requests {
    state: Arc<State>,
    /// `None` until the protocol is agreed.
    application: Option<Box<dyn Application>>,
    /// Has these requests served when an answer or a body can go on.
    waker: Waker,
    /// Requests that wait until the client's address is proven: in 0-RTT data, or from a new address, they may be
    /// anybody's. What a viewer holds counts for its address.
    unproven: Vec<(StreamId, Request)>,
    waiting: Vec<Waiting>,
    responses: Vec<Delivery<Responder>>,
    /// Whether these requests are to be served even if only an acknowledgement arrived.
    wants_acks: bool,
    /// The viewers' sessions on this connection.
    watches: Vec<Watch>,
    viewer: Option<Chosen>,
    /// Whether something was answered.
    was_asked: bool,
    /// How AutoPlex holds the connection, from its first session on.
    hold: Option<Hold>,
    /// When the sessions are told next how fast their streams are.
    rates_due: Timestamp,
    /// How the connection began, and what its client gets to know; `None` until the protocol is agreed.
    beginning: Option<Box<Beginning>>,
    pub alpn: Vec<u8>,
}

impl Requests {
    pub(super) fn new(state: Arc<State>, waker: Waker) -> Self {
        Self {
            state,
            application: None,
            waker,
            unproven: Vec::new(),
            waiting: Vec::new(),
            responses: Vec::new(),
            wants_acks: false,
            watches: Vec::new(),
            viewer: None,
            was_asked: false,
            hold: None,
            rates_due: Timestamp::ZERO,
            beginning: None,
            alpn: Vec::new(),
        }
    }

    /// The protocol is agreed: the policy says how the viewer is served.
    pub(super) fn on_ready(&mut self, now: Timestamp, connection: &mut Connection) {
        let info = connection.take_handshake_info().unwrap_or_default();
        let brought = beginning::brought(&info);
        self.alpn = info.alpn;
        let told = brought.iter().find_map(|(_, cookie)| cookie.as_ref().ok().copied());
        let chosen = self.state.cohorts.choose(&Facts {
            unit: told.map(|cookie| Unit(cookie.unit)),
            remote: connection.addresses().remote.ip(),
        });
        let unit = self.state.cohorts.next_unit(&chosen, random_number());
        self.beginning = Some(Box::new(Beginning::new(chosen.cohort.start, brought, unit)));
        let mut scheme = chosen.cohort.scheme.build(chosen.unit.0 ^ now.as_nanos());
        // Records say how losses come together.
        scheme.correlation |= self.state.config.records.directory.is_some();
        connection.set_scheme(scheme);
        let client = connection.addresses().remote.ip();
        let rules = beginning::rules(&self.state.config.startup);
        if let Some(expected) = told.and_then(|told| told.expected(client, unix_now(), &rules)) {
            connection.expect(&expected);
        }
        self.viewer = Some(chosen);
        let quic = &self.state.config.quic;
        self.application = Some(match &self.alpn[..] {
            b"hq-interop" => Box::new(Http09::new(now, quic.request_timeout, quic.unused_timeout)),
            _ => Box::new(H3::start(now, connection, quic)),
        });
    }

    /// The handshake is confirmed.
    pub(super) fn on_connected(&mut self, now: Timestamp, connection: &mut Connection) {
        if let Some(application) = &mut self.application {
            application.on_connected();
        }
        let was_asked = self.was_asked;
        if let Some(beginning) = &mut self.beginning {
            beginning.on_connected(now);
        }
        self.take_asked(now, connection);
        if was_asked {
            self.on_answered(now, connection, false);
        }
    }

    /// When [`Requests::on_timeout`] or [`Requests::hand_over`] is due.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        let application = self.application.as_ref().and_then(|a| a.deadline());
        let beginning = self.beginning.as_ref().and_then(|b| b.deadline());
        [beginning, application].into_iter().flatten().min()
    }

    /// Ends requests, or the connection, that have taken too long by now.
    pub(super) fn on_timeout(&mut self, now: Timestamp, connection: &mut Connection) {
        if let Some(application) = &mut self.application {
            application.on_timeout(now, connection);
        }
        self.take_asked(now, connection);
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
        self.take_asked(now, connection);
    }

    fn take_asked(&mut self, now: Timestamp, connection: &mut Connection) {
        while let Some(asked) = self.application.as_mut().and_then(|a| a.poll()) {
            match asked {
                Asked::Request(id, request) if connection.is_validated() => {
                    self.take_request(now, connection, id, &request);
                }
                Asked::Request(id, request) => {
                    self.unproven.push((id, request));
                    self.wants_acks = true;
                }
                Asked::Refused(id, status) => {
                    let response = http::Response::plain(status, SystemTime::now());
                    self.respond(now, connection, id, response);
                }
                Asked::Flooding => self.state.limits.count(Fault::QuicCancels),
                Asked::Over(id) => {
                    self.on_last_chance(now, connection);
                    self.responses.retain(|response| response.id() != id);
                    self.unproven.retain(|(unproven, _)| *unproven != id);
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
            && let Some(beginning) = &mut self.beginning
            && let Some(cookie) = path_cookie::read(&head, &self.state.quic.keys())
        {
            beginning.on_http_cookie(cookie);
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
            && let Some(beginning) = &mut self.beginning
            && let Some(cookie) = beginning.next_http_cookie(now, connection)
        {
            let field = path_cookie::field(&cookie, &self.state.quic.keys(), startup.lifetime);
            response.headers.push(("set-cookie", field));
        }
        let Some(application) = &mut self.application else { return };
        let is_empty = matches!(response.body, Body::Empty);
        if application.respond(now, connection, id, &response, is_empty) {
            match (&mut self.beginning, response.header("content-type")) {
                (Some(beginning), Some(hls::PLAYLIST)) => beginning.on_playlist(),
                (Some(beginning), Some(kind)) if kind.starts_with("text/html") => {
                    beginning.on_page()
                }
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
                if let (None, Some(viewer)) = (&self.hold, &self.viewer) {
                    let (all, config) = (&self.state.autoplex, &self.state.config.autoplex);
                    let address = connection.addresses().remote.ip();
                    self.hold = Hold::begin(all, config, address, viewer.unit, session);
                }
            }
            self.responses.push(Delivery::new(id, body));
            self.wants_acks = true;
        } else {
            self.on_answered(now, connection, false);
        }
    }

    /// The first response of some size says how the connection starts.
    fn begin(&mut self, connection: &mut Connection, body: &Responder) {
        let (state, Some(beginning)) = (&self.state, &mut self.beginning) else { return };
        let first_frame = match body.live() {
            Some(live) => live.first_frame_ahead(),
            None => beginning.perceive(body.pieces()),
        };
        let (all, config) = (&state.beginnings, &state.config.startup);
        if let Some(session) = body.session() {
            if let Some(started) = beginning.on_live(connection, first_frame, all, config) {
                session.on_started(started);
            }
        } else if let Some(length) = body.remaining() {
            beginning.on_other(connection, length, all, config);
        }
    }

    /// Holds the connection to what its user group may send, and tells sessions how fast their streams are.
    fn follow_streams(&mut self, now: Timestamp, connection: &mut Connection) {
        let are_rates_due = now >= self.rates_due;
        let is_hold_due = self.hold.as_ref().is_some_and(|hold| hold.is_due(now));
        if !are_rates_due && !is_hold_due {
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
            self.rates_due = now + RATES_EVERY;
            session.on_held(|held| held.bitrate = Some(rate));
        }
        if let Some(hold) = self.hold.as_mut().filter(|_| is_hold_due) {
            hold.look(now, connection, &self.state.autoplex, playing);
        }
    }

    /// An answer was handed over, of `media` or not.
    fn on_answered(&mut self, now: Timestamp, connection: &Connection, media: bool) {
        self.was_asked = true;
        if self.is_idle()
            && let Some(beginning) = &mut self.beginning
        {
            beginning.on_idle(now, connection, media);
        }
    }

    /// Sends answers that have come, and hands more of the bodies over where streams have room.
    /// Returns whether there may be more as soon as some of that has left; otherwise the waker will be
    /// woken.
    pub(super) fn fill(&mut self, now: Timestamp, connection: &mut Connection) -> bool {
        if connection.is_validated() {
            for (id, request) in core::mem::take(&mut self.unproven) {
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
            watch.look(now, connection, false);
        }
        self.follow_streams(now, connection);
        let context = &mut Context::from_waker(&self.waker);
        let mut more = false;
        let mut expects = false;
        // Whether answers ended, and whether one was media.
        let mut ended = None;
        index = 0;
        let Some(application) = &mut self.application else { return false };
        while let Some(response) = self.responses.get_mut(index) {
            let expected = response.expects_first_frame();
            let filled = response.fill(application.framing(), now, connection, context);
            if let Some(beginning) = &mut self.beginning {
                if expected && !response.expects_first_frame() {
                    beginning.on_first_frame(now, connection);
                }
                let live = response.body().live().filter(|_| beginning.awaits_size());
                if let Some((size, session)) =
                    live.and_then(FlvStream::first_frame_ahead).zip(response.body().session())
                    && let Some(started) =
                        beginning.on_size(connection, size, &self.state.config.startup)
                {
                    session.on_started(started);
                }
            }
            match filled {
                Filled::Finished => {
                    let last = |watch: &mut Watch| watch.look(now, connection, true);
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
        self.wants_acks = more || expects || !self.unproven.is_empty();
        if let Some(media) = ended {
            self.on_answered(now, connection, media);
        }
        more
    }

    /// Whether [`Requests::fill`] has to be called although nothing woke these requests.
    pub(super) fn wants_acks(&self) -> bool {
        self.wants_acks
    }

    /// Viewers may be about to leave: their sessions get the last numbers.
    pub(super) fn on_last_chance(&mut self, now: Timestamp, connection: &Connection) {
        self.watches.iter_mut().for_each(|watch| watch.look(now, connection, true));
    }

    /// What the client is given now for its next connection.
    pub(super) fn hand_over(&mut self, now: Timestamp, connection: &Connection) -> Option<Handed> {
        self.beginning.as_mut()?.hand_over(now, connection, &self.state.beginnings)
    }

    /// How the connection started, if it has.
    pub(super) fn started(&self) -> Option<&Started> {
        self.beginning.as_ref()?.started()
    }

    /// The connection is over.
    pub(super) fn on_closed(&mut self, now: Timestamp, connection: &Connection) {
        self.on_last_chance(now, connection);
        let jump = delivery::guided(connection).map(Guided::verdict).unwrap_or_default();
        self.state.beginnings.on_verdict(jump);
    }

    /// Whether no response is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.responses.is_empty() && self.waiting.is_empty() && self.unproven.is_empty()
    }

    /// Whether nothing is left to deliver, and the client knows which requests were taken; or it has
    /// left without a word.
    pub(super) fn is_drained(&self, connection: &Connection) -> bool {
        let is_gone = connection.unanswered_probes() >= GONE;
        self.is_idle() && (is_gone || self.application.as_ref().is_none_or(|a| a.is_drained()))
    }

    /// Tells the client that no more requests are taken.
    pub(super) fn go_away(&mut self, now: Timestamp, connection: &mut Connection) {
        if let Some(application) = &mut self.application {
            application.go_away(now, connection);
        }
    }
}
