//! The peer's address changes: NAT rebinding and connection migration, with path validation
//! (RFC 9000, sections 8.2 and 9).

use super::receive::Arrival;
use super::{Connection, Context, Event};
use crate::observer;
use crate::path::{Addresses, Challenge, Path};
use core::time::Duration;
use rand_chacha::rand_core::Rng;
use units::Timestamp;

/// A frame owed on a path that need not be the present one.
#[derive(Clone, Copy, Debug)]
pub(super) struct OffPath {
    pub addresses: Addresses,
    pub frame: OffPathFrame,
    /// UDP payload bytes that may be sent there.
    pub limit: u64,
}

/// Which frame.
#[derive(Clone, Copy, Debug)]
pub(super) enum OffPathFrame {
    Challenge([u8; 8]),
    Response([u8; 8]),
}

/// Where to go back to when the new address does not answer.
#[derive(Debug)]
pub(super) struct Previous {
    addresses: Addresses,
    /// The whole path, unless the new one has taken its estimates over.
    path: Option<Box<Path>>,
}

/// Generations wrap before this value, which marks packets of no path in particular.
pub(super) const NO_PATH: u8 = u8::MAX;

impl Connection {
    /// A 1-RTT packet was processed; `newest` if it has the largest number so far and carries
    /// more than probing frames.
    pub(super) fn after_one_rtt(&mut self, arrival: &Arrival, newest: bool, ctx: &mut Context<'_>) {
        let fresh_id = arrival.local_id > self.local_ids.used;
        self.local_ids.used = self.local_ids.used.max(arrival.local_id);
        if arrival.addresses.remote == self.path.addresses.remote {
            self.path.addresses.local = arrival.addresses.local;
        } else if newest {
            self.migrate(arrival, fresh_id, ctx);
        }
    }

    fn migrate(&mut self, arrival: &Arrival, fresh_id: bool, ctx: &mut Context<'_>) {
        let Arrival { now, addresses, .. } = *arrival;
        let old = self.path.addresses;
        // Back to an address that was validated a moment ago: RFC 9000, section 9.3.
        let known = self.previous.as_ref().is_some_and(|p| p.addresses.remote == addresses.remote);
        let was_validated = self.path.validated;
        // RFC 9000, section 9.4: when only the port changes it is most likely a NAT, and the
        // estimates of the path may stay.
        let previous_path = if old.remote.ip() == addresses.remote.ip() {
            self.path.addresses = addresses;
            None
        } else {
            let generation = (self.path.generation + 1) % NO_PATH;
            // The marks of paths come around. A client that has packets of the first one open by
            // then is not followed; one mark is left for the way back.
            let oldest = self.data.ledger.oldest_path(NO_PATH);
            if oldest == Some(generation) || oldest == Some((generation + 1) % NO_PATH) {
                return;
            }
            let mut path = Path::new(&self.config, addresses, generation, ctx.rng.next_u64());
            path.controller.cap(Default::default());
            self.recovery.on_new_path(now);
            Some(Box::new(core::mem::replace(&mut self.path, path)))
        };
        // What was unanswered went to an address that is no more: the back-off says nothing about
        // this one.
        self.pto_count = 0;
        self.stats.migrations += 1;
        self.observe(now, &observer::Event::Migrated);
        if known {
            self.previous = None;
            self.path.validated = true;
            self.path.challenge = None;
            return;
        }
        if was_validated {
            self.previous = Some(Previous { addresses: old, path: previous_path });
        }
        self.path.validated = false;
        self.path.received = arrival.datagram as u64;
        self.path.sent = 0;
        self.path.challenge = Some(self.new_challenge(now, ctx));
        // Section 9.3.3: "endpoints MUST validate the previously active path".
        let mut data = [0; 8];
        ctx.rng.fill_bytes(&mut data);
        self.owe_off_path(OffPath {
            addresses: old,
            frame: OffPathFrame::Challenge(data),
            limit: if was_validated { u64::MAX } else { 0 },
        });
        // Section 9.5: a peer that moves on purpose changes its destination ID, and so do we.
        if fresh_id && let Err(error) = self.remote_ids.rotate() {
            self.fail(now, error);
        }
    }

    fn new_challenge(&self, now: Timestamp, ctx: &mut Context<'_>) -> Challenge {
        let mut data = [0; 8];
        ctx.rng.fill_bytes(&mut data);
        let wait = self.challenge_wait();
        // Section 8.2.4: "three times the larger of the current PTO and the PTO for the new path".
        Challenge { data, due: true, retry_at: now + wait, gives_up_at: now + 3 * wait }
    }

    fn challenge_wait(&self) -> Duration {
        self.pto().max(3 * self.config.initial_rtt)
    }

    /// Puts a frame for another path in the queue; a flood finds it full.
    pub(super) fn owe_off_path(&mut self, frame: OffPath) {
        // What a datagram lets us send to an address that is not validated, it lets us send once
        // (RFC 9000, section 8.1), however many challenges stand in it.
        if frame.limit < u64::MAX {
            let remote = frame.addresses.remote;
            self.off_path.retain(|o| o.limit == u64::MAX || o.addresses.remote != remote);
        }
        if frame.limit > 0 && self.off_path.len() < super::MAX_OFF_PATH {
            self.off_path.push_back(frame);
        }
    }

    pub(super) fn on_path_response(&mut self, data: [u8; 8]) {
        if self.path.challenge.is_some_and(|challenge| challenge.data == data) {
            self.path.challenge = None;
            self.path.validated = true;
            self.previous = None;
            self.events.push_back(Event::Migrated(self.path.addresses.remote));
        }
    }

    pub(super) fn on_challenge_timeout(&mut self, now: Timestamp) {
        let wait = self.challenge_wait();
        let Some(challenge) = &mut self.path.challenge else { return };
        if now >= challenge.gives_up_at {
            self.path.challenge = None;
            // Section 9.3.2: "revert to using the last validated peer address".
            if let Some(previous) = self.previous.take() {
                let generation = (self.path.generation + 1) % NO_PATH;
                if let Some(path) = previous.path {
                    self.path = *path;
                    self.path.generation = generation;
                    self.path.in_flight = 0;
                }
                self.path.addresses = previous.addresses;
                self.path.validated = true;
            }
        } else if now >= challenge.retry_at {
            challenge.due = true;
            challenge.retry_at = now + wait;
        }
    }
}
