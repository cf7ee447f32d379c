//! Deadlines of a loop's connections, without scanning all of them.
//!
//! A heap with one valid entry per connection: the earliest deadline announced since the entry was
//! last taken. Deadlines mostly move later (each packet moves the loss and idle timers), which
//! costs nothing: the entry stays, and the connection is asked again when it comes first. A
//! deadline that moves earlier leaves a stale entry behind. Stale entries are removed before they
//! far outnumber the valid ones.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ::quic::Handle;
use units::Timestamp;

/// Deadlines by connection.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Timestamp, u32)>>,
    /// The valid entry of each connection.
    armed: Vec<Option<Timestamp>>,
    /// Number of valid entries.
    live: usize,
}

/// Stale entries are removed when the heap exceeds this many entries plus this many per connection.
const EXTRA_ENTRIES: usize = 64;
const ENTRIES_PER_CONNECTION: usize = 3;

impl Timers {
    /// Sets the time at which the connection must be served at the latest.
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
            if self.heap.len() > EXTRA_ENTRIES + ENTRIES_PER_CONNECTION * self.live {
                self.remove_stale();
            }
        }
    }

    /// Removes a connection.
    pub(super) fn remove(&mut self, handle: Handle) {
        if let Some(armed) = self.armed.get_mut(handle.0 as usize)
            && armed.take().is_some()
        {
            self.live -= 1;
        }
    }

    /// Removes stale entries. Most are stale, so the cost is O(log n) once per entry.
    fn remove_stale(&mut self) {
        let mut entries = core::mem::take(&mut self.heap).into_vec();
        // A deadline that returned to an old value leaves two equal entries.
        entries.sort_unstable();
        entries.dedup();
        entries.retain(|Reverse((at, index))| self.armed[*index as usize] == Some(*at));
        self.heap = entries.into();
    }

    /// Takes the next connection with a due entry. The caller must set its deadline again.
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

    /// Returns the next deadline. `deadline` returns a connection's current deadline; outdated
    /// entries are corrected first, so that the loop does not wake up for them.
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

    /// Returns the next deadline, with all entries valid.
    fn next(timers: &mut Timers) -> Option<Timestamp> {
        timers.next(|_| Some(Timestamp::ZERO))
    }

    #[test]
    fn moved_deadlines_cause_no_wake_up() {
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
    fn earliest_deadline_is_taken_first_once_due() {
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
    fn later_deadline_adds_no_entry() {
        let mut timers = Timers::default();
        for ms in 10..1_000 {
            timers.set(Handle(0), at(ms));
        }
        assert_eq!(timers.heap.len(), 1);
        assert_eq!(timers.pop(at(10)), Some(Handle(0)));
    }

    #[test]
    fn earlier_deadline_makes_the_later_entry_stale() {
        let mut timers = Timers::default();
        timers.set(Handle(0), at(50));
        timers.set(Handle(0), at(20));
        assert_eq!(timers.pop(at(20)), Some(Handle(0)));
        assert_eq!(timers.pop(at(60)), None);
        assert_eq!(next(&mut timers), None);
    }

    #[test]
    fn stale_entries_stay_few() {
        // 25 frames per second; after each, 2 ms of pacing, then only the idle timeout, which the
        // next frame's pacing precedes.
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
                assert!(
                    timers.heap.len()
                        <= EXTRA_ENTRIES + ENTRIES_PER_CONNECTION * connections as usize
                );
            }
            // All valid entries are still there.
            let due = std::iter::from_fn(|| timers.pop(now + Duration::from_secs(30))).count();
            assert_eq!(due, connections as usize);
        }
    }

    #[test]
    fn removed_connection_has_no_deadline() {
        let mut timers = Timers::default();
        for n in 0..1_000 {
            timers.set(Handle(n), at(10));
            timers.remove(Handle(n));
            assert!(timers.heap.len() <= EXTRA_ENTRIES + ENTRIES_PER_CONNECTION);
        }
        timers.set(Handle(7), at(10));
        timers.set(Handle(7), at(5));
        assert_eq!(timers.pop(at(20)), Some(Handle(7)));
        assert_eq!(timers.pop(at(20)), None);
    }

    #[test]
    fn repeated_deadline_is_returned_once() {
        let mut timers = Timers::default();
        for _ in 0..2 {
            timers.set(Handle(0), at(50));
            timers.set(Handle(0), at(20));
            assert_eq!(timers.pop(at(20)), Some(Handle(0)));
        }
        timers.set(Handle(0), at(50));
        timers.remove_stale();
        assert_eq!(timers.heap.len(), 1);
        assert_eq!(timers.pop(at(50)), Some(Handle(0)));
        assert_eq!(timers.pop(at(50)), None);
    }
}
