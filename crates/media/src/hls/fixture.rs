//! Handmade tags for tests.

use crate::flv::{Kind, Tag};
use crate::hls::Segmenter;

/// 318 x 178 pixels, High profile.
pub(crate) const AVCC: &[u8] = &[
    0x01, 0x64, 0x00, 0x0c, 0xff, 0xe1, 0x00, 0x1a, 0x67, 0x64, 0x00, 0x0c, 0xac, 0xd9, 0x41, 0x41,
    0x9e, 0xa2, 0x30, 0x11, 0x00, 0x00, 0x03, 0x00, 0x01, 0x00, 0x00, 0x03, 0x00, 0x32, 0x0f, 0x14,
    0x29, 0x96, 0x01, 0x00, 0x06, 0x68, 0xeb, 0xe3, 0xcb, 0x22, 0xc0, 0xfd, 0xf8, 0xf8, 0x00,
];
pub(crate) const WALL: u64 = 1_800_000_000_000;

pub(crate) fn tag(kind: Kind, at: u32, parts: &[&[u8]]) -> Tag {
    Tag::new(kind, at, &parts.concat()).expect("short enough")
}

pub(crate) fn video_header(level: u8) -> Tag {
    let mut record = AVCC.to_vec();
    record[3] = level;
    tag(Kind::Video, 0, &[&[0x17, 0, 0, 0, 0], &record])
}

/// 48 kHz, stereo.
pub(crate) fn audio_header() -> Tag {
    tag(Kind::Audio, 0, &[&[0xaf, 0, 0x11, 0x90]])
}

pub(crate) fn frame(at: u32, key: bool) -> Tag {
    let (head, nal) = if key { (0x17, 0x65) } else { (0x27, 0x41) };
    tag(Kind::Video, at, &[&[head, 1, 0, 0, 0], &[0, 0, 0, 3, nal, 1, 2]])
}

pub(crate) fn audio_frame(at: u32) -> Tag {
    tag(Kind::Audio, at, &[&[0xaf, 1], &[0x21; 20]])
}

/// Pushes 25 frames per second with a key frame every `gop` frames, and optionally audio at 48 kHz,
/// for the times in `range`.
pub(crate) fn push(segmenter: &mut Segmenter, range: core::ops::Range<u32>, gop: u32, audio: bool) {
    for at in range.clone() {
        if (at - range.start).is_multiple_of(40) {
            let key = ((at - range.start) / 40).is_multiple_of(gop);
            segmenter.push(&frame(at, key), WALL + u64::from(at));
        }
        if audio && (at * 48) % 1_024 < 48 {
            segmenter.push(&audio_frame(at), WALL + u64::from(at));
        }
    }
}
