//! Changes of the peer's address: NAT rebinding and connection migration, with path validation (RFC
//! 9000, sections 8.2 and 9).
//!
//! Recently used addresses are kept (`off_path`). A client that alternates between addresses is
//! validated once for each, and keeps each one's window and round-trip time.

use super::arrival::Arrival;
use super::event::Event;
use super::off_path::{OffPath, OffPathFrame};
use super::{Connection, Context};
use crate::ecn::PathEcn;
use crate::observer;
use crate::path::{Addresses, Challenge, Path, Standing};
use rand_chacha::rand_core::Rng;
use units::Timestamp;

impl Connection {
    /// Handles address changes after a 1-RTT packet. `newest` if it has the largest number so far
    /// and carries non-probing frames.
    pub(super) fn after_one_rtt(&mut self, arrival: &Arrival, newest: bool, ctx: &mut Context<'_>) {
        let fresh_id = arrival.local_id > self.control.local_ids.used;
        let used = &mut self.control.local_ids.used;
        *used = arrival.local_id.max(*used);
        if arrival.addresses.remote == self.path.standing.addresses.remote {
            self.path.standing.addresses = arrival.addresses;
        } else if newest {
            self.migrate(arrival, fresh_id, ctx);
        }
    }

    fn migrate(&mut self, arrival: &Arrival, fresh_id: bool, ctx: &mut Context<'_>) {
        let Arrival { now, addresses, .. } = *arrival;
        self.known.expire(now);
        let old = self.path.standing.clone();
        let returns = self.known.contains(addresses.remote);
        let follows = if returns {
            // Section 9.3: a recently seen address needs no validation, so an attacker who replays
            // a packet from elsewhere costs the client nothing. A validation under way continues.
            self.return_to(arrival, ctx)
        } else {
            let challenge = Some(Box::new(self.new_challenge(now, ctx)));
            let standing = Standing { challenge, ..Standing::new(addresses) };
            let estimates = self.known.take_estimates(addresses.remote.ip());
            self.go_on(now, standing, estimates, ctx)
        };
        if !follows {
            return;
        }
        let standing = &mut self.path.standing;
        standing.addresses = addresses;
        if !standing.validated {
            standing.received += arrival.datagram as u64;
        }
        // Unanswered packets went to the old address. The back-off says nothing about the new one.
        self.probe_timer.reset_backoff();
        self.stats.migrations += 1;
        let from = old.addresses.remote;
        tracing::debug!(%from, to = %addresses.remote, known = returns, "migration");
        self.observe(now, &observer::Event::Migrated);
        self.note_ecn(now);
        if !old.validated {
            self.owe_nothing_to(old.addresses);
        }
        if returns {
            return;
        }
        if old.validated {
            // Section 9.3.3: "endpoints MUST validate the previously active path".
            let mut data = [0; 8];
            ctx.rng.fill_bytes(&mut data);
            let frame = OffPathFrame::Challenge(data);
            self.owe_off_path(OffPath { addresses: old.addresses, frame, limit: u64::MAX });
        }
        // Section 9.5: a peer that migrates on purpose changes its destination ID, and so do we.
        if fresh_id && let Err(error) = self.control.remote_ids.rotate() {
            self.fail(now, error);
        }
    }

    /// Resumes a recently used address. Returns false if that is impossible.
    fn return_to(&mut self, arrival: &Arrival, ctx: &mut Context<'_>) -> bool {
        let Some((standing, estimates)) = self.known.take(arrival.addresses.remote) else {
            return false;
        };
        self.go_on(arrival.now, standing, estimates, ctx)
    }

    /// Switches to another address and keeps the old one. If only the port differs, which is most
    /// likely a NAT rebinding (section 9.4), the present path stays. Otherwise it resumes the kept
    /// path to the IP address (`estimates`), or starts a new one. Returns false if no mark is free
    /// for a new path.
    fn go_on(
        &mut self,
        now: Timestamp,
        standing: Standing,
        estimates: Option<Box<Path>>,
        ctx: &mut Context<'_>,
    ) -> bool {
        if self.path.standing.addresses.remote.ip() == standing.addresses.remote.ip() {
            let old = core::mem::replace(&mut self.path.standing, standing);
            self.known.keep_address(now, old);
            return true;
        }
        let path = match estimates {
            Some(path) => Path { standing, ..*path },
            None => match self.new_path(now, standing, ctx) {
                Some(path) => path,
                None => return false,
            },
        };
        let left = self.enter(now, path);
        self.known.keep_path(now, Box::new(left));
        true
    }

    /// Returns a path without estimates. `None` if no mark is free for its packets.
    fn new_path(
        &mut self,
        now: Timestamp,
        standing: Standing,
        ctx: &mut Context<'_>,
    ) -> Option<Path> {
        let oldest = self.data.ledger.oldest_number();
        let mark = self.known.assign_mark(self.path.generation, oldest)?;
        let ip = standing.addresses.remote.ip();
        let mut path = Path::new(&self.config, self.cap, standing, mark, ctx.rng.next_u64());
        path.mtud.limit(self.peer.max_udp_payload_size);
        if ctx.ecn.has_failed(now, ip) {
            path.ecn = PathEcn::failed(self.config.ecn);
        }
        self.recovery.on_new_path(now);
        Some(path)
    }

    /// Makes this the present path. Returns the previous one.
    fn enter(&mut self, now: Timestamp, mut path: Path) -> Path {
        path.controller.cap(self.cap);
        path.presence.on_return(now);
        self.path.presence.on_left(now);
        self.path.ecn.on_left();
        core::mem::replace(&mut self.path, path)
    }

    /// Returns to the last validated address, if there is one, and forgets the present one (section
    /// 9.3.2).
    fn revert(&mut self, now: Timestamp) {
        let Some(remote) = self.known.last_proven() else { return };
        let Some((standing, estimates)) = self.known.take(remote) else { return };
        if !self.path.standing.validated {
            self.owe_nothing_to(self.path.standing.addresses);
        }
        match estimates {
            Some(path) => {
                let left = self.enter(now, Path { standing, ..*path });
                self.known.forget_path(Box::new(left));
            }
            None => self.path.standing = standing,
        }
    }

    /// Creates a challenge, repeated after one probe time-out of the previous path, then two, and
    /// so on. Section 8.2.1 allows challenges no more often than Initial packets, and their
    /// time-out may start from the previous round-trip time (RFC 9002, section 6.2.2).
    fn new_challenge(&self, now: Timestamp, ctx: &mut Context<'_>) -> Challenge {
        let initial = 3 * self.config.initial_rtt;
        let mut data = [[0; 8]; 2];
        data.iter_mut().for_each(|data| ctx.rng.fill_bytes(data));
        // Section 8.2.4: "three times the larger of the current PTO and the PTO for the new path".
        let gives_up_at = now + 3 * self.linger_pto().max(initial);
        let wait = self.pto().min(initial);
        Challenge { data, due: true, retry_at: gives_up_at, wait, gives_up_at, sent: None }
    }

    /// Queues a frame for another path, keeping only the newest per address. A received datagram
    /// permits an answer only once (RFC 9000, section 8.1), however many challenges it contains,
    /// and a flood finds the queue full.
    pub(super) fn owe_off_path(&mut self, frame: OffPath) {
        if frame.limit < u64::MAX {
            let remote = frame.addresses.remote;
            self.off_path.retain(|o| o.limit == u64::MAX || o.addresses.remote != remote);
        }
        if frame.limit > 0 && self.off_path.len() < super::MAX_OFF_PATH {
            self.off_path.push_back(frame);
        }
    }

    /// Drops the frames queued for an address that never was validated. The path's
    /// anti-amplification budget included them; they must not be sent on top of it.
    pub(super) fn owe_nothing_to(&mut self, addresses: Addresses) {
        self.off_path.retain(|owed| owed.addresses.remote != addresses.remote);
    }

    /// Handles a PATH_RESPONSE. Section 8.2.3: a response "received on any network path validates
    /// the path on which the PATH_CHALLENGE was sent". A client that alternates may answer from
    /// another address.
    pub(super) fn on_path_response(&mut self, now: Timestamp, data: [u8; 8]) {
        let again = 3 * self.config.initial_rtt;
        self.known.expire(now);
        let mut answered = self.path.standing.on_response(now, data, again).map(|delay| {
            self.path.rtt.suppose(delay);
            &mut self.path.standing
        });
        let mut known = self.known.iter_mut();
        while answered.is_none()
            && let Some(known) = known.next()
        {
            answered = known.on_response(now, data, again);
        }
        if let Some(standing) = answered
            && !core::mem::replace(&mut standing.validated, true)
        {
            tracing::debug!(remote = %standing.addresses.remote, "path validated");
            self.events.push_back(Event::Migrated(standing.addresses.remote));
        }
    }

    pub(super) fn on_challenge_timeout(&mut self, now: Timestamp) {
        let Some(challenge) = &mut self.path.standing.challenge else { return };
        if now >= challenge.gives_up_at {
            self.path.standing.challenge = None;
            tracing::debug!("path validation failed");
            self.revert(now);
            self.note_ecn(now);
        } else if !challenge.due && now >= challenge.retry_at {
            challenge.due = true;
        }
    }
}
