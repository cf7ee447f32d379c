//! The clients' initial destination IDs, in use until the client has one of ours (RFC 9000, section
//! 7.2).

use crate::wire::ConnectionId;
use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use units::Timestamp;

/// Lifetime of a first ID after the handshake. Without it, a late copy of the client's first packet
/// would open another connection.
const FIRST_ID_LIFETIME: Duration = Duration::from_secs(3);

#[derive(Clone, Copy)]
struct FirstId {
    id: ConnectionId,
    /// The handshake is under way.
    is_early: bool,
}

/// First IDs and the slots of their connections, until some time after the handshake.
#[derive(Default)]
pub(super) struct FirstIds {
    slots: HashMap<ConnectionId, u32>,
    /// The reverse of `slots`, for removal by slot.
    by_slot: HashMap<u32, FirstId>,
    /// IDs of finished handshakes, by the time to forget them.
    lingering: VecDeque<(Timestamp, u32, ConnectionId)>,
    unfinished: usize,
}

impl FirstIds {
    /// The slot of the connection that this ID opened.
    pub(super) fn find(&self, id: &ConnectionId) -> Option<u32> {
        self.slots.get(id).copied()
    }

    /// Handshakes that are not finished.
    pub(super) fn unfinished(&self) -> usize {
        self.unfinished
    }

    /// Adds a handshake in this slot. Forgets expired IDs.
    pub(super) fn insert(&mut self, now: Timestamp, slot: u32, id: ConnectionId) {
        self.forget_old(now);
        self.slots.insert(id, slot);
        self.by_slot.insert(slot, FirstId { id, is_early: true });
        self.unfinished += 1;
    }

    /// The handshake in this slot is finished: its ID is forgotten some time later.
    pub(super) fn on_handshake_over(&mut self, now: Timestamp, slot: u32) {
        // Asked for each datagram, mostly while no handshake is under way.
        if self.unfinished > 0
            && let Some(first) = self.by_slot.get_mut(&slot)
            && core::mem::take(&mut first.is_early)
        {
            self.unfinished -= 1;
            self.lingering.push_back((now + FIRST_ID_LIFETIME, slot, first.id));
        }
    }

    /// Removes the slot's first ID.
    pub(super) fn forget(&mut self, slot: u32) {
        if let Some(FirstId { id, is_early }) = self.by_slot.remove(&slot) {
            self.slots.remove(&id);
            self.unfinished -= usize::from(is_early);
        }
    }

    fn forget_old(&mut self, now: Timestamp) {
        while let Some(&(_, slot, id)) = self.lingering.front().filter(|old| old.0 <= now) {
            self.lingering.pop_front();
            // The slot may have another tenant.
            if self.by_slot.get(&slot).is_some_and(|first| first.id == id) {
                self.forget(slot);
            }
        }
    }
}
