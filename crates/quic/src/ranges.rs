//! Sets of integers kept as ordered, disjoint, half-open ranges: received packet numbers for ACK
//! frames (RFC 9000, section 13.2) and acknowledged or received stream bytes (section 2.2).
//!
//! Common changes cost O(1): extending the last range, appending one after it, and dropping whole
//! ranges from the front. Others take a binary search and a move of the tail.

use core::fmt;
use core::ops::Range;
use std::collections::VecDeque;
use std::collections::vec_deque;

/// An ordered set of `u64` values, stored as disjoint ranges that do not touch each other.
///
/// An empty set does not allocate. The set is unbounded: callers that feed it from the network
/// limit it with [`len`](Self::len) or [`truncate_oldest`](Self::truncate_oldest). `u64::MAX`
/// cannot be a member.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RangeSet {
    ranges: VecDeque<Range<u64>>,
}

impl RangeSet {
    /// The empty set.
    pub const fn new() -> Self {
        Self { ranges: VecDeque::new() }
    }

    /// Adds every value of `range`; true if at least one of them was not a member before.
    pub fn insert(&mut self, range: Range<u64>) -> bool {
        if range.is_empty() {
            return false;
        }
        match self.ranges.back_mut() {
            Some(last) if range.start < last.start => self.insert_before_last(range),
            Some(last) if range.start <= last.end => {
                let grows = range.end > last.end;
                last.end = last.end.max(range.end);
                grows
            }
            _ => {
                self.ranges.push_back(range);
                true
            }
        }
    }

    fn insert_before_last(&mut self, range: Range<u64>) -> bool {
        let touched = self.ranges.partition_point(|r| r.end < range.start)
            ..self.ranges.partition_point(|r| r.start <= range.end);
        if touched.is_empty() {
            self.ranges.insert(touched.start, range);
            return true;
        }
        let merged = range.start.min(self.ranges[touched.start].start)
            ..range.end.max(self.ranges[touched.end - 1].end);
        if self.ranges[touched.start] == merged {
            return false;
        }
        self.ranges[touched.start] = merged;
        self.ranges.drain(touched.start + 1..touched.end);
        true
    }

    /// Takes every value of `range` out of the set.
    pub fn remove(&mut self, range: Range<u64>) {
        let mut hit = self.first_ending_after(range.start)
            ..self.ranges.partition_point(|r| r.start < range.end);
        if range.is_empty() || hit.is_empty() {
            return;
        }
        let left = self.ranges[hit.start].start..range.start;
        let right = range.end..self.ranges[hit.end - 1].end;
        if hit.len() == 1 && !left.is_empty() && !right.is_empty() {
            self.ranges[hit.start] = left;
            self.ranges.insert(hit.end, right);
            return;
        }
        if !left.is_empty() {
            self.ranges[hit.start] = left;
            hit.start += 1;
        }
        if !right.is_empty() {
            hit.end -= 1;
            self.ranges[hit.end] = right;
        }
        self.ranges.drain(hit);
    }

    /// Returns true if `value` is a member.
    pub fn contains(&self, value: u64) -> bool {
        self.ranges.get(self.first_ending_after(value)).is_some_and(|r| r.start <= value)
    }

    /// Returns true if every value of `range` is a member, or `range` is empty.
    pub fn covers(&self, range: Range<u64>) -> bool {
        range.is_empty()
            || self
                .ranges
                .get(self.first_ending_after(range.start))
                .is_some_and(|r| r.start <= range.start && range.end <= r.end)
    }

    /// The parts of `range` that are not in the set, ascending.
    pub fn gaps_in(&self, range: Range<u64>) -> Gaps<'_> {
        let ranges = self.ranges.range(self.first_ending_after(range.start)..);
        Gaps { ranges, at: range.start, end: range.end }
    }

    /// The ranges, ascending (or descending from the back).
    pub fn iter(
        &self,
    ) -> impl DoubleEndedIterator<Item = Range<u64>> + ExactSizeIterator + Clone + use<'_> {
        self.ranges.iter().cloned()
    }

    /// Number of disjoint ranges.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Returns true if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The range of the smallest values.
    pub fn first(&self) -> Option<Range<u64>> {
        self.ranges.front().cloned()
    }

    /// The range of the largest values.
    pub fn last(&self) -> Option<Range<u64>> {
        self.ranges.back().cloned()
    }

    /// The smallest member.
    pub fn min(&self) -> Option<u64> {
        self.ranges.front().map(|r| r.start)
    }

    /// Takes the range of the smallest values out of the set.
    pub fn pop_first(&mut self) -> Option<Range<u64>> {
        self.ranges.pop_front()
    }

    /// Drops the ranges of the smallest values until at most `keep` ranges are left.
    pub fn truncate_oldest(&mut self, keep: usize) {
        self.ranges.drain(..self.ranges.len().saturating_sub(keep));
    }

    /// Index of the first range with a member at or above `value`; `len` if there is none.
    fn first_ending_after(&self, value: u64) -> usize {
        match self.ranges.back() {
            Some(last) if last.end > value => self.ranges.partition_point(|r| r.end <= value),
            _ => self.ranges.len(),
        }
    }
}

impl fmt::Debug for RangeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(&self.ranges).finish()
    }
}

/// Iterator over the uncovered parts of a range, from [`RangeSet::gaps_in`].
#[derive(Clone, Debug)]
pub struct Gaps<'a> {
    ranges: vec_deque::Iter<'a, Range<u64>>,
    at: u64,
    end: u64,
}

impl Iterator for Gaps<'_> {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        while self.at < self.end {
            let start = self.at;
            let (gap_end, next) =
                self.ranges.next().map_or((self.end, self.end), |r| (r.start, r.end));
            self.at = next;
            let gap = start..gap_end.min(self.end);
            if !gap.is_empty() {
                return Some(gap);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;
    use std::collections::BTreeSet;

    fn set(ranges: &[(u64, u64)]) -> RangeSet {
        let mut set = RangeSet::new();
        for &(start, end) in ranges {
            set.insert(start..end);
        }
        set
    }

    fn ranges(set: &RangeSet) -> Vec<(u64, u64)> {
        set.iter().map(|r| (r.start, r.end)).collect()
    }

    #[test]
    fn touching_ranges_become_one() {
        let mut s = set(&[(0, 2), (4, 6)]);
        assert!(s.insert(2..4));
        assert_eq!(ranges(&s), [(0, 6)]);
        assert!(!s.insert(1..5));
        assert!(s.insert(6..7));
        assert_eq!(s.last(), Some(0..7));
    }

    #[test]
    fn a_range_over_several_swallows_them_and_reports_what_is_new() {
        let mut s = set(&[(0, 1), (3, 4), (6, 7), (9, 10)]);
        assert!(s.insert(2..8));
        assert_eq!(ranges(&s), [(0, 1), (2, 8), (9, 10)]);
        assert!(!s.insert(3..8));
        assert!(!s.insert(5..5));
        assert_eq!((s.min(), s.last()), (Some(0), Some(9..10)));
    }

    #[test]
    fn removing_the_middle_splits() {
        let mut s = set(&[(0, 10)]);
        s.remove(3..5);
        assert_eq!(ranges(&s), [(0, 3), (5, 10)]);
        s.remove(0..6);
        assert_eq!(ranges(&s), [(6, 10)]);
        s.remove(20..30);
        s.remove(8..8);
        assert_eq!(ranges(&s), [(6, 10)]);
    }

    #[test]
    fn the_oldest_ranges_go_first() {
        let mut s = set(&[(0, 1), (3, 4), (6, 7), (9, 10)]);
        assert_eq!(s.pop_first(), Some(0..1));
        s.truncate_oldest(2);
        assert_eq!(ranges(&s), [(6, 7), (9, 10)]);
        s.truncate_oldest(5);
        assert_eq!(s.len(), 2);
        s.truncate_oldest(0);
        assert!(s.is_empty() && s.first().is_none() && s.last().is_none());
    }

    #[test]
    fn an_empty_set_has_no_memory() {
        assert_eq!(RangeSet::new().ranges.capacity(), 0);
        assert_eq!(RangeSet::default(), RangeSet::new());
    }

    #[test]
    fn the_debug_form_lists_the_ranges() {
        assert_eq!(format!("{:?}", set(&[(0, 2), (4, 5)])), "{0..2, 4..5}");
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            rng_seed: RngSeed::Fixed(0x5e7),
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        /// Against the obvious model: a set of single values in 0..64.
        #[test]
        fn it_behaves_like_a_set_of_single_values(
            steps in prop::collection::vec((0u8..4, 0u64..64, 0u64..24), 1..60),
            probe in (0u64..70, 0u64..70),
        ) {
            let mut set = RangeSet::new();
            let mut model = BTreeSet::new();
            for (kind, start, len) in steps {
                let range = start..start + len;
                if kind == 0 {
                    set.remove(range.clone());
                    model.retain(|v| !range.contains(v));
                } else {
                    let before = model.len();
                    model.extend(range.clone());
                    prop_assert_eq!(set.insert(range), model.len() > before);
                }
                let members: Vec<u64> = set.iter().flatten().collect();
                prop_assert!(members.iter().eq(model.iter()));
                let separate = set.iter().zip(set.iter().skip(1)).all(|(a, b)| a.end < b.start);
                prop_assert!(separate && set.iter().all(|r| !r.is_empty()));
                prop_assert_eq!(set.min(), model.first().copied());
                prop_assert_eq!(set.last().map(|r| r.end - 1), model.last().copied());
            }
            let probe = probe.0..probe.1;
            prop_assert_eq!(set.contains(probe.start), model.contains(&probe.start));
            prop_assert_eq!(set.covers(probe.clone()), probe.clone().all(|v| model.contains(&v)));
            let gaps: Vec<u64> = set.gaps_in(probe.clone()).flatten().collect();
            let expected: Vec<u64> = probe.filter(|v| !model.contains(v)).collect();
            prop_assert_eq!(gaps, expected);
        }
    }
}
