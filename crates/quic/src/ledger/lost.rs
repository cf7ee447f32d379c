//! Lost and superseded packets that the ledger has moved on from: a late acknowledgement is
//! recognised for a while (RFC 9002, section 6.1: "spurious").
//!
//! A peer can acknowledge thousands of them in any order, repeatedly, many times in a datagram.
//! Entries therefore stay in place until they expire. Settled ones point to the next open entry,
//! and look-ups shorten these pointers, so that finding an open entry takes a few steps.

use super::record::{Fate, SentPacket};
use std::collections::VecDeque;
use units::Timestamp;

/// Packets remembered at most.
const MAX_KEPT: usize = 4_096;

#[derive(Debug)]
struct LostEntry {
    until: Timestamp,
    record: SentPacket,
    /// In a settled entry: position of the next possibly open one, counted over the list's life.
    skip: u64,
}

/// Lost and superseded packets, by number.
#[derive(Debug, Default)]
pub(super) struct Lost {
    /// The packet numbers of `entries`, apart from them: each acknowledgement reads most of them.
    numbers: VecDeque<u64>,
    entries: VecDeque<LostEntry>,
    /// Entries that have left at the front.
    gone: u64,
}

impl Lost {
    /// Remembers a packet until then; its number is higher than all before.
    pub(super) fn push(&mut self, number: u64, until: Timestamp, record: SentPacket) {
        self.numbers.push_back(number);
        self.entries.push_back(LostEntry { until, record, skip: 0 });
    }

    /// The lowest number that is remembered.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.numbers.front().copied()
    }

    /// Entries, open or settled.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the position of the first entry from number `start` on. All entries from position
    /// `above` on are known to be. Ranges of an acknowledgement descend and mostly repeat, so the
    /// search begins at `above` and doubles its steps: it compares one or two numbers per range,
    /// and never more than twice as many as a binary search.
    pub(super) fn place(&self, start: u64, above: usize) -> usize {
        let is_below = |at: usize| self.numbers[at] < start;
        let (mut low, mut high, mut step) = (0, above, 1);
        while low < high {
            let probe = high.saturating_sub(step);
            if is_below(probe) {
                low = probe + 1;
                break;
            }
            (high, step) = (probe, 2 * step);
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if is_below(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        high
    }

    /// Settles the first open packet from position `at` to number `end`, and returns it as it was
    /// before; none if there is none.
    #[inline]
    pub(super) fn take(&mut self, at: usize, end: u64) -> Option<(u64, SentPacket)> {
        // Nearly always the end of the search, without reading a record.
        self.numbers.get(at).filter(|number| **number <= end)?;
        self.take_open(at, end)
    }

    fn take_open(&mut self, at: usize, end: u64) -> Option<(u64, SentPacket)> {
        let at = self.next_open(at);
        let number = *self.numbers.get(at).filter(|number| **number <= end)?;
        let behind = self.gone + at as u64 + 1;
        let entry = self.entries.get_mut(at)?;
        let record = entry.record;
        entry.record.fate = Fate::Acked;
        entry.skip = behind;
        Some((number, record))
    }

    /// The first open entry from `from` on, or the end.
    fn next_open(&mut self, from: usize) -> usize {
        let target = |entry: &LostEntry, gone: u64| (entry.skip - gone) as usize;
        let settled = |entry: &&LostEntry| entry.record.fate == Fate::Acked;
        let mut end = from;
        while let Some(entry) = self.entries.get(end).filter(settled) {
            end = target(entry, self.gone);
        }
        let mut at = from;
        while at < end {
            let next = target(&self.entries[at], self.gone);
            self.entries[at].skip = self.gone + end as u64;
            at = next;
        }
        end
    }

    /// Forgets the oldest packet if it has expired or the list is full. Returns the packet if it
    /// was open.
    pub(super) fn expire(&mut self, now: Timestamp) -> Option<Option<SentPacket>> {
        let oldest = self.entries.front();
        if oldest.is_none_or(|oldest| now < oldest.until && self.entries.len() <= MAX_KEPT) {
            if self.entries.is_empty() {
                (self.numbers, self.entries) = Default::default();
            }
            return None;
        }
        self.numbers.pop_front();
        let LostEntry { record, .. } = self.entries.pop_front()?;
        self.gone += 1;
        Some((record.fate != Fate::Acked).then_some(record))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::packet;
    use super::*;

    const LATER: Timestamp = Timestamp::from_secs(10);

    fn lost(numbers: impl Iterator<Item = u64>) -> Lost {
        let mut lost = Lost::default();
        numbers.for_each(|n| lost.push(n, LATER, packet(n)));
        lost
    }

    fn all(lost: &mut Lost, start: u64, end: u64) -> Vec<u64> {
        let at = lost.place(start, lost.len());
        core::iter::from_fn(|| lost.take(at, end)).map(|(number, _)| number).collect()
    }

    #[test]
    fn places_are_those_of_a_binary_search() {
        for length in [0, 1, 2, 3, 7, 64, 100] {
            let lost = lost((0..length).map(|n| 3 * n + 1));
            for start in 0..=3 * length + 2 {
                let expected = lost.numbers.partition_point(|number| *number < start);
                for above in expected..=lost.len() {
                    assert_eq!(lost.place(start, above), expected, "{start} of {length}");
                }
            }
        }
    }

    #[test]
    fn each_is_settled_once_in_whatever_order() {
        let mut lost = lost((0..300).map(|n| 3 * n));
        assert_eq!(all(&mut lost, 10, 20), [12, 15, 18]);
        assert_eq!(all(&mut lost, 0, 30), [0, 3, 6, 9, 21, 24, 27, 30]);
        assert!(all(&mut lost, 0, 30).is_empty());
        for n in (11..300).rev() {
            assert_eq!(all(&mut lost, 3 * n, 3 * n), [3 * n]);
        }
        assert!(all(&mut lost, 0, u64::MAX).is_empty());
    }

    #[test]
    fn pointers_hold_when_the_oldest_are_forgotten() {
        let mut lost = lost(0..100);
        assert_eq!(all(&mut lost, 0, 49).len(), 50);
        (100..MAX_KEPT as u64 + 40).for_each(|n| lost.push(n, LATER, packet(n)));
        let forgotten = core::iter::from_fn(|| lost.expire(Timestamp::ZERO)).flatten().count();
        assert_eq!((forgotten, lost.oldest()), (0, Some(40)), "the settled ones went");
        assert_eq!(all(&mut lost, 0, 60), (50..=60).collect::<Vec<_>>());
        let open = core::iter::from_fn(|| lost.expire(LATER)).flatten().count();
        assert_eq!(open, MAX_KEPT + 40 - 61);
    }
}
