//! One timeline per stream, whatever its publishers send.
//!
//! FLV and RTMP timestamps are 32 bits of milliseconds that wrap, start anywhere, and start again
//! when a publisher comes back. What viewers get starts at 0, wraps as FLV does, and never goes
//! back within a kind of tag: a publisher that jumps, or a new one, continues where the last one
//! was. The adjustment is made once, where a tag comes in, never per viewer.

use crate::flv::Kind;

/// A step back by more than this is a jump, not the interleaving of audio and video.
const MAX_BACK_MS: i64 = 1_000;
/// So is a step forward by more than this. Encoders that pause send nothing and then go on.
const MAX_FORWARD_MS: i64 = 30_000;
/// Distance of the two sides of a jump: about a frame.
const GAP_MS: i64 = 40;

/// Maps a publisher's timestamps to the stream's.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// What is added to the publisher's time; `None` before the first tag of a publisher.
    offset: Option<i64>,
    /// The publisher's latest time, without wraps.
    input: i64,
    /// The stream's latest time, without wraps; `None` before the first tag of the stream.
    output: Option<i64>,
    /// The same for audio, video and script tags.
    latest: [i64; 3],
    jumps: u64,
}

impl Timeline {
    /// A new publisher: its first tag continues the stream.
    pub fn on_publisher(&mut self) {
        self.offset = None;
    }

    /// The stream's time, in milliseconds, of a tag that the publisher sends at its time
    /// `timestamp`.
    pub fn map(&mut self, kind: Kind, timestamp: u32) -> u32 {
        // The nearest time with these 32 bits.
        let step = i64::from(timestamp.wrapping_sub(self.input as u32) as i32);
        let continued = self.offset.filter(|_| (-MAX_BACK_MS..=MAX_FORWARD_MS).contains(&step));
        self.jumps += u64::from(self.offset.is_some() && continued.is_none());
        let offset = continued.unwrap_or_else(|| {
            self.input = i64::from(timestamp);
            self.output.map_or(0, |output| output + GAP_MS) - self.input
        });
        if continued.is_some() {
            self.input += step;
        }
        self.offset = Some(offset);
        let latest = &mut self.latest[kind as usize];
        // Times before the stream's first tag are its first.
        let time = (self.input + offset).max(*latest).max(0);
        *latest = time;
        self.output = Some(self.output.unwrap_or(0).max(time));
        time as u32
    }

    /// How often a publisher's time jumped.
    pub fn jumps(&self) -> u64 {
        self.jumps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_stream_starts_at_zero_and_keeps_distances() {
        let mut timeline = Timeline::default();
        assert_eq!(timeline.map(Kind::Video, 5_000), 0);
        assert_eq!(timeline.map(Kind::Audio, 4_980), 0, "before the first");
        assert_eq!(timeline.map(Kind::Audio, 5_010), 10);
        assert_eq!(timeline.map(Kind::Video, 5_040), 40);
        assert_eq!(timeline.map(Kind::Audio, 5_033), 33, "interleaved");
    }

    #[test]
    fn time_goes_on_over_the_wrap() {
        let mut timeline = Timeline::default();
        assert_eq!(timeline.map(Kind::Video, u32::MAX - 9), 0);
        assert_eq!(timeline.map(Kind::Video, 30), 40);
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

    proptest! {
        #[test]
        fn no_kind_ever_goes_back(times in proptest::collection::vec((any::<u32>(), 0..3u8), 1..60)) {
            let mut timeline = Timeline::default();
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
