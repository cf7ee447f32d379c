//! The deadlines of a loop's connections, without a scan of all of them.
//!
//! A heap in which each connection has an entry for the earliest deadline that it ever announced
//! since the entry was last taken. Deadlines mostly move later (every packet moves the loss and
//! idle timers), and moving later costs nothing: the entry stays, and when its time comes the
//! connection is asked again.

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
}

impl Timers {
    /// The connection wants to be served at `deadline` at the latest.
    pub(super) fn set(&mut self, handle: Handle, deadline: Timestamp) {
        let index = handle.0 as usize;
        if self.armed.len() <= index {
            self.armed.resize(index + 1, None);
        }
        if self.armed[index].is_none_or(|armed| deadline < armed) {
            self.armed[index] = Some(deadline);
            self.heap.push(Reverse((deadline, handle.0)));
        }
    }

    /// The next connection whose entry is due; its deadline has to be looked at and set again.
    pub(super) fn pop(&mut self, now: Timestamp) -> Option<Handle> {
        while let Some(&Reverse((at, index))) = self.heap.peek() {
            if at > now {
                return None;
            }
            self.heap.pop();
            // An entry that an earlier one has overtaken is void.
            let armed = &mut self.armed[index as usize];
            if *armed == Some(at) {
                *armed = None;
                return Some(Handle(index));
            }
        }
        None
    }

    /// When the next entry is due.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn the_earliest_deadline_comes_first_and_only_when_due() {
        let mut timers = Timers::default();
        timers.set(Handle(3), at(30));
        timers.set(Handle(1), at(10));
        assert_eq!(timers.next(), Some(at(10)));
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
        assert_eq!(timers.next(), None);
    }
}
