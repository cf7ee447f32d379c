//! The sender-side reinjection queue (journal, figure 10): unfinished units in the order of their
//! last sending. A list over the places of the unit table, so that a unit leaves from anywhere at
//! the price of one, and memory is taken only when the table has grown.

use crate::UnitKey;
use units::Timestamp;

/// A unit in the queue, with its status (A_i, T_stmp).
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub key: UnitKey,
    /// Replicas sent so far.
    pub replicas: u32,
    /// When the newest copy was sent.
    pub sent: Timestamp,
    before: Option<usize>,
    behind: Option<usize>,
}

/// The queue.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// By the places of the units.
    entries: Vec<Option<Entry>>,
    head: Option<usize>,
    tail: Option<usize>,
}

impl Queue {
    pub(super) fn front(&self) -> Option<&Entry> {
        self.entries[self.head?].as_ref()
    }

    /// Puts a unit that is not in the queue at its tail: it was sent just now.
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

    /// Takes the unit out. Returns whether it was there.
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

    /// Takes out all units that had `level` replicas or more.
    pub(super) fn remove_from(&mut self, level: u32) {
        let mut place = self.head;
        while let Some(entry) = place.and_then(|place| self.entries[place]) {
            place = entry.behind;
            if entry.replicas >= level {
                self.remove(entry.key);
            }
        }
    }

    /// Places that memory was taken for.
    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.entries.len()
    }
}
