//! The table of lost units: a slab with generations, and the queue of units that wait for the first
//! copy of their round. The queue is ordered by first transmission, because a player needs the
//! oldest data of a stream first, and later data waits for it.

use core::num::NonZeroU32;
use std::collections::VecDeque;
use units::{Mark, Timestamp};

/// Role of a copy in its unit's round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyKind {
    /// The first copy of a round.
    Retransmission,
    /// A copy besides the first.
    Replica,
    /// A copy sent on a probe timeout. It opens no round.
    Probe,
}

/// Key of a lost unit. Keys of finished units are invalid.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UnitKey {
    index: u32,
    generation: NonZeroU32,
}

impl UnitKey {
    /// Returns the slot of the unit, for tables indexed like this one.
    pub(crate) fn index(self) -> usize {
        self.index as usize
    }
}

/// Stream data of a packet that was declared lost, until it is acknowledged (the papers' *D_ul*).
#[derive(Clone, Debug)]
pub struct LostUnit {
    /// Current round: 1 after the first loss, incremented when a whole round is lost.
    pub round: u32,
    /// Copies in flight.
    pub outstanding: u32,
    /// Copies sent, of all kinds.
    pub copies: u32,
    /// Replicas sent.
    pub replicas: u32,
    /// Bytes of stream data.
    pub bytes: u32,
    /// Time of the first transmission.
    pub first_sent: Timestamp,
    /// Time when the loss was first detected.
    pub detected: Timestamp,
    /// Time of the first copy.
    pub first_copy: Option<Timestamp>,
    /// Time of the latest copy; before the first, the time of detection.
    pub last_copy: Timestamp,
    /// The application's mark of the first piece.
    pub mark: Option<Mark>,
    /// Whether the unit was opened for an overdue acknowledgement, before a loss was declared.
    pub overdue: bool,
    /// Whether the first packet is still in flight.
    undecided: bool,
    waiting: bool,
    /// Sequence number; parts of a split packet share it.
    number: u64,
    /// Index of the split packet that this unit is a part of.
    pub(crate) whole: Option<u32>,
}

/// A lost packet that was split into units. It finishes with its last part, and has the rounds of
/// the part that took most (ART, on packets that no longer fit).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Whole {
    /// Unfinished parts.
    pub parts: u32,
    pub round: u32,
    pub copies: u32,
}

impl LostUnit {
    pub(crate) fn new(
        first_sent: Timestamp,
        detected: Timestamp,
        bytes: u32,
        mark: Option<Mark>,
    ) -> Self {
        Self {
            round: 1,
            outstanding: 0,
            copies: 0,
            replicas: 0,
            bytes,
            first_sent,
            detected,
            first_copy: None,
            last_copy: detected,
            mark,
            overdue: false,
            undecided: false,
            waiting: true,
            number: 0,
            whole: None,
        }
    }

    /// Creates a unit for a packet in flight with an overdue acknowledgement.
    pub(crate) fn overdue(
        first_sent: Timestamp,
        now: Timestamp,
        bytes: u32,
        mark: Option<Mark>,
    ) -> Self {
        Self { overdue: true, undecided: true, ..Self::new(first_sent, now, bytes, mark) }
    }

    /// Returns whether the next copy is the first copy of overdue data.
    pub(crate) fn is_first_of_overdue(&self) -> bool {
        self.undecided && self.copies == 0
    }

    /// Returns whether the unit waits for the first copy of its round, as overdue data
    /// (`undecided`) or as lost data.
    fn waits(&self, undecided: bool) -> bool {
        self.waiting && self.undecided == undecided
    }
}

#[derive(Debug)]
struct Slot {
    generation: NonZeroU32,
    unit: Option<LostUnit>,
}

/// Units ordered by first transmission and sequence number. Stale keys are skipped.
type Waiting = VecDeque<((Timestamp, u64), UnitKey)>;

/// Unfinished lost units of a connection.
#[derive(Debug, Default)]
pub struct UnitTable {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Units by time of detection. Stale keys are skipped, and dropped at the front.
    by_age: VecDeque<UnitKey>,
    /// Lost units that wait for the first copy of their round.
    waiting: Waiting,
    /// Overdue units that wait for their first copy.
    overdue: Waiting,
    len: usize,
    opened: u64,
    wholes: Vec<Whole>,
    free_wholes: Vec<u32>,
}

impl UnitTable {
    pub(crate) const fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            by_age: VecDeque::new(),
            waiting: VecDeque::new(),
            overdue: VecDeque::new(),
            len: 0,
            opened: 0,
            wholes: Vec::new(),
            free_wholes: Vec::new(),
        }
    }

    /// Returns the number of unfinished units.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there is no unfinished unit.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the unit while it is unfinished.
    pub fn get(&self, key: UnitKey) -> Option<&LostUnit> {
        let slot = self.slots.get(key.index())?;
        if slot.generation == key.generation { slot.unit.as_ref() } else { None }
    }

    fn get_mut(&mut self, key: UnitKey) -> Option<&mut LostUnit> {
        let slot = self.slots.get_mut(key.index())?;
        if slot.generation == key.generation { slot.unit.as_mut() } else { None }
    }

    pub(crate) fn insert(&mut self, mut unit: LostUnit) -> UnitKey {
        let waiting = unit.waiting;
        if unit.whole.is_none() {
            self.opened += 1;
            unit.number = self.opened;
        }
        self.len += 1;
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: NonZeroU32::MIN, unit: None });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.unit = Some(unit);
        let key = UnitKey { index, generation: slot.generation };
        self.tidy();
        self.by_age.push_back(key);
        if waiting {
            self.enqueue(key);
        }
        key
    }

    /// Queues the unit. Parts of a packet stay together: a peer tracks a limited number of gaps.
    fn enqueue(&mut self, key: UnitKey) {
        let Some(unit) = self.get_mut(key) else { return };
        unit.waiting = true;
        let (place, undecided) = ((unit.first_sent, unit.number), unit.undecided);
        let queue = if undecided { &mut self.overdue } else { &mut self.waiting };
        let at = queue.partition_point(|(other, _)| *other <= place);
        queue.insert(at, (place, key));
    }

    /// Removes stale keys from queues once they prevail: one long-lived unit must not keep the
    /// keys of all later ones.
    fn tidy(&mut self) {
        let most = 2 * self.len + 32;
        if self.by_age.len() > most {
            let mut keys = core::mem::take(&mut self.by_age);
            keys.retain(|&key| self.get(key).is_some());
            self.by_age = keys;
        }
        if self.waiting.len() > most {
            let mut all = core::mem::take(&mut self.waiting);
            all.retain(|&(_, key)| self.get(key).is_some_and(|unit| unit.waits(false)));
            self.waiting = all;
        }
        if self.overdue.len() > most {
            let mut all = core::mem::take(&mut self.overdue);
            all.retain(|&(_, key)| self.get(key).is_some_and(|unit| unit.waits(true)));
            self.overdue = all;
        }
    }

    pub(crate) fn remove(&mut self, key: UnitKey) -> Option<LostUnit> {
        let slot = self.slots.get_mut(key.index())?;
        if slot.generation != key.generation {
            return None;
        }
        let unit = slot.unit.take()?;
        slot.generation = slot.generation.checked_add(1).unwrap_or(NonZeroU32::MIN);
        self.free.push(key.index);
        self.len -= 1;
        if self.len == 0 {
            // Split packets may still have uncounted parts; memory is kept for reuse.
            self.by_age.clear();
            self.waiting.clear();
            self.overdue.clear();
        } else {
            while self.by_age.front().is_some_and(|&k| self.get(k).is_none()) {
                self.by_age.pop_front();
            }
        }
        Some(unit)
    }

    pub(crate) fn next_waiting(&mut self) -> Option<UnitKey> {
        while let Some(&(_, key)) = self.waiting.front() {
            if self.get(key).is_some_and(|unit| unit.waits(false)) {
                return Some(key);
            }
            self.waiting.pop_front();
        }
        None
    }

    pub(crate) fn next_overdue(&mut self) -> Option<UnitKey> {
        while let Some(&(_, key)) = self.overdue.front() {
            if self.get(key).is_some_and(|unit| unit.waits(true)) {
                return Some(key);
            }
            self.overdue.pop_front();
        }
        None
    }

    /// Handles the loss of an overdue unit's packet. Without a copy in flight, the unit waits for a
    /// retransmission.
    pub(crate) fn on_overdue_lost(&mut self, key: UnitKey) {
        let Some(unit) = self.get_mut(key) else { return };
        unit.undecided = false;
        if unit.waiting {
            self.enqueue(key);
        }
    }

    pub(crate) fn oldest(&self) -> Option<UnitKey> {
        self.by_age.front().copied()
    }

    pub(crate) fn on_copy_sent(
        &mut self,
        now: Timestamp,
        key: UnitKey,
        kind: CopyKind,
    ) -> Option<&LostUnit> {
        let unit = self.get_mut(key)?;
        unit.outstanding += 1;
        unit.copies += 1;
        unit.first_copy.get_or_insert(now);
        unit.last_copy = now;
        unit.replicas += u32::from(kind == CopyKind::Replica);
        // A probe that carries a waiting unit replaces its first copy.
        unit.waiting = false;
        Some(unit)
    }

    /// Returns the round of the lost copy, and whether a new round starts: because the whole round
    /// is lost, or because `each` loss is answered.
    pub(crate) fn on_copy_lost(&mut self, key: UnitKey, each: bool) -> Option<(u32, bool)> {
        let unit = self.get_mut(key)?;
        let round = unit.round;
        unit.outstanding = unit.outstanding.saturating_sub(1);
        if (unit.outstanding > 0 && !each) || unit.waiting {
            return Some((round, false));
        }
        unit.round += 1;
        self.enqueue(key);
        Some((round, true))
    }

    /// Takes a copy out of flight that a newer one has superseded.
    pub(crate) fn on_superseded(&mut self, key: UnitKey) {
        if let Some(unit) = self.get_mut(key) {
            unit.outstanding = unit.outstanding.saturating_sub(1);
        }
    }

    pub(crate) fn on_partly_acked(&mut self, key: UnitKey) {
        let Some(unit) = self.get_mut(key) else { return };
        unit.outstanding = unit.outstanding.saturating_sub(1);
        if unit.outstanding == 0 && !unit.waiting {
            self.enqueue(key);
        }
    }

    pub(crate) fn split(&mut self, key: UnitKey, bytes: u32) -> Option<UnitKey> {
        let known = self.get(key)?.whole;
        let whole = known.unwrap_or_else(|| {
            let first = Whole { parts: 1, ..Whole::default() };
            match self.free_wholes.pop() {
                Some(place) => {
                    self.wholes[place as usize] = first;
                    place
                }
                None => {
                    self.wholes.push(first);
                    self.wholes.len() as u32 - 1
                }
            }
        });
        self.wholes[whole as usize].parts += 1;
        let unit = self.get_mut(key)?;
        unit.whole = Some(whole);
        let mut other = unit.clone();
        unit.bytes = unit.bytes.saturating_sub(bytes);
        other.bytes = bytes;
        Some(self.insert(other))
    }

    /// Counts a finished or abandoned part. Returns rounds and copies of the packet with its last
    /// part; an unsplit unit is the only part of its packet.
    pub(crate) fn complete(&mut self, unit: &LostUnit) -> Option<(u32, u32)> {
        let Some(place) = unit.whole else { return Some((unit.round, unit.copies)) };
        let whole = &mut self.wholes[place as usize];
        whole.round = whole.round.max(unit.round);
        whole.copies = whole.copies.max(unit.copies);
        whole.parts -= 1;
        let done = (whole.parts == 0).then_some((whole.round, whole.copies));
        if done.is_some() {
            self.free_wholes.push(place);
        }
        done
    }
}
