//! The table of lost units: a slab with generations, and the queue of units whose round waits for
//! its first copy. What was sent first leaves first: in a stream it is what the player needs first, and what all
//! that came since waits behind.

use core::num::NonZeroU32;
use std::collections::VecDeque;
use units::{Mark, Timestamp};

/// What a copy of a unit's content is to its round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyKind {
    /// The first copy of a round.
    Retransmission,
    /// A further copy of the round.
    Replica,
    /// A copy sent because of a probe time-out: it opens no round and is no replica.
    Probe,
}

/// Names a lost unit. A key that outlives its unit names nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UnitKey {
    index: u32,
    generation: NonZeroU32,
}

impl UnitKey {
    /// Slot of the unit, for tables beside this one.
    pub(crate) fn index(self) -> usize {
        self.index as usize
    }
}

/// Stream data of a packet that was declared lost, until it is acknowledged (the papers' *D_ul*).
#[derive(Clone, Debug)]
pub struct LostUnit {
    /// 1 after the first loss, one more whenever a whole round is lost.
    pub round: u32,
    /// Copies in flight.
    pub outstanding: u32,
    /// Copies sent in the life of the unit, of all kinds.
    pub copies: u32,
    /// Replicas sent in the life of the unit.
    pub replicas: u32,
    /// Stream bytes.
    pub bytes: u32,
    /// When the content was first sent.
    pub first_sent: Timestamp,
    /// When its loss was first detected.
    pub detected: Timestamp,
    /// When the first copy was sent.
    pub first_copy: Option<Timestamp>,
    /// When the newest copy was sent; the time of detection before that.
    pub last_copy: Timestamp,
    /// What the application said about the first piece when it wrote it.
    pub mark: Option<Mark>,
    /// Whether it was opened because an acknowledgement was overdue, before a loss was declared.
    pub overdue: bool,
    /// Whether its first packet is still in flight.
    undecided: bool,
    waiting: bool,
    /// Counts units; the rest of a packet has its first part's.
    number: u64,
    /// The packet that it is a part of, if that was split.
    pub(crate) whole: Option<u32>,
}

/// A lost packet that was split into units: it is finished with its last part, and its rounds are
/// the most that any part needed (ART, on packets that no longer fit).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Whole {
    /// Parts that are unfinished.
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

    /// The data of a packet in flight whose acknowledgement is overdue.
    pub(crate) fn overdue(
        first_sent: Timestamp,
        now: Timestamp,
        bytes: u32,
        mark: Option<Mark>,
    ) -> Self {
        Self { overdue: true, undecided: true, ..Self::new(first_sent, now, bytes, mark) }
    }

    /// Whether the next copy is the first one that overdue data gets.
    pub(crate) fn is_first_of_overdue(&self) -> bool {
        self.undecided && self.copies == 0
    }

    /// Whether the unit waits for the first copy of its round, as overdue (`undecided`) or as lost
    /// data.
    fn waits(&self, undecided: bool) -> bool {
        self.waiting && self.undecided == undecided
    }
}

#[derive(Debug)]
struct Slot {
    generation: NonZeroU32,
    unit: Option<LostUnit>,
}

/// Units by when they were first sent, and by their number. Keys that no longer belong here are
/// skipped.
type Waiting = VecDeque<((Timestamp, u64), UnitKey)>;

/// All unfinished lost units of a connection.
#[derive(Debug, Default)]
pub struct UnitTable {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Units by time of detection; keys of finished units are skipped and dropped at the front.
    by_age: VecDeque<UnitKey>,
    /// Lost units that wait for the first copy of their round.
    waiting: Waiting,
    /// Overdue units that wait for it.
    overdue: Waiting,
    len: usize,
    opened: u64,
    wholes: Vec<Whole>,
    free_wholes: Vec<u32>,
}

impl UnitTable {
    /// Number of unfinished units.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no unfinished unit.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The unit of `key`, while it is unfinished.
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

    /// The unit waits. The rest of a packet goes right behind its first part: a peer keeps a limited number of gaps.
    fn enqueue(&mut self, key: UnitKey) {
        let Some(unit) = self.get_mut(key) else { return };
        unit.waiting = true;
        let (place, undecided) = ((unit.first_sent, unit.number), unit.undecided);
        let queue = if undecided { &mut self.overdue } else { &mut self.waiting };
        let at = queue.partition_point(|(other, _)| *other <= place);
        queue.insert(at, (place, key));
    }

    /// Keys of finished units go when they are most of a queue: one unit that stays must not keep the
    /// keys of all that come and go behind it.
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
            // What parts are still counted by stays, and the memory, which the slots outweigh.
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

    /// The first lost unit that waits.
    pub(crate) fn next_waiting(&mut self) -> Option<UnitKey> {
        while let Some(&(_, key)) = self.waiting.front() {
            if self.get(key).is_some_and(|unit| unit.waits(false)) {
                return Some(key);
            }
            self.waiting.pop_front();
        }
        None
    }

    /// The first overdue unit that waits.
    pub(crate) fn next_overdue(&mut self) -> Option<UnitKey> {
        while let Some(&(_, key)) = self.overdue.front() {
            if self.get(key).is_some_and(|unit| unit.waits(true)) {
                return Some(key);
            }
            self.overdue.pop_front();
        }
        None
    }

    /// The packet of an overdue unit was declared lost. If no copy has left, the unit waits for a
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
        // A probe that carries a waiting unit takes the place of its first copy.
        unit.waiting = false;
        Some(unit)
    }

    /// Returns the round of the copy, and whether the whole round is lost, or, if `each` copy's loss is answered, this one
    /// is to be.
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

    /// A part is over: acknowledged or abandoned. Returns rounds and copies of the whole with its last one;
    /// a unit that was never split is a whole of its own.
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
