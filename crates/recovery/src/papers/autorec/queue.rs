//! The sender-side reinjection queue (journal, figure 10): unfinished units by their last
//! transmission. A linked list over the slots of the unit table: removal takes constant time, and
//! memory grows only with the table.

use crate::UnitKey;
use units::Timestamp;

/// A unit in the queue, with its status (A_i, T_stmp).
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub key: UnitKey,
    /// Replicas sent.
    pub replicas: u32,
    /// Time of the latest copy.
    pub sent: Timestamp,
    before: Option<usize>,
    behind: Option<usize>,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Indexed by the units' slots.
    entries: Vec<Option<Entry>>,
    head: Option<usize>,
    tail: Option<usize>,
}

impl Queue {
    pub(super) fn front(&self) -> Option<&Entry> {
        self.entries[self.head?].as_ref()
    }

    /// Appends a unit that is not in the queue.
    pub(super) fn push(&mut self, key: UnitKey, replicas: u32, sent: Timestamp) {
        let place = key.index();
        if self.entries.len() <= place {
            self.entries.resize(place + 1, None);
        }
        let before = self.tail.replace(place);
        match before.and_then(|last| self.entries[last].as_mut()) {
            Some(last) => last.behind = Some(place),
            None => self.head = Some(place),
        }
        self.entries[place] = Some(Entry { key, replicas, sent, before, behind: None });
    }

    /// Removes the unit. Returns whether it was in the queue.
    pub(super) fn remove(&mut self, key: UnitKey) -> bool {
        let Some(slot) = self.entries.get_mut(key.index()) else { return false };
        let Some(entry) = slot.take_if(|entry| entry.key == key) else { return false };
        match entry.before.and_then(|place| self.entries[place].as_mut()) {
            Some(before) => before.behind = entry.behind,
            None => self.head = entry.behind,
        }
        match entry.behind.and_then(|place| self.entries[place].as_mut()) {
            Some(behind) => behind.before = entry.before,
            None => self.tail = entry.before,
        }
        true
    }

    /// Removes all units with `level` replicas or more.
    pub(super) fn remove_from(&mut self, level: u32) {
        let mut place = self.head;
        while let Some(entry) = place.and_then(|place| self.entries[place]) {
            place = entry.behind;
            if entry.replicas >= level {
                self.remove(entry.key);
            }
        }
    }

    /// Returns the number of allocated slots.
    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.entries.len()
    }
}
