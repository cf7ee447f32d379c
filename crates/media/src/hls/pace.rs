//! Segment boundaries, and the durations that playlists declare.
//!
//! Stream time is divided into slots, counted from 1970. A segment starts at the first key frame of
//! a slot and has the slot's number. Servers that package the same stream therefore cut it alike
//! and assign the same numbers, whenever they start. This requires a key frame in each slot. A slot
//! is therefore as long as the first segment, which ends at the first key frame after the target
//! duration, in whole tenths of a second. With a constant key frame interval, this duration does
//! not depend on where a server starts.
//!
//! Rounding errors occasionally add up to a slot without a key frame. Its segment is then the part
//! before the next key frame. A segment longer than EXT-X-TARGETDURATION is cut at any frame. A
//! change of tracks ends a segment at once, and intervals without media have no segments. Segment
//! numbers then run ahead of the slots, or catch up by one extra slot per segment.
//!
//! Renditions of one stream need equal slots. [`SegmenterConfig::slot`] sets them for a rendition
//! that is packaged later than others.
//!
//! Durations are fixed after the first segment, because EXT-X-TARGETDURATION and PART-TARGET must
//! not change (draft-pantos-hls-rfc8216bis, sections 4.4.3.1 and 4.4.3.7).

use super::config::SegmenterConfig;
use super::parts::part_target_ms;

/// Granularity of slot durations.
const STEP_MS: i64 = 100;
/// Maximum excess of a slot over the first segment, for timestamps rounded to milliseconds.
const ROUNDING_MS: i64 = 5;

/// Durations of a stream's slots, segments and parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pace {
    pub(super) slot_ms: i64,
    /// EXT-X-TARGETDURATION, in seconds.
    pub(super) target_s: i64,
    /// PART-TARGET.
    pub(super) part_ms: i64,
    /// FRAME-RATE, in frames per 1,000 seconds; 0 if unknown.
    pub(super) frame_rate: i64,
}

/// Duration of the first segment, and mean duration of its frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct First {
    pub(super) length_ms: i64,
    pub(super) frame_us: i64,
}

impl Pace {
    pub(super) fn new(config: &SegmenterConfig, first: &First) -> Self {
        let wanted = config.segment.as_millis() as i64;
        // A segment cut short by a change of tracks does not reveal the key frame interval.
        let is_whole = first.length_ms >= wanted * 9 / 10;
        let length_ms = if is_whole { first.length_ms } else { wanted };
        let own_ms = ((length_ms + ROUNDING_MS) / STEP_MS * STEP_MS).max(STEP_MS);
        let given_ms = config.slot.and_then(|slot| i64::try_from(slot.as_millis()).ok());
        let slot_ms = given_ms.filter(|given_ms| *given_ms > 0).unwrap_or(own_ms);
        Self {
            slot_ms,
            target_s: ((slot_ms.max(first.length_ms) + 500) / 1_000).max(1),
            part_ms: part_target_ms(config.part.as_millis() as i64, length_ms, first.frame_us),
            frame_rate: 1_000_000_000 / first.frame_us.max(1),
        }
    }

    /// Returns the number of the slot at the stream time `stream_ms`.
    pub(super) fn slot(&self, stream_ms: i64) -> u64 {
        u64::try_from(stream_ms / self.slot_ms).unwrap_or(0)
    }

    /// Maximum duration of a segment: rounded to seconds, it equals EXT-X-TARGETDURATION (RFC 8216,
    /// section 4.3.3.1).
    pub(super) fn max_segment_ms(&self) -> i64 {
        self.target_s * 1_000 + 499
    }

    /// PART-HOLD-BACK: the minimum that the draft allows (section 4.4.3.8).
    pub(super) fn part_hold_back_ms(&self) -> i64 {
        3 * self.part_ms
    }

    /// Whether a segment of this duration may end while its number is ahead of the slots.
    pub(super) fn is_whole(&self, length_ms: i64) -> bool {
        length_ms >= self.whole_ms()
    }

    /// Minimum duration of a segment that ends while its number is ahead of the slots.
    pub(super) fn whole_ms(&self) -> i64 {
        self.slot_ms * 9 / 10
    }

    /// Returns the stream time at which a slot starts.
    pub(super) fn slot_start_ms(&self, slot: u64) -> i64 {
        i64::try_from(slot).unwrap_or(i64::MAX).saturating_mul(self.slot_ms)
    }

    /// Parameters that, with the frame count of recent groups, determine the part boundaries.
    pub(super) fn cuts(&self, group_frames: i64) -> [i64; 3] {
        [self.slot_ms, self.part_ms, group_frames]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(length_ms: i64, frame_us: i64) -> Pace {
        Pace::new(&SegmenterConfig::default(), &First { length_ms, frame_us })
    }

    #[test]
    fn slots_match_groups_of_pictures() {
        for (length, slot, target) in [
            (2_000, 2_000, 2),
            (1_999, 2_000, 2),
            (2_002, 2_000, 2),
            (2_400, 2_400, 2),
            (2_500, 2_500, 3),
            (1_920, 1_900, 2),
            (8_333, 8_300, 8),
            (10_000, 10_000, 10),
            (40, 2_000, 2),
        ] {
            let pace = pace(length, 40_000);
            assert_eq!((pace.slot_ms, pace.target_s), (slot, target), "{length}");
            assert!(length <= pace.max_segment_ms());
        }
    }

    #[test]
    fn a_given_slot_overrides_the_first_segment() {
        let slot = Some(core::time::Duration::from_secs(4));
        let config = SegmenterConfig { slot, ..SegmenterConfig::default() };
        let pace = Pace::new(&config, &First { length_ms: 2_000, frame_us: 40_000 });
        assert_eq!((pace.slot_ms, pace.target_s, pace.slot(8_100)), (4_000, 4, 2));
    }

    #[test]
    fn part_target_follows_the_frame_duration() {
        assert_eq!(pace(2_000, 40_000).part_ms, 365);
        assert_eq!(pace(2_000, 1_000_000).part_ms, 1_005, "a frame a second");
    }
}
