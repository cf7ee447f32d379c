//! The peer's address changes: NAT rebinding and connection migration, with path validation
//! (RFC 9000, sections 8.2 and 9).

use super::arrival::Arrival;
use super::event::Event;
use super::off_path::{NO_PATH, OffPath, OffPathFrame, Previous};
use super::{Connection, Context};
use crate::observer;
use crate::path::{Addresses, Challenge, Path};
use core::time::Duration;
use rand_chacha::rand_core::Rng;
use units::Timestamp;

impl Connection {
    /// A 1-RTT packet was processed; `newest` if it has the largest number so far and carries
    /// more than probing frames.
    pub(super) fn after_one_rtt(&mut self, arrival: &Arrival, newest: bool, ctx: &mut Context<'_>) {
        let fresh_id = arrival.local_id > self.local_ids.used;
        self.local_ids.used = self.local_ids.used.max(arrival.local_id);
        if arrival.addresses.remote == self.path.addresses.remote {
            self.path.addresses = arrival.addresses;
        } else if newest {
            self.migrate(arrival, fresh_id, ctx);
        }
    }

    fn migrate(&mut self, arrival: &Arrival, fresh_id: bool, ctx: &mut Context<'_>) {
        let Arrival { now, addresses, .. } = *arrival;
        let old = self.path.addresses;
        let was_validated = self.path.validated;
        let returns =
            self.previous.as_ref().is_some_and(|p| p.addresses.remote == addresses.remote);
        if !returns {
            let wait = self.pto();
            // Section 9.4: when only the port changes it is most likely a NAT, and the estimates of the
            // path may stay.
            let left = if old.remote.ip() == addresses.remote.ip() {
                self.path.addresses = addresses;
                None
            } else {
                let Some(mark) = self.free_mark() else { return };
                Some(self.replace_path(now, addresses, mark, ctx))
            };
            if was_validated {
                self.previous = Some(Previous { addresses: old, path: left });
            } else {
                self.owe_nothing_to(old);
            }
            self.path.validated = false;
            self.path.received = arrival.datagram as u64;
            self.path.sent = 0;
            self.path.challenge = Some(self.new_challenge(now, wait, ctx));
            // Section 9.3.3: "endpoints MUST validate the previously active path".
            let mut data = [0; 8];
            ctx.rng.fill_bytes(&mut data);
            self.owe_off_path(OffPath {
                addresses: old,
                frame: OffPathFrame::Challenge(data),
                limit: if was_validated { u64::MAX } else { 0 },
            });
        }
        // What was unanswered went to an address that is no more: the back-off says nothing about
        // this one.
        self.pto_count = 0;
        self.stats.migrations += 1;
        self.observe(now, &observer::Event::Migrated);
        if returns {
            // To an address that was validated a moment ago (section 9.3): nothing is to be proved, and
            // an attacker who copied a packet from elsewhere has cost the client no estimate.
            self.return_to_previous(now);
            self.path.addresses = addresses;
            return;
        }
        // Section 9.5: a peer that moves on purpose changes its destination ID, and so do we.
        if fresh_id && let Err(error) = self.remote_ids.rotate() {
            self.fail(now, error);
        }
    }

    /// A mark for the packets of a new path. Marks come around: a client that has packets of the first
    /// path open by then is not followed.
    fn free_mark(&self) -> Option<u8> {
        let previous = self.previous.as_ref().and_then(|p| p.path.as_ref());
        let kept = [Some(self.path.generation), previous.map(|path| path.generation)];
        let oldest = self.data.ledger.oldest_path(NO_PATH);
        let after = |n| (u16::from(self.generations) + n) % u16::from(NO_PATH);
        let mut marks = (1..4).map(|n| after(n) as u8);
        let mark = marks.find(|mark| oldest == Some(*mark) || !kept.contains(&Some(*mark)))?;
        (oldest != Some(mark)).then_some(mark)
    }

    /// Begins a path about which nothing is known. Returns the path that is left.
    fn replace_path(
        &mut self,
        now: Timestamp,
        addresses: Addresses,
        mark: u8,
        ctx: &mut Context<'_>,
    ) -> Box<Path> {
        self.generations = mark;
        let mut path = Path::new(&self.config, self.cap, addresses, mark, ctx.rng.next_u64());
        path.mtud.limit(self.peer.max_udp_payload_size);
        path.ecn.count_on_from(&self.path.ecn);
        self.recovery.on_new_path(now);
        Box::new(core::mem::replace(&mut self.path, path))
    }

    /// Goes on with the last validated address, and with what was known of the path to it. Does
    /// nothing if there is none.
    fn return_to_previous(&mut self, now: Timestamp) {
        let Some(Previous { addresses, path }) = self.previous.take() else { return };
        if !self.path.validated {
            self.owe_nothing_to(self.path.addresses);
        }
        if let Some(mut path) = path {
            // The fates of its packets were not booked on it meanwhile.
            path.in_flight = self.data.ledger.in_flight(path.generation);
            path.ecn.count_on_from(&self.path.ecn);
            path.controller.cap(self.cap);
            self.path = *path;
            self.recovery.on_new_path(now);
        }
        self.path.addresses = addresses;
        self.path.validated = true;
        self.path.challenge = None;
    }

    /// A challenge that is repeated after `wait`, the probe time-out of the path that the peer left,
    /// twice that, and so on. Section 8.2.1 wants challenges no more often than Initial packets,
    /// whose time-out may begin with the round-trip time of before (RFC 9002, section 6.2.2).
    fn new_challenge(&self, now: Timestamp, wait: Duration, ctx: &mut Context<'_>) -> Challenge {
        let initial = 3 * self.config.initial_rtt;
        let mut data = [[0; 8]; 2];
        data.iter_mut().for_each(|data| ctx.rng.fill_bytes(data));
        // Section 8.2.4: "three times the larger of the current PTO and the PTO for the new path".
        let gives_up_at = now + 3 * self.linger_pto().max(initial);
        let wait = wait.min(initial);
        Challenge { data, due: true, retry_at: gives_up_at, wait, gives_up_at }
    }

    /// Puts a frame for another path in the queue. For an address only the newest one waits: what a
    /// datagram lets us send, it lets us send once (RFC 9000, section 8.1), however many challenges
    /// stand in it, and a flood finds the queue full.
    pub(super) fn owe_off_path(&mut self, frame: OffPath) {
        if frame.limit < u64::MAX {
            let remote = frame.addresses.remote;
            self.off_path.retain(|o| o.limit == u64::MAX || o.addresses.remote != remote);
        }
        if frame.limit > 0 && self.off_path.len() < super::MAX_OFF_PATH {
            self.off_path.push_back(frame);
        }
    }

    /// An address that never was validated is left. What it may get was counted with the path: what it
    /// is owed must not come on top of that.
    fn owe_nothing_to(&mut self, addresses: Addresses) {
        self.off_path.retain(|owed| owed.addresses.remote != addresses.remote);
    }

    pub(super) fn on_path_response(&mut self, now: Timestamp, data: [u8; 8]) {
        let Some(challenge) = &mut self.path.challenge else { return };
        let [small, full] = challenge.data;
        if data == full {
            self.path.challenge = None;
            self.previous = None;
        } else if data == small && !self.path.validated {
            // Section 8.2.1: "To ensure that the path MTU is large enough, the endpoint MUST perform a
            // second path validation by sending a PATH_CHALLENGE frame in a datagram of at least 1200
            // bytes."
            challenge.due = true;
            challenge.gives_up_at = now + 3 * challenge.wait.max(3 * self.config.initial_rtt);
        } else {
            return;
        }
        if !core::mem::replace(&mut self.path.validated, true) {
            self.events.push_back(Event::Migrated(self.path.addresses.remote));
        }
    }

    pub(super) fn on_challenge_timeout(&mut self, now: Timestamp) {
        let Some(challenge) = &mut self.path.challenge else { return };
        if now >= challenge.gives_up_at {
            self.path.challenge = None;
            // Section 9.3.2: "revert to using the last validated peer address".
            self.return_to_previous(now);
        } else if !challenge.due && now >= challenge.retry_at {
            challenge.due = true;
        }
    }
}
