//! Input of a loop: datagrams from sockets, and mail from other threads.

use core::time::Duration;
use std::io;

use ::quic::{Addresses, Datagram, Outcome};
use units::{Ecn, Timestamp};

use super::{EventLoop, LoopConnection};
use crate::io::ports;
use crate::io::socket::ReceiveBuffer;
use crate::loops::requests::Requests;

/// Maximum number and total time of receives per socket before connections are served. One receive
/// may hold thousands of small datagrams.
const MAX_RECEIVES: usize = 8;
const MAX_RECEIVING_TIME: Duration = Duration::from_millis(2);

impl EventLoop {
    /// Takes mail from other threads if the loop was woken or mail is left over.
    pub(super) fn take_mail(&mut self, now: Timestamp, rung: bool) {
        if rung {
            self.plan.mailbox.awake();
        } else if !self.more_mail {
            return;
        }
        let mail = self.plan.mailbox.take();
        self.more_mail = mail.more;
        for handle in mail.woken {
            if let Some(Some(place)) = self.places.get_mut(handle.0 as usize) {
                place.woken = true;
            }
            self.mark(handle);
        }
        for mut datagram in mail.datagrams {
            self.deliver(now, datagram.borrowed());
        }
    }

    /// Receives from the `ready` sockets, and notes whether more datagrams may be waiting.
    pub(super) fn receive(&mut self, ready: &[bool], buffer: &mut ReceiveBuffer) {
        self.is_behind = self.more_mail;
        for (index, _) in ready.iter().enumerate().filter(|(_, ready)| **ready) {
            let (start, mut more) = (self.now(), true);
            for _ in 0..MAX_RECEIVES {
                let Some(socket) = self.plan.sockets.get(index) else { break };
                more = match socket.receive(buffer) {
                    Ok(is_full) => is_full,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => false,
                    // Errors from the network concern a single destination.
                    Err(_) => true,
                };
                // Datagrams may have arrived since the previous receive.
                let now = self.now();
                for received in buffer.datagrams() {
                    let (remote, local) = (received.from, received.to);
                    let addresses = Addresses { remote, local, socket: index as u16 };
                    let (ecn, payload) = (received.ecn, received.payload);
                    self.deliver(now, Datagram { addresses, ecn, payload });
                }
                if !more || now.since(start) >= MAX_RECEIVING_TIME {
                    break;
                }
            }
            self.is_behind |= more;
        }
    }

    /// Continues queued handshakes within their share of time.
    pub(super) fn take_handshakes(&mut self) {
        if self.handshakes.is_empty() {
            return;
        }
        let start = self.now();
        let other_work = self.is_behind || !self.dirty.is_empty();
        let granted = self.allowance.grant(start, other_work);
        let mut now = start;
        while now.since(start) < granted {
            let Some(mut datagram) = self.handshakes.pop() else { break };
            self.take(now, datagram.borrowed());
            now = self.now();
        }
        self.allowance.spend(now.since(start), other_work);
    }

    /// Handles a datagram, or queues it if it belongs to a handshake.
    pub(super) fn deliver(&mut self, now: Timestamp, datagram: Datagram<&mut [u8]>) {
        let remote = datagram.addresses.remote;
        let port = remote.port();
        if ports::is_unanswerable(port) {
            tracing::trace!(%remote, reason = "port_0", "datagram dropped");
            self.counters.from_port_0 += 1;
            return;
        }
        // RFC 8999, section 5.1: the first bit marks the long header.
        let is_long = datagram.payload.first().is_some_and(|first| first & 0x80 != 0);
        if !is_long {
            self.take(now, datagram);
        } else if ports::may_reflect(port) {
            tracing::trace!(%remote, reason = "reflector_port", "datagram dropped");
            self.counters.from_reflectors += 1;
        } else {
            let has_room = self.handshakes.push(datagram.kept());
            if !has_room {
                tracing::trace!(%remote, reason = "handshake_queue_full", "datagram dropped");
                self.counters.handshakes_dropped += 1;
            }
        }
    }

    /// Handles a datagram and sends the stateless response, if any.
    fn take(&mut self, now: Timestamp, datagram: Datagram<&mut [u8]>) {
        let addresses = datagram.addresses;
        let Some(len) = self.handle(now, datagram) else { return };
        if ports::may_reflect(addresses.remote.port()) {
            self.counters.from_reflectors += 1;
        } else if let Some(udp) = self.plan.sockets.get_mut(usize::from(addresses.socket)) {
            // A stateless response that does not fit the socket is lost.
            let reply = &self.reply[..len];
            let _ = udp.send(addresses.remote, addresses.local, Ecn::NotEct, len, reply);
        }
    }

    /// Passes a datagram to the endpoint. Returns the length of the response in `reply`, if any.
    fn handle(&mut self, now: Timestamp, mut datagram: Datagram<&mut [u8]>) -> Option<usize> {
        match self.endpoint.handle_datagram(now, datagram.borrowed(), &mut self.reply) {
            Outcome::Connection(handle) => self.mark(handle),
            Outcome::Accepted(handle) => {
                let index = handle.0 as usize;
                if self.places.len() <= index {
                    self.places.resize_with(index + 1, || None);
                }
                let waker = self.plan.mailbox.waker(handle);
                let requests = Requests::new(self.state.clone(), waker);
                let place = LoopConnection {
                    requests,
                    dirty: false,
                    woken: false,
                    is_queued: false,
                    postponed: None,
                    permit: None,
                };
                self.places[index] = Some(Box::new(place));
                self.mark(handle);
            }
            Outcome::Reply(len) => return Some(len),
            Outcome::Foreign(core) => {
                if let Some(other) = self.plan.others.get(usize::from(core)) {
                    let remote = datagram.addresses.remote;
                    let sent = other.send(datagram.kept());
                    if !sent {
                        tracing::trace!(%remote, reason = "mailbox_full", "datagram dropped");
                    }
                    self.counters.forwarded += u64::from(sent);
                    self.counters.forwards_dropped += u64::from(!sent);
                }
            }
            Outcome::Dropped(_) => {}
        }
        None
    }
}
