//! Splits a stream of FLV tags into segments and parts.
//!
//! A segment starts at a key frame, or anywhere in a stream without video. It is a list of parts,
//! which are cut at any frame. Samples stay pending until their part is complete, because only the
//! next frame determines a frame's duration. The tracks of a segment are fixed when its first part
//! is complete, so that slightly late sequence headers still apply. Different tracks, or a jump in
//! time, start a new segment with a discontinuity.
//!
//! **A segment depends on the stream's time and content, not on when packaging started.** Cuts,
//! numbers, names and bytes are the same on all servers that package the stream: see `pace` for
//! cuts and numbers, `clock` for the time, `grid` for audio, and `name`. Servers differ only in
//! their first segment, if they started within a slot, and in EXT-X-DISCONTINUITY-SEQUENCE and
//! dates, which count from their start.
//!
//! Video times are FLV's milliseconds.

use core::time::Duration;

use bytes::Bytes;

use super::clock::{Clock, MAX_FORWARD_MS, TagTime};
pub use super::config::{Container, SegmenterConfig, TrackSelection};
use super::grid::Grid;
use super::name::Name;
use super::pace::Pace;
use super::parts::{MAX_FRAME_MS, RecentGops};
use super::retained::{Part, Retained, RetainedSegment, Tracks};
use crate::codec::{Codec, Role};
use crate::flv::{Kind, Tag};
use crate::fmp4::config::{Audio, Video};
use crate::fmp4::{self, Sample, SampleRun};
use crate::ts;

/// Audio time without a video frame after which video is treated as stopped.
const VIDEO_GONE_MS: i64 = MAX_FORWARD_MS;
/// Video time without an audio frame after which segments omit the audio track. For publishers of
/// AAC LC, silence is inserted instead ([`crate::assemble`]).
const AUDIO_GONE_MS: i64 = VIDEO_GONE_MS;
/// Number of slots without media up to which the window is retained. Segment numbers then catch up
/// by one slot per segment.
const MAX_BEHIND: u64 = 8;
/// Maximum difference of wall time and media time before dates are corrected.
const MAX_WALL_DRIFT_MS: i64 = 1_000;
/// Maximum correction of dates per segment. Players treat dates as exact: a step without a
/// discontinuity makes them request media where there is none.
const MAX_WALL_STEP_MS: i64 = 10;
/// Maximum difference of a date that renditions have in common from the arrival.
const MAX_DATE_ERROR_MS: u64 = 5_000;
/// Segments retained after they leave the playlist, for downloads in progress. RFC 8216, section
/// 6.2.2, requires another full window, which live players do not need.
const SPARE_SEGMENTS: usize = 2;
/// Overhead of a sample: at most two packets of a transport stream.
const SAMPLE_COST: usize = 2 * ts::PACKET_LEN;

/// The growing segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    id: u64,
    pub(super) start_ms: i64,
    pub(super) part_start_ms: i64,
    wall_ms: i64,
    /// Whether the segment has a part; it is then the last of [`Retained::segments`].
    pub(super) has_parts: bool,
}

/// Packages the tags of a stream into segments, parts and playlists.
#[derive(Debug, Default)]
pub struct Segmenter {
    pub(super) config: SegmenterConfig,
    /// Tracks of the newest sequence headers.
    pub(super) tracks: Tracks,
    /// Video header set aside because frames stopped.
    idle_video: Option<Video>,
    /// Audio header set aside because frames stopped.
    idle_audio: Option<Audio>,
    /// Codec of the last unsupported frame, with the timestamps of the first and last such frame.
    pub(super) unsupported: Option<(Codec, u32, u32)>,
    /// Whether the sequence headers have changed since the growing segment started.
    pub(super) changed: bool,
    pub(super) clock: Clock,
    /// Time of the newest video frame.
    video_ms: i64,
    /// Time of the first audio frame after the newest video frame.
    audio_only_since_ms: Option<i64>,
    /// Time of the first video frame after the newest audio frame.
    video_only_since_ms: Option<i64>,
    /// Expected duration of a video frame: the interval of the last two, initially 40 ms.
    pub(super) frame_ms: i64,
    grid: Grid,
    /// The most recent groups of pictures.
    pub(super) groups: RecentGops,
    pub(super) frames: Vec<Sample>,
    /// For each pending video frame, the number of pending audio frames that arrived before it.
    pub(super) audio_before: Vec<usize>,
    /// Pending audio frames with the stream's times, which [`Grid`] corrects.
    pub(super) audio_frames: Vec<Sample>,
    pub(super) open: Option<Open>,
    /// Whether a discontinuity precedes the next segment.
    pub(super) discontinuity: bool,
    /// A media time and the corresponding wall time.
    pub(super) wall: Option<(i64, i64)>,
    pub(super) retained: Retained,
    /// Number of the growing or next segment; provisional while `pace` is unknown.
    pub(super) msn: u64,
    /// Determined by the first segment.
    pub(super) pace: Option<Pace>,
    ts: ts::SegmentWriter,
    /// Bytes of pending samples.
    pub(super) pending_bytes: usize,
    pub(super) ended: bool,
    /// Whether the playlists are outdated.
    pub(super) dirty: bool,
    pub(super) playlists: Option<[Bytes; 2]>,
    pub(super) master: Option<Bytes>,
    pub(super) overflows: u64,
}

impl Segmenter {
    /// Creates an empty stream.
    pub fn new(mut config: SegmenterConfig) -> Self {
        config.segment =
            config.segment.clamp(Duration::from_millis(100), Duration::from_secs(3_600));
        config.part = config.part.clamp(Duration::from_millis(20), config.segment);
        config.window = config.window.max(1);
        config.bytes = config.bytes.min(1 << 30);
        Self { config, frame_ms: 40, ..Self::default() }
    }

    /// Adds the stream's next tag, which arrived `wall_ms` milliseconds after 1970. Returns whether
    /// there is a new part, so that blocked requests can check again.
    pub fn push(&mut self, tag: &Tag, wall_ms: u64) -> bool {
        if self.ended || !self.config.tracks.has(tag.kind()) {
            return false;
        }
        let class = tag.class();
        let data = tag.payload().slice(class.data_at.min(tag.payload().len())..);
        let wall_ms = i64::try_from(wall_ms).unwrap_or(0);
        self.record_codec(&class, tag.timestamp());
        match (class.codec, class.role) {
            (Some(codec), Role::SequenceHeader) if tag.kind() == Kind::Video => {
                self.on_video_header(codec, data);
            }
            (Some(codec), Role::SequenceHeader) => {
                if let Some(audio) = Audio::new(codec, data) {
                    self.on_audio_header(audio);
                }
            }
            (Some(codec), Role::KeyFrame | Role::InterFrame) if !data.is_empty() => {
                let sync = class.role == Role::KeyFrame;
                let composition = class.composition_time;
                // AV1 binding, section 2.4: temporal delimiters "SHOULD be removed".
                let delimited = codec == Codec::Av1 && data.starts_with(&[0x12, 0]);
                let data = if delimited { data.slice(2..) } else { data };
                if let Some(dts) = self.on_time(tag, wall_ms) {
                    self.on_frame(codec, Sample { data, dts, composition, sync }, wall_ms);
                }
            }
            (Some(codec), Role::AudioFrame) if !data.is_empty() => {
                if codec == Codec::Mp3
                    && let Some(audio) = Audio::mp3(&data)
                {
                    self.on_audio_header(audio);
                }
                if let Some(now) = self.on_time(tag, wall_ms) {
                    self.on_audio_frame(codec, data, now, wall_ms);
                }
            }
            _ => {}
        }
        self.cut(self.config.bytes);
        self.render()
    }

    /// Ends the stream. Pending samples become the last part.
    pub fn end(&mut self) {
        self.close_segment(self.pending_end());
        self.ended = true;
        self.dirty = true;
        self.render();
    }

    /// Returns the time of a tag with media data. A jump ends the segment.
    fn on_time(&mut self, tag: &Tag, wall_ms: i64) -> Option<i64> {
        match self.clock.locate(tag, wall_ms) {
            TagTime::Stray => None,
            TagTime::At(time) => Some(time),
            TagTime::Jumped(time) => {
                self.close_segment(self.pending_end());
                self.discontinuity = true;
                self.drop_audio();
                self.wall = None;
                self.video_ms = time;
                self.groups.interrupt();
                self.audio_only_since_ms = None;
                self.video_only_since_ms = None;
                Some(time)
            }
        }
    }

    fn on_video_header(&mut self, codec: Codec, record: Bytes) {
        let Some(video) = Video::new(codec, record) else { return };
        if self.config.container == Container::Ts && !ts::write::carries_video(&video)
            || self.tracks.video.as_ref() == Some(&video)
        {
            return;
        }
        // Audio before the first part does not make an audio-only stream.
        if self.open.is_some_and(|open| !open.has_parts) && self.tracks.video.is_none() {
            self.open = None;
        } else {
            self.close_segment(self.pending_end());
        }
        self.tracks.video = Some(video);
        self.discontinuity |= !self.retained.versions.is_empty();
        self.idle_video = None;
        self.groups.interrupt();
        self.video_ms = i64::MIN;
        self.audio_only_since_ms = None;
    }

    fn on_audio_header(&mut self, audio: Audio) {
        if self.config.container == Container::Ts && !ts::write::carries_audio(&audio)
            || self.tracks.audio.as_ref() == Some(&audio)
        {
            return;
        }
        if self.tracks.video.is_none() {
            self.close_segment(self.pending_end());
        }
        self.idle_audio = None;
        let stands_in =
            self.retained.versions.back().and_then(|version| version.tracks.audio.as_ref());
        let is_other = stands_in.is_some_and(|other| *other != audio);
        if self.tracks.audio.replace(audio).is_some() || is_other {
            // Frames of the old track cannot share a segment with the new one.
            self.changed = self.open.is_some();
            self.discontinuity |= !self.retained.versions.is_empty();
            self.drop_audio();
        }
    }

    fn on_frame(&mut self, codec: Codec, frame: Sample, wall_ms: i64) {
        if frame.sync && self.tracks.video.is_none() && self.idle_video.is_some() {
            self.close_segment(self.pending_end());
            self.tracks.video = self.idle_video.take();
        }
        if self.tracks.video.as_ref().is_none_or(|video| video.codec != codec) {
            return;
        }
        let frame = Sample { dts: frame.dts.max(self.video_ms), ..frame };
        let at = frame.dts;
        self.on_last_frame(at, wall_ms);
        let step = at.saturating_sub(core::mem::replace(&mut self.video_ms, at));
        if (1..=MAX_FORWARD_MS).contains(&step) {
            self.frame_ms = step;
        }
        self.audio_only_since_ms = None;
        self.groups.push(at, frame.sync);
        let since = *self.video_only_since_ms.get_or_insert(at);
        if self.tracks.audio.is_some() && at.saturating_sub(since) > AUDIO_GONE_MS {
            self.idle_audio = self.tracks.audio.take();
            let version = self.retained.versions.back();
            self.changed |= version.is_some_and(|version| version.tracks.audio.is_some());
        }
        let ends = self.open.is_some_and(|open| self.ends_before(open, at, frame.sync));
        match self.open {
            Some(open) if ends => {
                if frame.sync {
                    self.catch_up(open, at, wall_ms);
                }
                self.close_segment(at);
                self.open(at, wall_ms, &frame.data);
            }
            Some(open) => self.cut_part(open, at),
            None if frame.sync => self.open(at, wall_ms, &frame.data),
            None => return,
        }
        self.pending_bytes += self.cost(&frame);
        self.audio_before.push(self.audio_frames.len());
        self.frames.push(frame);
    }

    /// Returns an upper bound of the packaged size of a pending sample, in bytes.
    pub(super) fn cost(&self, sample: &Sample) -> usize {
        let video = self.tracks.video.as_ref().filter(|_| sample.sync);
        let sets = video.map_or(0, |video| video.parameter_sets.iter().map(Bytes::len).sum());
        sample.data.len() + sets + SAMPLE_COST
    }

    fn on_audio_frame(&mut self, codec: Codec, data: Bytes, now: i64, wall_ms: i64) {
        self.video_only_since_ms = None;
        if self.tracks.audio.is_none() {
            self.tracks.audio = self.idle_audio.take();
        }
        let Some(audio) = self.tracks.audio.as_ref().filter(|audio| audio.codec == codec) else {
            return;
        };
        let rate = i64::from(audio.sample_rate);
        let samples = i64::from(audio.samples(&data));
        if samples == 0 {
            return;
        }
        let since = *self.audio_only_since_ms.get_or_insert(now);
        if self.tracks.video.is_some() && now - since > VIDEO_GONE_MS {
            self.close_segment(self.pending_end());
            self.idle_video = self.tracks.video.take();
        }
        match self.open {
            // Wait for a key frame.
            None if self.tracks.video.is_some() => return,
            None => self.open(now, wall_ms, &data),
            Some(_) if self.changed => return,
            Some(open) if self.tracks.video.is_none() => {
                self.cut_audio_only(open, now, samples * 1_000_000 / rate, wall_ms, &data);
            }
            Some(_) => {}
        }
        // Tracks are fixed at the first part; new audio joins at the next segment.
        let unsupported_codec = self.open.is_some_and(|open| open.has_parts)
            && self.retained.versions.back().is_some_and(|version| version.tracks.audio.is_none());
        if !unsupported_codec {
            let dts = now * rate / 1_000;
            let audio_frame = Sample { data, dts, composition: 0, sync: true };
            self.pending_bytes += self.cost(&audio_frame);
            self.audio_frames.push(audio_frame);
        }
    }

    /// Opens a segment at `at` with the sample `first`.
    pub(super) fn open(&mut self, at: i64, wall_ms: i64, first: &Bytes) {
        let stream_ms = self.clock.stream_ms(at);
        let common_ms = self.config.date_offset_ms.map(|offset| stream_ms.saturating_add(offset));
        let common_ms = common_ms.filter(|date| date.abs_diff(wall_ms) <= MAX_DATE_ERROR_MS);
        let (time, wall) = self.wall.unwrap_or((at, common_ms.unwrap_or(wall_ms)));
        let expected = wall + at - time;
        let drift = wall_ms - expected;
        let step = if drift.abs() > MAX_WALL_DRIFT_MS { drift } else { 0 };
        let wall_ms = expected + step.clamp(-MAX_WALL_STEP_MS, MAX_WALL_STEP_MS);
        self.wall = Some((at, wall_ms));
        self.drop_audio();
        self.changed = false;
        self.grid = Grid::default();
        self.ts = ts::SegmentWriter::default();
        // After this long without media, no request waits for earlier segments.
        if let Some(slot) = self.pace.map(|pace| pace.slot(stream_ms))
            && slot > self.msn + MAX_BEHIND
        {
            while !self.retained.segments.is_empty() {
                self.drop_oldest();
            }
            self.msn = slot;
        }
        let cuts = self.pace.map_or([0; 3], |pace| pace.cuts(self.groups.longest_frames()));
        let id = self.tracks.segment_id(&self.config, &cuts, stream_ms, first);
        let (start_ms, part_start_ms) = (at, at);
        self.open = Some(Open { id, start_ms, part_start_ms, wall_ms, has_parts: false });
    }

    fn drop_audio(&mut self) {
        let audio_frames = core::mem::take(&mut self.audio_frames);
        let size: usize = audio_frames.iter().map(|audio_frame| self.cost(audio_frame)).sum();
        self.pending_bytes = self.pending_bytes.saturating_sub(size);
        self.audio_before.fill(0);
    }

    /// Returns the end of the pending samples, assuming that nothing follows.
    pub(super) fn pending_end(&self) -> i64 {
        let frame_ms = self.frame_ms.min(MAX_FRAME_MS);
        let video = self.frames.last().map(|frame| frame.dts + frame_ms);
        let audio =
            self.tracks.audio.as_ref().zip(self.audio_frames.last()).map(|(audio, audio_frame)| {
                let rate = i64::from(audio.sample_rate);
                (audio_frame.dts + i64::from(audio.samples(&audio_frame.data))) * 1_000 / rate
            });
        video.or(audio).unwrap_or(0)
    }

    pub(super) fn close_segment(&mut self, at: i64) {
        self.set_pace(at);
        self.split_long_part(at);
        self.close_part(at);
        if self.open.is_some_and(|open| open.has_parts) {
            if let Some(segment) = self.retained.segments.back_mut() {
                segment.complete = true;
            }
            self.msn += 1;
        }
        self.open = None;
        let most = self.config.window + SPARE_SEGMENTS;
        while self.retained.segments.len() > most {
            self.drop_oldest();
        }
    }

    /// Closes a part of the pending samples that ends at `at`.
    pub(super) fn close_part(&mut self, at: i64) {
        let Some(open) = &mut self.open else { return };
        if self.frames.is_empty() && self.audio_frames.is_empty() {
            return;
        }
        let part_start_ms = core::mem::replace(&mut open.part_start_ms, at);
        let duration_ms = (at - part_start_ms).max(0);
        let (id, wall_ms) = (open.id, open.wall_ms);
        let first = !core::mem::replace(&mut open.has_parts, true);
        if first {
            let last = self.retained.versions.back();
            let had_audio = last.is_some_and(|last| last.tracks.audio == self.tracks.audio);
            let has_audio = had_audio || !self.audio_frames.is_empty();
            let video = self.tracks.video.clone();
            let audio = self.tracks.audio.clone().filter(|_| has_audio);
            let tracks = Tracks { video, audio };
            self.discontinuity |= self.retained.set_tracks(tracks, self.config.container);
        }
        let Some(version) = self.retained.versions.back() else { return };
        let Tracks { video, audio } = &version.tracks;
        let independent = video.is_none() || self.frames.first().is_some_and(|frame| frame.sync);
        if let Some(audio) = audio {
            self.grid.align(audio, &mut self.audio_frames);
        }
        let bytes = match self.config.container {
            Container::Fmp4 => {
                let audio_end = self.audio_frames.last().zip(audio.as_ref()).map_or(
                    0,
                    |(audio_frame, audio)| {
                        audio_frame.dts + i64::from(audio.samples(&audio_frame.data))
                    },
                );
                let runs = [
                    SampleRun { track: fmp4::VIDEO_TRACK, samples: &self.frames, end: at },
                    SampleRun {
                        track: fmp4::AUDIO_TRACK,
                        samples: &self.audio_frames,
                        end: audio_end,
                    },
                ];
                // Sequence numbers only need to increase.
                fmp4::fragment(part_start_ms as u32, &runs)
            }
            Container::Ts => self.ts.write(ts::write::Program {
                video: video.as_ref().map(|video| (video, &self.frames[..])),
                audio: audio.as_ref().map(|audio| (audio, &self.audio_frames[..])),
            }),
        };
        let number = version.number;
        self.frames.clear();
        self.audio_before.clear();
        self.audio_frames.clear();
        self.pending_bytes = 0;
        self.dirty = true;
        if first {
            let discontinuity = core::mem::take(&mut self.discontinuity);
            self.retained.segments.push_back(RetainedSegment {
                name: Name { msn: self.msn, id },
                version: number,
                discontinuity,
                wall_ms,
                parts: Vec::new(),
                complete: false,
            });
        }
        self.retained.push_part(Part { bytes, duration_ms, independent });
    }

    /// Renders the playlists if they are outdated. Returns whether they were.
    pub(super) fn render(&mut self) -> bool {
        let dirty = core::mem::take(&mut self.dirty);
        // The first segment determines PART-TARGET and the durations of segments.
        if dirty && (self.has_complete() || self.ended) {
            let [full, delta] = [false, true].map(|skip| Bytes::from(self.media_playlist(skip)));
            self.playlists = Some([full, delta]);
            self.master = self.master_playlist().map(Bytes::from).or(self.master.take());
        }
        dirty
    }

    fn has_complete(&self) -> bool {
        self.retained.segments.front().is_some_and(|segment| segment.complete)
    }

    /// Returns the name of the growing segment, if there is one.
    pub(super) fn growing(&self) -> Option<Name> {
        self.open.filter(|_| self.pace.is_some()).map(|open| Name { msn: self.msn, id: open.id })
    }
}

/// Name of the media playlist in the master playlist.
pub const MEDIA_PLAYLIST: &str = "media.m3u8";

#[cfg(test)]
mod tests;
