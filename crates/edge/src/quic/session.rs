//! The requests of one QUIC connection and their answers: HTTP/3 for `h3`, HTTP/0.9 for
//! `hq-interop`. Bodies are pulled: a responder is asked for more when its stream has little
//! unsent.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::SystemTime;

use ::quic::Connection;
use ::quic::streams::{ReadOutcome, StreamEvent};
use bytes::BytesMut;
use http3::{OverQuic, RequestHead as Http3Head, code};
use units::{Direction, StreamId, Timestamp};

use super::settings::random;
use super::watch::Watch;
use crate::cohorts::{Cohort, Unit};
use crate::front::{self, Answer, Body, RequestHead, Responder};
use crate::server::State;

/// Bytes of a stream that may be unsent before its responder has to wait; a live one waits earlier.
const HIGH_WATER: u64 = 128 * 1024;
/// Longest request line of HTTP/0.9.
const MAX_REQUEST_LINE: usize = 4_096;

/// A response under way.
#[derive(Debug)]
struct Response {
    id: StreamId,
    body: Responder,
    first_frame: FirstFrame,
}

/// The first frame of a live stream on its way.
#[derive(Clone, Copy, Debug)]
enum FirstFrame {
    /// Not handed to the transport yet.
    Ahead,
    /// Ends at this offset of the stream.
    Sent(u64),
    Acked,
}

impl Response {
    /// Whether the acknowledgement of the first frame is still to come.
    fn expects_first_frame(&self) -> bool {
        self.body.live().is_some() && !matches!(self.first_frame, FirstFrame::Acked)
    }
}

/// A request whose answer depends on its body.
struct Upload {
    id: StreamId,
    head: Box<Http3Head>,
    body: BytesMut,
    max: usize,
}

/// An answer that is not there yet.
struct Waiting {
    id: StreamId,
    answer: Pin<Box<dyn Future<Output = front::Response> + Send>>,
}

#[derive(Debug)]
enum Protocol {
    /// Not agreed yet.
    Pending,
    Http3(Box<http3::Server>),
    /// HTTP/0.9: the request lines that are not complete yet.
    Http09(Vec<(StreamId, Vec<u8>)>),
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
    /// The viewers' sessions on this connection: one, as a rule.
    watches: Vec<Watch>,
    /// The viewer, whether it was known by its token, and its cohort.
    unit: Unit,
    is_known: bool,
    cohort: Option<Cohort>,
    /// Requests that may be replays and are not safe to repeat: they wait for the handshake.
    held: Vec<(StreamId, Box<Http3Head>)>,
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
        connection.set_scheme(cohort.repair.scheme(self.unit.0 ^ now.as_nanos()));
        self.cohort = Some(cohort);
        if self.alpn == b"hq-interop" {
            self.protocol = Protocol::Http09(Vec::new());
            return;
        }
        let requests = self.state.config.quic.max_streams as usize;
        let grease = now.as_nanos() as u32;
        let config =
            http3::Config { max_concurrent_requests: requests, grease, ..http3::Config::default() };
        let mut server = Box::new(http3::Server::new(config));
        server.start(&mut OverQuic { connection, now });
        self.protocol = Protocol::Http3(server);
    }

    /// The handshake is confirmed: requests that waited for it are answered.
    pub(super) fn on_connected(&mut self, now: Timestamp, connection: &mut Connection) {
        for (id, head) in core::mem::take(&mut self.held) {
            self.answer(now, connection, id, &head, &[]);
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
                server.on_stream_event(&mut OverQuic { connection, now }, event);
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
                    let safe = matches!(&head.method[..], b"GET" | b"HEAD");
                    let max = with_head(&head, connection, None, &[], |head| head.max_body());
                    // A report may be a replay: it says what it said before.
                    if !end && max > 0 {
                        self.uploads.push(Upload { id, head, body: BytesMut::new(), max });
                    } else if connection.is_early() && head.early && !safe {
                        self.held.push((id, head));
                    } else {
                        self.answer(now, connection, id, &head, &[]);
                    }
                }
                http3::Event::BodyReadable(id) => {
                    let t = &mut OverQuic { connection, now };
                    let mut upload = self.uploads.iter_mut().find(|upload| upload.id == id);
                    while let http3::BodyRead::Data(data) = server.read_body(t, id, 65_536) {
                        // What nobody waits for is read all the same, so that the stream ends.
                        if let Some(Upload { body, max, .. }) = &mut upload
                            && body.len() <= *max
                        {
                            body.extend_from_slice(&data);
                        }
                    }
                }
                http3::Event::RequestEnd(id) => {
                    let place = self.uploads.iter().position(|upload| upload.id == id);
                    let Some(place) = place else { continue };
                    let Upload { head, body, max, .. } = self.uploads.swap_remove(place);
                    if body.len() > max {
                        let response = front::Response::plain(413, SystemTime::now());
                        self.respond(now, connection, id, response);
                    } else {
                        self.answer(now, connection, id, &head, &body);
                    }
                }
                http3::Event::Cancelled { id, .. } => {
                    self.on_last_chance(now, connection);
                    self.responses.retain(|response| response.id != id);
                    self.waiting.retain(|waiting| waiting.id != id);
                    self.uploads.retain(|upload| upload.id != id);
                    self.held.retain(|(held, _)| *held != id);
                }
                http3::Event::Trailers { .. } | http3::Event::GoAway => {}
            }
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
            front::respond(&self.state, head, SystemTime::now())
        });
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
        response: front::Response,
    ) {
        let empty = matches!(response.body, Body::Empty);
        let taken = match &mut self.protocol {
            Protocol::Http3(server) => {
                let headers: Vec<(&str, &str)> =
                    response.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
                let t = &mut OverQuic { connection, now };
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
                if !self.watches.iter().any(|watch| watch.is_of(session)) {
                    self.watches.push(Watch::new(session, now, connection));
                }
            }
            self.responses.push(Response { id, body, first_frame: FirstFrame::Ahead });
            self.is_curious = true;
        }
    }

    fn on_line(&mut self, now: Timestamp, connection: &mut Connection, event: StreamEvent) {
        let Protocol::Http09(lines) = &mut self.protocol else { return };
        let id = match event {
            StreamEvent::Readable(id) if id.direction() == Direction::Bidirectional => id,
            StreamEvent::Reset { id, .. } | StreamEvent::Stopped { id, .. } => {
                lines.retain(|(line, _)| *line != id);
                self.responses.retain(|response| response.id != id);
                self.waiting.retain(|waiting| waiting.id != id);
                return;
            }
            _ => return,
        };
        let place = lines.iter().position(|(line, _)| *line == id).unwrap_or_else(|| {
            lines.push((id, Vec::new()));
            lines.len() - 1
        });
        loop {
            match connection.read(id, MAX_REQUEST_LINE) {
                Ok(ReadOutcome::Data(data)) => lines[place].1.extend_from_slice(&data),
                Ok(ReadOutcome::Blocked) if lines[place].1.len() <= MAX_REQUEST_LINE => return,
                Ok(ReadOutcome::Finished) => break,
                _ => {
                    lines.swap_remove(place);
                    // Both parts are over with this; a stream that is gone already needs neither.
                    let _ = connection.stop_sending(id, code::H3_REQUEST_REJECTED);
                    let _ = connection.reset(id, code::H3_REQUEST_REJECTED);
                    return;
                }
            }
        }
        let (_, line) = lines.swap_remove(place);
        let line = String::from_utf8_lossy(&line);
        let target = line.trim_end().strip_prefix("GET ").unwrap_or("/");
        let (remote, protocol) = (connection.addresses().remote, front::Protocol::Http09);
        let cohort = self.cohort.as_ref().map(|cohort| (self.unit, cohort));
        let (fields, body) = (Vec::new(), &[][..]);
        let head = RequestHead { method: "GET", target, fields, remote, protocol, cohort, body };
        match front::respond(&self.state, &head, SystemTime::now()) {
            Answer::Now(response) => self.respond(now, connection, id, response),
            Answer::Later(answer) => {
                self.waiting.push(Waiting { id, answer });
                self.is_curious = true;
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
            server.go_away(&mut OverQuic { connection, now });
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
        protocol: front::Protocol::Http3,
        cohort,
        body,
    })
}

/// Why no more was handed over to a stream.
#[derive(PartialEq, Eq)]
enum Filled {
    /// As much as the stream may hold unsent is there.
    Enough,
    /// The body has to wait.
    Waits,
    /// The response is over.
    Over,
}

/// Fills one stream.
fn fill(
    protocol: &mut Protocol,
    response: &mut Response,
    now: Timestamp,
    connection: &mut Connection,
    context: &mut Context<'_>,
) -> Filled {
    let id = response.id;
    let enough = match (connection.pacing_rate(), response.body.live()) {
        (Some(rate), Some(_)) => relay::send_ahead(rate).min(HIGH_WATER),
        _ => HIGH_WATER,
    };
    loop {
        let Some(progress) = connection.send_progress(id) else { return Filled::Over };
        if let Some(live) = response.body.live() {
            match response.first_frame {
                FirstFrame::Ahead if live.has_frame() => {
                    response.first_frame = FirstFrame::Sent(progress.written);
                }
                FirstFrame::Sent(end) if progress.acked >= end => {
                    response.first_frame = FirstFrame::Acked;
                    live.session().on_first_frame();
                }
                _ => {}
            }
        }
        if progress.written - progress.sent >= enough {
            return Filled::Enough;
        }
        let Poll::Ready(next) = response.body.poll_fill(context) else { return Filled::Waits };
        let gone = match (&mut *protocol, next) {
            (Protocol::Http3(server), Ok(Some(data))) => {
                server.send_data(&mut OverQuic { connection, now }, id, data).is_err()
            }
            (Protocol::Http3(server), Ok(None)) => {
                // A stream that the client gave up is over as well.
                let _ = server.finish(&mut OverQuic { connection, now }, id);
                true
            }
            (Protocol::Http3(server), Err(_)) => {
                let t = &mut OverQuic { connection, now };
                server.cancel(t, id, code::H3_INTERNAL_ERROR);
                true
            }
            (_, Ok(Some(data))) => connection.write(id, data).is_err(),
            (_, Ok(None)) => {
                let _ = connection.finish(id);
                true
            }
            (_, Err(_)) => {
                let _ = connection.reset(id, code::H3_INTERNAL_ERROR);
                true
            }
        };
        if gone {
            return Filled::Over;
        }
    }
}
