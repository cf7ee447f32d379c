//! Media that comes in bursts, handed out in its own time.
//!
//! Tags leave on a fixed base: a point in time and the media time that leaves then. What is late
//! leaves at once, and what follows is on time again, so that the lateness of timers adds up to
//! nothing. Only a tag that is late by more than [`MAX_LATE`] moves the base. What piles up behind
//! such a delay, or behind an origin with a faster clock, is made up for by a tempo of 21/20.

use std::collections::VecDeque;
use std::time::Duration;

use media::Tag;
use tokio::time::Instant;

/// A tag that is later moves those behind it by as much.
const MAX_LATE: Duration = Duration::from_millis(500);
/// Media that may wait here; beyond that nothing more is taken.
const MAX_AHEAD_MS: u32 = 6_000;
const MAX_AHEAD_BYTES: usize = 32 << 20;
/// The tempo rises when this number of target durations of a live stream wait here and at the origin, and
/// falls again when it is one less. Pulls start three from the end, and one or two more come while
/// these are played.
const MAX_BEHIND: u32 = 5;

/// Tags in the order in which they leave.
#[derive(Debug, Default)]
pub(super) struct Pacer {
    tags: VecDeque<Tag>,
    bytes: usize,
    /// When the tag of that media time left.
    base: Option<(Instant, u32)>,
    /// Milliseconds of media at the origin beyond what is here, and of a target duration, if the
    /// stream is live.
    live: Option<(u32, u32)>,
    hurries: bool,
}

impl Pacer {
    /// Appends tags. `live` is how much the origin has beyond them, and the target duration; `None`
    /// if the stream has ended, and all of it is there from the start.
    pub(super) fn push(&mut self, tags: Vec<Tag>, live: Option<(Duration, Duration)>) {
        let ms = |duration: Duration| u32::try_from(duration.as_millis()).unwrap_or(u32::MAX);
        self.live = live.map(|(behind, target)| (ms(behind), ms(target)));
        self.bytes += tags.iter().map(|tag| tag.bytes().len()).sum::<usize>();
        self.tags.extend(tags);
    }

    /// Whether more may be appended.
    pub(super) fn has_room(&self) -> bool {
        self.ahead_ms() < MAX_AHEAD_MS && self.bytes < MAX_AHEAD_BYTES
    }

    /// From the first tag to the last.
    fn ahead_ms(&self) -> u32 {
        let times = self.tags.front().zip(self.tags.back());
        let ms = times.map_or(0, |(first, last)| last.timestamp().wrapping_sub(first.timestamp()));
        // Audio and video are interleaved.
        if ms >= 1 << 31 { 0 } else { ms }
    }

    /// When the next tag leaves.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        let time = self.tags.front()?.timestamp();
        let Some((at, base)) = self.base else { return Some(now) };
        let step = time.wrapping_sub(base) as i32;
        let length = Duration::from_millis(step.unsigned_abs().into());
        let length = if self.hurries { length * 20 / 21 } else { length };
        Some(if step < 0 { at.checked_sub(length).unwrap_or(at) } else { at + length })
    }

    /// The next tag, which leaves now.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Tag> {
        let due = self.due(now)?;
        let tag = self.tags.pop_front()?;
        self.bytes -= tag.bytes().len();
        let time = tag.timestamp();
        match self.base {
            _ if now > due + MAX_LATE => self.base = Some((now, time)),
            // A step back leaves the base where it is: nothing adds up.
            Some((_, base)) if (time.wrapping_sub(base) as i32) < 0 => {}
            _ => self.base = Some((due, time)),
        }
        if let Some((behind, target)) = self.live {
            let behind = behind.saturating_add(self.ahead_ms());
            let limit = if self.hurries { MAX_BEHIND - 1 } else { MAX_BEHIND };
            self.hurries = behind > target.saturating_mul(limit);
        } else {
            self.hurries = false;
        }
        Some(tag)
    }
}

#[cfg(test)]
mod tests {
    use media::Kind;

    use super::*;

    fn tags(times: impl IntoIterator<Item = u32>) -> Vec<Tag> {
        let tag = |time| Tag::new(Kind::Video, time, &[0x27, 1, 0, 0, 0]).expect("short");
        times.into_iter().map(tag).collect()
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Hands out all that waits, each tag `late` after it is due; when each left, from `start`.
    fn all(pacer: &mut Pacer, start: Instant, mut now: Instant, late: Duration) -> Vec<Duration> {
        let mut left = Vec::new();
        while let Some(due) = pacer.due(now) {
            now = now.max(due + late);
            pacer.pop(now).expect("it is due");
            left.push(now - start);
        }
        left
    }

    #[test]
    fn late_timers_add_up_to_nothing() {
        let (mut pacer, start) = (Pacer::default(), Instant::now());
        pacer.push(tags((0..1_000).map(|n| n * 40)), None);
        let left = all(&mut pacer, start, start, ms(3));
        assert_eq!(left.last(), Some(&ms(999 * 40 + 3 + 3)));
    }

    #[test]
    fn a_short_delay_is_made_up_for_at_once_and_a_long_one_moves_the_rest() {
        for (delay, last) in [(ms(400), ms(2_000)), (ms(900), ms(2_900))] {
            let (mut pacer, start) = (Pacer::default(), Instant::now());
            pacer.push(tags([0]), None);
            all(&mut pacer, start, start, ms(0));
            pacer.push(tags((1..=50).map(|n| n * 40)), None);
            let left = all(&mut pacer, start, start + ms(40) + delay, ms(0));
            assert_eq!((left[0], left.last()), (ms(40) + delay, Some(&last)));
        }
    }

    #[test]
    fn sound_and_pictures_that_are_interleaved_leave_in_their_order() {
        let (mut pacer, start) = (Pacer::default(), Instant::now());
        pacer.push(tags([0, 80, 30, 120, 90, 160]), None);
        let left = all(&mut pacer, start, start, ms(0));
        assert_eq!(left, [0, 80, 80, 120, 120, 160].map(ms));
    }

    #[test]
    fn times_go_on_over_the_wrap_and_for_months() {
        let (mut pacer, start) = (Pacer::default(), Instant::now());
        let step = 29_000;
        // More than twice round.
        for n in 0..300_000u32 {
            pacer.push(tags([n.wrapping_mul(step)]), None);
            let left = all(&mut pacer, start, start, ms(0));
            assert_eq!(left, [ms(u64::from(n) * u64::from(step))]);
        }
    }

    #[test]
    fn a_live_stream_that_is_far_behind_is_played_a_twentieth_faster_until_it_is_not() {
        let (mut pacer, start) = (Pacer::default(), Instant::now());
        // Twelve seconds wait, of segments of two.
        pacer.push(tags((0..300).map(|n| n * 40)), Some((ms(0), ms(2_000))));
        let left = all(&mut pacer, start, start, ms(0));
        let rate = |from: usize, to: usize| {
            ((to - from) as f64 * 40e-3) / (left[to] - left[from]).as_secs_f64()
        };
        assert!((rate(5, 80) - 1.05).abs() < 1e-3, "{}", rate(5, 80));
        assert!((rate(150, 299) - 1.0).abs() < 1e-9, "{}", rate(150, 299));
        // One that has ended is all there from the start.
        let mut pacer = Pacer::default();
        pacer.push(tags((0..300).map(|n| n * 40)), None);
        assert_eq!(all(&mut pacer, start, start, ms(0)).last(), Some(&ms(299 * 40)));
    }

    #[test]
    fn what_waits_is_bounded_by_time_and_by_bytes() {
        let mut pacer = Pacer::default();
        assert!(pacer.has_room());
        pacer.push(tags([0, MAX_AHEAD_MS]), None);
        assert!(!pacer.has_room());
        let mut pacer = Pacer::default();
        let large =
            Tag::new(Kind::Video, 0, &vec![0x27; MAX_AHEAD_BYTES / 4]).expect("short enough");
        pacer.push(vec![large; 4], None);
        assert!(!pacer.has_room());
        let now = Instant::now();
        while pacer.pop(now).is_some() {}
        assert!(pacer.has_room() && pacer.bytes == 0);
    }
}
