//! Memory of queues: little before the first entries, and little after a burst.

use std::collections::VecDeque;

/// Number of entries whose memory a queue keeps.
const KEPT: usize = 8;

/// Gives most of a queue's memory back once an eighth of it is used.
///
/// To be called after entries were removed. The queue keeps room for twice its entries, at least
/// 8, so a queue that fills and empties all the time seldom allocates.
pub fn release_capacity<T>(queue: &mut VecDeque<T>) {
    if queue.capacity() > KEPT && queue.len() < queue.capacity() / 8 {
        queue.shrink_to(KEPT.max(2 * queue.len()));
    }
}

/// Makes room for one entry in a queue without memory, which would make room for four. To be called
/// before the first entry of queues that seldom hold more than one.
pub fn reserve_first<T>(queue: &mut VecDeque<T>) {
    if queue.capacity() == 0 {
        queue.reserve_exact(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_entry_takes_the_memory_of_one() {
        let mut queue: VecDeque<u64> = VecDeque::new();
        reserve_first(&mut queue);
        queue.push_back(1);
        assert_eq!(queue.capacity(), 1);
        queue.push_back(2);
        let full = queue.capacity();
        queue.clear();
        reserve_first(&mut queue);
        assert_eq!(queue.capacity(), full);
    }

    #[test]
    fn a_queue_keeps_what_it_uses_regularly() {
        let mut queue: VecDeque<u64> = (0..1_000).collect();
        let full = queue.capacity();
        queue.drain(..800);
        release_capacity(&mut queue);
        assert_eq!(queue.capacity(), full);
        queue.drain(..150);
        release_capacity(&mut queue);
        assert!((100..200).contains(&queue.capacity()), "{}", queue.capacity());
        queue.clear();
        release_capacity(&mut queue);
        assert_eq!(queue.capacity(), KEPT);
        for round in 0..100 {
            queue.extend(0..KEPT as u64);
            queue.drain(..round % KEPT + 1);
            release_capacity(&mut queue);
            assert_eq!(queue.capacity(), KEPT, "round {round}");
            queue.clear();
        }
    }
}
