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

/// Offset of the time in a frame's payload: after header, NAL unit length and first byte for video,
/// after the header for sound.
const VIDEO_STAMP: usize = 5 + 4 + 1;
const SOUND_STAMP: usize = 2;

/// Returns CLOCK_MONOTONIC in nanoseconds.
pub(super) fn clock() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux has this clock");
    Duration::from(now).as_nanos() as u64
}

/// Returns the publication time of a tag; `None` for sequence headers.
pub(super) fn published(tag: &Tag) -> Option<u64> {
    let payload = tag.payload();
    // The second byte of a sequence header is 0.
    let at = match tag.kind() {
        _ if payload.get(1) != Some(&1) => return None,
        Kind::Video => VIDEO_STAMP,
        Kind::Audio => SOUND_STAMP,
        Kind::Script => return None,
    };
    Some(u64::from_be_bytes(payload.get(at..at + 8)?.try_into().ok()?))
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

    /// Creates a stream of three-packet pictures, four per second, without sound, which leaves time
    /// to serve thousands of viewers in between.
    pub(super) fn thin() -> Self {
        Self::of(Shape {
            frame: Duration::from_millis(250),
            group: 8,
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
        let rest = &self.noise[..size - VIDEO_STAMP - stamp.len()];
        let length = (1 + stamp.len() + rest.len()) as u32;
        let parts: [&[u8]; 5] = [&[first, 1, 0, 0, 0], &length.to_be_bytes(), &[nal], &stamp, rest];
        (tag(Kind::Video, time, &parts), is_key)
    }
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
    fn configurations_carry_no_time() {
        for header in TagSource::headers() {
            assert!(header.role().is_header());
            assert_eq!(published(&header), None);
        }
    }
}
