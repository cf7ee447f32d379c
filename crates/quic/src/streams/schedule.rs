//! Which stream sends next (RFC 9218): lower urgency first; within one urgency the non-incremental
//! streams in the order of their identifiers and the incremental ones in turns.

use std::collections::VecDeque;

use units::StreamId;

use super::interface::Priority;

/// The sendable streams of one urgency.
#[derive(Debug)]
struct Level {
    urgency: u8,
    /// Non-incremental streams, by identifier.
    ordered: VecDeque<(StreamId, u32)>,
    /// Incremental streams, the one to serve next in front.
    ring: VecDeque<(StreamId, u32)>,
    /// Whether the ring is served next when both kinds wait.
    ring_turn: bool,
}

impl Level {
    fn new(urgency: u8) -> Self {
        Self { urgency, ordered: VecDeque::new(), ring: VecDeque::new(), ring_turn: false }
    }

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
    /// By urgency, of those that were ever used: most connections use one or two of the eight.
    levels: Vec<Level>,
}

impl Schedule {
    fn level(&mut self, urgency: u8) -> &mut Level {
        let place = self.levels.partition_point(|level| level.urgency < urgency);
        if self.levels.get(place).is_none_or(|level| level.urgency != urgency) {
            self.levels.reserve_exact(1);
            self.levels.insert(place, Level::new(urgency));
        }
        &mut self.levels[place]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.levels.iter().all(Level::is_empty)
    }

    /// Adds a stream that is not in here.
    pub(super) fn insert(&mut self, priority: Priority, id: StreamId, slot: u32) {
        let level = self.level(priority.urgency);
        if priority.incremental {
            level.ring.push_back((id, slot));
        } else {
            let place = level.ordered.partition_point(|(other, _)| *other < id);
            level.ordered.insert(place, (id, slot));
        }
    }

    /// Takes out a stream that was inserted under `priority`.
    pub(super) fn remove(&mut self, priority: Priority, id: StreamId) {
        let level = self.level(priority.urgency);
        if priority.incremental {
            // From the back: a stream that was just served and has no more to send is there.
            if let Some(place) = level.ring.iter().rposition(|(other, _)| *other == id) {
                level.ring.remove(place);
            }
        } else if let Ok(place) = level.ordered.binary_search_by_key(&id, |(other, _)| *other) {
            level.ordered.remove(place);
        }
    }

    /// The slot to serve next.
    pub(super) fn front(&self) -> Option<u32> {
        let level = self.levels.iter().find(|level| !level.is_empty())?;
        let queue = if level.serves_ring() { &level.ring } else { &level.ordered };
        queue.front().map(|(_, slot)| *slot)
    }

    /// The stream in front was served: the next one of its level has its turn.
    pub(super) fn advance(&mut self) {
        let Some(level) = self.levels.iter_mut().find(|level| !level.is_empty()) else { return };
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
