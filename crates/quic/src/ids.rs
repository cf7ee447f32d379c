//! Connection IDs of both sides (RFC 9000, section 5.1).
//!
//! Ours are not stored: each is the encryption of {server, core, place, sequence, nonce}, so the
//! owner is found, and a forged one refused, without a table.

use crate::crypto::{CidCipher, CidPlain};
use crate::ranges::RangeSet;
use crate::wire::{ConnectionId, TransportError, TransportErrorCode as Code};
use std::collections::VecDeque;

/// Length of our connection IDs: one AES block.
pub(crate) const LOCAL_LEN: usize = 16;
/// IDs that we let the peer hold at a time (including those not used yet).
const ISSUED: u64 = 3;
/// Sequence numbers between the oldest ID in force and the newest.
const WINDOW: u64 = u64::BITS as u64;
/// IDs of the peer that we store (our active_connection_id_limit).
pub(crate) const REMOTE_LIMIT: usize = 4;
/// Runs of sequence numbers that a peer's IDs may come in; honest ones count up.
const MAX_SEEN: usize = 32;
/// RETIRE_CONNECTION_ID frames that may wait to be acknowledged: a peer that makes us retire more
/// is attacking (RFC 9000, section 5.1.2).
const MAX_RETIRING: usize = 16;

/// The IDs that the peer uses for this connection.
#[derive(Debug)]
pub(crate) struct LocalIds {
    plain: CidPlain,
    /// Sequence number of the next ID.
    next: u64,
    /// Sequence numbers below this are retired.
    retired_below: u64,
    /// Retired ones from `retired_below` on, as a bit each.
    retired: u64,
    /// Sequence numbers of NEW_CONNECTION_ID frames to send.
    due: Vec<u64>,
    /// The newest sequence number that the peer has used.
    pub used: u64,
}

impl LocalIds {
    /// `plain` with sequence 0 is the ID of the handshake.
    pub(crate) fn new(plain: CidPlain) -> Self {
        Self { plain, next: 1, retired_below: 0, retired: 0, due: Vec::new(), used: 0 }
    }

    /// Returns whether `plain` is the ID of the handshake.
    pub(crate) fn begins_with(&self, plain: &CidPlain) -> bool {
        self.plain == *plain
    }

    /// The ID with this sequence number.
    pub(crate) fn get(&self, sequence: u64, cipher: &CidCipher) -> ConnectionId {
        ConnectionId::new(&cipher.encode(&self.plain_of(sequence))).unwrap_or(ConnectionId::EMPTY)
    }

    /// Returns the plain form of an ID. It contains the low byte of the sequence number; the higher
    /// bits change the nonce, so that no ID is "issued more than once on the same connection" (RFC
    /// 9000, section 5.1).
    fn plain_of(&self, sequence: u64) -> CidPlain {
        let nonce = self.plain.nonce.wrapping_add(sequence >> 8);
        CidPlain { sequence: sequence as u8, nonce, ..self.plain }
    }

    /// The full sequence number of a decrypted ID, if it is one of ours in force.
    #[inline]
    pub(crate) fn accept(&self, plain: &CidPlain) -> Option<u64> {
        // Numbers in force are less than WINDOW apart, so the low byte is enough.
        let ahead = plain.sequence.wrapping_sub(self.retired_below as u8);
        let sequence = self.retired_below + u64::from(ahead);
        let is_ours = *plain == self.plain_of(sequence);
        (is_ours && sequence < self.next && !self.is_retired(sequence)).then_some(sequence)
    }

    fn is_retired(&self, sequence: u64) -> bool {
        match sequence.checked_sub(self.retired_below) {
            None => true,
            Some(bit) => bit < WINDOW && self.retired >> bit & 1 == 1,
        }
    }

    fn active(&self) -> u64 {
        self.next - self.retired_below - u64::from(self.retired.count_ones())
    }

    /// Issues IDs up to the peer's limit.
    pub(crate) fn issue(&mut self, peer_limit: u64) {
        // A peer that retires everything but its oldest ID gets no further IDs: the bit mask of
        // retired IDs is full.
        while self.active() < ISSUED.min(peer_limit) && self.next - self.retired_below < WINDOW {
            self.due.push(self.next);
            self.next += 1;
        }
    }

    /// The next NEW_CONNECTION_ID to send.
    pub(crate) fn next_due(&mut self) -> Option<u64> {
        while let Some(sequence) = self.due.last().copied() {
            if !self.is_retired(sequence) {
                return Some(sequence);
            }
            self.due.pop();
        }
        None
    }

    /// The frame for [`LocalIds::next_due`] was written.
    pub(crate) fn sent(&mut self) {
        self.due.pop();
        if self.due.is_empty() {
            self.due = Vec::new();
        }
    }

    /// Returns true if a NEW_CONNECTION_ID is due.
    pub(crate) fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Retransmits a lost frame if the ID is still in force.
    pub(crate) fn on_lost(&mut self, sequence: u64) {
        if !self.is_retired(sequence) {
            self.due.push(sequence);
        }
    }

    /// RETIRE_CONNECTION_ID from the peer, in a packet addressed to the ID `addressed`.
    pub(crate) fn on_retire(
        &mut self,
        sequence: u64,
        addressed: u64,
        peer_limit: u64,
    ) -> Result<(), TransportError> {
        // RFC 9000, section 19.16: retiring an unissued sequence number, or the packet's own
        // destination ID, is a PROTOCOL_VIOLATION.
        if sequence >= self.next {
            return Err(violation("retires a connection ID never issued"));
        }
        if sequence == addressed {
            return Err(violation("retires the connection ID that it is addressed to"));
        }
        if let Some(bit) = sequence.checked_sub(self.retired_below) {
            self.retired |= 1 << bit;
            while self.retired & 1 == 1 {
                self.retired >>= 1;
                self.retired_below += 1;
            }
        }
        self.issue(peer_limit);
        Ok(())
    }
}

fn violation(reason: &'static str) -> TransportError {
    TransportError::new(Code::PROTOCOL_VIOLATION, 0, reason)
}

/// An ID that the peer gave us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RemoteId {
    pub sequence: u64,
    pub id: ConnectionId,
    pub reset_token: Option<[u8; 16]>,
}

/// The IDs that we use for the peer.
#[derive(Debug, Default)]
pub(crate) struct RemoteIds {
    pub active: RemoteId,
    spare: Vec<RemoteId>,
    /// Sequence numbers that were given to us, from `retire_prior_to` on.
    seen: RangeSet,
    retire_prior_to: u64,
    due: VecDeque<u64>,
    /// RETIRE_CONNECTION_ID frames sent and not yet acknowledged.
    retiring: usize,
}

impl RemoteIds {
    /// `id` is the client's first Source Connection ID.
    pub(crate) fn new(id: ConnectionId) -> Self {
        Self { active: RemoteId { id, ..RemoteId::default() }, ..Self::default() }
    }

    /// NEW_CONNECTION_ID from the peer (RFC 9000, section 19.15).
    pub(crate) fn on_new(
        &mut self,
        new: RemoteId,
        retire_prior_to: u64,
    ) -> Result<(), TransportError> {
        if self.active.id.is_empty() {
            return Err(violation("gives connection IDs although it uses none"));
        }
        let known = self.spare.iter().chain([&self.active]);
        for old in known {
            let same = old.sequence == new.sequence;
            if same && old.id == new.id && old.reset_token == new.reset_token {
                return Ok(());
            }
            if same || old.id == new.id {
                return Err(violation("gives a connection ID twice, differently"));
            }
        }
        if self.seen.contains(new.sequence) {
            // The frame was sent again, and we have retired the ID meanwhile.
            return Ok(());
        }
        self.retire_prior_to = self.retire_prior_to.max(retire_prior_to);
        self.seen.insert(new.sequence..new.sequence + 1);
        self.seen.remove(0..self.retire_prior_to);
        if self.seen.len() > MAX_SEEN {
            let reason = "gives connection IDs with gaps between their sequence numbers";
            return Err(TransportError::new(Code::CONNECTION_ID_LIMIT_ERROR, 0x18, reason));
        }
        if new.sequence < self.retire_prior_to {
            self.retire(new.sequence)?;
        } else {
            self.spare.reserve_exact(1);
            self.spare.push(new);
        }
        let below = self.retire_prior_to;
        let mut index = 0;
        while let Some(spare) = self.spare.get(index) {
            if spare.sequence < below {
                let sequence = spare.sequence;
                self.spare.swap_remove(index);
                self.retire(sequence)?;
            } else {
                index += 1;
            }
        }
        if self.active.sequence < below && !self.rotate()? {
            return Err(violation("retires every connection ID"));
        }
        if 1 + self.spare.len() > REMOTE_LIMIT {
            let reason = "more connection IDs than active_connection_id_limit";
            return Err(TransportError::new(Code::CONNECTION_ID_LIMIT_ERROR, 0x18, reason));
        }
        Ok(())
    }

    fn retire(&mut self, sequence: u64) -> Result<(), TransportError> {
        if self.due.contains(&sequence) {
            return Ok(());
        }
        self.due.push_back(sequence);
        if self.due.len() + self.retiring > MAX_RETIRING {
            let reason = "makes us retire connection IDs faster than it acknowledges";
            return Err(TransportError::new(Code::CONNECTION_ID_LIMIT_ERROR, 0x18, reason));
        }
        Ok(())
    }

    /// Changes to an ID not used before, if there is one, and retires the present one.
    pub(crate) fn rotate(&mut self) -> Result<bool, TransportError> {
        let Some(next) = (0..self.spare.len()).min_by_key(|&i| self.spare[i].sequence) else {
            return Ok(false);
        };
        let old = core::mem::replace(&mut self.active, self.spare.swap_remove(next));
        self.retire(old.sequence)?;
        Ok(true)
    }

    /// Returns true if a RETIRE_CONNECTION_ID is due.
    pub(crate) fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// The next RETIRE_CONNECTION_ID to send.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.due.front().copied()
    }

    /// The frame for [`RemoteIds::next_due`] was written.
    pub(crate) fn sent(&mut self) {
        self.due.pop_front();
        self.retiring += 1;
    }

    /// Such a frame was acknowledged.
    pub(crate) fn on_acked(&mut self) {
        self.retiring = self.retiring.saturating_sub(1);
    }

    /// Such a frame was lost.
    pub(crate) fn on_lost(&mut self, sequence: u64) {
        self.retiring = self.retiring.saturating_sub(1);
        self.due.push_back(sequence);
    }

    /// Whether the last 16 bytes of a datagram are a stateless reset of the peer (RFC 9000,
    /// section 10.3.1).
    pub(crate) fn is_reset(&self, tail: &[u8; 16]) -> bool {
        self.active.reset_token.is_some_and(|token| {
            // "MUST NOT leak timing": the comparison touches every byte.
            token.iter().zip(tail).fold(0, |acc, (a, b)| acc | (a ^ b)) == 0
        })
    }
}

#[cfg(test)]
mod tests;
