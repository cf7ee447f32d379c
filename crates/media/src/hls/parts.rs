//! Part boundaries at equal distances within a segment, so that the last part is as long as the
//! others.
//!
//! Each part except the last of its segment must last at least 85 % of PART-TARGET, and none may
//! exceed PART-TARGET (draft-pantos-hls-rfc8216bis, section 4.4.4.9; Apple's authoring rules). A
//! much shorter last part is allowed, but hls.js skips it if its playlist arrives together with the
//! next part, and then stalls at the gap.
//!
//! The segmenter predicts the end of the growing segment from the key frame interval, and divides
//! the rest of the segment evenly at each part. After an unexpected key frame, the last part may
//! still be short: the part before it is already published.

/// Maximum expected duration of a frame, in milliseconds.
pub(super) const MAX_FRAME_MS: i64 = 500;
/// Number of remembered key frame intervals. An interval cut short by a scene change is followed by
/// a complete one.
const GROUPS: usize = 4;
/// Minimum duration of all parts except the last, in percent of PART-TARGET.
const MIN_PART_PERCENT: i64 = 85;
/// Maximum duration of a part, in percent of the configured duration. A longer frame is a part of
/// its own.
const MAX_PART_PERCENT: i64 = 115;
/// Granularity of PART-TARGET. Servers that measure the same frames in rounded milliseconds obtain
/// the same value.
const TARGET_STEP_MS: i64 = 5;
/// Rounding threshold for part durations, in hundredths of a frame. Not 50, because durations
/// halfway between two frame counts are frequent, and would depend on rounded milliseconds.
const ROUNDING_PERCENT: i64 = 47;

/// A group of pictures.
#[derive(Clone, Copy, Default, Debug)]
struct Gop {
    length_ms: i64,
    frames: i64,
}

/// The most recent groups of pictures, which predict the next key frame.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct RecentGops {
    /// Time of the newest key frame, and the number of frames since.
    open: Option<(i64, i64)>,
    /// The most recent complete groups, newest first.
    latest: [Gop; GROUPS],
}

impl RecentGops {
    /// Records the frame at `at`.
    pub(super) fn push(&mut self, at: i64, sync: bool) {
        let Some((key_ms, frames)) = &mut self.open else {
            self.open = sync.then_some((at, 1));
            return;
        };
        if !sync {
            *frames += 1;
            return;
        }
        let group = Gop { length_ms: at - *key_ms, frames: *frames };
        self.open = Some((at, 1));
        if group.length_ms > 0 {
            self.latest.rotate_right(1);
            self.latest[0] = group;
        }
    }

    /// Ends the current group at a discontinuity, without recording it.
    pub(super) fn interrupt(&mut self) {
        self.open = None;
    }

    fn longest(&self) -> Gop {
        // The newest of several groups with the same number of frames.
        self.latest.into_iter().rev().max_by_key(|group| group.frames).unwrap_or_default()
    }

    /// Returns the number of frames in the longest recent group, or 0 if there is none.
    pub(super) fn longest_frames(&self) -> i64 {
        self.longest().frames
    }

    /// Returns the mean frame duration of the longest recent group, in microseconds.
    pub(super) fn frame_us(&self) -> Option<i64> {
        let group = self.longest();
        (group.frames > 0).then(|| (group.length_ms * 1_000 / group.frames).max(1))
    }

    /// Predicts the first key frame at or after `earliest_ms`, from the longest recent group.
    pub(super) fn next_key_ms(&self, earliest_ms: i64) -> Option<i64> {
        let (key_ms, _) = self.open?;
        let length_ms = self.longest().length_ms;
        let ahead = earliest_ms - key_ms;
        // Rounding to milliseconds must not add a group.
        let groups = (ahead - ROUNDED_MS + length_ms - 1).checked_div(length_ms)?;
        Some(key_ms + groups.max(1) * length_ms)
    }
}

/// Tolerance for group ends that rounding makes early, in milliseconds.
const ROUNDED_MS: i64 = 2;

/// Returns the mean frame duration, in microseconds, of a segment with these decoding times that
/// ends at `end_ms`. Still pictures are ignored.
pub(super) fn mean_frame_us(
    times_ms: impl Iterator<Item = i64> + Clone,
    end_ms: i64,
) -> Option<i64> {
    let ends = times_ms.clone().skip(1).chain([end_ms]);
    let mut steps: Vec<i64> = times_ms.zip(ends).map(|(start, end)| end - start).collect();
    steps.retain(|step| *step > 0);
    steps.sort_unstable();
    let median = *steps.get(steps.len() / 2)?;
    let regular = &steps[..steps.partition_point(|step| *step <= 2 * median)];
    Some((regular.iter().sum::<i64>() * 1_000 / regular.len() as i64).max(1))
}

/// Returns PART-TARGET for segments of `length_ms` with frames of `frame_us`, if parts should last
/// about `wanted_ms`.
pub(super) fn part_target_ms(wanted_ms: i64, length_ms: i64, frame_us: i64) -> i64 {
    let frames = ((length_ms * 1_000 + frame_us / 2) / frame_us).max(1);
    let parts = ((length_ms + wanted_ms / 2) / wanted_ms).max(1);
    let limit = wanted_ms * 10 * MAX_PART_PERCENT / frame_us;
    let most = ((frames + parts - 1) / parts).min(limit).max(1);
    let target = |frames: i64| {
        let step_us = TARGET_STEP_MS * 1_000;
        ((frames * frame_us + step_us / 2) / step_us + 1) * TARGET_STEP_MS
    };
    for most in (1..=most).rev() {
        let parts = (frames + most - 1) / most;
        let (shorter, longer) = (frames / parts, (frames + parts - 1) / parts);
        if shorter == longer || is_long_enough(shorter * frame_us, target(longer)) {
            return target(longer);
        }
        // With few frames per part: equal parts, and one frame less in the last.
        if frames - (parts - 1) * most + 1 >= most {
            return target(most);
        }
    }
    target(1)
}

fn is_long_enough(part_us: i64, target_ms: i64) -> bool {
    part_us >= target_ms * 10 * MIN_PART_PERCENT
}

/// Expected segment end and frame duration, which determine part boundaries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forecast {
    /// The predicted or known end of the segment.
    pub(super) end_ms: i64,
    /// The mean duration of a frame.
    pub(super) frame_us: i64,
}

impl Forecast {
    /// Whether a part that started at `start_ms` ends before the frame at `at`.
    pub(super) fn ends_part(&self, part_target_ms: i64, start_ms: i64, at: i64) -> bool {
        let (length_us, target_us) = ((at - start_ms) * 1_000, part_target_ms * 1_000);
        if length_us <= 0 {
            return false;
        }
        if length_us + self.frame_us > target_us {
            return true;
        }
        let longest_us = (target_us / self.frame_us).max(1) * self.frame_us;
        let left_us = (self.end_ms - start_ms) * 1_000;
        let parts = (left_us - self.frame_us / 2 + longest_us - 1) / longest_us;
        if parts <= 1 {
            return false;
        }
        let wanted_us = left_us / parts - self.frame_us * ROUNDING_PERCENT / 100;
        length_us >= wanted_us && is_long_enough(length_us, part_target_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_divide_a_segment_evenly() {
        for (length_ms, frame_us, target_ms) in [
            (2_000, 41_667, 340),
            // Four parts of eight frames, two of nine.
            (2_000, 40_000, 365),
            (2_002, 33_367, 340),
            (2_000, 33_333, 340),
            (2_000, 20_000, 345),
            (2_000, 16_667, 340),
            // Six parts of three frames and one of two.
            (2_000, 100_000, 305),
            (1_920, 40_000, 325),
            // 22 frames of 100 ms: neither 3 nor 4 to a part come out.
            (2_200, 100_000, 205),
            (10_000, 1_000_000, 1_005),
            (1, 40_000, 45),
        ] {
            let target = part_target_ms(333, length_ms, frame_us);
            assert_eq!(target, target_ms, "{length_ms} {frame_us}");
        }
    }

    #[test]
    fn the_next_key_frame_follows_the_longest_of_the_latest_groups() {
        let mut groups = RecentGops::default();
        assert_eq!((groups.next_key_ms(0), groups.frame_us()), (None, None));
        for at in (0..=6_000).step_by(40) {
            groups.push(at, at % 2_000 == 0 || at == 4_400);
        }
        assert_eq!((groups.longest_frames(), groups.frame_us()), (50, Some(40_000)));
        let next = [6_001, 8_000, 8_002, 8_003].map(|earliest| groups.next_key_ms(earliest));
        assert_eq!(next, [8_000, 8_000, 8_000, 10_000].map(Some));
        groups.interrupt();
        assert_eq!(groups.next_key_ms(0), None);
    }

    #[test]
    fn a_still_picture_does_not_change_the_frame_duration() {
        let times = [0, 33, 67, 100, 1_500, 1_533];
        assert_eq!(mean_frame_us(times.into_iter(), 1_567), Some(33_400));
        assert_eq!(mean_frame_us([7].into_iter(), 7), None);
    }
}
