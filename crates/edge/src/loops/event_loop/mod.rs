//! The event loop of one core: its UDP sockets, its endpoint, its connections' sessions.
//!
//! One turn: wait until something arrives or is due, take what arrived, serve some of the connections
//! that this concerns, a bounded number of batches each, so that no connection starves the others.
//! A turn is short, also when thousands have something to do: what arrives meanwhile is looked at
//! before the rest is served. Deadlines are kept to the nanosecond; the wait is a `ppoll`, which
//! wakes at most 50 us late (the kernel's timer slack): wake-ups that fall together cost a live
//! server a fifth less time than exact ones.

mod blocked;
mod incoming;
mod outgoing;

/// Unix time in seconds of the origin of a loop's clock, which says `now`.
fn unix_origin(state: &State, now: Timestamp) -> u64 {
    state.quic.clock().now().saturating_sub(now.as_nanos() / 1_000_000_000)
}

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::quic::{Endpoint, Handle};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use units::Timestamp;

use super::handshakes::{Allowance, Handshakes};
use super::log::ConnectionLog;
use super::mailbox::{Mailbox, Sender};
use super::pulse::Pulse;
use super::report::{Counters, Report};
use super::requests::Requests;
use super::timers::Timers;
use crate::io::socket::{ReceiveBuffer, SendStats, UdpSocket};
use crate::limits::Permit;
use crate::state::{Shared, State};
use blocked::Blocked;

/// Bytes of a batch: what a UDP datagram, and so a GSO send, can hold.
const BATCH: usize = 65_507;
/// H3_NO_ERROR (RFC 9114, section 8.1): the close at the end of a drain.
const NO_ERROR: u64 = 0x100;
/// H3_REQUEST_REJECTED: the close of a connection from an address that the operator keeps out.
const REQUEST_REJECTED: u64 = 0x10b;
/// H3_EXCESSIVE_LOAD: the close of a connection that is one too many for its address.
const EXCESSIVE_LOAD: u64 = 0x107;
/// Longest sleep of a loop: an idle one shows that it lives all the same.
const MAX_SLEEP: Duration = Duration::from_secs(1);
/// From the first GOAWAY to the second: more than most round trips.
const SECOND_GOAWAY: Duration = Duration::from_secs(1);
/// Connections that are served in one turn, and the time after which the rest waits for the next
/// one: acknowledgements that came meanwhile are worth more than a batch that leaves at once.
const SERVED: usize = 64;
const SERVING: Duration = Duration::from_millis(1);
/// A timer waits for datagrams that have arrived and are not read yet, since they may hold what it
/// waits for; but no longer than this, or a flood could hold it up for ever. It counts from when the
/// loop found the timer due: a loop that was held up itself has most to read.
const PATIENCE: Duration = Duration::from_millis(25);
/// When such a timer is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// Interval of a loop's reports.
const REPORT_PERIOD: Duration = Duration::from_secs(1);

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
    /// Where the loop shows that it lives; also its clock.
    pub pulse: Arc<Pulse>,
}

/// A connection's place in the loop.
struct Place {
    requests: Requests,
    dirty: bool,
    /// Its bell rang: an answer or a body can go on.
    woken: bool,
    /// It stands in the list of those who wait for its socket.
    waits: bool,
    /// Since when its timers wait for datagrams that are not read yet.
    postponed: Option<Timestamp>,
    /// Its place among its address's, once that is known to be its own.
    permit: Option<Permit>,
}

pub(crate) struct EventLoop {
    plan: Plan,
    state: Arc<State>,
    /// Unix time of the origin of the loop's clock.
    unix_origin: u64,
    endpoint: Endpoint,
    places: Vec<Option<Box<Place>>>,
    dirty: VecDeque<Handle>,
    timers: Timers,
    handshakes: Handshakes,
    allowance: Allowance,
    /// Datagrams may wait that have arrived before.
    is_behind: bool,
    /// The mailbox was not emptied.
    more_mail: bool,
    /// By socket.
    blocked: Vec<Option<Blocked>>,
    batch: Vec<u8>,
    reply: Vec<u8>,
    drain_ends: Option<Timestamp>,
    second_goaway: Option<Timestamp>,
    counters: Counters,
    report_due: Timestamp,
}

impl EventLoop {
    /// A loop without connections. Connections stay on the thread that makes it.
    pub(crate) fn new(plan: Plan) -> Self {
        let state = plan.shared.state();
        let unix_origin = unix_origin(&state, plan.pulse.now());
        let (core, loops) = (plan.core, plan.others.len());
        let config = state.quic.endpoint(&state.config, core, loops, unix_origin);
        Self {
            endpoint: Endpoint::new(config, plan.seed),
            unix_origin,
            state,
            places: Vec::new(),
            dirty: VecDeque::new(),
            timers: Timers::default(),
            handshakes: Handshakes::default(),
            allowance: Allowance::default(),
            is_behind: false,
            more_mail: false,
            blocked: plan.sockets.iter().map(|_| None).collect(),
            batch: vec![0; BATCH],
            reply: Vec::with_capacity(1_500),
            drain_ends: None,
            second_goaway: None,
            counters: Counters::default(),
            report_due: Timestamp::ZERO,
            plan,
        }
    }

    fn now(&self) -> Timestamp {
        self.plan.pulse.now()
    }

    /// Serves until the drain is over.
    pub(crate) fn run(mut self) {
        let mut buffer = ReceiveBuffer::default();
        let mut ready = Vec::new();
        while self.drain_ends.is_none() || !self.endpoint.is_empty() {
            self.wait(&mut ready);
            let start = self.now();
            self.plan.pulse.begin(start);
            self.turn(start, &mut ready, &mut buffer);
            self.plan.pulse.end(start, self.now());
        }
        if let Some(log) = &self.plan.log {
            log.ended(self.plan.core, self.endpoint.stats());
        }
        tracing::debug!(
            "loop {} ended: {:?}, {:?}",
            self.plan.core,
            self.endpoint.stats(),
            self.counters
        );
    }

    /// Takes what arrived, and serves whom that and the time concern.
    fn turn(&mut self, start: Timestamp, ready: &mut Vec<bool>, buffer: &mut ReceiveBuffer) {
        // The mailbox is the last one.
        let rung = ready.pop() == Some(true);
        self.follow_state(start);
        self.take_mail(start, rung);
        self.receive(ready, buffer);
        self.fire_timers(start, self.now());
        self.take_handshakes();
        let start = self.now();
        self.retry_blocked(start);
        let mut now = start;
        for _ in 0..self.dirty.len().min(SERVED) {
            if now.since(start) >= SERVING {
                break;
            }
            let Some(handle) = self.dirty.pop_front() else { break };
            self.serve(handle, now);
            now = self.now();
        }
        self.report(now);
    }

    /// Does what was due `by` the time up to which all that has arrived was read: what came since may
    /// be just what a later timer waits for.
    fn fire_timers(&mut self, by: Timestamp, now: Timestamp) {
        while let Some(handle) = self.timers.pop(by) {
            let Some(at) = self.deadline(handle) else { continue };
            if at > by {
                self.timers.set(handle, at);
                continue;
            }
            let Some(Some(place)) = self.places.get_mut(handle.0 as usize) else { continue };
            let since = *place.postponed.get_or_insert(now);
            if self.is_behind && now.since(since) < PATIENCE {
                self.counters.timers_postponed += 1;
            } else {
                place.postponed = None;
                self.endpoint.handle_timeout(handle, now);
            }
            // What is paced, or an acknowledgement that is due, leaves in any case.
            self.mark(handle);
        }
    }

    /// How long there is nothing to do, if nothing arrives.
    fn sleep(&mut self) -> Duration {
        if !self.dirty.is_empty() || !self.handshakes.is_empty() || self.more_mail {
            return Duration::ZERO;
        }
        let others = [self.next_deadline(), self.drain_ends, self.second_goaway];
        let retries = self.blocked.iter().flatten().filter_map(|blocked| blocked.retry_at);
        let next = others.into_iter().flatten().chain(retries).min();
        let now = self.now();
        next.map_or(MAX_SLEEP, |at| at.since(now).min(MAX_SLEEP))
    }

    /// The next deadline of a connection.
    fn next_deadline(&mut self) -> Option<Timestamp> {
        let mut timers = core::mem::take(&mut self.timers);
        let next = timers.next(|handle| self.deadline(handle));
        self.timers = timers;
        next
    }

    /// Sleeps until something arrives or is due. `ready` says of each socket, and of the mailbox,
    /// whether there is anything to take: asking without need costs a system call.
    fn wait(&mut self, ready: &mut Vec<bool>) {
        let sleep = self.sleep();
        let sockets = self.plan.sockets.iter().zip(&self.blocked).map(|(socket, blocked)| {
            let writable = blocked.as_ref().is_some_and(|blocked| blocked.retry_at.is_none());
            let flags = if writable { PollFlags::POLLOUT } else { PollFlags::empty() };
            PollFd::new(socket.as_fd(), flags | PollFlags::POLLIN)
        });
        let mut fds: Vec<PollFd<'_>> = sockets.collect();
        fds.push(PollFd::new(self.plan.mailbox.as_fd(), PollFlags::POLLIN));
        let timeout = TimeSpec::from_duration(sleep);
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
                place.requests.go_away(now, connection);
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
            let (core, loops) = (self.plan.core, self.plan.others.len());
            let origin = self.unix_origin;
            let mut config = state.quic.endpoint(&state.config, core, loops, origin);
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

    /// Tells operators of the loop, about once a second.
    fn report(&mut self, now: Timestamp) {
        if now < self.report_due {
            return;
        }
        self.report_due = now + REPORT_PERIOD;
        let origin = unix_origin(&self.state, now);
        // The system's clock was set. One second may be rounding.
        if origin > self.unix_origin + 1 {
            self.unix_origin = origin;
            self.endpoint.set_unix_origin(origin);
        }
        let mut sends = SendStats::default();
        self.plan.sockets.iter().for_each(|socket| sends.add(socket.send_stats()));
        let report = Report {
            endpoint: *self.endpoint.stats(),
            connections: self.endpoint.len(),
            sends,
            counters: self.counters,
        };
        self.plan.shared.report(self.plan.core, report);
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
        let session = self.places.get(handle.0 as usize)?.as_ref()?.requests.deadline();
        [deadline, session].into_iter().flatten().min()
    }

    fn forget(&mut self, handle: Handle) {
        self.endpoint.remove(handle);
        self.timers.remove(handle);
        if let Some(place) = self.places.get_mut(handle.0 as usize) {
            *place = None;
        }
    }
}
