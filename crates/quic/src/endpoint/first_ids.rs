//! The clients' initial destination IDs, in use until the client has one of ours (RFC 9000, section
//! 7.2).

use crate::wire::ConnectionId;
use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use units::Timestamp;

/// Lifetime of a first ID after the handshake. Without it, a late copy of the client's first packet
/// would open another connection.
const FIRST_ID_LIFETIME: Duration = Duration::from_secs(3);
/// IDs that the tables keep room for.
const KEPT_ROOM: usize = 256;

/// First IDs and the slots of their connections, until some time after the handshake.
#[derive(Default)]
pub(super) struct FirstIds {
    slots: HashMap<ConnectionId, u32>,
    /// IDs of handshakes under way, by slot.
    unfinished: HashMap<u32, ConnectionId>,
    /// IDs of finished handshakes, by the time to forget them.
    lingering: VecDeque<(Timestamp, u32, ConnectionId)>,
}

impl FirstIds {
    /// The slot of the connection that this ID opened, which may be empty or have a new tenant.
    pub(super) fn find(&self, id: &ConnectionId) -> Option<u32> {
        self.slots.get(id).copied()
    }

    /// Handshakes that are not finished.
    pub(super) fn unfinished(&self) -> usize {
        self.unfinished.len()
    }

    /// Adds a handshake in this slot.
    pub(super) fn insert(&mut self, slot: u32, id: ConnectionId) {
        self.slots.insert(id, slot);
        self.unfinished.insert(slot, id);
    }

    /// The handshake in this slot is finished: its ID is forgotten some time later.
    pub(super) fn on_handshake_over(&mut self, now: Timestamp, slot: u32) {
        // Asked for each datagram, mostly while no handshake is under way.
        if !self.unfinished.is_empty()
            && let Some(id) = self.unfinished.remove(&slot)
        {
            self.lingering.push_back((now + FIRST_ID_LIFETIME, slot, id));
        }
    }

    /// The connection in this slot is over.
    pub(super) fn forget(&mut self, slot: u32) {
        if let Some(id) = self.unfinished.remove(&slot) {
            self.slots.remove(&id);
        }
    }

    /// Forgets expired IDs. Gives memory back after a crowd of new clients.
    pub(super) fn expire(&mut self, now: Timestamp) {
        let mut over = false;
        while let Some(&(_, slot, id)) = self.lingering.front().filter(|old| old.0 <= now) {
            self.lingering.pop_front();
            over = true;
            // The client may have begun anew.
            if self.unfinished.get(&slot) != Some(&id) {
                self.slots.remove(&id);
            }
        }
        if over && self.slots.capacity() > 4 * self.slots.len() + KEPT_ROOM {
            let room = |len: usize| 2 * len + KEPT_ROOM / 2;
            self.slots.shrink_to(room(self.slots.len()));
            self.unfinished.shrink_to(room(self.unfinished.len()));
            self.lingering.shrink_to(room(self.lingering.len()));
        }
    }
}
