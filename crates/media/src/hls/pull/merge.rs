//! Merges the samples of two playlists by time.
//!
//! Variants and renditions have equal timestamps (RFC 8216, section 6.2.4), but their segments
//! arrive at different times. A sample leaves when the other playlist has a later one. A
//! discontinuity leaves when both playlists have reached it. Neither waits forever: a playlist that
//! has ended, is unreachable or lags too far behind is absent until its next segment.

use core::time::Duration;
use std::collections::VecDeque;

use super::items::{ItemContent, PullItem};

/// Maximum number of bytes that wait for the other playlist, besides one segment.
const MAX_BYTES: usize = 32 << 20;
/// Counted per waiting entry in addition to its data.
const OVERHEAD: usize = size_of::<Entry>();
/// Maximum distance of the playlists' times. Playlists farther apart have different clocks, and
/// their samples leave as they arrive.
const MAX_APART_MS: u64 = 10_000;

/// A sample or configuration, or a place where times do not continue.
#[derive(Debug)]
pub(super) enum Entry {
    Item(PullItem),
    Break,
}

impl Entry {
    fn bytes(&self) -> usize {
        match self {
            Self::Item(PullItem { content: ItemContent::Sample { data, .. }, .. }) => {
                data.len() + OVERHEAD
            }
            _ => OVERHEAD,
        }
    }

    fn item(&self) -> Option<&PullItem> {
        match self {
            Self::Item(item) => Some(item),
            Self::Break => None,
        }
    }

    /// A configuration leaves at once: the receiver of the first frame must know which other tracks
    /// exist.
    fn is_config(&self) -> bool {
        self.item().is_some_and(|item| matches!(item.content, ItemContent::Config(_)))
    }
}

/// The entries of a playlist that have not left.
#[derive(Debug, Default)]
struct Queue {
    entries: VecDeque<Entry>,
    bytes: usize,
    /// Time of the newest item, unless a discontinuity follows it.
    newest_ms: Option<i64>,
}

impl Queue {
    fn push(&mut self, entry: Entry) {
        self.newest_ms = entry.item().map(|item| item.ms);
        self.bytes += entry.bytes();
        self.entries.push_back(entry);
    }

    fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        self.bytes -= entry.bytes();
        Some(entry)
    }

    /// Whether the waiting entries exceed a limit.
    fn is_full(&self, max_held: Duration) -> bool {
        let oldest = self.entries.iter().take(2).find_map(Entry::item);
        let held = oldest.zip(self.newest_ms).map_or(0, |(old, new)| new.abs_diff(old.ms));
        self.bytes > MAX_BYTES || u128::from(held) > max_held.as_millis()
    }
}

/// The merged playlists.
#[derive(Debug)]
pub(super) struct Merge {
    queues: [Queue; 2],
    /// Whether the other playlist does not wait for this one.
    absent: [bool; 2],
}

impl Default for Merge {
    /// A single playlist.
    fn default() -> Self {
        Self { queues: Default::default(), absent: [false, true] }
    }
}

impl Merge {
    /// Two playlists.
    pub(super) fn of_two() -> Self {
        Self { absent: [false; 2], ..Self::default() }
    }

    /// Lets the other playlist continue without this one until its next segment.
    pub(super) fn set_absent(&mut self, index: usize) {
        self.absent[index] = true;
    }

    /// Appends a segment.
    pub(super) fn push(&mut self, index: usize, items: Vec<PullItem>, is_break: bool) {
        // A segment without the wanted tracks does not end the absence.
        self.absent[index] &= items.is_empty();
        let queue = &mut self.queues[index];
        if is_break {
            queue.push(Entry::Break);
        }
        items.into_iter().for_each(|item| queue.push(Entry::Item(item)));
    }

    /// Returns the next entry that need not wait. `max_held` is the media time for which entries
    /// wait for the other playlist.
    pub(super) fn pop(&mut self, max_held: Duration) -> Option<Entry> {
        let index = match self.queues.each_ref().map(|queue| queue.entries.front()) {
            [None, None] => return None,
            [Some(_), None] => self.passes(0, max_held).then_some(0)?,
            [None, Some(_)] => self.passes(1, max_held).then_some(1)?,
            [Some(Entry::Break), Some(Entry::Break)] => {
                self.queues[1].pop();
                0
            }
            [Some(first), Some(second)] => match (first.item(), second.item()) {
                _ if first.is_config() => 0,
                _ if second.is_config() => 1,
                (Some(first), Some(second)) => usize::from(second.ms < first.ms),
                // A discontinuity waits for that of the other playlist.
                (None, _) => 1,
                (_, None) => 0,
            },
        };
        self.queues[index].pop()
    }

    /// Whether the first entry of a playlist leaves although the other one has none.
    fn passes(&mut self, index: usize, max_held: Duration) -> bool {
        let (own, other) = (&self.queues[index], &self.queues[1 - index]);
        let first = own.entries.front();
        let times = first.and_then(Entry::item).map(|own| own.ms).zip(other.newest_ms);
        let is_next =
            times.is_some_and(|(own, other)| own <= other || own.abs_diff(other) > MAX_APART_MS);
        self.absent[1 - index] |= own.is_full(max_held);
        self.absent[1 - index] || is_next || first.is_some_and(Entry::is_config)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::fmp4::read::CodecConfig;

    const HELD: Duration = Duration::from_secs(6);

    fn sample(index: usize, ms: i64, bytes: usize) -> PullItem {
        let data = Bytes::from(vec![0; bytes]);
        PullItem { index, ms, content: ItemContent::Sample { data, sync: true, composition_ms: 0 } }
    }

    fn samples(index: usize, times: impl IntoIterator<Item = i64>) -> Vec<PullItem> {
        times.into_iter().map(|ms| sample(index, ms, 1)).collect()
    }

    /// Times of the entries that leave, audio as negative numbers, and 0 for a discontinuity.
    fn left(merge: &mut Merge) -> Vec<i64> {
        let all = core::iter::from_fn(|| merge.pop(HELD));
        all.map(|entry| entry.item().map_or(0, |i| if i.index == 0 { i.ms } else { -i.ms }))
            .collect()
    }

    #[test]
    fn samples_leave_in_time_order_and_wait_for_the_other_playlist() {
        let mut merge = Merge::of_two();
        merge.push(0, samples(0, [100, 200, 300]), false);
        assert_eq!(left(&mut merge), []);
        merge.push(1, samples(1, [110, 190, 250, 400]), false);
        assert_eq!(left(&mut merge), [100, -110, -190, 200, -250, 300]);
        merge.push(0, samples(0, [400, 500]), false);
        assert_eq!(left(&mut merge), [400, -400]);
        merge.set_absent(1);
        assert_eq!(left(&mut merge), [500]);
        let mut single = Merge::default();
        single.push(0, samples(0, [1, 2]), true);
        assert_eq!(left(&mut single), [0, 1, 2]);
    }

    #[test]
    fn configurations_leave_before_the_first_sample() {
        let mut merge = Merge::of_two();
        let config =
            |index, ms| PullItem { index, ms, content: ItemContent::Config(CodecConfig::Mp3) };
        let with_config = |index, ms| vec![config(index, ms), sample(index, ms, 1)];
        merge.push(0, with_config(0, 100), false);
        assert_eq!(left(&mut merge), [100], "the configuration alone");
        merge.push(1, with_config(1, 190), false);
        assert_eq!(left(&mut merge), [-190, 100]);
    }

    #[test]
    fn a_discontinuity_waits_for_that_of_the_other_playlist() {
        let mut merge = Merge::of_two();
        merge.push(0, samples(0, [100, 200]), false);
        merge.push(0, samples(0, [5, 15]), true);
        merge.push(1, samples(1, [150, 250]), false);
        assert_eq!(left(&mut merge), [100, -150, 200, -250]);
        merge.push(1, samples(1, [8, 12]), true);
        assert_eq!(left(&mut merge), [0, 5, -8, -12], "once for both");
        // The other playlist has none.
        merge.push(0, samples(0, [1_000, 4_000]), true);
        merge.push(1, samples(1, [20]), false);
        assert_eq!(left(&mut merge), [15, -20]);
        merge.push(0, samples(0, [7_500]), false);
        assert_eq!(left(&mut merge), [0, 1_000, 4_000, 7_500]);
    }

    #[test]
    fn a_lagging_playlist_is_absent_until_its_next_segment() {
        let mut merge = Merge::of_two();
        merge.push(0, samples(0, (0..=6_000).step_by(1_000)), false);
        assert_eq!(left(&mut merge), []);
        merge.push(0, samples(0, [6_001]), false);
        assert_eq!(left(&mut merge).len(), 8);
        merge.push(0, samples(0, [7_000]), false);
        assert_eq!(left(&mut merge), [7_000], "at once");
        merge.push(1, vec![], false);
        merge.push(0, samples(0, [7_100]), false);
        assert_eq!(left(&mut merge), [7_100], "an empty segment");
        merge.push(1, samples(1, [5_000, 7_500]), false);
        assert_eq!(left(&mut merge), [-5_000]);
        merge.push(0, samples(0, [8_000]), false);
        assert_eq!(left(&mut merge), [-7_500]);
    }

    #[test]
    fn memory_is_bounded_whatever_the_times_are() {
        let mut merge = Merge::of_two();
        let mut bytes = 0;
        for _ in 0..200 {
            merge.push(0, vec![sample(0, 77, 1 << 20)], false);
            bytes = bytes.max(merge.queues[0].bytes);
            left(&mut merge);
        }
        assert!(bytes <= MAX_BYTES + (1 << 20) + OVERHEAD, "{bytes}");
        // Nor do empty samples or discontinuities escape.
        let mut merge = Merge::of_two();
        for _ in 0..1_000_000 {
            merge.push(0, vec![sample(0, 77, 0)], true);
            left(&mut merge);
        }
        assert!(merge.queues[0].entries.len() <= MAX_BYTES / OVERHEAD);
    }

    #[test]
    fn playlists_with_different_clocks_do_not_wait() {
        let mut merge = Merge::of_two();
        merge.push(0, samples(0, [100, 200]), false);
        merge.push(1, samples(1, [900_000, 900_100]), false);
        assert_eq!(left(&mut merge), [100, 200, -900_000, -900_100]);
        merge.push(0, samples(0, [300]), false);
        assert_eq!(left(&mut merge), [300]);
    }

    proptest! {
        #[test]
        fn everything_leaves_once_and_in_the_order_of_its_playlist(
            pushes in proptest::collection::vec(
                (0..2_usize, -20_000..20_000_i64, 0..5_i64, any::<bool>()), 1..40),
        ) {
            let mut merge = Merge::of_two();
            let (mut expected, mut seen) = ([vec![], vec![]], [vec![], vec![]]);
            let mut take = |merge: &mut Merge| {
                while let Some(entry) = merge.pop(HELD) {
                    if let Entry::Item(item) = entry {
                        seen[item.index].push(item.ms);
                    }
                }
            };
            for (index, start, count, is_break) in pushes {
                let times: Vec<i64> = (0..count).map(|n| start + n * 700).collect();
                expected[index].extend(&times);
                merge.push(index, samples(index, times), is_break);
                take(&mut merge);
            }
            [0, 1].into_iter().for_each(|index| merge.set_absent(index));
            take(&mut merge);
            prop_assert_eq!(seen, expected);
        }
    }
}
