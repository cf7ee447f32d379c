//! Server side of an HTTP/3 connection (RFC 9114, sections 4 and 5): maps transport events to HTTP
//! events.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use bytes::BufMut;
use quic::wire::{VARINT_MAX, put_varint};
use units::{Direction, Side, StreamId, Timestamp};

use crate::cancels::Cancels;
use crate::control::{self, Signal, UniStreams};
use crate::error::{ConnectionError, RequestError, code};
use crate::event::{BodyRead, Event};
use crate::frame;
use crate::priority::EarlyUpdates;
use crate::stream::{RequestStream, Stop};
use crate::transport::Transport;

/// Capacity above which the empty event queue releases its memory.
const IDLE_EVENTS: usize = 4;

/// Returns the limit of partially received field sections of all requests, in bytes: 1.5 times the
/// largest section. Clients send heads whole, so that only lost packets leave partial ones. One
/// datagram may complete all of them, and they are then decoded at once.
const fn max_partial(largest: u64) -> u64 {
    largest.saturating_add(largest / 2)
}

/// Limits of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Maximum size of a header or trailer section in bytes, both encoded and by RFC 9114, section
    /// 4.2.2. Larger requests get status 431. Use the same value on all servers that accept each
    /// other's 0-RTT data (section 7.2.4.2). Default 16 KiB.
    pub max_field_section_size: u64,
    /// Maximum number of concurrent requests. Further ones are rejected. The transport's stream
    /// limit should not be higher. Default 128.
    pub max_concurrent_requests: usize,
    /// Any number, preferably random. Selects the reserved setting that is sent to keep clients
    /// tolerant of unknown ones (RFC 9114, section 7.2.4.1).
    pub grease: u32,
    /// Maximum time from the start of a request's stream to its head, and from the head to the end
    /// of its content, plus a second per KiB that the application has read. Slower requests are
    /// reset with H3_REQUEST_INCOMPLETE. Default 10 s.
    pub request_timeout: Duration,
    /// Idle time without requests and responses after which a connection gets a GOAWAY. It is
    /// closed with H3_NO_ERROR one second later. Default 30 s.
    pub unused_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_field_section_size: 16 * 1024,
            max_concurrent_requests: 128,
            grease: 0,
            request_timeout: Duration::from_secs(10),
            unused_timeout: Duration::from_secs(30),
        }
    }
}

/// Server side of an HTTP/3 connection.
///
/// The caller reports the transport's events (`on_…`), then takes all events of the server, and
/// then acts on them. It calls [`Server::on_timeout`] at [`Server::deadline`]. After
/// [`Transport::close`], all input is ignored.
#[derive(Debug, Default)]
pub struct Server {
    pub(crate) config: Config,
    /// The server's control stream. It has no QPACK streams: without a dynamic table in either
    /// direction, RFC 9204, section 4.2, lets them be omitted.
    pub(crate) control: Option<StreamId>,
    incoming: UniStreams,
    /// The request streams known to the transport.
    pub(crate) requests: BTreeMap<StreamId, RequestState>,
    /// Number of open requests.
    pub(crate) active: usize,
    /// Number of answered requests.
    pub(crate) answered: usize,
    /// Bytes of partially received field sections of all requests.
    collected: usize,
    /// Lowest stream identifier above all accepted requests.
    pub(crate) next_request: u64,
    early_updates: EarlyUpdates,
    /// SETTINGS_MAX_FIELD_SECTION_SIZE of the client, in bytes; `None` without a limit.
    pub(crate) peer_max_field_section_size: Option<u64>,
    /// Identifier in the last sent GOAWAY.
    pub(crate) goaway: Option<u64>,
    /// Time of the next check for slow requests.
    pub(crate) check_at: Option<Timestamp>,
    /// Time at which a request or response last ended; initially, the start of the connection.
    pub(crate) last_use: Option<Timestamp>,
    events: VecDeque<Event>,
    cancels: Cancels,
    is_flooding: bool,
    pub(crate) is_closed: bool,
}

/// State of a request stream.
#[derive(Debug)]
pub(crate) enum RequestState {
    /// The response is incomplete.
    Open(Box<RequestStream>),
    /// The response is complete but not acknowledged.
    Answered,
    /// The request has ended.
    Over,
}

impl Server {
    /// Creates the server of a new connection.
    pub fn new(config: Config) -> Self {
        Self { config, ..Self::default() }
    }

    /// Opens the control stream with SETTINGS. Call once, as soon as the transport can send
    /// application data (RFC 9114, section 7.2.4.2).
    pub fn start(&mut self, t: &mut impl Transport) {
        self.last_use = Some(t.now());
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

        self.control = t.open_uni().filter(|&id| t.write(id, first.into()).is_ok());
        if self.control.is_none() {
            // RFC 9114, section 6.2: the client "MUST allow" at least three of these streams.
            let reason = "stream limit leaves no control stream";
            self.close(t, ConnectionError::new(code::H3_GENERAL_PROTOCOL_ERROR, reason));
        }
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front();
        if self.events.is_empty() && self.events.capacity() > IDLE_EVENTS {
            self.events = VecDeque::new();
        }
        event
    }

    /// Handles new data or the end of the client's stream `id`. Reads everything except content.
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
        self.watch(id);
    }

    fn on_uni_readable(&mut self, t: &mut impl Transport, id: StreamId) {
        loop {
            match self.incoming.poll(t, id) {
                Ok(None) => return,
                Ok(Some(Signal::GoAway)) => self.events.push_back(Event::GoAway),
                Ok(Some(Signal::MaxFieldSectionSize(size))) => {
                    self.peer_max_field_section_size = Some(size);
                }
                Ok(Some(Signal::Priority(id, priority))) => {
                    match self.requests.get_mut(&id) {
                        Some(request) => {
                            if let RequestState::Open(request) = request {
                                request.priority_update = Some(priority);
                            }
                            t.set_priority(id, priority);
                        }
                        // The request may also have ended. The bounded store then eventually evicts
                        // the update.
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

    /// Accepts or rejects a new request stream.
    fn admit(&mut self, t: &mut impl Transport, id: StreamId) -> bool {
        // RFC 9114, section 5.2: requests at or above the identifier of the sent GOAWAY are
        // rejected.
        let is_late = self.goaway.is_some_and(|limit| id.0 >= limit);
        let priority_update = self.early_updates.take(id);
        if is_late || self.active >= self.config.max_concurrent_requests {
            self.requests.insert(id, RequestState::Over);
            t.reset(id, code::H3_REQUEST_REJECTED);
            t.stop_sending(id, code::H3_REQUEST_REJECTED);
            return false;
        }
        let request = RequestStream::new(priority_update, t.now());
        self.requests.insert(id, RequestState::Open(Box::new(request)));
        self.active += 1;
        self.next_request = self.next_request.max(id.0 + 4);
        true
    }

    /// Continues reading a request, and handles errors.
    fn advance(&mut self, t: &mut impl Transport, id: StreamId) -> Option<Stop> {
        let Some(RequestState::Open(request)) = self.requests.get_mut(&id) else { return None };
        let before = self.events.len();
        let limit = self.config.max_field_section_size;
        self.collected -= request.collected();
        let outcome = request.advance(t, id, limit, &mut self.events);
        self.collected += request.collected();
        let exceeds_limit = self.collected as u64 > max_partial(limit);
        let outcome = match outcome {
            Ok(_) if exceeds_limit => Err(RequestError::Stream(code::H3_EXCESSIVE_LOAD)),
            outcome => outcome,
        };
        match outcome {
            Ok(stop) => {
                request.is_delivered |= self.events.len() > before;
                Some(stop)
            }
            Err(failure) => {
                // Events of a malformed request are discarded.
                self.events.truncate(before);
                self.fail(t, id, failure);
                None
            }
        }
    }

    /// Ends the request or the connection after an error of the client.
    fn fail(&mut self, t: &mut impl Transport, id: StreamId, failure: RequestError) {
        tracing::debug!(stream = id.0, ?failure, "request failed");
        match failure {
            RequestError::Connection(error) => self.close(t, error),
            RequestError::Stream(code) => {
                self.abort(t, id, code, code);
                self.count_cancel(t);
            }
            RequestError::Reset(code) => self.on_cancelled(t, id, code),
            RequestError::Answer(status) => {
                // Only a header section is answered, before any response, so this is in order. If
                // sending fails, the request still ends.
                if self.respond(t, id, status, &[], true).is_err() {
                    self.cancel(t, id, code::H3_REQUEST_REJECTED);
                }
            }
        }
    }

    /// Resets both parts of a request stream with `code`. If the request has been delivered, the
    /// application gets an event with `reason`.
    pub(crate) fn abort(&mut self, t: &mut impl Transport, id: StreamId, code: u64, reason: u64) {
        if let Some(request) = self.retire(t, id, RequestState::Over) {
            tracing::debug!(stream = id.0, code, "request aborted");
            t.reset(id, code);
            if !request.has_ended() {
                t.stop_sending(id, code);
            }
            if request.is_delivered {
                self.events.push_back(Event::Cancelled { id, code: reason });
            }
        }
    }

    pub(crate) fn close(&mut self, t: &mut impl Transport, error: ConnectionError) {
        self.is_closed = true;
        tracing::debug!(code = error.code, reason = error.reason, "HTTP/3 connection error");
        t.close(error.code, error.reason);
    }

    /// Handles a reset of the client's part of stream `id`, with this code.
    pub fn on_reset(&mut self, t: &mut impl Transport, id: StreamId, code: u64) {
        if self.is_closed {
            return;
        }
        tracing::trace!(stream = id.0, code, "stream reset by the client");
        if id.direction() == Direction::Unidirectional {
            if let Err(error) = self.incoming.on_reset(id) {
                self.close(t, error);
            }
        } else {
            self.on_cancelled(t, id, code);
        }
    }

    /// Handles STOP_SENDING of the client for stream `id`, with this code.
    pub fn on_stopped(&mut self, t: &mut impl Transport, id: StreamId, code: u64) {
        if self.is_closed {
            return;
        }
        tracing::trace!(stream = id.0, code, "stream stopped by the client");
        if self.control == Some(id) {
            // RFC 9114, section 6.2.1: the receiver "MUST NOT request that the sender close the
            // control stream".
            self.close(t, control::closed_critical());
        } else if id.direction() == Direction::Bidirectional {
            self.on_cancelled(t, id, code);
            // The transport has reset the data in flight.
            self.on_delivered(t, id);
        }
    }

    /// Handles the acknowledgement of all data of stream `id`, whose sending part is finished.
    pub fn on_delivered(&mut self, t: &mut impl Transport, id: StreamId) {
        if let Some(request @ RequestState::Answered) = self.requests.get_mut(&id) {
            *request = RequestState::Over;
            self.answered -= 1;
            self.last_use = Some(t.now());
        }
    }

    /// Handles the cancellation of a request with `code`, possibly before any of it was read.
    fn on_cancelled(&mut self, t: &mut impl Transport, id: StreamId, code: u64) {
        if !self.requests.contains_key(&id) && !self.admit(t, id) {
            return;
        }
        if let Some(request) = self.live(id) {
            let own_code = request.cancel_code();
            self.abort(t, id, own_code, code);
            self.count_cancel(t);
        }
    }

    /// Counts a request that the client cancelled. Frequent cancellations waste the server's work.
    fn count_cancel(&mut self, t: &mut impl Transport) {
        let open = self.config.max_concurrent_requests;
        if self.cancels.add(t.now(), open) && !self.is_closed {
            self.is_flooding = true;
            let reason = "too many cancelled requests";
            self.close(t, ConnectionError::new(code::H3_EXCESSIVE_LOAD, reason));
        }
    }

    /// Whether the connection was closed because of too many cancelled requests: more than a burst
    /// of twice the concurrent requests, and 10 per second.
    pub fn is_flooding(&self) -> bool {
        self.is_flooding
    }

    /// Handles the end of both parts of stream `id` in the transport.
    pub fn on_stream_closed(&mut self, t: &mut impl Transport, id: StreamId) {
        self.incoming.on_closed(id);
        self.on_delivered(t, id);
        if let Some(request) = self.retire(t, id, RequestState::Over)
            && request.is_delivered
        {
            self.events.push_back(Event::Cancelled { id, code: code::H3_REQUEST_CANCELLED });
        }
        self.requests.remove(&id);
    }

    /// Declines a request's content. Further content is read and dropped; after a few kilobytes,
    /// the client is asked to stop sending. No [`Event::BodyReadable`] follows.
    pub fn discard_body(&mut self, t: &mut impl Transport, id: StreamId) {
        if let Some(request) = self.live(id) {
            request.discard();
            self.advance(t, id);
        }
    }

    /// Reads up to `max` (at least 1) bytes of a request's content from the transport. At its end,
    /// [`Event::Trailers`] and [`Event::RequestEnd`] are queued too.
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

    pub(crate) fn live(&mut self, id: StreamId) -> Option<&mut RequestStream> {
        match self.requests.get_mut(&id)? {
            RequestState::Open(request) => Some(request),
            RequestState::Answered | RequestState::Over => None,
        }
    }

    /// Frees the state of an open request and sets the state `then`. The transport still knows the
    /// stream.
    pub(crate) fn retire(
        &mut self,
        t: &mut impl Transport,
        id: StreamId,
        then: RequestState,
    ) -> Option<Box<RequestStream>> {
        let place = self.requests.get_mut(&id)?;
        if !matches!(place, RequestState::Open(_)) {
            return None;
        }
        self.answered += usize::from(matches!(then, RequestState::Answered));
        let RequestState::Open(request) = core::mem::replace(place, then) else { return None };
        self.active -= 1;
        self.collected -= request.collected();
        self.last_use = Some(t.now());
        Some(request)
    }

    /// Heap memory under this crate's control, in bytes.
    #[cfg(test)]
    pub(crate) fn heap(&self) -> usize {
        let open_heap = |request: &RequestState| match request {
            RequestState::Open(request) => request.heap(),
            RequestState::Answered | RequestState::Over => 0,
        };
        self.incoming.heap()
            + self.early_updates.heap()
            + self.events.capacity() * size_of::<Event>()
            + self.requests.values().map(open_heap).sum::<usize>()
            + self.requests.len() * size_of::<(StreamId, RequestState)>()
    }
}
