//! What a loop receives: from its sockets, and from other loops.

use std::io;

use ::quic::{Addresses, Outcome};
use units::{Ecn, Timestamp};

use super::{EventLoop, Place};
use crate::io::ports;
use crate::io::socket::ReceiveBuffer;
use crate::quic::mailbox::Forwarded;
use crate::quic::session::Session;

/// Receives from one socket before connections are served.
const RECEIVES: usize = 8;

impl EventLoop {
    pub(super) fn take_forwarded(&mut self, now: Timestamp) {
        while let Some(mut datagram) = self.plan.mailbox.next() {
            let Forwarded { socket, addresses, ecn, ref mut payload } = datagram;
            self.deliver(now, socket, addresses, ecn, payload);
        }
    }

    /// Takes what has arrived at the sockets that are `ready`.
    pub(super) fn receive(&mut self, now: Timestamp, ready: &[bool], buffer: &mut ReceiveBuffer) {
        for (index, _) in ready.iter().enumerate().filter(|(_, ready)| **ready) {
            for _ in 0..RECEIVES {
                let Some(socket) = self.plan.sockets.get(index) else { break };
                let result = socket.receive(buffer);
                for received in buffer.datagrams() {
                    let addresses = Addresses { remote: received.from, local: received.to };
                    self.deliver(now, index, addresses, received.ecn, received.payload);
                }
                match result {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                    // What the network reported concerns one destination.
                    Err(_) => {}
                }
            }
        }
    }

    /// Takes a datagram that came to the socket `socket`, and answers it if that needs no state.
    pub(super) fn deliver(
        &mut self,
        now: Timestamp,
        socket: usize,
        addresses: Addresses,
        ecn: Ecn,
        payload: &mut [u8],
    ) {
        let port = addresses.remote.port();
        if ports::is_unanswerable(port) {
            self.counters.from_port_0 += 1;
            return;
        }
        let suspect = ports::may_reflect(port);
        // RFC 8999, section 5.1: the first bit tells the long header, which opens connections.
        if suspect && payload.first().is_some_and(|first| first & 0x80 != 0) {
            self.counters.from_reflectors += 1;
            return;
        }
        let Some(len) = self.datagram(now, socket, addresses, ecn, payload) else { return };
        if suspect {
            self.counters.from_reflectors += 1;
        } else if let Some(udp) = self.plan.sockets.get_mut(socket) {
            // An answer without state that the socket does not take is a lost one.
            let reply = &self.reply[..len];
            let _ = udp.send(addresses.remote, addresses.local, Ecn::NotEct, len, reply);
        }
    }

    /// Takes a datagram. Returns the length of the answer in `reply`, if there is one.
    fn datagram(
        &mut self,
        now: Timestamp,
        socket: usize,
        addresses: Addresses,
        ecn: Ecn,
        payload: &mut [u8],
    ) -> Option<usize> {
        match self.endpoint.handle_datagram(now, addresses, ecn, payload, &mut self.reply) {
            Outcome::Connection(handle) => {
                if let Some(Some(place)) = self.places.get_mut(handle.0 as usize) {
                    place.socket = socket;
                }
                self.mark(handle);
            }
            Outcome::Accepted(handle) => {
                let index = handle.0 as usize;
                if self.places.len() <= index {
                    self.places.resize_with(index + 1, || None);
                }
                let waker = self.plan.mailbox.waker(handle);
                let session = Session::new(self.state.clone(), waker);
                let place = Place { session, socket, dirty: false, woken: false, waits: false };
                self.places[index] = Some(Box::new(place));
                self.mark(handle);
            }
            Outcome::Reply(len) => return Some(len),
            Outcome::Foreign(core) => {
                if let Some(other) = self.plan.others.get(usize::from(core)) {
                    let payload = payload.to_vec();
                    let sent = other.send(Forwarded { socket, addresses, ecn, payload });
                    self.counters.forwarded += u64::from(sent);
                    self.counters.forwards_dropped += u64::from(!sent);
                }
            }
            Outcome::Dropped(_) => {}
        }
        None
    }
}
