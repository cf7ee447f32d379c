//! Retained segments of a stream, with their parts and tracks.

use std::collections::VecDeque;

use bytes::Bytes;

use super::config::{Container, SegmenterConfig};
use super::name::{Hash, Name};
use crate::fmp4;
use crate::fmp4::config::{Audio, Video};

/// Tracks of the segments between two discontinuities.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Tracks {
    pub(super) video: Option<Video>,
    pub(super) audio: Option<Audio>,
}

impl Tracks {
    /// Returns the ID of a segment with these tracks that starts with the sample `first` at the
    /// stream time `stream_ms`. `cuts` and `config` determine the part boundaries.
    pub(super) fn segment_id(
        &self,
        config: &SegmenterConfig,
        cuts: &[i64],
        stream_ms: i64,
        first: &[u8],
    ) -> u64 {
        let container = match config.container {
            Container::Fmp4 => 0,
            Container::Ts => 1,
        };
        let cut = [config.segment, config.part].map(|time| time.as_millis() as u64);
        let mut hash = Hash::default().with(&[container]);
        let cuts = cuts.iter().map(|cut| *cut as u64);
        for number in [cut[0], cut[1], stream_ms as u64].into_iter().chain(cuts) {
            hash = hash.with(&number.to_be_bytes());
        }
        if let Some(video) = &self.video {
            hash = hash.with(&video.record);
        }
        if let Some(audio) = &self.audio {
            hash = hash.with(&audio.record).with(&audio.sample_rate.to_be_bytes());
        }
        hash.with(first).value()
    }
}

/// Tracks with their initialisation segment.
#[derive(Debug)]
pub(super) struct Version {
    pub(super) number: u64,
    /// Hash of `init`, used in its name.
    pub(super) id: u64,
    pub(super) tracks: Tracks,
    /// Empty for transport streams.
    pub(super) init: Bytes,
}

/// A partial segment.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) bytes: Bytes,
    pub(super) duration_ms: i64,
    /// Whether decoding can start with this part.
    pub(super) independent: bool,
}

/// A segment with at least one part.
#[derive(Debug)]
pub(super) struct RetainedSegment {
    pub(super) name: Name,
    pub(super) version: u64,
    pub(super) discontinuity: bool,
    pub(super) wall_ms: i64,
    pub(super) parts: Vec<Part>,
    pub(super) complete: bool,
}

impl RetainedSegment {
    pub(super) fn duration_ms(&self) -> i64 {
        self.parts.iter().map(|part| part.duration_ms).sum()
    }

    /// Whether decoding can start with this segment.
    pub(super) fn is_independent(&self) -> bool {
        self.parts.first().is_some_and(|part| part.independent)
    }

    pub(super) fn size(&self) -> usize {
        self.parts.iter().map(|part| part.bytes.len()).sum()
    }
}

/// Segments from oldest to newest, and the track versions they refer to.
#[derive(Debug, Default)]
pub(super) struct Retained {
    pub(super) segments: VecDeque<RetainedSegment>,
    pub(super) versions: VecDeque<Version>,
    /// Bytes of all parts.
    pub(super) bytes: usize,
    /// Discontinuities in evicted segments.
    pub(super) dropped_discontinuities: u64,
}

impl Retained {
    /// Returns the segment with the media sequence number `msn`.
    pub(super) fn find(&self, msn: u64) -> Option<&RetainedSegment> {
        let place = msn.checked_sub(self.segments.front()?.name.msn)?;
        self.segments.get(usize::try_from(place).ok()?)
    }

    /// Sets the tracks of the next segment. Returns true if the previous segment had different
    /// tracks.
    pub(super) fn set_tracks(&mut self, tracks: Tracks, container: Container) -> bool {
        let last = self.versions.back();
        if last.is_some_and(|last| last.tracks == tracks) {
            return false;
        }
        let changes = last.is_some();
        let number = last.map_or(1, |last| last.number + 1);
        let init = match container {
            Container::Fmp4 => fmp4::init(tracks.video.as_ref(), tracks.audio.as_ref()),
            Container::Ts => Bytes::new(),
        };
        let id = Hash::default().with(&init).value();
        self.versions.push_back(Version { number, id, tracks, init });
        changes
    }

    /// Appends a part to the newest segment.
    pub(super) fn push_part(&mut self, part: Part) {
        if let Some(segment) = self.segments.back_mut() {
            self.bytes += part.bytes.len();
            segment.parts.push(part);
        }
    }

    pub(super) fn drop_oldest(&mut self) {
        let Some(segment) = self.segments.pop_front() else { return };
        self.bytes -= segment.size();
        self.dropped_discontinuities += u64::from(segment.discontinuity);
        // The newest version stays: the next segment may still use it.
        let oldest = self.segments.front().map_or(u64::MAX, |segment| segment.version);
        while self.versions.len() > 1
            && self.versions.front().is_some_and(|version| version.number < oldest)
        {
            self.versions.pop_front();
        }
    }
}
