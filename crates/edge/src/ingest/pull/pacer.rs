//! Paces media that arrives in bursts.
//!
//! Tags leave relative to a base: a point in time and its media time. A late tag leaves at once and
//! the following are on time, so that timer lateness does not accumulate. A tag later than
//! [`MAX_LATE`] moves the base. The resulting backlog, or the backlog of an origin with a faster
//! clock, is played at 21/20 of real time.

use std::collections::VecDeque;
use std::time::Duration;

use media::Tag;
use tokio::time::Instant;

/// Lateness of a tag above which the following tags are shifted too.
const MAX_LATE: Duration = Duration::from_millis(500);
/// Maximum buffered media.
const MAX_BUFFERED_MS: u32 = 6_000;
const MAX_BUFFERED_BYTES: usize = 32 << 20;
/// Backlog of a live stream, here and at the origin, above which the pacer catches up, in target
/// durations. It stops one below. Pulls start three target durations from the end, and one or two
/// more arrive while these play.
const CATCH_UP_TARGETS: u32 = 5;

/// Buffered tags, and the schedule of their departure.
#[derive(Debug, Default)]
pub(super) struct Pacer {
    tags: VecDeque<Tag>,
    bytes: usize,
    /// A point in time, and the media time that leaves then.
    base: Option<(Instant, u32)>,
    /// Further media at the origin and the target duration, in ms, if the stream is live.
    live: Option<(u32, u32)>,
    catching_up: bool,
}

impl Pacer {
    /// Appends tags. `live` is the duration of further media at the origin, and the target
    /// duration; `None` if the stream has ended.
    pub(super) fn push(&mut self, tags: Vec<Tag>, live: Option<(Duration, Duration)>) {
        let ms = |duration: Duration| u32::try_from(duration.as_millis()).unwrap_or(u32::MAX);
        self.live = live.map(|(behind, target)| (ms(behind), ms(target)));
        self.bytes += tags.iter().map(|tag| tag.bytes().len()).sum::<usize>();
        self.tags.extend(tags);
    }

    /// Returns true if the buffer is below its limits.
    pub(super) fn has_room(&self) -> bool {
        self.buffered_ms() < MAX_BUFFERED_MS && self.bytes < MAX_BUFFERED_BYTES
    }

    /// Returns the buffered media time.
    fn buffered_ms(&self) -> u32 {
        let times = self.tags.front().zip(self.tags.back());
        let ms = times.map_or(0, |(first, last)| last.timestamp().wrapping_sub(first.timestamp()));
        // Audio and video are interleaved.
        if ms >= 1 << 31 { 0 } else { ms }
    }

    /// Returns the departure time of the next tag.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        let time = self.tags.front()?.timestamp();
        let Some((at, base)) = self.base else { return Some(now) };
        let step = time.wrapping_sub(base) as i32;
        let length = Duration::from_millis(step.unsigned_abs().into());
        let length = if self.catching_up { length * 20 / 21 } else { length };
        Some(if step < 0 { at.checked_sub(length).unwrap_or(at) } else { at + length })
    }

    /// Removes and returns the next tag, which leaves now.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Tag> {
        let due = self.due(now)?;
        let tag = self.tags.pop_front()?;
        self.bytes -= tag.bytes().len();
        let time = tag.timestamp();
        match self.base {
            _ if now > due + MAX_LATE => self.base = Some((now, time)),
            // Backward steps keep the base, so that they do not accumulate.
            Some((_, base)) if (time.wrapping_sub(base) as i32) < 0 => {}
            _ => self.base = Some((due, time)),
        }
        if let Some((behind, target)) = self.live {
            let behind = behind.saturating_add(self.buffered_ms());
            let limit = if self.catching_up { CATCH_UP_TARGETS - 1 } else { CATCH_UP_TARGETS };
            self.catching_up = behind > target.saturating_mul(limit);
        } else {
            self.catching_up = false;
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

    /// Pops all tags, each `late` after its due time. Returns their departures relative to `start`.
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
    fn timer_lateness_does_not_accumulate() {
        let (mut pacer, start) = (Pacer::default(), Instant::now());
        pacer.push(tags((0..1_000).map(|n| n * 40)), None);
        let left = all(&mut pacer, start, start, ms(3));
        assert_eq!(left.last(), Some(&ms(999 * 40 + 3 + 3)));
    }

    #[test]
    fn a_short_delay_is_recovered_at_once_and_a_long_one_shifts_the_rest() {
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
    fn interleaved_audio_and_video_keep_their_order() {
        let (mut pacer, start) = (Pacer::default(), Instant::now());
        pacer.push(tags([0, 80, 30, 120, 90, 160]), None);
        let left = all(&mut pacer, start, start, ms(0));
        assert_eq!(left, [0, 80, 80, 120, 120, 160].map(ms));
    }

    #[test]
    fn timestamps_may_wrap_around() {
        let (mut pacer, start) = (Pacer::default(), Instant::now());
        let step = 29_000;
        // Wraps around twice.
        for n in 0..300_000u32 {
            pacer.push(tags([n.wrapping_mul(step)]), None);
            let left = all(&mut pacer, start, start, ms(0));
            assert_eq!(left, [ms(u64::from(n) * u64::from(step))]);
        }
    }

    #[test]
    fn a_live_stream_far_behind_plays_five_percent_faster_until_it_catches_up() {
        let (mut pacer, start) = (Pacer::default(), Instant::now());
        // A backlog of 12 s with a target duration of 2 s.
        pacer.push(tags((0..300).map(|n| n * 40)), Some((ms(0), ms(2_000))));
        let left = all(&mut pacer, start, start, ms(0));
        let rate = |from: usize, to: usize| {
            ((to - from) as f64 * 40e-3) / (left[to] - left[from]).as_secs_f64()
        };
        assert!((rate(5, 80) - 1.05).abs() < 1e-3, "{}", rate(5, 80));
        assert!((rate(150, 299) - 1.0).abs() < 1e-9, "{}", rate(150, 299));
        // An ended stream is complete from the start.
        let mut pacer = Pacer::default();
        pacer.push(tags((0..300).map(|n| n * 40)), None);
        assert_eq!(all(&mut pacer, start, start, ms(0)).last(), Some(&ms(299 * 40)));
    }

    #[test]
    fn the_buffer_is_limited_by_time_and_bytes() {
        let mut pacer = Pacer::default();
        assert!(pacer.has_room());
        pacer.push(tags([0, MAX_BUFFERED_MS]), None);
        assert!(!pacer.has_room());
        let mut pacer = Pacer::default();
        let large =
            Tag::new(Kind::Video, 0, &vec![0x27; MAX_BUFFERED_BYTES / 4]).expect("short enough");
        pacer.push(vec![large; 4], None);
        assert!(!pacer.has_room());
        let now = Instant::now();
        while pacer.pop(now).is_some() {}
        assert!(pacer.has_room() && pacer.bytes == 0);
    }
}
