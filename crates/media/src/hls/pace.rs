//! Where segments and parts are cut, and what playlists promise of their lengths.
//!
//! The stream's time is divided into slots, counted from 1970. A segment begins at the first key
//! frame of a slot and has the slot's number, so that servers that pack the same stream cut alike
//! and give the same numbers, whenever they begin. That needs a key frame in each slot. A slot is
//! therefore as long as the first segment, which ends at the first key frame after the wanted time,
//! in whole tenths of a second: for key frames at equal distances it is the same wherever a server
//! begins.
//!
//! Rounding errors add up, now and then, to a slot without a key frame: its segment is then the
//! part before the next key frame. A segment longer than EXT-X-TARGETDURATION is cut at any frame.
//! A change of tracks ends a segment at once, and times without media have no segments: numbers
//! then run ahead of the slots, or catch up by one extra slot per segment.
//!
//! Lengths are settled with the first segment and stay: EXT-X-TARGETDURATION and PART-TARGET must
//! not change (draft-pantos-hls-rfc8216bis, sections 4.4.3.1 and 4.4.3.7).

use super::config::Config;
use super::parts::part_target_ms;

/// Slots are whole multiples of this.
const STEP_MS: i64 = 100;
/// How much longer than the first segment a slot may be: times are rounded to milliseconds.
const ROUNDING_MS: i64 = 5;

/// The lengths of a stream's slots, segments and parts, in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pace {
    slot_ms: i64,
    /// EXT-X-TARGETDURATION, in seconds.
    pub(super) target_s: i64,
    /// PART-TARGET.
    pub(super) part_ms: i64,
    /// FRAME-RATE, in frames per 1,000 seconds; 0 if it is not known.
    pub(super) frame_rate: i64,
}

/// The first segment: its length and the mean duration of its frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct First {
    pub(super) length_ms: i64,
    pub(super) frame_us: i64,
}

impl Pace {
    pub(super) fn new(config: &Config, first: &First) -> Self {
        let wanted = config.segment.as_millis() as i64;
        // A segment cut short by a change of tracks says nothing about key frames.
        let is_whole = first.length_ms >= wanted * 9 / 10;
        let length_ms = if is_whole { first.length_ms } else { wanted };
        let slot_ms = (length_ms + ROUNDING_MS) / STEP_MS * STEP_MS;
        Self {
            slot_ms: slot_ms.max(STEP_MS),
            target_s: ((slot_ms.max(first.length_ms) + 500) / 1_000).max(1),
            part_ms: part_target_ms(config.part.as_millis() as i64, length_ms, first.frame_us),
            frame_rate: 1_000_000_000 / first.frame_us.max(1),
        }
    }

    /// The number of the slot with this time of the stream.
    pub(super) fn slot(&self, stream_ms: i64) -> u64 {
        u64::try_from(stream_ms / self.slot_ms).unwrap_or(0)
    }

    /// The longest segment that EXT-X-TARGETDURATION allows: rounded, it is not longer (RFC 8216,
    /// section 4.3.3.1).
    pub(super) fn max_segment_ms(&self) -> i64 {
        self.target_s * 1_000 + 499
    }

    /// PART-HOLD-BACK: the minimum of the draft (section 4.4.3.8).
    pub(super) fn part_hold_back_ms(&self) -> i64 {
        3 * self.part_ms
    }

    /// Whether a segment of this length may end although its number is ahead of the slots.
    pub(super) fn is_whole(&self, length_ms: i64) -> bool {
        length_ms >= self.whole_ms()
    }

    /// Minimum length of a segment that ends while its number is ahead of the slots.
    pub(super) fn whole_ms(&self) -> i64 {
        self.slot_ms * 9 / 10
    }

    /// The time of the stream at which a slot begins.
    pub(super) fn slot_start_ms(&self, slot: u64) -> i64 {
        i64::try_from(slot).unwrap_or(i64::MAX).saturating_mul(self.slot_ms)
    }

    /// Parameters that decide, with the frames of the latest groups, how segments are cut into
    /// parts.
    pub(super) fn cuts(&self, group_frames: i64) -> [i64; 3] {
        [self.slot_ms, self.part_ms, group_frames]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(length_ms: i64, frame_us: i64) -> Pace {
        Pace::new(&Config::default(), &First { length_ms, frame_us })
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
    fn part_target_follows_the_frame_duration() {
        assert_eq!(pace(2_000, 40_000).part_ms, 365);
        assert_eq!(pace(2_000, 1_000_000).part_ms, 1_005, "a frame a second");
    }
}
