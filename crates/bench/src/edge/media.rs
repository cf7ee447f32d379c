//! The benchmark stream: 2 Mbps of FLV in real time, 25 frames per second of video with a key frame
//! every 2 s, and AAC-sized sound. Every frame carries its publication time on CLOCK_MONOTONIC,
//! which all processes of a machine share.

use std::time::Duration;

use bytes::Bytes;
use media::Tag;
use media::flv::Kind;
use nix::time::{ClockId, clock_gettime};

/// Total payload rate in bits per second.
pub(super) const RATE: f64 = 2e6;
/// Duration of a group of pictures.
pub(super) const GROUP: Duration = Duration::from_secs(2);

const FRAMES_PER_GROUP: u64 = 50;
const FRAME: Duration = Duration::from_millis(40);
/// 1,024 samples at 48 kHz.
const SOUND: Duration = Duration::from_micros(21_333);
/// 128 kbit/s.
const SOUND_BYTES: usize = 341;
/// Size of a key frame, about seven times the size of other frames.
const KEY_BYTES: usize = 60_000;
const OTHER_BYTES: usize =
    (2 * (RATE as usize - 128_000) / 8 - KEY_BYTES) / (FRAMES_PER_GROUP as usize - 1);

/// Main profile, 1280 x 720, as x264 writes it, with 4-byte NAL unit lengths.
const AVC_CONFIGURATION: [u8; 46] = [
    0x17, 0, 0, 0, 0, 1, 0x4d, 0x40, 0x1f, 0xff, 0xe1, 0, 0x19, 0x67, 0x4d, 0x40, 0x1f, 0xd9, 0,
    0x50, 5, 0xbb, 1, 0x10, 0, 0, 3, 0, 0x10, 0, 0, 3, 3, 0x20, 0xf1, 0x83, 0x24, 0x80, 1, 0, 5,
    0x68, 0xeb, 0xc3, 0xcb, 0x20,
];
/// AAC-LC, 48 kHz, two channels.
const AAC_CONFIGURATION: [u8; 4] = [0xaf, 0, 0x11, 0x90];

/// Offset of the time in the payload of sound: after the header.
const SOUND_STAMP: usize = 2;
/// Size of a video payload's header.
const VIDEO_HEADER: usize = 5;
/// Size of a NAL unit's length and first byte, which precede the time.
const NAL_HEADER: usize = 4 + 1;

/// Returns CLOCK_MONOTONIC in nanoseconds.
pub(super) fn clock() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux has this clock");
    Duration::from(now).as_nanos() as u64
}

/// Returns the publication time of a tag; `None` for sequence headers.
pub(super) fn published(tag: &Tag) -> Option<u64> {
    published_in(tag.kind(), &tag.payload())
}

/// Returns the publication time in a tag's payload; `None` for sequence headers.
pub(super) fn published_in(kind: Kind, payload: &[u8]) -> Option<u64> {
    // The second byte of a sequence header is 0.
    let stamped = match kind {
        _ if payload.get(1) != Some(&1) => return None,
        Kind::Video => slice(payload.get(VIDEO_HEADER..)?)?,
        Kind::Audio => payload.get(SOUND_STAMP..)?,
        Kind::Script => return None,
    };
    Some(u64::from_be_bytes(*stamped.first_chunk()?))
}

/// Returns the first slice after its first byte. Some servers put parameter sets before it.
fn slice(mut units: &[u8]) -> Option<&[u8]> {
    loop {
        let (length, unit) = units.split_first_chunk()?;
        match unit.split_first()? {
            // A slice of an IDR picture or of another one.
            (&first, rest) if matches!(first & 0x1f, 1 | 5) => return Some(rest),
            _ => units = unit.get(u32::from_be_bytes(*length) as usize..)?,
        }
    }
}

/// Tags of the stream in order, with their due times.
pub(super) struct TagSource {
    shape: Shape,
    frames: u64,
    sounds: u64,
    noise: Bytes,
}

/// Parameters of the stream.
#[derive(Clone, Copy)]
struct Shape {
    /// Interval between pictures.
    frame: Duration,
    group: u64,
    key_bytes: usize,
    other_bytes: usize,
    has_sound: bool,
}

impl TagSource {
    /// Creates the stream of 2 Mbps.
    pub(super) fn new() -> Self {
        Self::of(Shape {
            frame: FRAME,
            group: FRAMES_PER_GROUP,
            key_bytes: KEY_BYTES,
            other_bytes: OTHER_BYTES,
            has_sound: true,
        })
    }

    /// Creates a stream of three-packet pictures at this interval, without sound, which leaves time
    /// to serve thousands of viewers in between.
    pub(super) fn thin(frame: Duration) -> Self {
        Self::of(Shape {
            frame,
            group: (GROUP.as_nanos() / frame.as_nanos()).max(1) as u64,
            key_bytes: 3_000,
            other_bytes: 3_000,
            has_sound: false,
        })
    }

    fn of(shape: Shape) -> Self {
        // Bytes above 3 cannot form a start code.
        let noise = (0..KEY_BYTES as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8 | 4);
        Self { shape, frames: 0, sounds: 0, noise: noise.collect() }
    }

    /// Returns the sequence headers.
    pub(super) fn headers() -> [Tag; 2] {
        [tag(Kind::Video, 0, &[&AVC_CONFIGURATION]), tag(Kind::Audio, 0, &[&AAC_CONFIGURATION])]
    }

    /// Returns the due time of the next frame, from the start of the stream.
    pub(super) fn due(&self) -> Duration {
        let video = self.shape.frame * self.frames as u32;
        if self.shape.has_sound { video.min(SOUND * self.sounds as u32) } else { video }
    }

    /// Returns the next frame, published now, and whether it starts a group of pictures.
    pub(super) fn next(&mut self) -> (Tag, bool) {
        let (due, stamp) = (self.due(), clock().to_be_bytes());
        let time = due.as_millis() as u32;
        if self.shape.frame * self.frames as u32 > due {
            self.sounds += 1;
            let rest = &self.noise[..SOUND_BYTES - stamp.len()];
            return (tag(Kind::Audio, time, &[&[0xaf, 1], &stamp, rest]), false);
        }
        let is_key = self.frames.is_multiple_of(self.shape.group);
        self.frames += 1;
        let (first, nal, size) = if is_key {
            (0x17, 0x65, self.shape.key_bytes)
        } else {
            (0x27, 0x41, self.shape.other_bytes)
        };
        let rest = &self.noise[..size - VIDEO_HEADER - NAL_HEADER - stamp.len()];
        let length = (1 + stamp.len() + rest.len()) as u32;
        let parts: [&[u8]; 5] = [&[first, 1, 0, 0, 0], &length.to_be_bytes(), &[nal], &stamp, rest];
        (tag(Kind::Video, time, &parts), is_key)
    }
}

/// Several streams, started in turn so that their pictures are published at different times.
pub(super) struct Streams(Vec<(Duration, TagSource)>);

impl Streams {
    pub(super) fn new(count: usize, source: impl Fn() -> TagSource) -> Self {
        Self((0..count).map(|stream| (phase(stream, count), source())).collect())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn single(source: TagSource) -> Self {
        Self(vec![(Duration::ZERO, source)])
    }

    /// Returns the stream with the next frame, and the frame's due time from the start.
    pub(super) fn due(&self) -> (usize, Duration) {
        let dues = self.0.iter().map(|(phase, source)| *phase + source.due()).enumerate();
        dues.min_by_key(|(_, due)| *due).unwrap_or((0, Duration::MAX))
    }

    /// Returns the next frame of a stream as [`TagSource::next`].
    pub(super) fn next(&mut self, stream: usize) -> (Tag, bool) {
        self.0[stream].1.next()
    }
}

/// Returns the start of one of `count` streams: its key frames fall on another frame interval of
/// the group of pictures if there are enough of them, and its pictures on another part of the
/// interval.
fn phase(stream: usize, count: usize) -> Duration {
    let (stream, count) = (stream as u64, count as u64);
    let intervals = stream * FRAMES_PER_GROUP / count;
    FRAME * intervals as u32 + FRAME * stream as u32 / count as u32
}

fn tag(kind: Kind, time: u32, parts: &[&[u8]]) -> Tag {
    Tag::new(kind, time, &parts.concat()).expect("frames are small")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_seconds_of_the_stream_have_its_rate_and_its_groups() {
        let mut source = TagSource::new();
        let (mut bytes, mut keys, mut last) = (0, 0, Duration::ZERO);
        while source.due() < Duration::from_secs(10) {
            assert!(source.due() >= last);
            last = source.due();
            let before = clock();
            let (tag, is_key) = source.next();
            let stamp = published(&tag).expect("a frame has a time");
            assert!((before..=clock()).contains(&stamp));
            assert_eq!(is_key, tag.role() == media::Role::KeyFrame);
            bytes += tag.payload().len();
            keys += u32::from(is_key);
        }
        assert_eq!(keys, 5);
        let rate = bytes as f64 * 8.0 / 10.0;
        assert!((rate / RATE - 1.0).abs() < 0.01, "{rate}");
    }

    #[test]
    fn the_time_is_found_behind_parameter_sets() {
        let stamp = 0x0001_0203_0405_0607u64;
        let sets: [&[u8]; 4] = [&[0, 0, 0, 3], &[0x67, 1, 1], &[0, 0, 0, 2], &[0x68, 5]];
        let picture: [&[u8]; 3] = [&[0, 0, 0, 9], &[0x65], &stamp.to_be_bytes()];
        let payload = [&[&[0x17, 1, 0, 0, 0][..]], &sets[..], &picture].concat().concat();
        assert_eq!(published_in(Kind::Video, &payload), Some(stamp));
        for length in 0..payload.len() {
            assert_eq!(published_in(Kind::Video, &payload[..length]), None, "{length}");
        }
        let without_picture = [&[0x17, 1, 0, 0, 0][..], &sets.concat()].concat();
        assert_eq!(published_in(Kind::Video, &without_picture), None);
    }

    #[test]
    fn pictures_of_a_hundred_streams_never_coincide() {
        let mut streams = Streams::new(100, TagSource::new);
        let (mut pictures, mut keys) = (Vec::new(), [0; 100]);
        let mut last = Duration::ZERO;
        loop {
            let (stream, due) = streams.due();
            assert!(due >= last, "{due:?} after {last:?}");
            last = due;
            if due >= Duration::from_secs(8) {
                break;
            }
            let (tag, is_key) = streams.next(stream);
            keys[stream] += u32::from(is_key);
            if tag.kind() == Kind::Video {
                pictures.push(due);
            }
        }
        // Every stream has started within the first group of pictures.
        assert!(keys.iter().all(|keys| (3..=4).contains(keys)), "{keys:?}");
        let closest = pictures.windows(2).map(|pair| pair[1] - pair[0]).min();
        assert_eq!(closest, Some(FRAME / 100));
        let groups: Vec<Duration> = (0..10).map(|stream| phase(stream, 10)).collect();
        assert!(groups.windows(2).all(|pair| pair[1] - pair[0] > GROUP / 11), "{groups:?}");
    }

    #[test]
    fn configurations_carry_no_time() {
        for header in TagSource::headers() {
            assert!(header.role().is_header());
            assert_eq!(published(&header), None);
        }
    }
}
