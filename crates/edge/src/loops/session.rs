//! The requests of one QUIC connection and their answers: HTTP/3 for `h3`, HTTP/0.9 for
//! `hq-interop`. Bodies are pulled: a responder is asked for more when its stream has little
//! unsent.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::SystemTime;

use ::quic::Connection;
use ::quic::streams::StreamEvent;
use bytes::BytesMut;
use http3::{OverQuic, RequestHead as Http3Head, code};
use units::{StreamId, Timestamp};

use super::http09::{Http09, Told};
use super::response::{Filled, Response, fill};
use super::watch::Watch;
use crate::cohorts::Cohort;
use crate::entropy::random;
use crate::http::{self, Answer, Body, RequestHead, Responder};
use crate::routes;
use crate::state::State;
use crate::viewer::Unit;

/// Requests that may be kept for their body, and as many for the end of the handshake. Players send
/// their reports one by one.
const MAX_KEPT: usize = 8;
/// Viewers of one connection who are told how it does: one, as a rule.
const MAX_WATCHES: usize = 32;

/// A request whose answer depends on its body.
struct Upload {
    id: StreamId,
    head: Box<Http3Head>,
    body: BytesMut,
    max: usize,
}

/// A request that may be a replay and is not safe to repeat: it waits for the handshake.
struct Held {
    id: StreamId,
    head: Box<Http3Head>,
    body: BytesMut,
}

/// An answer that is not there yet.
struct Waiting {
    id: StreamId,
    answer: Pin<Box<dyn Future<Output = http::Response> + Send>>,
}

#[derive(Debug)]
pub(super) enum Protocol {
    /// Not agreed yet.
    Pending,
    Http3(Box<http3::Server>),
    Http09(Http09),
}

/// What the edge keeps of a connection beside the transport's state.
pub(super) struct Session {
    state: Arc<State>,
    protocol: Protocol,
    /// Has this session served when an answer or a body can go on.
    waker: Waker,
    uploads: Vec<Upload>,
    waiting: Vec<Waiting>,
    responses: Vec<Response>,
    /// Whether an acknowledgement alone may let something go on, or tell something.
    is_curious: bool,
    /// The viewers' sessions on this connection.
    watches: Vec<Watch>,
    /// The viewer, whether it was known by its token, and its cohort.
    unit: Unit,
    is_known: bool,
    cohort: Option<Cohort>,
    held: Vec<Held>,
    pub alpn: Vec<u8>,
    /// When the NEW_TOKEN frame goes out, once the session ticket has.
    pub token_due: Option<Timestamp>,
}

impl Session {
    pub(super) fn new(state: Arc<State>, waker: Waker) -> Self {
        Self {
            state,
            protocol: Protocol::Pending,
            waker,
            uploads: Vec::new(),
            waiting: Vec::new(),
            responses: Vec::new(),
            is_curious: false,
            watches: Vec::new(),
            unit: Unit(0),
            is_known: false,
            cohort: None,
            held: Vec::new(),
            alpn: Vec::new(),
            token_due: None,
        }
    }

    /// The protocol is agreed.
    pub(super) fn on_ready(&mut self, now: Timestamp, connection: &mut Connection) {
        let info = connection.take_handshake_info().unwrap_or_default();
        self.alpn = info.alpn;
        let known = info.returned_token.as_deref().and_then(Unit::from_token);
        let remote = connection.addresses().remote.ip();
        self.unit = known.unwrap_or_else(|| Unit::of_network(remote));
        self.is_known = known.is_some();
        let cohort = self.state.cohorts.of(self.unit).clone();
        connection.set_scheme(cohort.scheme.build(self.unit.0 ^ now.as_nanos()));
        self.cohort = Some(cohort);
        let quic = &self.state.config.quic;
        if self.alpn == b"hq-interop" {
            let protocol = Http09::new(now, quic.request_timeout, quic.unused_timeout);
            self.protocol = Protocol::Http09(protocol);
            return;
        }
        let config = http3::Config {
            max_concurrent_requests: quic.max_streams as usize,
            grease: now.as_nanos() as u32,
            request_timeout: quic.request_timeout,
            unused_timeout: quic.unused_timeout,
            ..http3::Config::default()
        };
        let mut server = Box::new(http3::Server::new(config));
        server.start(&mut OverQuic::new(connection, now));
        self.protocol = Protocol::Http3(server);
    }

    /// The handshake is confirmed: requests that waited for it are answered.
    pub(super) fn on_connected(&mut self, now: Timestamp, connection: &mut Connection) {
        for Held { id, head, body } in core::mem::take(&mut self.held) {
            self.answer(now, connection, id, &head, &body);
        }
    }

    /// When [`Session::on_timeout`] is due, or the address token.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        let protocol = match &self.protocol {
            Protocol::Pending => None,
            Protocol::Http3(server) => server.deadline(),
            Protocol::Http09(requests) => requests.deadline(),
        };
        [self.token_due, protocol].into_iter().flatten().min()
    }

    /// Ends requests, or the connection, that have taken too long by now.
    pub(super) fn on_timeout(&mut self, now: Timestamp, connection: &mut Connection) {
        match &mut self.protocol {
            Protocol::Pending => {}
            Protocol::Http09(requests) => requests.on_timeout(now, connection),
            Protocol::Http3(server) if server.deadline().is_some_and(|at| at <= now) => {
                server.on_timeout(&mut OverQuic::new(connection, now));
                self.take_events(now, connection);
            }
            Protocol::Http3(_) => {}
        }
    }

    pub(super) fn on_stream(
        &mut self,
        now: Timestamp,
        connection: &mut Connection,
        event: StreamEvent,
    ) {
        match &mut self.protocol {
            Protocol::Pending => {}
            Protocol::Http09(_) => self.on_line(now, connection, event),
            Protocol::Http3(server) => {
                server.on_stream_event(&mut OverQuic::new(connection, now), event);
                self.take_events(now, connection);
            }
        }
    }

    fn take_events(&mut self, now: Timestamp, connection: &mut Connection) {
        loop {
            let Protocol::Http3(server) = &mut self.protocol else { return };
            let Some(event) = server.poll_event() else { return };
            match event {
                http3::Event::Request { id, head, end } => {
                    let max = with_head(&head, connection, None, &[], |head| head.max_body());
                    if end || max == 0 {
                        // Without a body, this changes nothing.
                        server.discard_body(&mut OverQuic::new(connection, now), id);
                        self.answer_in_time(now, connection, id, head, BytesMut::new());
                    } else if self.uploads.len() < MAX_KEPT {
                        self.uploads.push(Upload { id, head, body: BytesMut::new(), max });
                    } else {
                        self.reject(now, connection, id);
                    }
                }
                http3::Event::BodyReadable(id) => self.take_body(now, connection, id),
                http3::Event::RequestEnd(id) => {
                    if let Some(Upload { head, body, .. }) = self.take_upload(id) {
                        self.answer_in_time(now, connection, id, head, body);
                    }
                }
                http3::Event::Cancelled { id, .. } => {
                    self.on_last_chance(now, connection);
                    self.responses.retain(|response| response.id != id);
                    self.waiting.retain(|waiting| waiting.id != id);
                    self.uploads.retain(|upload| upload.id != id);
                    self.held.retain(|held| held.id != id);
                }
                http3::Event::Trailers { .. } | http3::Event::GoAway => {}
            }
        }
    }

    fn take_upload(&mut self, id: StreamId) -> Option<Upload> {
        let place = self.uploads.iter().position(|upload| upload.id == id)?;
        Some(self.uploads.swap_remove(place))
    }

    fn take_body(&mut self, now: Timestamp, connection: &mut Connection, id: StreamId) {
        let Protocol::Http3(server) = &mut self.protocol else { return };
        let Some(upload) = self.uploads.iter_mut().find(|upload| upload.id == id) else { return };
        let t = &mut OverQuic::new(connection, now);
        while let http3::BodyRead::Data(data) = server.read_body(t, id, 65_536) {
            upload.body.extend_from_slice(&data);
            if upload.body.len() > upload.max {
                server.discard_body(t, id);
                self.take_upload(id);
                let response = http::Response::plain(413, SystemTime::now());
                self.respond(now, connection, id, response);
                return;
            }
        }
    }

    /// Leaves a request to the client to repeat.
    fn reject(&mut self, now: Timestamp, connection: &mut Connection, id: StreamId) {
        if let Protocol::Http3(server) = &mut self.protocol {
            server.cancel(&mut OverQuic::new(connection, now), id, code::H3_REQUEST_REJECTED);
        }
    }

    /// Answers a request as soon as it may be.
    fn answer_in_time(
        &mut self,
        now: Timestamp,
        connection: &mut Connection,
        id: StreamId,
        head: Box<Http3Head>,
        body: BytesMut,
    ) {
        let is_safe = matches!(&head.method[..], b"GET" | b"HEAD");
        if is_safe || !head.early || !connection.is_early() {
            self.answer(now, connection, id, &head, &body);
        } else if self.held.len() < MAX_KEPT {
            self.held.push(Held { id, head, body });
        } else {
            self.reject(now, connection, id);
        }
    }

    fn answer(
        &mut self,
        now: Timestamp,
        connection: &mut Connection,
        id: StreamId,
        head: &Http3Head,
        body: &[u8],
    ) {
        let cohort = self.cohort.as_ref().map(|cohort| (self.unit, cohort));
        let answer = with_head(head, connection, cohort, body, |head| {
            routes::respond(&self.state, head, SystemTime::now())
        });
        self.take_answer(now, connection, id, answer);
    }

    fn take_answer(
        &mut self,
        now: Timestamp,
        connection: &mut Connection,
        id: StreamId,
        answer: Answer,
    ) {
        match answer {
            Answer::Now(response) => self.respond(now, connection, id, response),
            Answer::Later(answer) => {
                self.waiting.push(Waiting { id, answer });
                self.is_curious = true;
            }
        }
    }

    fn respond(
        &mut self,
        now: Timestamp,
        connection: &mut Connection,
        id: StreamId,
        response: http::Response,
    ) {
        let empty = matches!(response.body, Body::Empty);
        let taken = match &mut self.protocol {
            Protocol::Http3(server) => {
                let headers: Vec<(&str, &str)> =
                    response.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
                let t = &mut OverQuic::new(connection, now);
                // A request that the client gave up meanwhile needs no answer.
                server.respond(t, id, response.status, &headers, empty).is_ok() && !empty
            }
            // There are no status codes; an empty body is one to finish.
            _ if response.status == 200 => true,
            _ => {
                let _ = connection.reset(id, code::H3_REQUEST_REJECTED);
                false
            }
        };
        if taken {
            let body = Responder::from(response.body);
            if let Some(session) = body.session() {
                self.watches.retain(Watch::is_open);
                let is_known = self.watches.iter().any(|watch| watch.is_of(session));
                if !is_known && self.watches.len() < MAX_WATCHES {
                    self.watches.push(Watch::new(session, now, connection));
                }
            }
            self.responses.push(Response::new(id, body));
            self.is_curious = true;
        }
    }

    fn on_line(&mut self, now: Timestamp, connection: &mut Connection, event: StreamEvent) {
        let Protocol::Http09(requests) = &mut self.protocol else { return };
        match requests.on_stream(now, connection, event) {
            Told::Nothing => {}
            Told::Over(id) => {
                self.responses.retain(|response| response.id != id);
                self.waiting.retain(|waiting| waiting.id != id);
            }
            Told::Request(id, target) => {
                let cohort = self.cohort.as_ref().map(|cohort| (self.unit, cohort));
                let head = RequestHead {
                    method: "GET",
                    target: &target,
                    fields: Vec::new(),
                    remote: connection.addresses().remote,
                    protocol: crate::viewer::Protocol::Http09,
                    cohort,
                    body: &[],
                };
                let answer = routes::respond(&self.state, &head, SystemTime::now());
                self.take_answer(now, connection, id, answer);
            }
        }
    }

    /// Sends answers that have come, and hands more of the bodies over where streams have room.
    /// Returns whether there may be more as soon as some of that has left: where there is not, the
    /// waker tells.
    pub(super) fn fill(&mut self, now: Timestamp, connection: &mut Connection) -> bool {
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
        let context = &mut Context::from_waker(&self.waker);
        let mut more = false;
        let mut expects = false;
        index = 0;
        while let Some(response) = self.responses.get_mut(index) {
            match fill(&mut self.protocol, response, now, connection, context) {
                Filled::Over => {
                    let last = |watch: &mut Watch| watch.look(now, connection, true);
                    self.watches.iter_mut().for_each(last);
                    self.responses.swap_remove(index);
                }
                filled => {
                    more |= filled == Filled::Enough;
                    expects |= response.expects_first_frame();
                    index += 1;
                }
            }
        }
        self.is_curious = more || expects;
        more
    }

    /// Whether [`Session::fill`] has to be called though nothing woke the session.
    pub(super) fn is_curious(&self) -> bool {
        self.is_curious
    }

    /// Viewers may be about to leave: their sessions get the last numbers.
    pub(super) fn on_last_chance(&mut self, now: Timestamp, connection: &Connection) {
        self.watches.iter_mut().for_each(|watch| watch.look(now, connection, true));
    }

    /// What an address token carries back to us.
    pub(super) fn token(&self) -> Vec<u8> {
        if self.is_known {
            return self.unit.to_token();
        }
        let random = random().unwrap_or_default();
        let random = random.iter().take(8).fold(0, |n, byte| n << 8 | u64::from(*byte));
        self.state.cohorts.own_unit(self.unit, random).to_token()
    }

    /// Whether no response is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.responses.is_empty() && self.waiting.is_empty()
    }

    /// Tells the client that no more requests are taken.
    pub(super) fn go_away(&mut self, now: Timestamp, connection: &mut Connection) {
        if let Protocol::Http3(server) = &mut self.protocol {
            server.go_away(&mut OverQuic::new(connection, now));
        }
    }
}

/// Looks at a request of HTTP/3 as the fronts have it in common.
fn with_head<T>(
    head: &Http3Head,
    connection: &Connection,
    cohort: Option<(Unit, &Cohort)>,
    body: &[u8],
    look: impl FnOnce(&RequestHead<'_>) -> T,
) -> T {
    let text = |bytes: &'_ [u8]| core::str::from_utf8(bytes).unwrap_or_default().to_owned();
    let (method, target) = (text(&head.method), text(&head.path));
    let names: Vec<String> = head.headers.iter().map(|field| text(&field.name)).collect();
    let fields = names.iter().zip(&head.headers);
    look(&RequestHead {
        method: &method,
        target: &target,
        fields: fields.map(|(name, field)| (name.as_str(), &field.value[..])).collect(),
        remote: connection.addresses().remote,
        protocol: crate::viewer::Protocol::Http3,
        cohort,
        body,
    })
}
