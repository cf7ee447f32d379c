//! Alignment of the renditions of a ladder by their key frames.
//!
//! The encoder of a ladder makes key frames of all renditions at equal times, but each rendition
//! has a connection of its own, on which timestamps may start anywhere. The first key frame of a
//! new publisher is matched with the key frame of another rendition that arrived nearest to it, or
//! is expected next. Both then have the same stream time, so HLS segments have equal numbers at
//! equal times. A match requires arrivals that differ by less than half a key frame interval.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::sync::lock;

/// Maximum difference of the arrivals of matching key frames, and of a common clock of two
/// publishers from their arrivals.
const MAX_SKEW: Duration = Duration::from_millis(1_500);
/// Remembered key frames per rendition.
const KEPT: usize = 8;
/// Number of renditions per ladder above which the one without key frames for the longest time is
/// forgotten.
const MAX_NAMES: usize = 2 * config::MAX_RENDITIONS;
/// Maximum difference of matching key frames. Encoders round to milliseconds.
const MAX_ROUNDING_MS: u32 = 2;
/// Consecutive key frames without a match after which a rendition is reported.
const REPORT_AFTER: u32 = 4;

/// A key frame of a rendition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeyFrame {
    /// Arrival.
    pub at: Instant,
    /// The publisher's timestamp, in wrapping milliseconds.
    pub own_ms: u32,
    /// The stream's time, in wrapping milliseconds.
    pub stream_ms: u32,
}

/// How the time of a new publisher was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Basis {
    /// A key frame of another rendition.
    KeyFrame,
    /// The clock of another rendition's publisher.
    Clock,
    /// The arrival, relative to another rendition. Accurate to the difference of their delays.
    Arrival,
    /// The wall clock: no other rendition has had key frames.
    Wall,
}

#[derive(Debug, Default)]
struct Rendition {
    recent: VecDeque<KeyFrame>,
    /// Consecutive key frames that no other rendition has.
    unmatched: u32,
}

impl Rendition {
    fn newest(&self) -> Option<KeyFrame> {
        self.recent.back().copied()
    }

    /// Returns the expected next key frame.
    fn next(&self) -> Option<KeyFrame> {
        let mut newest_first = self.recent.iter().rev();
        let (last, before) = (newest_first.next()?, newest_first.next()?);
        let interval_ms = last.stream_ms.wrapping_sub(before.stream_ms);
        let interval = Duration::from_millis(interval_ms.into());
        Some(KeyFrame {
            at: last.at + interval.min(Duration::from_secs(60)),
            own_ms: last.own_ms.wrapping_add(interval_ms),
            stream_ms: last.stream_ms.wrapping_add(interval_ms),
        })
    }

    fn has(&self, stream_ms: u32) -> bool {
        let near = |key: &KeyFrame| {
            let ahead = key.stream_ms.wrapping_sub(stream_ms);
            ahead.min(ahead.wrapping_neg()) <= MAX_ROUNDING_MS
        };
        self.recent.iter().any(near)
    }
}

/// Recent key frames of the renditions of all ladders.
#[derive(Debug, Default)]
pub struct KeyFrames(Mutex<HashMap<String, HashMap<String, Rendition>>>);

impl KeyFrames {
    /// Returns the stream time of the publisher's time 0, for a publisher whose first key frame, or
    /// first frame without video, has arrived `at` with the time `own_ms`. `is_own` tells which
    /// renditions it sends. `wall_ms` is the wall clock. All times are in wrapping milliseconds.
    pub(crate) fn align(
        &self,
        ladder: &str,
        is_own: impl Fn(&str) -> bool,
        (at, own_ms): (Instant, u32),
        wall_ms: u32,
    ) -> (u32, Basis) {
        let table = lock(&self.0);
        let all = || table.get(ladder).into_iter().flatten();
        let others = || all().filter(|(name, _)| !is_own(name)).map(|(_, other)| other);
        let distance = |key: &KeyFrame| match key.at > at {
            true => key.at - at,
            false => at - key.at,
        };
        let keys = others().flat_map(|other| other.recent.iter().copied().chain(other.next()));
        let nearest = keys.filter(|key| distance(key) < MAX_SKEW).min_by_key(distance);
        // The stream's time at the arrival, if it advances with the wall clock.
        let now_ms = |key: KeyFrame| key.stream_ms.wrapping_add((at - key.at).as_millis() as u32);
        let newest = |key: &KeyFrame| key.at;
        let (stream_ms, basis) = if let Some(key) = nearest {
            (key.stream_ms, Basis::KeyFrame)
        } else if let Some(key) = others().filter_map(Rendition::newest).max_by_key(newest) {
            let base = key.stream_ms.wrapping_sub(key.own_ms);
            let same_clock_ms = base.wrapping_add(own_ms);
            let error = same_clock_ms.wrapping_sub(now_ms(key)) as i32;
            match Duration::from_millis(error.unsigned_abs().into()) < MAX_SKEW {
                true => (same_clock_ms, Basis::Clock),
                false => (now_ms(key), Basis::Arrival),
            }
        } else {
            // Renditions that return alone continue with their own time.
            let own = all().filter_map(|(_, own)| own.newest()).max_by_key(newest);
            (own.map_or(wall_ms, now_ms), Basis::Wall)
        };
        (stream_ms.wrapping_sub(own_ms), basis)
    }

    /// Remembers a key frame of a rendition. Returns true once if the rendition's last key frames
    /// match no other rendition's.
    pub(crate) fn push(&self, ladder: &str, rendition: &str, key: KeyFrame) -> bool {
        let mut table = lock(&self.0);
        let ladder = table.entry(ladder.to_owned()).or_default();
        // Other renditions may be later than this key frame, but not than the one before.
        let before = ladder.get(rendition).and_then(Rendition::newest);
        let mut others = ladder.iter().filter(|(name, _)| *name != rendition);
        let is_late = |other: &Rendition| {
            // Not live, or not for long enough to tell.
            other.recent.len() < KEPT / 2
                || before.is_none_or(|before| other.newest().is_none_or(|key| key.at < before.at))
        };
        let compared = others.clone().any(|(_, other)| !is_late(other));
        let matched = before.is_none_or(|key| others.any(|(_, other)| other.has(key.stream_ms)));
        if ladder.len() >= MAX_NAMES && !ladder.contains_key(rendition) {
            let newest = |(_, known): &(&String, &Rendition)| known.newest().map(|key| key.at);
            if let Some(oldest) = ladder.iter().min_by_key(newest).map(|(name, _)| name.clone()) {
                ladder.remove(&oldest);
            }
        }
        let own = ladder.entry(rendition.to_owned()).or_default();
        own.unmatched = if matched || !compared { 0 } else { own.unmatched.saturating_add(1) };
        if own.recent.len() == KEPT {
            own.recent.pop_front();
        }
        own.recent.push_back(key);
        own.unmatched == REPORT_AFTER
    }

    /// Forgets the key frames of a rendition after its publisher was replaced: their timestamps no
    /// longer apply.
    pub(crate) fn forget(&self, ladder: &str, rendition: &str) {
        self.forget_all(ladder, |name| name == rendition);
    }

    /// Forgets the key frames of these renditions.
    pub(crate) fn forget_all(&self, ladder: &str, is_forgotten: impl Fn(&str) -> bool) {
        let mut table = lock(&self.0);
        let all = table.get_mut(ladder).into_iter().flatten();
        for (_, known) in all.filter(|(name, _)| is_forgotten(name)) {
            // The newest one tells the stream's time.
            known.recent.drain(..known.recent.len().saturating_sub(1));
            known.unmatched = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALL: u32 = 4_000_000_000;

    /// Publishers with a clock, on a simulated time line in milliseconds.
    struct Setup {
        frames: KeyFrames,
        start: Instant,
    }

    impl Setup {
        fn new() -> Self {
            Self { frames: KeyFrames::default(), start: Instant::now() }
        }

        fn at(&self, ms: u64) -> Instant {
            self.start + Duration::from_millis(ms)
        }

        fn align(&self, name: &str, ms: u64, own_ms: u32) -> (u32, Basis) {
            let (base, basis) = self.frames.align(
                "show",
                |other| other == name,
                (self.at(ms), own_ms),
                WALL.wrapping_add(ms as u32),
            );
            (base.wrapping_add(own_ms), basis)
        }

        /// A key frame every 2 s from the stream time `stream_ms` on, delayed by `delay_ms`.
        fn publish(&self, name: &str, keys: core::ops::Range<u64>, delay_ms: u64, clock: u32) {
            for n in keys {
                let stream_ms = WALL.wrapping_add(2_000 * n as u32);
                let own_ms = clock.wrapping_add(2_000 * n as u32);
                let at = self.at(2_000 * n + delay_ms);
                self.frames.push("show", name, KeyFrame { at, own_ms, stream_ms });
            }
        }
    }

    #[test]
    fn the_first_rendition_follows_the_wall_clock() {
        let setup = Setup::new();
        assert_eq!(setup.align("a", 700, 5), (WALL + 700, Basis::Wall));
    }

    #[test]
    fn key_frames_match_whatever_the_clocks_and_delays() {
        for clock in [0, 123_456, u32::MAX - 7] {
            for (delay, when) in [(0, 8_000_u64), (40, 8_700), (700, 8_001), (0, 7_100)] {
                let setup = Setup::new();
                setup.publish("a", 0..4, delay, clock);
                // The key frame of 8 s of another rendition, before or after that of `a`.
                let found = setup.align("b", when, 77);
                assert_eq!(found, (WALL.wrapping_add(8_000), Basis::KeyFrame), "{delay} {when}");
                setup.publish("a", 4..5, delay, clock);
                assert_eq!(setup.align("b", when, 77), found, "{delay} {when}");
            }
        }
    }

    #[test]
    fn a_common_clock_or_the_arrival_decide_without_a_near_key_frame() {
        let setup = Setup::new();
        setup.publish("a", 0..1, 0, 500);
        // The key frame of 4 s arrives first, and the interval is unknown.
        assert_eq!(setup.align("b", 3_900, 4_500), (WALL + 4_000, Basis::Clock));
        assert_eq!(setup.align("b", 3_900, 0), (WALL + 3_900, Basis::Arrival));
    }

    #[test]
    fn returning_renditions_match_those_that_stayed_or_continue() {
        let setup = Setup::new();
        setup.publish("a", 0..6, 0, 0);
        setup.publish("b", 0..3, 0, 0);
        setup.frames.forget("show", "b");
        assert_eq!(setup.align("b", 10_030, 0), (WALL + 10_000, Basis::KeyFrame));
        // The encoder restarts, and with it all renditions.
        setup.frames.forget("show", "a");
        assert_eq!(setup.align("a", 25_000, 0).0, WALL + 25_000);
        let alone = Setup::new();
        alone.publish("a", 0..3, 0, 0);
        assert_eq!(alone.align("a", 9_000, 0), (WALL + 9_000, Basis::Wall));
    }

    #[test]
    fn renditions_with_key_frames_at_other_times_are_reported_once() {
        let setup = Setup::new();
        let mut reports = 0;
        for n in 0..20_u32 {
            for (name, own_ms) in [("a", 2_000 * n), ("b", 2_000 * n + 300), ("c", 2_000 * n)] {
                let (at, stream_ms) = (setup.at(own_ms.into()), WALL.wrapping_add(own_ms));
                let key = KeyFrame { at, own_ms, stream_ms };
                let is_odd = setup.frames.push("show", name, key);
                assert!(!is_odd || name == "b", "{name} in {n}");
                reports += u32::from(is_odd);
            }
        }
        assert_eq!(reports, 1);
    }

    #[test]
    fn names_of_a_pattern_are_bounded() {
        let setup = Setup::new();
        for n in 0..1_000_u32 {
            setup.publish(&format!("show_{n}"), n.into()..u64::from(n) + 1, 0, 0);
        }
        assert_eq!(lock(&setup.frames.0)["show"].len(), MAX_NAMES);
    }
}
