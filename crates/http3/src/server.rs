//! One HTTP/3 connection of the server: what the transport reports goes in, events come out, and
//! responses are framed (RFC 9114, sections 4 and 5).

use std::collections::{BTreeMap, VecDeque};

use bytes::{BufMut, Bytes};
use units::{Direction, Side, StreamId};

use crate::control::{self, Signal, UniStreams};
use crate::error::{ConnectionError, Failure, SendError, code};
use crate::frame::{self, VARINT_MAX, put_varint, write_frame};
use crate::priority::EarlyUpdates;
use crate::qpack::{self, Field};
use crate::request::{self, RequestHead};
use crate::stream::{RequestStream, Sending, Stop};
use crate::transport::Transport;

/// The event queue gives its memory back when it is empty and has room for more than this.
const IDLE_EVENTS: usize = 4;

/// Limits of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The largest header or trailer section that is accepted, in bytes, both as it is encoded and
    /// as RFC 9114, section 4.2.2 counts its fields. Requests above it are answered with status
    /// 431. Keep it the same for all servers that accept each other's 0-RTT data (section 7.2.4.2).
    pub max_field_section_size: u64,
    /// Requests that may be unanswered at a time; those above it are rejected. The transport's
    /// stream limit should not be higher.
    pub max_concurrent_requests: usize,
    /// Any number, preferably random: picks the reserved setting that is sent to keep clients
    /// tolerant of unknown ones (RFC 9114, section 7.2.4.1).
    pub grease: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { max_field_section_size: 16 * 1024, max_concurrent_requests: 128, grease: 0 }
    }
}

/// What happened on a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A request has arrived.
    Request {
        /// Its stream.
        id: StreamId,
        /// Its head.
        head: Box<RequestHead>,
        /// Whether it is complete, with neither content nor trailers: no
        /// [`Event::RequestEnd`] follows.
        end: bool,
    },
    /// Content may be read with [`Server::read_body`], until that says [`BodyRead::Blocked`].
    BodyReadable(StreamId),
    /// The trailer section of a request; all of its content has been read.
    Trailers {
        /// The request's stream.
        id: StreamId,
        /// The fields in their order.
        fields: Vec<Field>,
    },
    /// The request is complete and all of its content has been read.
    RequestEnd(StreamId),
    /// A request that was handed over is over: the client cancelled it, or it turned out wrong.
    /// Nothing more can be read or sent.
    Cancelled {
        /// The request's stream.
        id: StreamId,
        /// The client's error code, or ours.
        code: u64,
    },
    /// The client sent GOAWAY. As the server never pushes, nothing has to be done.
    GoAway,
}

/// What [`Server::read_body`] found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BodyRead {
    /// The next bytes of the content, at least 1.
    Data(Bytes),
    /// Nothing to read now; [`Event::BodyReadable`] or [`Event::RequestEnd`] follows.
    Blocked,
    /// All of the content has been read.
    End,
    /// The request is over or never was.
    Gone,
}

/// The server's end of an HTTP/3 connection.
///
/// The caller reports what the transport says (`on_…`), then takes all events, then acts on them.
/// It ends requests that make no progress with [`Server::cancel`], at times of its choice. When
/// [`Transport::close`] has been called for a violation, everything is ignored from then on.
#[derive(Debug)]
pub struct Server {
    config: Config,
    /// Our control stream, and the QPACK streams if the client let us open them.
    critical: [Option<StreamId>; 3],
    incoming: UniStreams,
    /// By stream; `None` once HTTP/3 has nothing more to do with a stream that the transport still
    /// knows.
    requests: BTreeMap<StreamId, Option<Box<RequestStream>>>,
    /// How many of `requests` are `Some`.
    active: usize,
    /// The first stream identifier that no request has used or passed.
    next_request: u64,
    early_updates: EarlyUpdates,
    /// The client's SETTINGS_MAX_FIELD_SECTION_SIZE, in bytes.
    peer_max_field_section_size: u64,
    /// The identifier in our last GOAWAY.
    goaway: Option<u64>,
    events: VecDeque<Event>,
    is_closed: bool,
}

impl Server {
    /// A connection on which nothing has happened.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            critical: [None; 3],
            incoming: UniStreams::default(),
            requests: BTreeMap::new(),
            active: 0,
            next_request: 0,
            early_updates: EarlyUpdates::default(),
            peer_max_field_section_size: u64::MAX,
            goaway: None,
            events: VecDeque::new(),
            is_closed: false,
        }
    }

    /// Opens the control stream with SETTINGS, and the two QPACK streams. To be called once, as
    /// soon as the transport can send application data (RFC 9114, section 7.2.4.2).
    pub fn start(&mut self, t: &mut impl Transport) {
        let mut settings = Vec::new();
        for (identifier, value) in [
            (control::QPACK_MAX_TABLE_CAPACITY, 0),
            (control::QPACK_BLOCKED_STREAMS, 0),
            (control::MAX_FIELD_SECTION_SIZE, self.config.max_field_section_size.min(VARINT_MAX)),
            // RFC 9114, section 7.2.4.1: reserved identifiers are 0x1f * N + 0x21.
            (0x1f * u64::from(self.config.grease) + 0x21, u64::from(self.config.grease)),
        ] {
            put_varint(&mut settings, identifier);
            put_varint(&mut settings, value);
        }
        let mut first = Vec::with_capacity(8 + settings.len());
        put_varint(&mut first, control::CONTROL_STREAM);
        put_varint(&mut first, frame::SETTINGS);
        put_varint(&mut first, settings.len() as u64);
        first.put_slice(&settings);

        self.critical[0] = t.open_uni().filter(|&id| t.write(id, first.into()).is_ok());
        if self.critical[0].is_none() {
            // RFC 9114, section 6.2: the client "MUST allow" at least three of these streams.
            let reason = "no unidirectional stream for the control stream";
            self.close(t, ConnectionError::new(code::H3_GENERAL_PROTOCOL_ERROR, reason));
            return;
        }
        for (place, kind) in [(1, control::ENCODER_STREAM), (2, control::DECODER_STREAM)] {
            // RFC 9204, section 4.2: a stream that would not be used may be left out.
            self.critical[place] =
                t.open_uni().filter(|&id| t.write_small(id, &[kind as u8]).is_ok());
        }
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front();
        if self.events.is_empty() && self.events.capacity() > IDLE_EVENTS {
            self.events = VecDeque::new();
        }
        event
    }

    /// Stream `id` of the client has new data, or its end: reads all that may be read without
    /// being asked for, which is everything but content.
    pub fn on_readable(&mut self, t: &mut impl Transport, id: StreamId) {
        if self.is_closed || id.initiator() == Side::Server {
            return;
        }
        if id.direction() == Direction::Unidirectional {
            self.on_uni_readable(t, id);
            return;
        }
        if !self.requests.contains_key(&id) && !self.admit(t, id) {
            return;
        }
        if self.advance(t, id) == Some(Stop::Content)
            && self.live(id).is_some_and(RequestStream::notify)
        {
            self.events.push_back(Event::BodyReadable(id));
        }
    }

    fn on_uni_readable(&mut self, t: &mut impl Transport, id: StreamId) {
        loop {
            match self.incoming.poll(t, id) {
                Ok(None) => return,
                Ok(Some(Signal::GoAway)) => self.events.push_back(Event::GoAway),
                Ok(Some(Signal::MaxFieldSectionSize(size))) => {
                    self.peer_max_field_section_size = size;
                }
                Ok(Some(Signal::Priority(id, priority))) => {
                    match self.requests.get_mut(&id) {
                        Some(request) => {
                            if let Some(request) = request {
                                request.priority_update = Some(priority);
                            }
                            t.set_priority(id, priority.urgency, priority.incremental);
                        }
                        // Should the request be over instead of yet to come, the bound of the store
                        // sees to it that the update is forgotten.
                        None => self.early_updates.put(id, priority),
                    }
                }
                Err(error) => {
                    self.close(t, error);
                    return;
                }
            }
        }
    }

    /// Begins with a new request stream, or rejects it.
    fn admit(&mut self, t: &mut impl Transport, id: StreamId) -> bool {
        // RFC 9114, section 5.2: requests at or above the identifier of our GOAWAY are rejected,
        // as they arrive.
        let is_late = self.goaway.is_some_and(|limit| id.0 >= limit);
        let priority_update = self.early_updates.take(id);
        if is_late || self.active >= self.config.max_concurrent_requests {
            self.requests.insert(id, None);
            t.reset(id, code::H3_REQUEST_REJECTED);
            t.stop_sending(id, code::H3_REQUEST_REJECTED);
            return false;
        }
        self.requests.insert(id, Some(Box::new(RequestStream::new(priority_update))));
        self.active += 1;
        self.next_request = self.next_request.max(id.0 + 4);
        true
    }

    /// Lets a request read on, and handles what goes wrong.
    fn advance(&mut self, t: &mut impl Transport, id: StreamId) -> Option<Stop> {
        let request = self.requests.get_mut(&id)?.as_deref_mut()?;
        let before = self.events.len();
        let limit = self.config.max_field_section_size;
        match request.advance(t, id, limit, &mut self.events) {
            Ok(stop) => {
                request.is_delivered |= self.events.len() > before;
                Some(stop)
            }
            Err(failure) => {
                // What a wrong request said before it went wrong is not handed over.
                self.events.truncate(before);
                self.fail(t, id, failure);
                None
            }
        }
    }

    /// Ends a request, or the connection, for what the client did.
    fn fail(&mut self, t: &mut impl Transport, id: StreamId, failure: Failure) {
        match failure {
            Failure::Connection(error) => self.close(t, error),
            Failure::Stream(code) => self.abort(t, id, code, code),
            Failure::Reset(code) => self.give_up(t, id, code),
            Failure::Answer(status) => {
                // Only a header section is answered, before any response, so this is in order;
                // should the client not want the answer, the request is over all the same.
                if self.respond(t, id, status, &[], true).is_err() {
                    self.cancel(t, id, code::H3_REQUEST_REJECTED);
                }
            }
        }
    }

    /// Ends both parts of a request stream with `code`, and tells the application if it knows of
    /// the request, with `reason`.
    fn abort(&mut self, t: &mut impl Transport, id: StreamId, code: u64, reason: u64) {
        if let Some(request) = self.retire(id) {
            t.reset(id, code);
            if !request.has_ended() {
                t.stop_sending(id, code);
            }
            if request.is_delivered {
                self.events.push_back(Event::Cancelled { id, code: reason });
            }
        }
    }

    fn close(&mut self, t: &mut impl Transport, error: ConnectionError) {
        self.is_closed = true;
        t.close(error.code, error.reason);
    }

    /// The client reset its part of stream `id` with this code.
    pub fn on_reset(&mut self, t: &mut impl Transport, id: StreamId, code: u64) {
        if self.is_closed {
            return;
        }
        if id.direction() == Direction::Unidirectional {
            if let Err(error) = self.incoming.on_reset(id) {
                self.close(t, error);
            }
        } else {
            self.give_up(t, id, code);
        }
    }

    /// The client asks that nothing more be sent on stream `id`, with this code.
    pub fn on_stopped(&mut self, t: &mut impl Transport, id: StreamId, code: u64) {
        if self.is_closed {
            return;
        }
        if self.critical.contains(&Some(id)) {
            // RFC 9114, section 6.2.1: the receiver "MUST NOT request that the sender close the
            // control stream".
            self.close(t, control::closed_critical());
        } else if id.direction() == Direction::Bidirectional {
            self.give_up(t, id, code);
        }
    }

    /// The client no longer wants a request, and said so with `code`; perhaps before a byte of it
    /// could be read.
    fn give_up(&mut self, t: &mut impl Transport, id: StreamId, code: u64) {
        if !self.requests.contains_key(&id) && !self.admit(t, id) {
            return;
        }
        if let Some(request) = self.live(id) {
            let ours = request.cancel_code();
            self.abort(t, id, ours, code);
        }
    }

    /// The transport has forgotten stream `id`: both of its parts are over.
    pub fn on_stream_closed(&mut self, id: StreamId) {
        self.incoming.on_closed(id);
        if let Some(request) = self.retire(id)
            && request.is_delivered
        {
            self.events.push_back(Event::Cancelled { id, code: code::H3_REQUEST_CANCELLED });
        }
        self.requests.remove(&id);
    }

    /// Sends the head of the response: `:status` and `headers`, in their order. With `end` the
    /// response is complete, as by [`Server::finish`].
    ///
    /// # Errors
    /// [`SendError::Gone`], [`SendError::OutOfOrder`] after a first call, [`SendError::Malformed`]
    /// for a status outside 200 to 999 or a field that RFC 9114, section 4.2 forbids, and
    /// [`SendError::TooLarge`] above the client's limit; nothing has been sent then.
    pub fn respond(
        &mut self,
        t: &mut impl Transport,
        id: StreamId,
        status: u16,
        headers: &[(&str, &str)],
        end: bool,
    ) -> Result<(), SendError> {
        let request = self.live(id).ok_or(SendError::Gone)?;
        if request.sending != Sending::Nothing {
            return Err(SendError::OutOfOrder);
        }
        if !(200..=999).contains(&status) {
            return Err(SendError::Malformed);
        }
        let status = status.to_string();
        self.send_fields(t, id, Some((":status", status.as_str())), headers, Sending::Content)?;
        if end { self.finish(t, id) } else { Ok(()) }
    }

    /// Sends content: one DATA frame around `data`, which is not copied. Nothing for no bytes.
    ///
    /// # Errors
    /// [`SendError::Gone`], and [`SendError::OutOfOrder`] before the head or after the trailers.
    pub fn send_data(
        &mut self,
        t: &mut impl Transport,
        id: StreamId,
        data: Bytes,
    ) -> Result<(), SendError> {
        let request = self.live(id).ok_or(SendError::Gone)?;
        if request.sending != Sending::Content {
            return Err(SendError::OutOfOrder);
        }
        if data.is_empty() {
            return Ok(());
        }
        Ok(write_frame(t, id, frame::DATA, data)?)
    }

    /// Sends the trailer section; only [`Server::finish`] may follow.
    ///
    /// # Errors
    /// As [`Server::send_data`] and [`Server::respond`].
    pub fn send_trailers(
        &mut self,
        t: &mut impl Transport,
        id: StreamId,
        fields: &[(&str, &str)],
    ) -> Result<(), SendError> {
        let request = self.live(id).ok_or(SendError::Gone)?;
        if request.sending != Sending::Content {
            return Err(SendError::OutOfOrder);
        }
        self.send_fields(t, id, None, fields, Sending::Trailers)
    }

    fn send_fields(
        &mut self,
        t: &mut impl Transport,
        id: StreamId,
        control_data: Option<(&str, &str)>,
        fields: &[(&str, &str)],
        then: Sending,
    ) -> Result<(), SendError> {
        if !fields.iter().all(|(n, v)| request::is_field(n.as_bytes(), v.as_bytes())) {
            return Err(SendError::Malformed);
        }
        let lines = || control_data.into_iter().chain(fields.iter().copied());
        // RFC 9114, section 4.2.2: a message above the peer's limit SHOULD NOT be sent.
        let size: u64 = lines().map(|(n, v)| qpack::field_size(n.as_bytes(), v.as_bytes())).sum();
        if size > self.peer_max_field_section_size {
            return Err(SendError::TooLarge);
        }
        write_frame(t, id, frame::HEADERS, qpack::encode(lines()))?;
        if let Some(request) = self.live(id) {
            request.sending = then;
        }
        Ok(())
    }

    /// Ends the response. What the client has not sent of its request by now is declined.
    ///
    /// # Errors
    /// [`SendError::Gone`], and [`SendError::OutOfOrder`] before the head.
    pub fn finish(&mut self, t: &mut impl Transport, id: StreamId) -> Result<(), SendError> {
        let request = self.live(id).ok_or(SendError::Gone)?;
        if request.sending == Sending::Nothing {
            return Err(SendError::OutOfOrder);
        }
        t.finish(id);
        if !request.has_ended() {
            // RFC 9114, section 4.1: "The error code H3_NO_ERROR SHOULD be used when requesting
            // that the client stop sending on the request stream."
            t.stop_sending(id, code::H3_NO_ERROR);
        }
        self.retire(id);
        Ok(())
    }

    /// Gives a request up: resets the response and declines the rest of the request, with `code`
    /// ([`code::H3_REQUEST_CANCELLED`], or [`code::H3_REQUEST_REJECTED`] if nothing was done for
    /// it). No event follows; a request that is over is left alone.
    pub fn cancel(&mut self, t: &mut impl Transport, id: StreamId, code: u64) {
        if let Some(request) = self.live(id) {
            request.is_delivered = false;
            self.abort(t, id, code, code);
        }
    }

    /// Takes the next up to `max` (at least 1) bytes of a request's content from the transport.
    /// At the end of the content, [`Event::Trailers`] and [`Event::RequestEnd`] are given too.
    pub fn read_body(&mut self, t: &mut impl Transport, id: StreamId, max: usize) -> BodyRead {
        if self.is_closed {
            return BodyRead::Gone;
        }
        let Some(stop) = self.advance(t, id) else { return BodyRead::Gone };
        let Some(request) = self.live(id) else { return BodyRead::Gone };
        let content = match stop {
            Stop::Content => request.read_content(t, id, max),
            Stop::Blocked => Ok(None),
            Stop::End => return BodyRead::End,
        };
        match content {
            Ok(Some(data)) => BodyRead::Data(data),
            Ok(None) => {
                request.rearm();
                BodyRead::Blocked
            }
            Err(failure) => {
                self.fail(t, id, failure);
                BodyRead::Gone
            }
        }
    }

    /// Begins, and on a second call completes, a graceful shutdown (RFC 9114, section 5.2): the
    /// first GOAWAY makes the client stop making requests, the second, which should leave about
    /// a round trip later, names the last one that is served. Later ones are rejected.
    pub fn go_away(&mut self, t: &mut impl Transport) {
        let Some(id) = self.critical[0].filter(|_| !self.is_closed) else { return };
        let limit = match self.goaway {
            // The largest identifier of a request stream, 2^62 - 4.
            None => VARINT_MAX - 3,
            Some(_) => self.next_request,
        };
        if self.goaway == Some(limit) {
            return;
        }
        self.goaway = Some(limit);
        let mut payload = Vec::with_capacity(8);
        put_varint(&mut payload, limit);
        // Without its control stream the connection is about to end anyway.
        let _ = write_frame(t, id, frame::GOAWAY, payload.into());
    }

    /// Whether a graceful shutdown is complete: the last GOAWAY has left and the transport has
    /// reported the end of every request stream, so that the connection may be closed with
    /// [`code::H3_NO_ERROR`].
    pub fn is_drained(&self) -> bool {
        self.goaway == Some(self.next_request) && self.requests.is_empty()
    }

    fn live(&mut self, id: StreamId) -> Option<&mut RequestStream> {
        self.requests.get_mut(&id)?.as_deref_mut()
    }

    /// Frees the state of a request; the transport still knows the stream.
    fn retire(&mut self, id: StreamId) -> Option<Box<RequestStream>> {
        let request = self.requests.get_mut(&id)?.take()?;
        self.active -= 1;
        Some(request)
    }

    /// Bytes on the heap, as far as this crate decides about them.
    #[cfg(test)]
    pub(crate) fn heap(&self) -> usize {
        self.incoming.heap()
            + self.early_updates.heap()
            + self.events.capacity() * size_of::<Event>()
            + self.requests.values().flatten().map(|request| request.heap()).sum::<usize>()
            + self.requests.len() * size_of::<(StreamId, Option<Box<RequestStream>>)>()
    }
}
