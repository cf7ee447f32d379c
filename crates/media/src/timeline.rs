//! Maps the timestamps of a stream's publishers to a single timeline.
//!
//! FLV and RTMP timestamps are 32-bit milliseconds that wrap, start anywhere, and restart with a
//! reconnecting publisher. The stream's time wraps as well, but never decreases within a kind of
//! tag. It starts at the first publisher's own time, so that servers that pull the same upstream
//! agree on it, or at the time given to [`Timeline::begin_at`]. After a jump, or with a new
//! publisher, the stream continues at its current time. Timestamps are adjusted once, when a tag
//! arrives, never per viewer.
//!
//! Audio and video are tracked separately. They may be seconds apart indefinitely: the two clocks
//! of a cheap encoder drift, and a burst delivers one kind first. A kind whose time jumps continues
//! at its own last time. If the other kind jumps to the same place, the same adjustment applies,
//! which keeps both in sync. Script tags follow the other kinds.

use crate::flv::Kind;

/// Maximum backward step within a kind. A larger step is a jump, not reordering.
const MAX_BACK_MS: i64 = 1_000;
/// Maximum forward step. Encoders that pause send nothing and then continue.
const MAX_FORWARD_MS: i64 = 30_000;
/// Maximum distance of audio and video from the same clock.
const MAX_APART_MS: i64 = 10_000;
/// Maximum overlap with an upstream that resends its cache.
const MAX_REWIND_MS: i64 = 60_000;
/// Interval inserted at a jump: about one frame.
const GAP_MS: i64 = 40;

/// Last time of a kind in the publisher's clock, and its offset to the stream's time.
#[derive(Clone, Copy, Debug)]
struct Clock {
    /// Without wraps.
    input: i64,
    offset: i64,
}

impl Clock {
    /// Returns this clock at the nearest time with these 32 bits, and the step to it.
    fn at(self, timestamp: u32) -> (Self, i64) {
        let step = i64::from(timestamp.wrapping_sub(self.input as u32) as i32);
        (Self { input: self.input + step, ..self }, step)
    }

    fn time(self) -> i64 {
        self.input + self.offset
    }
}

/// Maps a publisher's timestamps to the stream's.
///
/// ```
/// use mendcast_media::{Kind, Timeline};
///
/// let mut timeline = Timeline::default();
/// timeline.on_publisher();
/// assert_eq!(timeline.map(Kind::Video, 5_000), 5_000);
/// // A second encoder takes over with its own clock: the stream continues.
/// timeline.on_publisher();
/// assert_eq!(timeline.map(Kind::Video, 0), 5_040);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// Start time of the stream; `None` for its first publisher's own time.
    start: Option<u32>,
    /// Stream time at the publisher's time 0, if announced.
    base: Option<u32>,
    /// Clocks of the publisher's audio and video, indexed by `Kind`.
    clocks: [Option<Clock>; 2],
    /// Latest stream times of audio, video and script tags, without wraps.
    latest: [Option<i64>; 3],
    /// Whether audio and video may repeat tags that the stream already has.
    rewound: [bool; 2],
    /// Whether a new publisher's timestamps may already be stream times.
    returns: bool,
    jumps: u64,
}

impl Timeline {
    /// Starts the stream at this time, for publishers with arbitrary clocks.
    pub fn begin_at(&mut self, start: u32) {
        self.start = Some(start);
    }

    /// Announces a new publisher. Its first tag continues the stream.
    pub fn on_publisher(&mut self) {
        self.clocks = [None; 2];
        self.base = None;
        self.rewound = [false; 2];
        self.returns = false;
    }

    /// Announces a repeated pull, possibly from the same upstream. If its first timestamp is
    /// slightly later than the stream's time, it is taken as the stream's time, so that all servers
    /// that pull the upstream stay in agreement.
    pub fn on_upstream(&mut self) {
        self.on_publisher();
        self.returns = self.start.is_none();
    }

    /// Maps the publisher's time 0 to `base` in the stream's time, for publishers that relay the
    /// same stream with their own timestamps. Tags that they repeat from their cache are dropped.
    pub fn on_base(&mut self, base: u32) {
        self.clocks = [None; 2];
        self.base = Some(base);
        self.rewound = [true; 2];
    }

    /// Maps the timestamp of a publisher's tag to the stream's time, in milliseconds.
    pub fn map(&mut self, kind: Kind, timestamp: u32) -> u32 {
        let latest = self.latest[kind as usize].unwrap_or(0) as u32;
        self.map_new(kind, timestamp).unwrap_or(latest)
    }

    /// Like [`Timeline::map`], but returns `None` for audio and video that the stream already has.
    /// This happens only after [`Timeline::on_base`].
    pub fn map_new(&mut self, kind: Kind, timestamp: u32) -> Option<u32> {
        let time = match kind {
            Kind::Audio | Kind::Video => self.media_time(kind as usize, timestamp),
            Kind::Script => self.script_time(timestamp),
        };
        let latest = &mut self.latest[kind as usize];
        if let Some(rewound) = self.rewound.get_mut(kind as usize) {
            *rewound &= latest.is_some_and(|latest| time <= latest);
            if *rewound {
                return None;
            }
        }
        // Times before 0 are 0.
        let time = latest.map_or(time, |latest| time.max(latest)).max(0);
        *latest = Some(time);
        Some(time as u32)
    }

    /// Returns the newest time of audio and video, without wraps.
    fn newest(&self) -> Option<i64> {
        self.latest[..2].iter().flatten().copied().max()
    }

    fn media_time(&mut self, kind: usize, timestamp: u32) -> i64 {
        let (own, other) = (self.clocks[kind], self.clocks[1 - kind]);
        let latest = self.latest[kind];
        let continued = own
            .map(|clock| clock.at(timestamp))
            .filter(|(_, step)| (-MAX_BACK_MS..=MAX_FORWARD_MS).contains(step));
        let joins = |(clock, step): &(Clock, i64)| {
            let goes_on = latest.is_none_or(|latest| clock.time() >= latest - MAX_BACK_MS);
            step.abs() <= MAX_APART_MS && (goes_on || own.is_none())
        };
        let joined = || other.map(|clock| clock.at(timestamp)).filter(joins);
        let clock = continued.or_else(joined).map(|(clock, _)| clock).unwrap_or_else(|| {
            let time = match (own, other) {
                (Some(_), _) => {
                    self.jumps += 1;
                    latest.map_or(0, |latest| latest + GAP_MS)
                }
                // Two kinds with different clocks continue together from here.
                (None, Some(_)) => self.newest().unwrap_or(0),
                (None, None) => self.first_time(timestamp),
            };
            let input = i64::from(timestamp);
            Clock { input, offset: time - input }
        });
        self.clocks[kind] = Some(clock);
        clock.time()
    }

    /// Returns the stream time of a publisher's first tag.
    fn first_time(&self, timestamp: u32) -> i64 {
        let stated = self.base.map(|base| base.wrapping_add(timestamp));
        let Some(newest) = self.newest() else {
            return i64::from(stated.or(self.start).unwrap_or(timestamp));
        };
        let own = stated.or(self.returns.then_some(timestamp));
        let back = if stated.is_some() { MAX_REWIND_MS } else { 0 };
        let forward = if stated.is_some() { i64::MAX } else { MAX_FORWARD_MS };
        let step = own.map(|own| i64::from(own.wrapping_sub(newest as u32) as i32));
        newest + step.filter(|step| (-back..=forward).contains(step)).unwrap_or(GAP_MS)
    }

    /// Returns the stream time of a script tag. Script tags often carry 0 or the encoder's start
    /// time; they then get the newest time.
    fn script_time(&self, timestamp: u32) -> i64 {
        let near = self.clocks.into_iter().flatten().map(|clock| clock.at(timestamp));
        let near =
            near.filter(|(_, step)| step.abs() <= MAX_APART_MS).map(|(clock, _)| clock.time());
        let first = || {
            let stated = self.base.map(|base| base.wrapping_add(timestamp));
            i64::from(stated.or(self.start).unwrap_or(timestamp))
        };
        near.max().or_else(|| self.newest()).unwrap_or_else(first)
    }

    /// Returns the number of timestamp jumps.
    pub fn jumps(&self) -> u64 {
        self.jumps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_stream_starts_at_its_publishers_time_and_keeps_intervals() {
        let mut timeline = Timeline::default();
        assert_eq!(timeline.map(Kind::Video, 5_000), 5_000);
        assert_eq!(timeline.map(Kind::Audio, 4_980), 4_980);
        assert_eq!(timeline.map(Kind::Audio, 5_010), 5_010);
        assert_eq!(timeline.map(Kind::Video, 5_040), 5_040);
        assert_eq!(timeline.map(Kind::Audio, 5_033), 5_033, "interleaved");
        let mut timeline = Timeline::default();
        timeline.begin_at(70_000);
        assert_eq!(timeline.map(Kind::Video, 5_000), 70_000);
        assert_eq!(timeline.map(Kind::Audio, 4_980), 69_980);
    }

    #[test]
    fn time_continues_across_the_wrap() {
        let mut timeline = Timeline::default();
        assert_eq!(timeline.map(Kind::Video, u32::MAX - 9), u32::MAX - 9);
        assert_eq!(timeline.map(Kind::Audio, u32::MAX), u32::MAX);
        assert_eq!(timeline.map(Kind::Video, 30), 30);
        assert_eq!(timeline.map(Kind::Audio, 20), 20);
        assert_eq!(timeline.jumps(), 0);
    }

    #[test]
    fn a_clock_that_runs_for_months_never_jumps() {
        let mut timeline = Timeline::default();
        timeline.begin_at(123);
        let mut at = 4_000_000_000_u32;
        let mut expected = 123_u32;
        timeline.map(Kind::Video, at);
        // 120 days in steps of 20 s.
        for _ in 0..120 * 86_400 / 20 {
            (at, expected) = (at.wrapping_add(20_000), expected.wrapping_add(20_000));
            assert_eq!(timeline.map(Kind::Video, at), expected);
            assert_eq!(timeline.map(Kind::Audio, at), expected);
        }
        assert_eq!(timeline.jumps(), 0);
    }

    #[test]
    fn a_jump_and_a_new_publisher_continue_the_stream() {
        let mut timeline = Timeline::default();
        timeline.map(Kind::Video, 0);
        timeline.map(Kind::Video, 100);
        assert_eq!(timeline.map(Kind::Video, 900_000), 140, "forward");
        assert_eq!(timeline.map(Kind::Video, 900_040), 180);
        assert_eq!(timeline.map(Kind::Video, 0), 220, "back");
        assert_eq!(timeline.jumps(), 2);
        timeline.on_publisher();
        assert_eq!(timeline.map(Kind::Audio, 77), 260);
        assert_eq!(timeline.jumps(), 2);
    }

    #[test]
    fn audio_far_ahead_of_video_does_not_change_the_clock() {
        for ahead in [-4_000_i64, -1_500, 1_500, 4_000] {
            let mut timeline = Timeline::default();
            for at in (0..15_000).step_by(20) {
                let video = 10_000 + at;
                let audio = (i64::from(video) + ahead) as u32;
                assert_eq!(timeline.map(Kind::Video, video), video, "{ahead}");
                assert_eq!(timeline.map(Kind::Audio, audio), audio, "{ahead}");
            }
            assert_eq!(timeline.jumps(), 0);
        }
    }

    #[test]
    fn kinds_with_different_clocks_continue_together() {
        let mut timeline = Timeline::default();
        for at in (0..5_000).step_by(20) {
            assert_eq!(timeline.map(Kind::Video, 1_000 + at), 1_000 + at);
            assert_eq!(timeline.map(Kind::Audio, 900_000_000 + at), 1_000 + at);
        }
        assert_eq!(timeline.jumps(), 0);
    }

    #[test]
    fn an_encoder_restart_keeps_the_offset_of_audio_and_video() {
        let mut timeline = Timeline::default();
        for at in (0..2_000).step_by(40) {
            timeline.map(Kind::Video, 500_000 + at);
            timeline.map(Kind::Audio, 501_500 + at);
        }
        // In either order.
        assert_eq!(timeline.map(Kind::Audio, 1_500), 503_500);
        assert_eq!(timeline.map(Kind::Video, 0), 502_000);
        assert_eq!(timeline.map(Kind::Audio, 1_540), 503_540);
        assert_eq!(timeline.map(Kind::Video, 40), 502_040);
        assert_eq!(timeline.jumps(), 1, "one for both");
        // A jump smaller than the allowed distance of audio and video.
        for at in (40..9_000).step_by(40) {
            timeline.map(Kind::Video, at);
            timeline.map(Kind::Audio, 1_500 + at);
        }
        assert_eq!(timeline.map(Kind::Video, 4_000), 511_000);
        assert_eq!(timeline.map(Kind::Audio, 5_500), 512_500);
        assert_eq!(timeline.map(Kind::Video, 4_040), 511_040);
    }

    #[test]
    fn one_wild_timestamp_does_not_move_the_clock() {
        let mut timeline = Timeline::default();
        for at in (0..1_000).step_by(40) {
            timeline.map(Kind::Video, at);
            timeline.map(Kind::Audio, at);
        }
        assert_eq!(timeline.map(Kind::Video, 3_000_000_000), 1_000);
        for at in (1_040..3_000).step_by(40) {
            assert_eq!(timeline.map(Kind::Audio, at), at);
            assert_eq!(timeline.map(Kind::Video, at), at);
        }
    }

    #[test]
    fn video_resumes_at_the_time_of_audio_after_a_minute() {
        let mut timeline = Timeline::default();
        timeline.map(Kind::Video, 0);
        for at in (0..60_000).step_by(20) {
            timeline.map(Kind::Audio, at);
        }
        assert_eq!(timeline.map(Kind::Video, 60_000), 60_000);
        assert_eq!(timeline.jumps(), 0);
    }

    #[test]
    fn script_tags_follow_audio_and_video() {
        let mut timeline = Timeline::default();
        assert_eq!(timeline.map(Kind::Script, 0), 0);
        assert_eq!(timeline.map(Kind::Video, 700_000), 700_000);
        assert_eq!(timeline.map(Kind::Script, 0), 700_000);
        assert_eq!(timeline.map(Kind::Script, 700_030), 700_030);
        assert_eq!(timeline.map(Kind::Video, 700_040), 700_040);
        assert_eq!(timeline.jumps(), 0);
    }

    #[test]
    fn a_repeated_pull_continues_with_the_upstreams_time() {
        let mut timeline = Timeline::default();
        timeline.map(Kind::Video, 10_000);
        timeline.on_upstream();
        assert_eq!(timeline.map(Kind::Video, 17_000), 17_000);
        // A restarted upstream.
        timeline.on_upstream();
        assert_eq!(timeline.map(Kind::Video, 3), 17_040);
    }

    #[test]
    fn tags_repeated_by_a_relay_are_dropped() {
        let mut timeline = Timeline::default();
        timeline.on_base(5_000_000);
        assert_eq!(timeline.map_new(Kind::Video, 0), Some(5_000_000));
        assert_eq!(timeline.map_new(Kind::Audio, 10), Some(5_000_010));
        assert_eq!(timeline.map_new(Kind::Video, 4_000), Some(5_004_000));
        // The connection was lost; the next one starts with the last key frame.
        timeline.on_publisher();
        timeline.on_base(5_002_000);
        assert_eq!(timeline.map_new(Kind::Video, 0), None);
        assert_eq!(timeline.map_new(Kind::Audio, 0), Some(5_002_000), "this kind it had not");
        assert_eq!(timeline.map_new(Kind::Video, 2_000), None);
        assert_eq!(timeline.map_new(Kind::Video, 2_040), Some(5_004_040));
        assert_eq!(timeline.map_new(Kind::Video, 2_000), Some(5_004_040), "never again");
        // A relay after a long outage.
        timeline.on_publisher();
        timeline.on_base(9_000_000);
        assert_eq!(timeline.map_new(Kind::Video, 0), Some(9_000_000));
    }

    proptest! {
        #[test]
        fn times_never_decrease(times in proptest::collection::vec((any::<u32>(), 0..3u8), 1..60)) {
            let mut timeline = Timeline::default();
            timeline.begin_at(0);
            let mut latest = [0; 3];
            for (time, kind) in times {
                let kind = [Kind::Audio, Kind::Video, Kind::Script][usize::from(kind)];
                let mapped = timeline.map(kind, time);
                prop_assert!(mapped >= latest[kind as usize]);
                latest[kind as usize] = mapped;
            }
        }
    }
}
