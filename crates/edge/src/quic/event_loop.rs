//! The event loop of one core: its UDP sockets, its endpoint, its connections' sessions.
//!
//! One turn: wait until something arrives or is due, take what arrived, serve the connections that
//! this concerns, and go on with those that have more to send, a bounded number of batches each, so
//! that no connection starves the others. Deadlines are kept to the nanosecond; the wait is a
//! `ppoll`, so pacing below a millisecond does not depend on a timer's granularity.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ::quic::{Addresses, Endpoint, Event, Handle, Outcome, Transmit};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use units::{Ecn, Timestamp};

use super::log::ConnectionLog;
use super::mailbox::{Forwarded, Mailbox, Sender};
use super::session::Session;
use super::settings::unix_now;
use super::timers::Timers;
use crate::io::socket::{ReceiveBuffer, UdpSocket};
use crate::server::{Shared, State};

/// Batches that a connection may send before the others have their turn.
const BATCHES: usize = 4;
/// Receives from one socket before connections are served.
const RECEIVES: usize = 8;
/// Bytes of a batch: what a UDP datagram, and so a GSO send, can hold.
const BATCH: usize = 65_507;
/// H3_NO_ERROR (RFC 9114, section 8.1): the close at the end of a drain.
const NO_ERROR: u64 = 0x100;
/// Longest sleep of a loop.
const MAX_SLEEP: Duration = Duration::from_secs(5);
/// From the first GOAWAY to the second: more than most round trips.
const SECOND_GOAWAY: Duration = Duration::from_secs(1);
/// How often a loop tells of itself.
const REPORT: Duration = Duration::from_secs(1);

/// What a loop is given.
pub(crate) struct Plan {
    pub core: u8,
    /// For connection IDs and other unpredictable values.
    pub seed: [u8; 32],
    pub sockets: Vec<UdpSocket>,
    pub shared: Arc<Shared>,
    pub mailbox: Mailbox,
    /// The mailboxes of all loops, this one's included.
    pub others: Vec<Sender>,
    pub log: Option<Arc<ConnectionLog>>,
    /// Set when the drain starts.
    pub draining: Arc<AtomicBool>,
}

/// A batch that the socket did not take.
struct Blocked {
    socket: usize,
    transmit: Transmit,
    data: Vec<u8>,
}

/// A connection's place in the loop.
struct Place {
    session: Session,
    socket: usize,
    dirty: bool,
    /// Its bell rang: an answer or a body can go on.
    woken: bool,
}

pub(crate) struct EventLoop {
    plan: Plan,
    state: Arc<State>,
    origin: Instant,
    unix_origin: u64,
    endpoint: Endpoint,
    places: Vec<Option<Box<Place>>>,
    dirty: VecDeque<Handle>,
    timers: Timers,
    blocked: Option<Blocked>,
    batch: Vec<u8>,
    reply: Vec<u8>,
    drain_ends: Option<Timestamp>,
    second_goaway: Option<Timestamp>,
    forwarded: u64,
    report_due: Timestamp,
}

impl EventLoop {
    /// A loop without connections. Connections stay on the thread that makes it.
    pub(crate) fn new(plan: Plan) -> Self {
        let state = plan.shared.state();
        let unix_origin = unix_now();
        let config = state.quic.endpoint(&state.config, plan.core, unix_origin);
        Self {
            endpoint: Endpoint::new(config, plan.seed),
            origin: Instant::now(),
            unix_origin,
            state,
            places: Vec::new(),
            dirty: VecDeque::new(),
            timers: Timers::default(),
            blocked: None,
            batch: vec![0; BATCH],
            reply: Vec::with_capacity(1_500),
            drain_ends: None,
            second_goaway: None,
            forwarded: 0,
            report_due: Timestamp::ZERO,
            plan,
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.origin.elapsed()
    }

    /// Serves until the drain is over.
    pub(crate) fn run(mut self) {
        let mut buffer = ReceiveBuffer::default();
        let mut ready = Vec::new();
        loop {
            self.wait(&mut ready);
            let now = self.now();
            // The mailbox is the last one.
            if ready.pop() == Some(true) {
                self.plan.mailbox.awake();
                self.take_woken();
            }
            self.follow_state(now);
            self.take_forwarded(now);
            self.receive(now, &ready, &mut buffer);
            let now = self.now();
            while let Some(handle) = self.timers.pop(now) {
                let deadline = self.deadline(handle);
                if deadline.is_some_and(|at| at <= now) {
                    self.endpoint.handle_timeout(handle, now);
                    self.mark(handle);
                } else if let Some(at) = deadline {
                    self.timers.set(handle, at);
                }
            }
            self.retry_blocked();
            let turn = self.dirty.len();
            for _ in 0..turn {
                if self.blocked.is_some() {
                    break;
                }
                let Some(handle) = self.dirty.pop_front() else { break };
                let now = self.now();
                self.serve(handle, now);
            }
            self.report(now);
            if self.drain_ends.is_some() && self.endpoint.is_empty() {
                break;
            }
        }
        if let Some(log) = &self.plan.log {
            log.ended(self.plan.core, self.endpoint.stats());
        }
        tracing::debug!(
            "loop {} ended: {:?}, {} datagrams forwarded",
            self.plan.core,
            self.endpoint.stats(),
            self.forwarded
        );
    }

    /// Sleeps until something arrives or is due. `ready` says of each socket, and of the mailbox,
    /// whether there is anything to take: asking in vain costs a system call.
    fn wait(&self, ready: &mut Vec<bool>) {
        let mut flags = PollFlags::POLLIN;
        if self.blocked.is_some() {
            flags |= PollFlags::POLLOUT;
        }
        let sockets = self.plan.sockets.iter().map(|socket| PollFd::new(socket.as_fd(), flags));
        let mut fds: Vec<PollFd<'_>> = sockets.collect();
        fds.push(PollFd::new(self.plan.mailbox.as_fd(), PollFlags::POLLIN));
        let now = self.now();
        let next = [self.timers.next(), self.drain_ends, self.second_goaway];
        let next = next.into_iter().flatten().min();
        let mut sleep = next.map_or(MAX_SLEEP, |at| at.since(now));
        if !self.dirty.is_empty() && self.blocked.is_none() {
            sleep = Duration::ZERO;
        }
        let timeout = TimeSpec::from_duration(sleep.min(MAX_SLEEP));
        // An interrupted wait is a short one.
        let _ = ppoll(&mut fds, Some(timeout), None);
        ready.clear();
        ready.extend(fds.iter().map(|fd| fd.any().unwrap_or(true)));
    }

    /// Tells all clients to go elsewhere with their next requests. RFC 9114, section 5.2: the first
    /// GOAWAY names no request yet, because some are under way; the second names the last one taken.
    fn go_away(&mut self, now: Timestamp) {
        let handles: Vec<Handle> = self.endpoint.handles().collect();
        for handle in handles {
            if let Some(connection) = self.endpoint.connection(handle)
                && let Some(Some(place)) = self.places.get_mut(handle.0 as usize)
            {
                place.session.go_away(now, connection);
            }
            self.mark(handle);
        }
    }

    /// Follows a reload, and the start and end of the drain.
    fn follow_state(&mut self, now: Timestamp) {
        let state = self.plan.shared.state();
        let draining = self.plan.draining.load(Ordering::Relaxed);
        let drain_starts = draining && self.drain_ends.is_none();
        if drain_starts || !Arc::ptr_eq(&state, &self.state) {
            let mut config = state.quic.endpoint(&state.config, self.plan.core, self.unix_origin);
            if draining {
                // RFC 9000, section 5.2.2: a server that accepts no connections refuses them with
                // CONNECTION_REFUSED.
                config.max_connections = 0;
            }
            self.endpoint.set_config(config);
            self.state = state;
        }
        if drain_starts {
            self.drain_ends = Some(now + self.state.config.drain.timeout);
            self.second_goaway = Some(now + SECOND_GOAWAY);
            self.go_away(now);
        }
        if self.second_goaway.is_some_and(|at| now >= at) {
            self.second_goaway = None;
            self.go_away(now);
        }
        if self.drain_ends.is_some_and(|at| now >= at) {
            let handles: Vec<Handle> = self.endpoint.handles().collect();
            for handle in handles {
                if let Some(connection) = self.endpoint.connection(handle) {
                    connection.close(now, NO_ERROR, "the server is going away");
                }
                self.serve(handle, now);
                self.forget(handle);
            }
        }
    }

    /// Tells operators of the loop, about once a second while it is awake.
    fn report(&mut self, now: Timestamp) {
        if now >= self.report_due {
            self.report_due = now + REPORT;
            let (stats, connections) = (*self.endpoint.stats(), self.endpoint.len());
            self.plan.shared.report(self.plan.core, stats, connections);
        }
    }

    fn take_woken(&mut self) {
        let mut woken = Vec::new();
        self.plan.mailbox.take_woken(|handle| woken.push(handle));
        for handle in woken {
            if let Some(Some(place)) = self.places.get_mut(handle.0 as usize) {
                place.woken = true;
            }
            self.mark(handle);
        }
    }

    fn take_forwarded(&mut self, now: Timestamp) {
        while let Some(mut datagram) = self.plan.mailbox.next() {
            let Forwarded { socket, addresses, ecn, ref mut payload } = datagram;
            self.datagram(now, socket, addresses, ecn, payload);
        }
    }

    fn receive(&mut self, now: Timestamp, ready: &[bool], buffer: &mut ReceiveBuffer) {
        let sockets = core::mem::take(&mut self.plan.sockets);
        let ready = sockets.iter().enumerate().zip(ready).filter(|(_, is_ready)| **is_ready);
        for ((index, socket), _) in ready {
            for _ in 0..RECEIVES {
                let result = socket.receive(buffer, |received| {
                    let addresses = Addresses { remote: received.from, local: received.to };
                    self.sockets_reply(
                        now,
                        index,
                        socket,
                        addresses,
                        received.ecn,
                        received.payload,
                    );
                });
                match result {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                    // What the network reported concerns one destination.
                    Err(_) => {}
                }
            }
        }
        self.plan.sockets = sockets;
    }

    fn sockets_reply(
        &mut self,
        now: Timestamp,
        index: usize,
        socket: &UdpSocket,
        addresses: Addresses,
        ecn: Ecn,
        payload: &mut [u8],
    ) {
        if let Some(len) = self.datagram(now, index, addresses, ecn, payload) {
            // An answer without state that the socket does not take is a lost one.
            let reply = &self.reply[..len];
            let _ = socket.send(addresses.remote, addresses.local, Ecn::NotEct, len, reply);
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
                self.places[index] =
                    Some(Box::new(Place { session, socket, dirty: false, woken: false }));
                self.mark(handle);
            }
            Outcome::Reply(len) => return Some(len),
            Outcome::Foreign(core) => {
                if let Some(other) = self.plan.others.get(usize::from(core)) {
                    let payload = payload.to_vec();
                    self.forwarded +=
                        u64::from(other.send(Forwarded { socket, addresses, ecn, payload }));
                }
            }
            Outcome::Dropped(_) => {}
        }
        None
    }

    fn mark(&mut self, handle: Handle) {
        if let Some(Some(place)) = self.places.get_mut(handle.0 as usize)
            && !place.dirty
        {
            place.dirty = true;
            self.dirty.push_back(handle);
        }
    }

    fn deadline(&mut self, handle: Handle) -> Option<Timestamp> {
        let deadline = self.endpoint.connection(handle)?.deadline();
        let session = self.places.get(handle.0 as usize)?.as_ref()?.session.deadline();
        [deadline, session].into_iter().flatten().min()
    }

    /// Serves a connection: events, responses, datagrams, the next deadline.
    fn serve(&mut self, handle: Handle, now: Timestamp) {
        let Some(Some(place)) = self.places.get_mut(handle.0 as usize) else { return };
        place.dirty = false;
        while let Some(event) = self.endpoint.poll_event(handle) {
            match event {
                Event::Connected => {
                    if let Some(connection) = self.endpoint.connection(handle) {
                        place.session.on_connected(now, connection);
                        // Browsers keep a token only if it comes after the ticket, and soon.
                        place.session.token_due = Some(now + connection.rtt().smoothed());
                    }
                    self.endpoint.release_ticket(handle, now, &[]);
                }
                Event::Ready => {
                    if let Some(connection) = self.endpoint.connection(handle) {
                        place.session.on_ready(now, connection);
                    }
                }
                Event::Stream(event) => {
                    if let Some(connection) = self.endpoint.connection(handle) {
                        place.session.on_stream(now, connection, event);
                    }
                }
                Event::Migrated(_) => {}
                Event::Closed(_) => {
                    let Some(connection) = self.endpoint.connection(handle) else { continue };
                    place.session.on_last_chance(now, connection);
                    if let Some(log) = &self.plan.log {
                        log.closed(connection, &place.session.alpn);
                    }
                }
            }
        }
        if let Some(connection) = self.endpoint.connection(handle) {
            place.session.on_timeout(now, connection);
        }
        if place.session.token_due.is_some_and(|at| at <= now) {
            place.session.token_due = None;
            let token = place.session.token();
            self.endpoint.send_new_token(handle, now, &token);
        }
        if self.drain_ends.is_some()
            && place.session.is_idle()
            && let Some(connection) = self.endpoint.connection(handle)
        {
            connection.close(now, NO_ERROR, "the server is going away");
        }
        self.transmit(handle, now);
        let Some(connection) = self.endpoint.connection(handle) else { return };
        if connection.is_drained() {
            self.forget(handle);
        } else if let Some(at) = self.deadline(handle) {
            self.timers.set(handle, at);
        }
    }

    fn transmit(&mut self, handle: Handle, now: Timestamp) {
        let Some(Some(place)) = self.places.get_mut(handle.0 as usize) else { return };
        let socket = place.socket;
        let Some(udp) = self.plan.sockets.get(socket) else { return };
        let segments = udp.max_batch();
        // Most datagrams only acknowledge what waits for nothing.
        let mut fills = core::mem::take(&mut place.woken) || place.session.is_curious();
        for _ in 0..BATCHES {
            if fills && let Some(connection) = self.endpoint.connection(handle) {
                fills = place.session.fill(now, connection);
            }
            let transmit = self.endpoint.poll_transmit(handle, now, &mut self.batch, segments);
            let Some(transmit) = transmit else { return };
            let data = &self.batch[..transmit.len];
            if let Err(e) = send(udp, &transmit, data)
                && e.kind() == io::ErrorKind::WouldBlock
            {
                let data = data.to_vec();
                self.blocked = Some(Blocked { socket, transmit, data });
                break;
            }
        }
        self.mark(handle);
    }

    fn retry_blocked(&mut self) {
        if let Some(blocked) = self.blocked.take()
            && let Some(udp) = self.plan.sockets.get(blocked.socket)
            && let Err(e) = send(udp, &blocked.transmit, &blocked.data)
            && e.kind() == io::ErrorKind::WouldBlock
        {
            self.blocked = Some(blocked);
        }
    }

    fn forget(&mut self, handle: Handle) {
        self.endpoint.remove(handle);
        if let Some(place) = self.places.get_mut(handle.0 as usize) {
            *place = None;
        }
    }
}

/// Sends a batch. Any error but `WouldBlock` concerns the batch alone: it counts as lost.
fn send(udp: &UdpSocket, transmit: &Transmit, data: &[u8]) -> io::Result<()> {
    let Addresses { remote, local } = transmit.addresses;
    udp.send(remote, local, transmit.ecn, transmit.segment, data)
}
