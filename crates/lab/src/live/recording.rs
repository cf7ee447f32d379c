//! An FLV file as a live source: its tags unchanged, at their own times.

use core::time::Duration;
use std::path::Path;

use media::gop_cache::VIDEO_GONE_MS;
use media::{Kind, Role, Tag, Timeline, default_track, flv};

use crate::error::{Context as _, Error, FileError};

/// Duration of a single frame.
const SINGLE_FRAME_MS: u64 = 40;

/// Tags of a file.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Tags as the relay would have them: default tracks, from the first key frame on, with times
    /// from 0.
    pub(super) tags: Vec<Tag>,
    /// Duration of a lap.
    pub(super) lap: Duration,
}

impl Recording {
    /// Reads the file at `path` into memory. An incomplete last tag is dropped.
    ///
    /// # Errors
    /// One line with the path: the file cannot be read, is not FLV, or has no frame. Also if 5 s of
    /// sound have no picture, because the relay would repeat one.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let bytes = std::fs::read(path).at(path)?;
        Self::read(&bytes).at(path)
    }

    /// Parses the bytes of a file.
    fn read(bytes: &[u8]) -> Result<Self, FileError> {
        let mut reader = flv::Reader::new(flv::MAX_PAYLOAD);
        reader.read(bytes).map_err(FileError::Flv)?;
        let all: Vec<Tag> =
            core::iter::from_fn(|| reader.next_tag()).filter_map(default_track).collect();
        let has_pictures = all.iter().any(|tag| tag.role() == Role::KeyFrame);
        let begins = |tag: &Tag| match has_pictures {
            true => tag.role() == Role::KeyFrame,
            false => tag.role() == Role::AudioFrame,
        };
        let first = all.iter().position(begins).ok_or(FileError::NoFrame)?;
        let mut timeline = Timeline::default();
        let mut tags = Vec::with_capacity(all.len());
        for (place, tag) in all.into_iter().enumerate() {
            if (place < first && !tag.role().is_header()) || flv::time_base(&tag).is_some() {
                continue;
            }
            let kind = if tag.role().is_header() { Kind::Script } else { tag.kind() };
            let time = timeline.map(kind, tag.timestamp());
            tags.push(tag.with_timestamp(time));
        }
        let frames = || tags.iter().filter(|tag| !tag.role().is_header());
        let start = frames().map(Tag::timestamp).min().unwrap_or(0);
        let tags: Vec<Tag> = tags
            .iter()
            .map(|tag| tag.clone().with_timestamp(tag.timestamp().saturating_sub(start)))
            .collect();
        let lap = Duration::from_millis(
            [Kind::Audio, Kind::Video]
                .map(|kind| lap_ms(&times(&tags, kind)))
                .into_iter()
                .fold(1, u64::max),
        );
        let recording = Self { tags, lap };
        recording.check_pictures()?;
        Ok(recording)
    }

    /// Checks that no gap between pictures is long enough for the relay to repeat one.
    fn check_pictures(&self) -> Result<(), FileError> {
        let pictures = times(&self.tags, Kind::Video);
        let (Some(first), false) = (pictures.first(), times(&self.tags, Kind::Audio).is_empty())
        else {
            return Ok(());
        };
        let again = first + self.lap.as_millis() as u64;
        let next = pictures[1..].iter().chain([&again]);
        let gap = pictures.iter().zip(next).find(|(from, to)| *to - *from >= VIDEO_GONE_MS.into());
        gap.map_or(Ok(()), |(from, to)| {
            let (from_s, to_s) = (*from as f64 / 1e3, *to as f64 / 1e3);
            Err(FileError::NoPicture { from_s, to_s })
        })
    }
}

/// Returns the times of all frames of a kind.
fn times(tags: &[Tag], kind: Kind) -> Vec<u64> {
    let frames = tags.iter().filter(|tag| tag.kind() == kind && !tag.role().is_header());
    frames.map(|tag| tag.timestamp().into()).collect()
}

/// Returns the duration of a lap with these frame times: up to the last frame plus the mean frame
/// interval.
fn lap_ms(times: &[u64]) -> u64 {
    let (Some(first), Some(last)) = (times.first(), times.last()) else { return 0 };
    let distance = (last - first).checked_div(times.len() as u64 - 1).filter(|ms| *ms > 0);
    last + distance.unwrap_or(SINGLE_FRAME_MS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::LiveSource;

    /// Builds a file with these tags.
    fn file(tags: &[Tag]) -> Vec<u8> {
        let mut bytes = flv::file_header(true, true).to_vec();
        tags.iter().for_each(|tag| bytes.extend_from_slice(tag.bytes()));
        bytes
    }

    fn tag(kind: Kind, time: u32, payload: &[u8]) -> Tag {
        Tag::new(kind, time, payload).expect("a few bytes")
    }

    fn header() -> Tag {
        tag(Kind::Video, 0, &[0x17, 0, 0, 0, 0, 1])
    }

    /// Builds a picture with this composition time.
    fn picture(time: u32, is_key: bool, composition: u8) -> Tag {
        let head = if is_key { 0x17 } else { 0x27 };
        tag(Kind::Video, time, &[head, 1, 0, 0, composition, time as u8])
    }

    fn sound(time: u32) -> Tag {
        tag(Kind::Audio, time, &[0xaf, 1, time as u8])
    }

    #[test]
    fn a_recording_is_repeated_and_its_times_go_on() {
        let tags = [
            header(),
            picture(900, false, 0),
            picture(1_000, true, 40),
            sound(1_000),
            picture(1_040, false, 80),
            sound(1_021),
            picture(1_080, false, 0),
        ];
        let recording = Recording::read(&file(&tags)).expect("a recording");
        assert_eq!(recording.lap, Duration::from_millis(120));
        let source = LiveSource::recorded(&recording, Duration::from_millis(300));
        let all = 0..source.len();
        let frames: Vec<(u32, u128, u128)> = all
            .filter(|&number| source.is_frame(number))
            .map(|number| {
                let (published, captured) = (source.published(number), source.captured(number));
                let tag = source.tag(number);
                assert!(source.is(number, &tag));
                (tag.timestamp(), published.as_millis(), captured.as_millis())
            })
            .collect();
        // Tags before the first key frame are dropped. The picture with an 80 ms composition time
        // is captured when it is published.
        let lap = |base: u32| {
            let at = |ms: u32| u128::from(base + ms);
            let first = if base == 0 { 0 } else { at(0) - 40 };
            [(base, at(0), first), (base + 40, at(40), at(40)), (base + 80, at(80), at(0))]
        };
        assert_eq!(frames, [lap(0), lap(120), lap(240)].concat()[..8]);
        // Sound with a time before the preceding tag's is published together with that tag.
        let late = (0..source.len()).find(|&n| source.time_ms(n) == 21).expect("the sound");
        assert_eq!(source.published(late), Duration::from_millis(40));
        assert!(source.has_header(&header()) && !source.has_header(&sound(0)));
    }

    #[test]
    fn an_invalid_recording_is_rejected_with_path_and_reason() {
        let refused = |bytes: &[u8]| Recording::read(bytes).expect_err("refused").to_string();
        assert!(refused(b"RIFF, a file").contains("signature"));
        assert!(refused(b"FLV").contains("no frame"));
        assert!(refused(&file(&[header()])).contains("no frame"));
        let dark = [picture(0, true, 0), sound(0), sound(5_000), picture(6_000, false, 0)];
        assert!(refused(&file(&dark)).contains("no picture from 0 s to 6 s"));
        let missing = Recording::load(Path::new("/nowhere/at/all")).expect_err("refused");
        assert!(missing.to_string().starts_with("/nowhere/at/all: "), "{missing}");
        // The last tag of a truncated file is dropped.
        let whole = file(&[header(), picture(0, true, 0), picture(40, false, 0)]);
        let cut = Recording::read(&whole[..whole.len() - 3]).expect("a recording");
        assert_eq!(cut.tags.len(), 2);
    }

    #[test]
    fn a_recording_of_sound_alone_has_frames_to_begin_with() {
        let recording = Recording::read(&file(&[sound(0), sound(20), sound(40)])).expect("one");
        let source = LiveSource::recorded(&recording, Duration::from_millis(100));
        assert!((0..source.len()).all(|number| source.is_frame(number) && source.is_key(number)));
        assert_eq!(source.len(), 5);
    }
}
