//! The application's interface to a connection.

use super::Connection;
use super::event::{CloseReason, Event, HandshakeInfo};
use super::stats::Stats;
use crate::crypto::KeyRing;
use crate::path::Addresses;
use crate::rtt::Rtt;
use crate::streams::{Priority, ReadOutcome, SendProgress, UnknownStream, WriteError};
use bytes::Bytes;
use congestion::{Cap, Controller, Start};
use rand_chacha::ChaCha12Rng;
use recovery::{Expected, Guard, Scheme, Statistics};
use units::{Direction, Mark, Rate, StreamId, Timestamp};

impl Connection {
    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        if self.events.capacity() > 0 {
            self.events = Default::default();
        }
        self.streams.poll_event().map(Event::Stream)
    }

    /// Takes the handshake's results. Available once, from [`Event::Ready`] on.
    pub fn take_handshake_info(&mut self) -> Option<HandshakeInfo> {
        self.info.take().map(|info| *info)
    }

    /// Returns true until the handshake is confirmed. Until then, received data may be a replay.
    pub fn is_early(&self) -> bool {
        self.handshake.is_some()
    }

    /// Returns true if the connection is neither closed nor closing.
    pub fn is_alive(&self) -> bool {
        self.is_open()
    }

    /// Returns true once the connection can be dropped.
    pub fn is_drained(&self) -> bool {
        self.life.is_drained()
    }

    /// Returns the reason why the connection closed, if it has.
    pub fn close_reason(&self) -> Option<&CloseReason> {
        self.life.reason()
    }

    /// The peer's address and ours.
    pub fn addresses(&self) -> Addresses {
        self.path.standing.addresses
    }

    /// Probe time-outs since the peer last acknowledged a packet (RFC 9002, section 6.2).
    pub fn unanswered_probes(&self) -> u32 {
        self.probe_timer.count()
    }

    /// Returns true if the peer's address is validated.
    pub fn is_validated(&self) -> bool {
        self.path.standing.validated
    }

    /// Round-trip time of the present path.
    pub fn rtt(&self) -> &Rtt {
        &self.path.rtt
    }

    /// Congestion window of the present path, in bytes.
    pub fn window(&self) -> u64 {
        self.path.controller.window()
    }

    /// Bytes in flight on the present path.
    pub fn in_flight(&self) -> u64 {
        self.path.in_flight
    }

    /// Pacing rate, once known.
    pub fn pacing_rate(&self) -> Option<Rate> {
        self.path.controller.pacing_rate()
    }

    /// The congestion controller's name.
    pub fn congestion_controller(&self) -> &'static str {
        self.path.controller.name()
    }

    /// Maximum datagram size of the present path, in bytes of UDP payload.
    pub fn mtu(&self) -> u16 {
        self.path.mtud.current()
    }

    /// Counters and facts.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Statistics of loss recovery since the connection started.
    pub fn recovery(&self) -> &Statistics {
        self.recovery.statistics()
    }

    /// Name of the current recovery scheme.
    pub fn scheme(&self) -> &'static str {
        self.recovery.scheme()
    }

    /// Reports the values behind the scheme's decisions, by name.
    pub fn explain_recovery(&self, tell: &mut dyn FnMut(&'static str, f64)) {
        self.recovery.explain(tell);
    }

    /// The cap on replicas, if there is one.
    pub fn guard(&self) -> Option<&Guard> {
        self.recovery.guard()
    }

    /// Number of unfinished lost units: lost data that the peer has not acknowledged.
    pub fn lost_units(&self) -> usize {
        self.recovery.len()
    }

    /// Replaces the recovery scheme, for example by the one of the viewer's cohort.
    pub fn set_scheme(&mut self, scheme: Scheme) {
        self.recovery.set_scheme(scheme);
    }

    /// Passes an earlier connection's measurements of this path to the recovery scheme. Call it
    /// after [`Connection::set_scheme`].
    pub fn expect(&mut self, expected: &Expected) {
        self.recovery.expect(expected);
    }

    /// Returns the present path's congestion controller, created by
    /// [`TransportConfig::congestion`](crate::TransportConfig::congestion).
    pub fn controller(&self) -> &dyn Controller {
        &*self.path.controller
    }

    /// Mutable [`Connection::controller`], for calls that only its concrete type offers.
    pub fn controller_mut(&mut self) -> &mut dyn Controller {
        &mut *self.path.controller
    }

    /// Sets start values of the congestion controller (RFC 9959 and the papers' startup schemes).
    pub fn start(&mut self, start: Start) {
        self.path.controller.start(start);
    }

    /// Caps the congestion controllers of the present path and of all later ones, in addition to
    /// [`TransportConfig::max_in_flight`](crate::TransportConfig::max_in_flight).
    pub fn cap(&mut self, cap: Cap) {
        let most = self.config.max_in_flight;
        let in_flight = cap.in_flight.map_or(most, |bytes| bytes.min(most));
        self.cap = Cap { in_flight: Some(in_flight), ..cap };
        self.path.controller.cap(self.cap);
    }

    /// Number of streams of this direction that the peer has been allowed to open (RFC 9000,
    /// section 4.6).
    pub fn peer_stream_limit(&self, direction: Direction) -> u64 {
        self.streams.peer_limit(direction)
    }

    /// Opens a stream. Returns `None` if the peer's limit is reached.
    pub fn open(&mut self, direction: Direction) -> Option<StreamId> {
        if self.is_open() { self.streams.open(direction) } else { None }
    }

    /// Appends data to a stream without copying it.
    ///
    /// # Errors
    /// If the stream is unknown or finished, or the peer has stopped it.
    pub fn write(&mut self, id: StreamId, data: Bytes) -> Result<(), WriteError> {
        self.streams.write(id, data)
    }

    /// [`Connection::write`] with an optional mark, which travels with the data. The recovery
    /// scheme finds it in a lost unit ([`recovery::LostUnit::mark`]).
    ///
    /// # Errors
    /// As [`Connection::write`].
    pub fn write_marked(
        &mut self,
        id: StreamId,
        data: Bytes,
        mark: Option<Mark>,
    ) -> Result<(), WriteError> {
        self.path.source_paced |= mark.is_some_and(|mark| mark.media_time.is_some());
        self.streams.write_marked(id, data, mark)
    }

    /// Ends a stream's data.
    ///
    /// # Errors
    /// As [`Connection::write`].
    pub fn finish(&mut self, id: StreamId) -> Result<(), WriteError> {
        self.streams.finish(id)
    }

    /// Abandons sending on a stream (RESET_STREAM).
    ///
    /// # Errors
    /// If the stream is unknown.
    pub fn reset(&mut self, id: StreamId, code: u64) -> Result<(), WriteError> {
        self.streams.reset(id, code)
    }

    /// Asks the peer to stop sending on a stream (STOP_SENDING).
    ///
    /// # Errors
    /// If the stream is unknown.
    pub fn stop_sending(&mut self, id: StreamId, code: u64) -> Result<(), UnknownStream> {
        self.streams.stop_sending(id, code)
    }

    /// Bytes written to a stream but not yet sent. `None` for an unknown stream.
    pub fn unsent(&self, id: StreamId) -> Option<u64> {
        self.streams.unsent(id)
    }

    /// Sending progress of a stream. `None` for an unknown stream.
    pub fn send_progress(&self, id: StreamId) -> Option<SendProgress> {
        self.streams.send_progress(id)
    }

    /// Reads up to `max` bytes, in order.
    ///
    /// # Errors
    /// If the stream is unknown.
    pub fn read(&mut self, id: StreamId, max: usize) -> Result<ReadOutcome, UnknownStream> {
        self.streams.read(id, max)
    }

    /// Sets a stream's priority (RFC 9218).
    pub fn set_priority(&mut self, id: StreamId, priority: Priority) {
        self.streams.set_priority(id, priority);
    }

    /// Closes the connection with an application error code.
    pub fn close(&mut self, now: Timestamp, code: u64, reason: &'static str) {
        self.enter_closing(now, CloseReason::Application { code, reason });
    }

    /// Starts a key update as soon as RFC 9001, section 6.1, allows one.
    pub fn update_keys(&mut self) {
        self.update_keys = true;
    }

    /// Sends the session ticket withheld since the handshake, with `own` bytes sealed into it. Does
    /// nothing if there is none.
    pub(crate) fn release_ticket(
        &mut self,
        keys: &KeyRing,
        own: &[u8],
        unix_now: u64,
        rng: &mut ChaCha12Rng,
    ) {
        if let Some(ticket) = self.ticket.take()
            && self.is_open()
        {
            self.data.crypto_send.write(&ticket.release(keys, own, unix_now, rng));
        }
    }

    /// Sends a NEW_TOKEN frame with this token.
    pub(crate) fn send_new_token(&mut self, token: Vec<u8>) {
        if self.is_open() {
            self.control.new_tokens.issue(token);
        }
    }
}
