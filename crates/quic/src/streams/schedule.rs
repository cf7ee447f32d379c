//! Which stream sends next (RFC 9218): lower urgency first; within one urgency the non-incremental
//! streams in the order of their identifiers and the incremental ones in turns.

use std::collections::VecDeque;

use units::StreamId;

use super::Priority;

/// The sendable streams of one urgency.
#[derive(Debug, Default)]
struct Level {
    /// Non-incremental streams, by identifier.
    ordered: VecDeque<(StreamId, u32)>,
    /// Incremental streams, the one to serve next in front.
    ring: VecDeque<(StreamId, u32)>,
    /// Whether the ring is served next when both kinds wait.
    ring_turn: bool,
}

impl Level {
    fn is_empty(&self) -> bool {
        self.ordered.is_empty() && self.ring.is_empty()
    }

    /// Both kinds take turns, so that neither starves the other (RFC 9218, section 10).
    fn serves_ring(&self) -> bool {
        self.ordered.is_empty() || (self.ring_turn && !self.ring.is_empty())
    }
}

/// Streams (as slots of the table) that have something to send, in the order of sending.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    levels: [Level; 8],
    /// Bit n: level n is not empty.
    occupied: u8,
}

impl Schedule {
    pub(super) fn is_empty(&self) -> bool {
        self.occupied == 0
    }

    /// Adds a stream that is not in here.
    pub(super) fn insert(&mut self, priority: Priority, id: StreamId, slot: u32) {
        let level = &mut self.levels[usize::from(priority.urgency)];
        if priority.incremental {
            level.ring.push_back((id, slot));
        } else {
            let place = level.ordered.partition_point(|(other, _)| *other < id);
            level.ordered.insert(place, (id, slot));
        }
        self.occupied |= 1 << priority.urgency;
    }

    /// Takes out a stream that was inserted under `priority`.
    pub(super) fn remove(&mut self, priority: Priority, id: StreamId) {
        let level = &mut self.levels[usize::from(priority.urgency)];
        if priority.incremental {
            // From the back: a stream that was just served and has no more to send is there.
            if let Some(place) = level.ring.iter().rposition(|(other, _)| *other == id) {
                level.ring.remove(place);
            }
        } else if let Ok(place) = level.ordered.binary_search_by_key(&id, |(other, _)| *other) {
            level.ordered.remove(place);
        }
        if level.is_empty() {
            self.occupied &= !(1 << priority.urgency);
        }
    }

    /// The slot to serve next.
    pub(super) fn front(&self) -> Option<u32> {
        let level = self.levels.get(self.occupied.trailing_zeros() as usize)?;
        let queue = if level.serves_ring() { &level.ring } else { &level.ordered };
        queue.front().map(|(_, slot)| *slot)
    }

    /// The stream in front was served: the next one of its level has its turn.
    pub(super) fn advance(&mut self) {
        let Some(level) = self.levels.get_mut(self.occupied.trailing_zeros() as usize) else {
            return;
        };
        let served_ring = level.serves_ring();
        if served_ring && level.ring.len() > 1 {
            level.ring.rotate_left(1);
        }
        level.ring_turn = !served_ring;
    }

    /// All streams and their slots, by urgency.
    pub(super) fn iter(&self) -> impl Iterator<Item = (StreamId, u32)> {
        self.levels.iter().flat_map(|level| level.ordered.iter().chain(&level.ring)).copied()
    }
}
