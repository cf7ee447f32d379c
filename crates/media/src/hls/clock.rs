//! Maps timestamps of tags to the time of the packaged stream.
//!
//! Tags carry 32-bit milliseconds. The stream time has these low bits and is nearest to the wall
//! clock at the first tag. Servers that start packaging at different times, before and after a
//! wrap, therefore agree. Media times in segments count from the last multiple of 2^32 ms, because
//! players store them as doubles. The stream has a discontinuity at each multiple, every 49.7 days.

use crate::codec::Role;
use crate::flv::{Kind, Tag};

/// Maximum backward step within a stream, as in [`crate::timeline`]. A larger step is a jump.
const MAX_BACK_MS: i64 = 1_000;
/// Maximum forward step within a stream.
pub(super) const MAX_FORWARD_MS: i64 = 5_000;
/// Number of tags that are dropped if only their kind jumps. Then the jump is accepted.
const MAX_STRAY: u32 = 50;
/// Timestamps wrap at this value.
const WRAP: i64 = 1 << 32;

/// Position of a tag in the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TagTime {
    /// At this time, in milliseconds since the start of the era.
    At(i64),
    /// At this time, after a discontinuity.
    Jumped(i64),
    /// Far from the time of all other tags.
    Stray,
}

/// Tracks the times of audio and video separately.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock {
    /// Multiple of 2^32 added to timestamps; `None` before the first tag.
    era: Option<i64>,
    /// Newest times of audio and video, indexed by `Kind`.
    newest: [Option<i64>; 2],
    /// The kind that jumped alone, and the number of its tags since.
    stray: Option<(usize, u32)>,
}

impl Clock {
    /// Returns the position of a tag that arrived `wall_ms` milliseconds after 1970. A jump at a
    /// key frame is accepted at once: restarted encoders start with one.
    pub(super) fn locate(&mut self, tag: &Tag, wall_ms: i64) -> TagTime {
        let timestamp = tag.timestamp();
        let (kind, other) = match tag.kind() {
            Kind::Audio => (Kind::Audio as usize, Kind::Video as usize),
            _ => (Kind::Video as usize, Kind::Audio as usize),
        };
        let Some(reference) = self.newest[kind].or(self.newest[other]) else {
            let ahead = i64::from(timestamp.wrapping_sub(wall_ms as u32) as i32);
            let time = i64::from(timestamp);
            self.era.get_or_insert((wall_ms + ahead - time).max(0));
            self.newest[kind] = Some(time);
            return TagTime::At(time);
        };
        let near = |time: i64| time + i64::from(timestamp.wrapping_sub(time as u32) as i32);
        let time = near(reference);
        let goes_on = match self.newest[kind] {
            Some(newest) => (-MAX_BACK_MS..=MAX_FORWARD_MS).contains(&(time - newest)),
            None => true,
        };
        // This kind paused while the other continued.
        let rejoins = time >= reference
            && self.newest[other].is_some_and(|other| (time - other).abs() <= MAX_FORWARD_MS);
        if goes_on || rejoins {
            self.stray = self.stray.filter(|(stray, _)| *stray != kind);
            return self.move_to(kind, time, false);
        }
        let (agrees, tags) = match self.stray {
            Some((stray, tags)) if stray == kind => (tags >= MAX_STRAY, tags + 1),
            Some(_) => (true, 0),
            None => (self.newest[other].is_none(), 1),
        };
        if !agrees && tag.role() != Role::KeyFrame {
            self.stray = Some((kind, tags));
            return TagTime::Stray;
        }
        self.stray = None;
        self.newest = [None; 2];
        if time < 0 {
            self.era = self.era.map(|era| (era - WRAP).max(0));
        }
        self.move_to(kind, if time < 0 { time + WRAP } else { time }, true)
    }

    fn move_to(&mut self, kind: usize, time: i64, jumped: bool) -> TagTime {
        let wraps = time >= WRAP;
        if wraps {
            self.era = self.era.map(|era| era + WRAP);
            self.newest = self.newest.map(|newest| Some(newest? - WRAP));
        }
        let time = if wraps { time - WRAP } else { time };
        self.newest[kind] = Some(time);
        match time {
            // Slightly before the start of an era that the other kind has already entered.
            ..0 => TagTime::Stray,
            _ if jumped || wraps => TagTime::Jumped(time),
            _ => TagTime::At(time),
        }
    }

    /// Converts a time within the era to stream time: milliseconds since 1970 if the stream follows
    /// the wall clock.
    pub(super) fn stream_ms(&self, time: i64) -> i64 {
        self.era.unwrap_or(0) + time
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use TagTime::{At, Jumped, Stray};

    const WALL: i64 = 1_800_000_000_000;

    impl Clock {
        fn at(&mut self, kind: Kind, timestamp: u32, wall_ms: i64) -> TagTime {
            let payload: &[u8] = if kind == Kind::Video { &[0x27, 1, 0, 0, 0] } else { &[0xaf, 1] };
            self.locate(&Tag::new(kind, timestamp, payload).expect("short"), wall_ms)
        }
    }

    #[test]
    fn servers_agree_on_the_time_for_any_start() {
        let mut early = Clock::default();
        let start = WALL as u32;
        let first = early.at(Kind::Video, start, WALL + 300);
        let At(first) = first else { panic!("{first:?}") };
        assert_eq!(early.stream_ms(first), WALL);
        let mut jumps = 0;
        for second in 1..=60 * 86_400 / 4 {
            let step = second * 4_000;
            let at = start.wrapping_add(step as u32);
            let locate = early.at(Kind::Video, at, 0);
            let (At(time) | Jumped(time)) = locate else { panic!("{locate:?}") };
            jumps += u32::from(matches!(locate, Jumped(_)));
            assert!((0..WRAP).contains(&time));
            if second % 20_000 == 0 {
                let mut late = Clock::default();
                assert_eq!(late.at(Kind::Video, at, WALL + step - 900), At(time));
                assert_eq!(late.stream_ms(time), early.stream_ms(time));
                assert_eq!(early.stream_ms(time), WALL + step);
            }
        }
        assert!((1..=2).contains(&jumps), "one for each 49.7 days: {jumps}");
    }

    #[test]
    fn late_tags_from_before_the_wrap_are_dropped() {
        let mut clock = Clock::default();
        assert_eq!(clock.at(Kind::Video, u32::MAX - 39, 0), At(WRAP - 40));
        assert_eq!(clock.at(Kind::Audio, u32::MAX - 50, 0), At(WRAP - 51));
        assert_eq!(clock.at(Kind::Video, 0, 0), Jumped(0));
        assert_eq!(clock.at(Kind::Audio, u32::MAX - 20, 0), Stray);
        assert_eq!(clock.at(Kind::Audio, 10, 0), At(10));
        assert_eq!(clock.at(Kind::Video, 40, 0), At(40));
    }

    #[test]
    fn audio_ahead_of_video_is_no_jump() {
        let mut clock = Clock::default();
        for at in (0..30_000).step_by(20) {
            assert_eq!(clock.at(Kind::Video, 10_000 + at, WALL), At(i64::from(10_000 + at)));
            assert_eq!(clock.at(Kind::Audio, 17_000 + at, WALL), At(i64::from(17_000 + at)));
        }
    }

    #[test]
    fn a_jump_is_accepted_once_both_kinds_agree() {
        let mut clock = Clock::default();
        clock.at(Kind::Video, 0, WALL);
        clock.at(Kind::Audio, 0, WALL);
        assert_eq!(clock.at(Kind::Video, 60_000, WALL), Stray);
        assert_eq!(clock.at(Kind::Audio, 20, WALL), At(20), "a single wild one");
        assert_eq!(clock.at(Kind::Video, 40, WALL), At(40));
        assert_eq!(clock.at(Kind::Video, 60_000, WALL), Stray);
        assert_eq!(clock.at(Kind::Audio, 60_000, WALL), Jumped(60_000));
        assert_eq!(clock.at(Kind::Video, 60_040, WALL), At(60_040));
    }

    #[test]
    fn a_jump_at_a_key_frame_is_accepted_at_once() {
        let mut clock = Clock::default();
        clock.at(Kind::Video, 0, WALL);
        clock.at(Kind::Audio, 0, WALL);
        let key = Tag::new(Kind::Video, 60_000, &[0x17, 1, 0, 0, 0]).expect("short");
        assert_eq!(clock.locate(&key, WALL), Jumped(60_000));
        assert_eq!(clock.at(Kind::Audio, 59_980, WALL), At(59_980));
    }

    #[test]
    fn a_jump_of_the_only_kind_is_accepted() {
        let mut clock = Clock::default();
        clock.at(Kind::Video, 0, WALL);
        assert_eq!(clock.at(Kind::Video, 60_000, WALL), Jumped(60_000));
        clock.at(Kind::Audio, 60_000, WALL);
        let places = (0..60).map(|n| clock.at(Kind::Video, 90_000 + n, WALL));
        let places: Vec<TagTime> = places.collect();
        let jumps = places.iter().filter(|locate| matches!(locate, Jumped(_))).count();
        assert_eq!((jumps, places[50], places[59]), (1, Jumped(90_050), At(90_059)));
    }

    #[test]
    fn paused_video_resumes_at_the_time_of_audio() {
        let mut clock = Clock::default();
        clock.at(Kind::Video, 0, WALL);
        (0..500)
            .for_each(|n| assert_eq!(clock.at(Kind::Audio, n * 20, WALL), At(i64::from(n * 20))));
        assert_eq!(clock.at(Kind::Video, 10_000, WALL), At(10_000));
    }
}
