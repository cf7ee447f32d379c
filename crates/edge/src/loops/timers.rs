//! The deadlines of a loop's connections, without a scan of all of them.
//!
//! A heap in which each connection has an entry for the earliest deadline that it ever announced
//! since the entry was last taken. Deadlines mostly move later (every packet moves the loss and
//! idle timers), and moving later costs nothing: the entry stays, and when it is the first of all the
//! connection is asked again. A deadline that moves earlier leaves a void entry behind; the heap is
//! rid of those before they are many times the others.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ::quic::Handle;
use units::Timestamp;

/// Deadlines by connection.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Timestamp, u32)>>,
    /// The earliest entry of each connection in the heap.
    armed: Vec<Option<Timestamp>>,
    /// How many of those there are.
    live: usize,
}

/// The heap is cleared of void entries when it holds more than this beside as many times the
/// connections' own.
const SPARE: usize = 64;
const TIMES: usize = 3;

impl Timers {
    /// The connection wants to be served at `deadline` at the latest.
    pub(super) fn set(&mut self, handle: Handle, deadline: Timestamp) {
        let index = handle.0 as usize;
        if self.armed.len() <= index {
            self.armed.resize(index + 1, None);
        }
        let armed = &mut self.armed[index];
        if armed.is_none_or(|armed| deadline < armed) {
            self.live += usize::from(armed.is_none());
            *armed = Some(deadline);
            self.heap.push(Reverse((deadline, handle.0)));
            if self.heap.len() > SPARE + TIMES * self.live {
                self.clear_void();
            }
        }
    }

    /// The connection is gone.
    pub(super) fn remove(&mut self, handle: Handle) {
        if let Some(armed) = self.armed.get_mut(handle.0 as usize)
            && armed.take().is_some()
        {
            self.live -= 1;
        }
    }

    /// Drops the entries that have been overtaken. Most have, so that this costs
    /// each entry O(log n) once.
    fn clear_void(&mut self) {
        let mut entries = core::mem::take(&mut self.heap).into_vec();
        // A connection whose deadline came back to an old value has two equal entries.
        entries.sort_unstable();
        entries.dedup();
        entries.retain(|Reverse((at, index))| self.armed[*index as usize] == Some(*at));
        self.heap = entries.into();
    }

    /// The next connection whose entry is due; its deadline has to be looked at and set again.
    pub(super) fn pop(&mut self, now: Timestamp) -> Option<Handle> {
        while let Some(&Reverse((at, index))) = self.heap.peek() {
            if at > now {
                return None;
            }
            self.heap.pop();
            let armed = &mut self.armed[index as usize];
            if *armed == Some(at) {
                *armed = None;
                self.live -= 1;
                return Some(Handle(index));
            }
        }
        None
    }

    /// The next deadline. `deadline` tells what a connection's is now: entries that are earlier are
    /// put right first, so that nobody wakes up for them.
    pub(super) fn next(
        &mut self,
        mut deadline: impl FnMut(Handle) -> Option<Timestamp>,
    ) -> Option<Timestamp> {
        loop {
            let &Reverse((at, index)) = self.heap.peek()?;
            let is_armed = self.armed[index as usize] == Some(at);
            let now = if is_armed { deadline(Handle(index)) } else { None };
            if is_armed && now.is_some_and(|now| now <= at) {
                return Some(at);
            }
            self.heap.pop();
            if is_armed {
                self.armed[index as usize] = None;
                self.live -= 1;
                now.into_iter().for_each(|now| self.set(Handle(index), now));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    /// The next deadline, all entries being right.
    fn next(timers: &mut Timers) -> Option<Timestamp> {
        timers.next(|_| Some(Timestamp::ZERO))
    }

    #[test]
    fn nobody_wakes_up_for_a_deadline_that_has_moved() {
        let mut timers = Timers::default();
        let now = [70, 20, 90].map(at);
        (0..3).for_each(|n| timers.set(Handle(n), at(10 + u64::from(n))));
        timers.set(Handle(3), at(5));
        let mut asked = 0;
        let mut next = |timers: &mut Timers| {
            timers.next(|handle| {
                asked += 1;
                now.get(handle.0 as usize).copied()
            })
        };
        assert_eq!(next(&mut timers), Some(at(20)), "3 has none any more");
        assert_eq!(next(&mut timers), Some(at(20)));
        assert_eq!(asked, 6, "each once, and the first again");
        assert_eq!(timers.pop(at(80)), Some(Handle(1)));
        assert_eq!(timers.pop(at(80)), Some(Handle(0)));
        assert_eq!(timers.pop(at(80)), None);
    }

    #[test]
    fn the_earliest_deadline_comes_first_and_only_when_due() {
        let mut timers = Timers::default();
        timers.set(Handle(3), at(30));
        timers.set(Handle(1), at(10));
        assert_eq!(next(&mut timers), Some(at(10)));
        assert_eq!(timers.pop(at(9)), None);
        assert_eq!(timers.pop(at(40)), Some(Handle(1)));
        assert_eq!(timers.pop(at(40)), Some(Handle(3)));
        assert_eq!(timers.pop(at(40)), None);
    }

    #[test]
    fn a_deadline_that_moves_later_adds_no_entry() {
        let mut timers = Timers::default();
        for ms in 10..1_000 {
            timers.set(Handle(0), at(ms));
        }
        assert_eq!(timers.heap.len(), 1);
        assert_eq!(timers.pop(at(10)), Some(Handle(0)));
    }

    #[test]
    fn a_deadline_that_moves_earlier_voids_the_later_entry() {
        let mut timers = Timers::default();
        timers.set(Handle(0), at(50));
        timers.set(Handle(0), at(20));
        assert_eq!(timers.pop(at(20)), Some(Handle(0)));
        assert_eq!(timers.pop(at(60)), None);
        assert_eq!(next(&mut timers), None);
    }

    #[test]
    fn void_entries_stay_few() {
        // Frames 25 times a second; after each, pacing for 2 ms, and then nothing but the idle
        // time-out, which the next frame's pacing overtakes.
        for connections in [1, 100] {
            let mut timers = Timers::default();
            let mut now = at(1_000);
            for _ in 0..25 * 60 {
                (0..connections)
                    .for_each(|n| timers.set(Handle(n), now + Duration::from_millis(2)));
                now += Duration::from_millis(2);
                while timers.pop(now).is_some() {}
                (0..connections).for_each(|n| timers.set(Handle(n), now + Duration::from_secs(30)));
                now += Duration::from_millis(38);
                while timers.pop(now).is_some() {}
                assert!(timers.heap.len() <= SPARE + TIMES * connections as usize);
            }
            // And none of those that count is missing.
            let due = std::iter::from_fn(|| timers.pop(now + Duration::from_secs(30))).count();
            assert_eq!(due, connections as usize);
        }
    }

    #[test]
    fn a_connection_that_is_gone_has_no_deadline() {
        let mut timers = Timers::default();
        for n in 0..1_000 {
            timers.set(Handle(n), at(10));
            timers.remove(Handle(n));
            assert!(timers.heap.len() <= SPARE + TIMES);
        }
        timers.set(Handle(7), at(10));
        timers.set(Handle(7), at(5));
        assert_eq!(timers.pop(at(20)), Some(Handle(7)));
        assert_eq!(timers.pop(at(20)), None);
    }

    #[test]
    fn a_deadline_that_comes_back_is_told_once() {
        let mut timers = Timers::default();
        for _ in 0..2 {
            timers.set(Handle(0), at(50));
            timers.set(Handle(0), at(20));
            assert_eq!(timers.pop(at(20)), Some(Handle(0)));
        }
        timers.set(Handle(0), at(50));
        timers.clear_void();
        assert_eq!(timers.heap.len(), 1);
        assert_eq!(timers.pop(at(50)), Some(Handle(0)));
        assert_eq!(timers.pop(at(50)), None);
    }
}
