//! The event loop of one core: its UDP sockets, endpoint and connections.
//!
//! Each turn waits for input or a deadline, receives, then serves some of the affected connections,
//! each with a bounded number of batches, so that none starves the others. Turns are short even
//! with thousands of active connections, so that new datagrams are read before the rest is served.
//! Deadlines have nanosecond resolution. The `ppoll` wakes up to 50 us late (the kernel's timer
//! slack), and the merged wake-ups save a live server a fifth of its CPU time.

mod blocked;
mod incoming;
mod outgoing;

/// Returns the Unix time in seconds of the origin of the loop's clock, which reads `now`.
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

use super::handshakes::{HandshakeBudget, Handshakes};
use super::log::ConnectionLog;
use super::mailbox::{Mailbox, Sender};
use super::pulse::Pulse;
use super::report::{LoopCounters, LoopReport};
use super::requests::Requests;
use super::timers::Timers;
use crate::io::socket::{ReceiveBuffer, SendStats, UdpSocket};
use crate::limits::Permit;
use crate::state::{Shared, State};
use blocked::Blocked;

/// Batch buffer in bytes: the maximum UDP payload, and so of a GSO send.
const BATCH_BYTES: usize = 65_507;
/// H3_NO_ERROR (RFC 9114, section 8.1): closes a connection at the end of a drain.
const NO_ERROR: u64 = 0x100;
/// H3_REQUEST_REJECTED: closes a connection from a banned address.
const REQUEST_REJECTED: u64 = 0x10b;
/// H3_EXCESSIVE_LOAD: closes a connection beyond the limits.
const EXCESSIVE_LOAD: u64 = 0x107;
/// Maximum sleep, so that an idle loop still shows that it is alive.
const MAX_SLEEP: Duration = Duration::from_secs(1);
/// Delay of the second GOAWAY: longer than most round trips.
const SECOND_GOAWAY_DELAY: Duration = Duration::from_secs(1);
/// Maximum number of connections served per turn, and time after which the rest waits for the next
/// turn. Reading new acknowledgements first is worth more than sending a batch at once.
const MAX_SERVED: usize = 64;
const MAX_SERVING_TIME: Duration = Duration::from_millis(1);
/// Maximum delay of a due timer behind unread datagrams, which may contain the awaited
/// acknowledgement. Bounded so that a flood cannot suppress timers. Counts from when the loop
/// noticed the timer, because a delayed loop has most to read.
const MAX_TIMER_DELAY: Duration = Duration::from_millis(25);
/// Interval of checks of a postponed timer.
const TIMER_RECHECK: Duration = Duration::from_millis(1);
/// Interval of a loop's reports.
const REPORT_PERIOD: Duration = Duration::from_secs(1);

/// Parameters of a loop.
pub(crate) struct LoopPlan {
    pub core: u8,
    /// Seed of connection IDs and other unpredictable values.
    pub seed: [u8; 32],
    pub sockets: Vec<UdpSocket>,
    pub shared: Arc<Shared>,
    pub mailbox: Mailbox,
    /// The mailboxes of all loops, this one's included.
    pub others: Vec<Sender>,
    pub log: Option<Arc<ConnectionLog>>,
    /// Set at the start of the drain.
    pub draining: Arc<AtomicBool>,
    /// The loop's sign of life, and its clock.
    pub pulse: Arc<Pulse>,
}

/// A connection in the loop.
struct LoopConnection {
    requests: Requests,
    dirty: bool,
    /// Its waker was called: a response or body can continue.
    woken: bool,
    /// It is queued for a blocked socket.
    is_queued: bool,
    /// Since when its timers are postponed for unread datagrams.
    postponed: Option<Timestamp>,
    /// Its place within the connection limits, once the address is validated.
    permit: Option<Permit>,
}

pub(crate) struct EventLoop {
    plan: LoopPlan,
    state: Arc<State>,
    /// Unix time in seconds of the origin of the loop's clock.
    unix_origin: u64,
    endpoint: Endpoint,
    places: Vec<Option<Box<LoopConnection>>>,
    dirty: VecDeque<Handle>,
    timers: Timers,
    handshakes: Handshakes,
    allowance: HandshakeBudget,
    /// Whether datagrams may be waiting unread.
    is_behind: bool,
    /// Whether mail was left over.
    more_mail: bool,
    /// By socket.
    blocked: Vec<Option<Blocked>>,
    batch: Vec<u8>,
    reply: Vec<u8>,
    drain_ends: Option<Timestamp>,
    second_goaway: Option<Timestamp>,
    counters: LoopCounters,
    report_due: Timestamp,
}

impl EventLoop {
    /// Creates a loop. It must stay on the current thread.
    pub(crate) fn new(plan: LoopPlan) -> Self {
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
            allowance: HandshakeBudget::default(),
            is_behind: false,
            more_mail: false,
            blocked: plan.sockets.iter().map(|_| None).collect(),
            batch: vec![0; BATCH_BYTES],
            reply: Vec::with_capacity(1_500),
            drain_ends: None,
            second_goaway: None,
            counters: LoopCounters::default(),
            report_due: Timestamp::ZERO,
            plan,
        }
    }

    fn now(&self) -> Timestamp {
        self.plan.pulse.now()
    }

    /// Runs until the drain is complete.
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

    /// Receives, fires timers, and serves affected connections.
    fn turn(&mut self, start: Timestamp, ready: &mut Vec<bool>, buffer: &mut ReceiveBuffer) {
        // The mailbox is last.
        let rung = ready.pop() == Some(true);
        self.follow_state(start);
        self.take_mail(start, rung);
        self.receive(ready, buffer);
        self.fire_timers(start, self.now());
        self.take_handshakes();
        let start = self.now();
        self.retry_blocked(start);
        let mut now = start;
        for _ in 0..self.dirty.len().min(MAX_SERVED) {
            if now.since(start) >= MAX_SERVING_TIME {
                break;
            }
            let Some(handle) = self.dirty.pop_front() else { break };
            self.serve(handle, now);
            now = self.now();
        }
        self.report(now);
    }

    /// Fires timers due `by` the start of the last complete read. Datagrams that arrived since may
    /// contain what later timers wait for.
    fn fire_timers(&mut self, by: Timestamp, now: Timestamp) {
        while let Some(handle) = self.timers.pop(by) {
            let Some(at) = self.deadline(handle) else { continue };
            if at > by {
                self.timers.set(handle, at);
                continue;
            }
            let Some(Some(place)) = self.places.get_mut(handle.0 as usize) else { continue };
            let since = *place.postponed.get_or_insert(now);
            if self.is_behind && now.since(since) < MAX_TIMER_DELAY {
                self.counters.timers_postponed += 1;
            } else {
                place.postponed = None;
                self.endpoint.handle_timeout(handle, now);
            }
            // Paced data and due acknowledgements are sent in any case.
            self.mark(handle);
        }
    }

    /// Returns how long the loop may sleep if nothing arrives.
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

    /// Returns the next deadline of any connection.
    fn next_deadline(&mut self) -> Option<Timestamp> {
        let mut timers = core::mem::take(&mut self.timers);
        let next = timers.next(|handle| self.deadline(handle));
        self.timers = timers;
        next
    }

    /// Sleeps until input or a deadline. `ready` tells for each socket, and last for the mailbox,
    /// whether there is input; reading without input would cost a system call.
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
        // An interrupted wait is just shorter.
        let _ = ppoll(&mut fds, Some(timeout), None);
        ready.clear();
        ready.extend(fds.iter().map(|fd| fd.any().unwrap_or(true)));
    }

    /// Sends GOAWAY to all clients. RFC 9114, section 5.2: the first names no request yet, because
    /// some may be in flight; the second names the last accepted one.
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

    /// Applies a reload, and the start and end of the drain.
    fn follow_state(&mut self, now: Timestamp) {
        let state = self.plan.shared.state();
        let draining = self.plan.draining.load(Ordering::Relaxed);
        let drain_starts = draining && self.drain_ends.is_none();
        if drain_starts || !Arc::ptr_eq(&state, &self.state) {
            let (core, loops) = (self.plan.core, self.plan.others.len());
            let origin = self.unix_origin;
            let mut config = state.quic.endpoint(&state.config, core, loops, origin);
            if draining {
                // RFC 9000, section 5.2.2: reject new connections with CONNECTION_REFUSED.
                config.max_connections = 0;
            }
            self.endpoint.set_config(config);
            self.state = state;
        }
        if drain_starts {
            self.drain_ends = Some(now + self.state.config.drain.timeout);
            self.second_goaway = Some(now + SECOND_GOAWAY_DELAY);
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

    /// Publishes the loop's counters, about once per second.
    fn report(&mut self, now: Timestamp) {
        if now < self.report_due {
            return;
        }
        self.report_due = now + REPORT_PERIOD;
        let origin = unix_origin(&self.state, now);
        // The system clock was set. One second may be rounding.
        if origin > self.unix_origin + 1 {
            self.unix_origin = origin;
            self.endpoint.set_unix_origin(origin);
        }
        let mut sends = SendStats::default();
        self.plan.sockets.iter().for_each(|socket| sends.add(socket.send_stats()));
        let report = LoopReport {
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
