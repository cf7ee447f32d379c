//! The 1-RTT keys of a connection: sealing, opening, key updates in both directions and the limits
//! on how often a key may be used (RFC 9001, sections 5.4, 6 and 9.5).
//!
//! The receive key of the next phase is derived ahead, when the current phase begins, rather than
//! when a packet first shows the other key phase. RFC 9001 section 6.3 forbids a timing signal that
//! tells whether the (masked) key phase bit was the expected one: with the key at hand every packet
//! costs exactly one AEAD operation, and forged phase flips cost us no derivation. The price is one
//! packet key, about 700 bytes per connection. The next *send* key has no such constraint and is
//! derived at the update; the previous receive key lives only for the 3 PTO that follow one.

use core::time::Duration;

use rustls::quic;
use units::Timestamp;

use super::keys::{DirectionKeys, HeaderKey, Keys, PacketKey};
use crate::wire::KEY_PHASE_BIT;

/// Packets kept in reserve below the confidentiality limit, so that a connection that has to be
/// closed with AEAD_LIMIT_REACHED can still say so.
const CLOSING_RESERVE: u64 = 64;

/// A packet that opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// Bytes of plaintext at the start of the payload buffer.
    pub len: usize,
    /// The packet was the peer's first of a new key phase, and triggered our update.
    pub key_updated: bool,
}

/// Reason why a 1-RTT packet was not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenError {
    /// Not authentic: drop and count it (RFC 9001, section 5.5).
    Decrypt,
    /// The peer broke the rules of key updates: close with KEY_UPDATE_ERROR
    /// (RFC 9001, sections 6.2 and 6.4).
    KeyUpdateError,
    /// Too many packets failed to authenticate: close with AEAD_LIMIT_REACHED, without processing
    /// anything further (RFC 9001, section 6.6).
    IntegrityLimit,
}

/// Reason why a key update may not start now. Retry later (RFC 9001, sections 6.1, 6.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateRefused {
    /// The handshake is not confirmed.
    HandshakeUnconfirmed,
    /// No packet of the current key phase has been acknowledged.
    PhaseUnacknowledged,
    /// The receive key of the previous phase is still kept for late packets.
    PreviousPhaseKept,
}

/// The 1-RTT packet protection state of a connection.
pub struct OneRtt {
    header_local: HeaderKey,
    header_remote: HeaderKey,
    local: PacketKey,
    remote: PacketKey,
    next_remote: PacketKey,
    previous: Option<PreviousKey>,
    schedule: Schedule,
    phase: bool,
    /// Packets sealed in this phase, and the number of the first of them.
    sealed: u64,
    first_sealed: Option<u64>,
    /// The peer has acknowledged a packet of this phase.
    acked: bool,
    /// Packet numbers opened in this phase, and the largest opened in any earlier one.
    lowest_opened: Option<u64>,
    largest_opened: Option<u64>,
    largest_opened_before: Option<u64>,
    /// Packets that failed to authenticate, under whatever key.
    failed: u64,
    confidentiality_limit: u64,
    integrity_limit: u64,
}

struct PreviousKey {
    key: PacketKey,
    /// Set once the peer is known to use newer keys.
    drop_at: Option<Timestamp>,
}

/// Source of the keys of later phases.
enum Schedule {
    /// The secrets of the phase after the current one.
    Real(Box<quic::Secrets>),
    /// The generation of the phase after the current one.
    Null(u8),
}

impl Schedule {
    /// The send key of the next phase; moves on to the one after.
    fn advance(&mut self) -> PacketKey {
        match self {
            Self::Real(secrets) => PacketKey::real(secrets.next_packet_keys().local),
            Self::Null(next) => {
                let key = PacketKey::null(*next);
                *next = next.wrapping_add(1);
                key
            }
        }
    }

    /// The receive key of the next phase.
    fn remote(&self) -> PacketKey {
        match self {
            Self::Real(secrets) => {
                PacketKey::real(secrets.as_ref().clone().next_packet_keys().remote)
            }
            Self::Null(next) => PacketKey::null(*next),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Generation {
    Previous,
    Current,
    Next,
}

impl OneRtt {
    /// The keys that the handshake ended with; `next` are the secrets of the first key update.
    pub(super) fn real(keys: quic::Keys, next: quic::Secrets) -> Self {
        Self::new(Keys::real(keys), Schedule::Real(Box::new(next)))
    }

    /// The null cipher in both directions; for the testbed only.
    pub fn null() -> Self {
        let direction = || DirectionKeys { header: HeaderKey::null(), packet: PacketKey::null(0) };
        Self::new(Keys { local: direction(), remote: direction() }, Schedule::Null(1))
    }

    fn new(keys: Keys, schedule: Schedule) -> Self {
        Self {
            confidentiality_limit: keys.local.packet.confidentiality_limit(),
            integrity_limit: keys.remote.packet.integrity_limit(),
            next_remote: schedule.remote(),
            header_local: keys.local.header,
            header_remote: keys.remote.header,
            local: keys.local.packet,
            remote: keys.remote.packet,
            previous: None,
            schedule,
            phase: false,
            sealed: 0,
            first_sealed: None,
            acked: false,
            lowest_opened: None,
            largest_opened: None,
            largest_opened_before: None,
            failed: 0,
        }
    }

    /// The key phase bit for the short header of the next packet to seal.
    pub fn local_phase(&self) -> bool {
        self.phase
    }

    /// The key that unmasks received short headers.
    pub fn remote_header(&self) -> &HeaderKey {
        &self.header_remote
    }

    /// Seals a short-header packet: `packet` is the header with the current [`Self::local_phase`],
    /// the packet number at `pn_offset..pn_offset + pn_len`, the payload, and
    /// [`TAG_LEN`](super::TAG_LEN) bytes of room for the tag. The header is masked as well. Packet
    /// numbers must rise from call to call.
    ///
    /// # Panics
    /// As [`PacketKey::seal`] and [`HeaderKey::protect`] do, on bugs of the caller.
    pub fn seal(&mut self, pn: u64, packet: &mut [u8], pn_offset: usize, pn_len: usize) {
        debug_assert_eq!(packet[0] & KEY_PHASE_BIT != 0, self.phase, "sealed in the wrong phase");
        let (header, payload_and_tag) = packet.split_at_mut(pn_offset + pn_len);
        self.local.seal(pn, header, payload_and_tag);
        self.header_local.protect(packet, pn_offset, pn_len);
        self.sealed += 1;
        self.first_sealed.get_or_insert(pn);
    }

    /// Opens the payload of a short-header packet with an unmasked header. `phase` is its key phase
    /// bit. `retain`, three times the current PTO, is how long late packets of the previous phase
    /// still open after a key update.
    ///
    /// # Errors
    /// See [`OpenError`]; the payload's contents are then unspecified.
    pub fn open(
        &mut self,
        pn: u64,
        phase: bool,
        header: &[u8],
        payload_and_tag: &mut [u8],
        now: Timestamp,
        retain: Duration,
    ) -> Result<Opened, OpenError> {
        self.drop_expired(now);
        let generation = self.generation_of(pn, phase);
        let key = match (generation, &self.previous) {
            (Generation::Previous, Some(previous)) => &previous.key,
            (Generation::Next, _) => &self.next_remote,
            _ => &self.remote,
        };
        let Ok(len) = key.open(pn, header, payload_and_tag) else {
            // RFC 9001, section 6.6: failures are counted "across all keys".
            self.failed += 1;
            return Err(if self.failed > self.integrity_limit {
                OpenError::IntegrityLimit
            } else {
                OpenError::Decrypt
            });
        };

        match generation {
            Generation::Previous => {
                self.largest_opened_before = self.largest_opened_before.max(Some(pn));
                return Ok(Opened { len, key_updated: false });
            }
            // RFC 9001, section 6.4: a packet "with a higher packet number" under older keys is a
            // KEY_UPDATE_ERROR, whichever of the two arrives first.
            Generation::Current if Some(pn) < self.largest_opened_before => {
                return Err(OpenError::KeyUpdateError);
            }
            Generation::Current => {}
            // The same, and RFC 9001, section 6.2: a peer that updates while nothing sent under the
            // current keys could have confirmed them to it has not awaited confirmation.
            Generation::Next if Some(pn) < self.largest_opened || self.sealed == 0 => {
                return Err(OpenError::KeyUpdateError);
            }
            // RFC 9001, section 6.2: the send keys are updated before the packet is acknowledged.
            Generation::Next => self.update(),
        }
        if self.lowest_opened.is_none()
            && let Some(previous) = &mut self.previous
        {
            previous.drop_at = Some(now + retain);
        }
        self.lowest_opened = Some(self.lowest_opened.map_or(pn, |lowest| lowest.min(pn)));
        self.largest_opened = self.largest_opened.max(Some(pn));
        Ok(Opened { len, key_updated: generation == Generation::Next })
    }

    /// RFC 9001, section 6.5: a packet of the other phase is a late one if it is older than every
    /// packet of the current phase, else the beginning of the next phase. That choice also obeys
    /// section 6.4, since old keys are never tried on a packet that is newer than the newer keys.
    fn generation_of(&self, pn: u64, phase: bool) -> Generation {
        if phase == self.phase {
            Generation::Current
        } else if self.previous.is_some() && self.lowest_opened.is_none_or(|lowest| pn < lowest) {
            Generation::Previous
        } else {
            Generation::Next
        }
    }

    /// Notes that the peer acknowledged packet `pn`; the largest of an ACK frame is enough.
    pub fn on_acked(&mut self, pn: u64) {
        self.acked |= self.first_sealed.is_some_and(|first| pn >= first);
    }

    /// Starts a key update: later packets are sealed in the other phase.
    ///
    /// # Errors
    /// [`UpdateRefused`] while the RFC does not allow one.
    pub fn initiate_update(
        &mut self,
        handshake_confirmed: bool,
        now: Timestamp,
    ) -> Result<(), UpdateRefused> {
        self.drop_expired(now);
        // RFC 9001, section 6.1: "An endpoint MUST NOT initiate a key update prior to having
        // confirmed the handshake", nor a subsequent one without an acknowledgment for a packet
        // of the current phase.
        if !handshake_confirmed {
            return Err(UpdateRefused::HandshakeUnconfirmed);
        }
        if !self.acked {
            return Err(UpdateRefused::PhaseUnacknowledged);
        }
        // RFC 9001, section 6.5: endpoints wait three PTO before the next update.
        if self.previous.is_some() {
            return Err(UpdateRefused::PreviousPhaseKept);
        }
        self.update();
        Ok(())
    }

    /// Returns true if the send key has protected `after` packets (0: no limit), or seven eighths
    /// of the confidentiality limit (RFC 9001, section 6.6), so that an update is due.
    pub fn should_update(&self, after: u64) -> bool {
        let near_limit = self.confidentiality_limit - self.confidentiality_limit / 8;
        self.sealed >= near_limit || after > 0 && self.sealed >= after
    }

    /// Whether the send key is used up and nothing but a CONNECTION_CLOSE with AEAD_LIMIT_REACHED
    /// may be sealed any more (RFC 9001, section 6.6); 64 packets remain for that.
    pub fn is_exhausted(&self) -> bool {
        self.sealed >= self.confidentiality_limit.saturating_sub(CLOSING_RESERVE)
    }

    fn update(&mut self) {
        self.phase = !self.phase;
        self.local = self.schedule.advance();
        let next_remote = self.schedule.remote();
        let remote = core::mem::replace(&mut self.next_remote, next_remote);
        let key = core::mem::replace(&mut self.remote, remote);
        self.previous = Some(PreviousKey { key, drop_at: None });
        self.sealed = 0;
        self.first_sealed = None;
        self.acked = false;
        self.lowest_opened = None;
        self.largest_opened_before = self.largest_opened_before.max(self.largest_opened.take());
    }

    fn drop_expired(&mut self, now: Timestamp) {
        let expired = |previous: &mut PreviousKey| previous.drop_at.is_some_and(|at| now >= at);
        self.previous.take_if(expired);
    }
}

#[cfg(test)]
mod tests;
