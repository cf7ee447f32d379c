//! Output of a loop: serves connections and retries blocked sockets.

use ::quic::{Event, Handle, Transmit};
use units::Timestamp;

use super::blocked::{Blocked, DEVICE_RETRIES};
use super::{EXCESSIVE_LOAD, EventLoop, NO_ERROR, REQUEST_REJECTED, TIMER_RECHECK};
use crate::bans::Refused;
use crate::io::socket::{SendError, UdpSocket};
use crate::limits::{self, Permit};
use crate::loops::connection_start::Issued;

/// Maximum batches of a connection per turn.
const MAX_BATCHES: usize = 4;

impl EventLoop {
    /// Serves a connection: events, responses, datagrams, and the next deadline.
    pub(super) fn serve(&mut self, handle: Handle, now: Timestamp) {
        let Some(Some(place)) = self.places.get_mut(handle.0 as usize) else { return };
        place.dirty = false;
        while let Some(event) = self.endpoint.poll_event(handle) {
            match event {
                Event::Connected => {
                    if let Some(connection) = self.endpoint.connection(handle) {
                        place.requests.on_connected(now, connection);
                        // Only now is the address validated; before, it could have been spoofed.
                        let (limits, config) = (self.plan.shared.limits(), &self.state.config);
                        let address = connection.addresses().remote.ip();
                        if self.state.bans.refuse(Refused::Quic, address) {
                            connection.close(now, REQUEST_REJECTED, "banned");
                            continue;
                        }
                        match limits.enter(limits::Place::Quic, config, Some(address)) {
                            Ok(permit) => {
                                permit.wake_on_eviction(self.plan.mailbox.waker(handle));
                                place.permit = Some(permit);
                            }
                            Err(_) => connection.close(now, EXCESSIVE_LOAD, "too many connections"),
                        }
                    }
                }
                Event::Ready => {
                    if let Some(connection) = self.endpoint.connection(handle) {
                        place.requests.on_ready(now, connection);
                        if self.drain_ends.is_some() {
                            // Connected before the drain. The second call follows with the others,
                            // or now.
                            place.requests.go_away(now, connection);
                            if self.second_goaway.is_none() {
                                place.requests.go_away(now, connection);
                            }
                        }
                    }
                }
                Event::Stream(event) => {
                    if let Some(connection) = self.endpoint.connection(handle) {
                        place.requests.on_stream(now, connection, event);
                    }
                }
                Event::Migrated(_) => {}
                Event::Closed(_) => {
                    let Some(connection) = self.endpoint.connection(handle) else { continue };
                    place.requests.on_closed(now, connection);
                    if let Some(log) = &self.plan.log {
                        log.closed(connection, &place.requests.alpn, place.requests.started());
                    }
                }
            }
        }
        if let Some(connection) = self.endpoint.connection(handle) {
            place.requests.on_timeout(now, connection);
        }
        if place.permit.as_ref().is_some_and(Permit::is_evicted)
            && let Some(connection) = self.endpoint.connection(handle)
        {
            // A newcomer from a network with few connections took its place.
            connection.close(now, EXCESSIVE_LOAD, "evicted for a network with fewer connections");
        }
        if self.drain_ends.is_some()
            && let Some(connection) = self.endpoint.connection(handle)
            && place.requests.is_drained(connection)
        {
            connection.close(now, NO_ERROR, "the server is going away");
        }
        self.transmit(handle, now);
        let Some(connection) = self.endpoint.connection(handle) else { return };
        if connection.is_drained() {
            self.forget(handle);
        } else if self.is_waiting(handle) {
            // Served, with its deadline set, when the socket has space.
        } else if let Some(at) = self.deadline(handle) {
            let at = self.next_check(handle, at, now);
            self.timers.set(handle, at);
        }
    }

    /// Returns when to check the timers of a connection with deadline `at`. A timer still due after
    /// serving is waiting for unread datagrams.
    fn next_check(&mut self, handle: Handle, at: Timestamp, now: Timestamp) -> Timestamp {
        if at > now
            && let Some(Some(place)) = self.places.get_mut(handle.0 as usize)
        {
            place.postponed = None;
        }
        if at <= now && self.is_behind { now + TIMER_RECHECK } else { at }
    }

    /// Whether the connection waits for a blocked socket.
    fn is_waiting(&self, handle: Handle) -> bool {
        let place = self.places.get(handle.0 as usize).and_then(Option::as_ref);
        place.is_some_and(|place| place.is_queued)
    }

    fn transmit(&mut self, handle: Handle, now: Timestamp) {
        let Some(Some(place)) = self.places.get_mut(handle.0 as usize) else { return };
        let Some(connection) = self.endpoint.connection(handle) else { return };
        let socket = usize::from(connection.addresses().socket);
        let Some(blocked) = self.blocked.get_mut(socket) else { return };
        if let Some(blocked) = blocked {
            if !core::mem::replace(&mut place.is_queued, true) {
                blocked.waiting.push(handle);
            }
            return;
        }
        // Most datagrams are acknowledgements that no body waits for.
        let mut fills = core::mem::take(&mut place.woken) || place.requests.wants_acks();
        for _ in 0..MAX_BATCHES {
            if fills && let Some(connection) = self.endpoint.connection(handle) {
                fills = place.requests.fill(now, connection);
            }
            // After filling: session tickets and tokens go out with the last response at the
            // latest.
            let connection = self.endpoint.connection(handle);
            match connection.and_then(|connection| place.requests.issue(now, connection)) {
                Some(Issued::Ticket(own)) => self.endpoint.release_ticket(handle, now, &own),
                Some(Issued::Token(own)) => self.endpoint.send_new_token(handle, now, &own),
                None => {}
            }
            let segments = self.plan.sockets.get(socket).map_or(1, UdpSocket::max_batch);
            let transmit = self.endpoint.poll_transmit(handle, now, &mut self.batch, segments);
            let Some(transmit) = transmit else { return };
            let data = &self.batch[..transmit.len];
            let index = usize::from(transmit.addresses.socket);
            let Some(udp) = self.plan.sockets.get_mut(index) else { continue };
            let outcome = send(udp, &transmit, data);
            // Datagrams rejected for destination or size count as lost, and so does path validation
            // on another blocked socket.
            if let Err(SendError::Full { sent, full }) = outcome
                && index == socket
            {
                let (data, waiting) = (data.to_vec(), vec![handle]);
                let mut batch = Blocked { transmit, data, waiting, retry_at: None, retries: 0 };
                batch.note(now, sent, full);
                *blocked = Some(batch);
                place.is_queued = true;
                return;
            }
        }
        self.mark(handle);
    }

    /// Retries blocked batches.
    pub(super) fn retry_blocked(&mut self, now: Timestamp) {
        for index in 0..self.blocked.len() {
            let Some(Some(blocked)) = self.blocked.get_mut(index) else { continue };
            let Some(udp) = self.plan.sockets.get_mut(index) else { continue };
            if blocked.retry_at.is_some_and(|at| now < at) {
                continue;
            }
            if let Err(SendError::Full { sent, full }) = send(udp, &blocked.transmit, &blocked.data)
            {
                blocked.note(now, sent, full);
                if blocked.retries < DEVICE_RETRIES {
                    continue;
                }
            }
            let Some(blocked) = self.blocked[index].take() else { continue };
            for handle in blocked.waiting {
                if let Some(Some(place)) = self.places.get_mut(handle.0 as usize) {
                    place.is_queued = false;
                }
                self.mark(handle);
            }
        }
    }
}

fn send(udp: &mut UdpSocket, transmit: &Transmit, data: &[u8]) -> Result<(), SendError> {
    let addresses = transmit.addresses;
    udp.send(addresses.remote, addresses.local, transmit.ecn, transmit.segment, data)
}
