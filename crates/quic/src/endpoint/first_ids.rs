//! The clients' initial destination IDs, in use until the client has one of ours (RFC 9000, section
//! 7.2).

use crate::crypto::CidPlain;
use crate::wire::ConnectionId;
use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use units::Timestamp;

/// Lifetime of a first ID after the handshake. Without it, a late copy of the client's first packet
/// would open another connection.
const FIRST_ID_LIFETIME: Duration = Duration::from_secs(3);
/// IDs that the tables keep room for.
const KEPT_ROOM: usize = 256;

/// First IDs and our IDs for the same connections, until some time after the handshake.
#[derive(Default)]
pub(super) struct FirstIds {
    all: HashMap<ConnectionId, CidPlain>,
    /// IDs of handshakes under way, by slot.
    unfinished: HashMap<u32, ConnectionId>,
    /// IDs of finished handshakes, by the time to forget them.
    lingering: VecDeque<(Timestamp, ConnectionId)>,
}

impl FirstIds {
    /// Our ID for the connection that this ID opened, which may be over.
    pub(super) fn find(&self, id: &ConnectionId) -> Option<&CidPlain> {
        self.all.get(id)
    }

    /// Handshakes that are not finished.
    pub(super) fn unfinished(&self) -> usize {
        self.unfinished.len()
    }

    /// Adds a handshake.
    pub(super) fn insert(&mut self, id: ConnectionId, ours: CidPlain) {
        self.all.insert(id, ours);
        self.unfinished.insert(ours.slot, id);
    }

    /// The handshake in this slot is finished: its ID is forgotten some time later.
    pub(super) fn on_handshake_over(&mut self, now: Timestamp, slot: u32) {
        // Asked for each datagram, mostly while no handshake is under way.
        if !self.unfinished.is_empty()
            && let Some(id) = self.unfinished.remove(&slot)
        {
            self.lingering.push_back((now + FIRST_ID_LIFETIME, id));
        }
    }

    /// The connection in this slot is over.
    pub(super) fn forget(&mut self, slot: u32) {
        if let Some(id) = self.unfinished.remove(&slot) {
            self.all.remove(&id);
        }
    }

    /// Forgets expired IDs. Gives memory back after a crowd of new clients.
    pub(super) fn expire(&mut self, now: Timestamp) {
        let mut over = false;
        while let Some(&(_, id)) = self.lingering.front().filter(|(until, _)| *until <= now) {
            self.lingering.pop_front();
            over = true;
            // A later handshake may have the same ID.
            let slot = self.all.get(&id).map(|ours| ours.slot);
            if slot.is_some_and(|slot| self.unfinished.get(&slot) != Some(&id)) {
                self.all.remove(&id);
            }
        }
        if over && self.all.capacity() > 4 * self.all.len() + KEPT_ROOM {
            let room = |len: usize| 2 * len + KEPT_ROOM / 2;
            self.all.shrink_to(room(self.all.len()));
            self.unfinished.shrink_to(room(self.unfinished.len()));
            self.lingering.shrink_to(room(self.lingering.len()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_linger_after_the_handshake_and_their_memory_goes_back() {
        let at = Timestamp::from_millis;
        let mut ids = FirstIds::default();
        let id = |n: u32| ConnectionId::new(&n.to_be_bytes()).expect("short enough");
        let ours = |slot| CidPlain { server: 0, core: 0, sequence: 0, slot, nonce: 7 };
        for n in 0..10_000 {
            ids.insert(id(n), ours(n));
            ids.on_handshake_over(at(u64::from(n) / 10), n);
        }
        ids.insert(id(10_000), ours(10_000));
        ids.insert(id(10_001), ours(10_001));
        ids.forget(10_001);
        // The connection with the first ID is over, and a copy of its first packet came late.
        ids.insert(id(1), ours(10_002));
        assert_eq!((ids.unfinished(), ids.find(&id(10_001))), (2, None));
        ids.expire(at(2_999));
        assert_eq!(ids.find(&id(0)), Some(&ours(0)));
        ids.expire(at(3_500));
        assert_eq!((ids.find(&id(5_000)), ids.find(&id(5_010))), (None, Some(&ours(5_010))));
        ids.expire(at(10_000));
        assert_eq!((ids.all.len(), ids.find(&id(10_000))), (2, Some(&ours(10_000))));
        assert_eq!(ids.find(&id(1)), Some(&ours(10_002)));
        assert!(ids.all.capacity() < 1_000 && ids.lingering.capacity() < 1_000);
    }
}
