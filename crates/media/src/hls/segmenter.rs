//! Cuts a stream of FLV tags into segments and parts.
//!
//! A segment starts at a key frame, or anywhere in a stream without video, and is the list of its
//! parts; a part is cut at any frame. Samples wait until their part is complete, because a frame's
//! duration is known when the next one comes. What a segment's tracks are is settled with its first
//! part: headers that come a little late belong to it. Other tracks, or a jump in time, start a
//! new segment with a discontinuity.
//!
//! Video times are FLV's milliseconds. Audio frames are put end to end on the grid of their sample
//! rate, because a player hears where milliseconds were rounded; only a difference of more than a
//! frame is believed to be one.

use core::time::Duration;

use bytes::Bytes;

pub use super::config::{Config, Container};
use super::kept::{Kept, Part, Segment, Tracks};
use crate::codec::{Codec, Role};
use crate::flv::{Kind, Tag};
use crate::fmp4::config::{Audio, Video};
use crate::fmp4::{self, Run, Sample};
use crate::ts;

/// A step in time further back than this is a jump, as in [`crate::timeline`].
const MAX_BACK_MS: i64 = 1_000;
/// So is a step further forward; and video that pauses for longer is taken for gone.
const MAX_FORWARD_MS: i64 = 5_000;
/// Audio that is kept while a key frame is awaited.
const MAX_WAITING_MS: i64 = 1_000;
/// Wall time may differ this much from media time before dates follow it,
const MAX_WALL_DRIFT_MS: i64 = 1_000;
/// which they do by this much from segment to segment: players take dates for exact, and a step without
/// a discontinuity makes them ask for media at places where there is none.
const MAX_WALL_STEP_MS: i64 = 10;
/// Segments that are kept behind the playlist, for downloads under way. RFC 8216, section 6.2.2
/// wants the whole window once more, which live players at the other end of it do not need.
const SPARE_SEGMENTS: usize = 2;
/// What a sample may cost beside its data: two packets of a transport stream.
const SAMPLE_COST: usize = 2 * ts::PACKET_LEN;

/// The segment that is growing.
#[derive(Clone, Copy, Debug)]
struct Open {
    start_ms: i64,
    part_start_ms: i64,
    wall_ms: i64,
    /// Whether it has a part, which is then in the last of [`Kept::segments`].
    has_parts: bool,
}

/// Makes segments, parts and playlists of a stream's tags.
#[derive(Debug)]
pub struct Segmenter {
    pub(super) config: Config,
    /// The newest headers.
    tracks: Tracks,
    /// A video header that is out of use because no frames come.
    idle_video: Option<Video>,
    /// Whether the headers are other ones than those of the segment that is growing.
    changed: bool,
    /// The newest tag's time without wraps, in milliseconds.
    time_ms: Option<i64>,
    /// The newest video frame's time.
    video_ms: i64,
    /// How long a video frame lasts: the distance of the last two.
    frame_ms: i64,
    /// Where the next audio frame is expected, in samples.
    grid: Option<i64>,
    frames: Vec<Sample>,
    sounds: Vec<Sample>,
    open: Option<Open>,
    /// The next segment is not continuous with the last.
    discontinuity: bool,
    /// A media time and its wall time.
    wall: Option<(i64, i64)>,
    pub(super) kept: Kept,
    /// The number of the segment that is growing or next.
    pub(super) msn: u64,
    fragments: u32,
    ts: ts::Writer,
    /// Bytes of samples that wait.
    waiting: usize,
    pub(super) longest_segment_ms: i64,
    pub(super) ended: bool,
    /// Whether the playlists are out of date.
    dirty: bool,
    pub(super) playlists: Option<[Bytes; 2]>,
    pub(super) master: Option<Bytes>,
    overflows: u64,
}

impl Segmenter {
    /// An empty stream.
    pub fn new(mut config: Config) -> Self {
        config.segment =
            config.segment.clamp(Duration::from_millis(100), Duration::from_secs(3_600));
        config.part = config.part.clamp(Duration::from_millis(20), config.segment);
        config.window = config.window.max(1);
        config.bytes = config.bytes.min(1 << 30);
        Self {
            config,
            tracks: Tracks::default(),
            idle_video: None,
            changed: false,
            time_ms: None,
            video_ms: 0,
            frame_ms: 40,
            grid: None,
            frames: Vec::new(),
            sounds: Vec::new(),
            open: None,
            discontinuity: false,
            wall: None,
            kept: Kept::default(),
            msn: 0,
            fragments: 0,
            ts: ts::Writer::default(),
            waiting: 0,
            longest_segment_ms: 0,
            ended: false,
            dirty: false,
            playlists: None,
            master: None,
            overflows: 0,
        }
    }

    /// Takes the stream's next tag, which arrived `wall_ms` milliseconds after 1970 began. Returns
    /// whether there is a new part, that is whether somebody who waits should look again.
    pub fn push(&mut self, tag: &Tag, wall_ms: u64) -> bool {
        if self.ended {
            return false;
        }
        let class = tag.class();
        let data = tag.payload().slice(class.data_at.min(tag.payload().len())..);
        let wall_ms = i64::try_from(wall_ms).unwrap_or(0);
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
                self.on_time(tag.timestamp());
                let dts = self.time_ms.unwrap_or(0);
                self.on_frame(codec, Sample { data, dts, composition, sync }, wall_ms);
            }
            (Some(codec), Role::AudioFrame) if !data.is_empty() => {
                if codec == Codec::Mp3
                    && let Some(audio) = Audio::mp3(&data)
                {
                    self.on_audio_header(audio);
                }
                self.on_time(tag.timestamp());
                self.on_sound(codec, data, wall_ms);
            }
            _ => {}
        }
        self.limit();
        self.render()
    }

    /// The publisher is gone and nothing comes any more: what waits becomes the last part.
    pub fn end(&mut self) {
        self.close_segment(self.pending_end());
        self.ended = true;
        self.dirty = true;
        self.render();
    }

    /// Follows the time of tags with media data; a jump ends the segment.
    fn on_time(&mut self, timestamp: u32) {
        let Some(time) = self.time_ms else {
            self.time_ms = Some(i64::from(timestamp));
            self.video_ms = i64::from(timestamp);
            return;
        };
        let step = i64::from(timestamp.wrapping_sub(time as u32) as i32);
        if (-MAX_BACK_MS..=MAX_FORWARD_MS).contains(&step) {
            self.time_ms = Some(time + step);
        } else {
            self.restart();
            self.time_ms = Some(i64::from(timestamp));
            self.video_ms = i64::from(timestamp);
        }
    }

    /// Ends the segment where it is; the next one is not continuous with it.
    fn restart(&mut self) {
        self.close_segment(self.pending_end());
        self.discontinuity = true;
        self.grid = None;
        self.drop_sounds_before(i64::MAX);
        self.wall = None;
    }

    fn on_video_header(&mut self, codec: Codec, record: Bytes) {
        let Some(video) = Video::new(codec, record) else { return };
        if self.config.container == Container::Ts && !ts::write::carries_video(&video)
            || self.tracks.video.as_ref() == Some(&video)
        {
            return;
        }
        // Audio before the first part is no stream without video.
        if self.open.is_some_and(|open| !open.has_parts) && self.tracks.video.is_none() {
            self.open = None;
        } else {
            self.close_segment(self.pending_end());
        }
        self.tracks.video = Some(video);
        self.idle_video = None;
        self.video_ms = self.time_ms.unwrap_or(0);
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
        if self.tracks.audio.replace(audio).is_some() {
            // Frames of the old one cannot stand beside those of the new one.
            self.changed = self.open.is_some();
            self.drop_sounds_before(i64::MAX);
        }
        self.grid = None;
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
        let step = at - core::mem::replace(&mut self.video_ms, at);
        let last_frame_ms = self.frame_ms;
        if step > 0 {
            self.frame_ms = step;
        }
        match self.open {
            Some(open) if frame.sync => {
                // A tenth earlier will do: a group of pictures of just the wanted length may seem
                // shorter in milliseconds.
                let target = self.config.segment.as_millis() as i64 * 9 / 10;
                if at - open.start_ms >= target || self.changed {
                    self.close_segment(at);
                    self.open(at, wall_ms);
                } else {
                    self.cut_part(open, at, last_frame_ms);
                }
            }
            Some(open) => self.cut_part(open, at, self.frame_ms),
            None if frame.sync => self.open(at, wall_ms),
            None => return,
        }
        let video = self.tracks.video.as_ref().filter(|_| frame.sync);
        let sets = video.map_or(0, |video| video.parameter_sets.iter().map(Bytes::len).sum());
        self.waiting += frame.data.len() + sets + SAMPLE_COST;
        self.frames.push(frame);
    }

    /// Ends the part before the frame at `at`, which lasts `frame_ms`, if it would be too long with
    /// it.
    fn cut_part(&mut self, open: Open, at: i64, frame_ms: i64) {
        if at > open.part_start_ms
            && at + frame_ms - open.part_start_ms > self.config.part.as_millis() as i64
        {
            self.close_part(at);
        }
    }

    fn on_sound(&mut self, codec: Codec, data: Bytes, wall_ms: i64) {
        let Some(audio) = self.tracks.audio.as_ref().filter(|audio| audio.codec == codec) else {
            return;
        };
        let now = self.time_ms.unwrap_or(0);
        let rate = i64::from(audio.sample_rate);
        let samples = i64::from(audio.samples(&data));
        let heard = now * rate / 1_000;
        let expected = self.grid.unwrap_or(heard);
        // A frame too many, or one that nobody can place.
        if samples == 0 || expected - heard > samples.max(rate / 50) {
            return;
        }
        let dts = if heard - expected > samples.max(rate / 50) { heard } else { expected };
        self.grid = Some(dts + samples);
        let (at, frame_ms) = (dts * 1_000 / rate, samples * 1_000 / rate);
        if self.tracks.video.is_some() && now - self.video_ms > MAX_FORWARD_MS {
            self.close_segment(self.pending_end());
            self.idle_video = self.tracks.video.take();
        }
        match self.open {
            None if self.tracks.video.is_some() => {
                // Waits for a key frame.
                let oldest = dts - MAX_WAITING_MS * rate / 1_000;
                self.drop_sounds_before(oldest);
            }
            None => {
                self.drop_sounds_before(i64::MAX);
                self.open(at, wall_ms);
            }
            Some(_) if self.changed => return,
            Some(open) if self.tracks.video.is_none() => {
                if at - open.start_ms >= self.config.segment.as_millis() as i64 {
                    self.close_segment(at);
                    self.open(at, wall_ms);
                } else {
                    self.cut_part(open, at, frame_ms);
                }
            }
            Some(_) => {}
        }
        // Tracks are settled with the first part; this one is not among them before the next
        // segment.
        let left_out = self.open.is_some_and(|open| open.has_parts)
            && self.kept.versions.back().is_some_and(|version| version.tracks.audio.is_none());
        if !left_out {
            self.waiting += data.len() + SAMPLE_COST;
            self.sounds.push(Sample { data, dts, composition: 0, sync: true });
        }
    }

    fn open(&mut self, at: i64, wall_ms: i64) {
        let (time, wall) = self.wall.unwrap_or((at, wall_ms));
        let expected = wall + at - time;
        let drift = wall_ms - expected;
        let step = if drift.abs() > MAX_WALL_DRIFT_MS { drift } else { 0 };
        let wall_ms = expected + step.clamp(-MAX_WALL_STEP_MS, MAX_WALL_STEP_MS);
        self.wall = Some((at, wall_ms));
        if let Some(audio) = &self.tracks.audio {
            let first = at * i64::from(audio.sample_rate) / 1_000;
            self.drop_sounds_before(first);
        }
        self.changed = false;
        self.open = Some(Open { start_ms: at, part_start_ms: at, wall_ms, has_parts: false });
    }

    fn drop_sounds_before(&mut self, dts: i64) {
        let waiting = &mut self.waiting;
        self.sounds.retain(|sound| {
            let kept = sound.dts >= dts;
            *waiting -= if kept { 0 } else { sound.data.len() + SAMPLE_COST };
            kept
        });
    }

    /// Where what waits ends, if nothing follows.
    fn pending_end(&self) -> i64 {
        let video = self.frames.last().map(|frame| frame.dts + self.frame_ms);
        let audio = self.tracks.audio.as_ref().zip(self.sounds.last()).map(|(audio, sound)| {
            let rate = i64::from(audio.sample_rate);
            (sound.dts + i64::from(audio.samples(&sound.data))) * 1_000 / rate
        });
        video.or(audio).unwrap_or(0)
    }

    fn close_segment(&mut self, at: i64) {
        self.close_part(at);
        if let Some(open) = self.open.take()
            && open.has_parts
            && let Some(segment) = self.kept.segments.back_mut()
        {
            segment.complete = true;
            self.longest_segment_ms = self.longest_segment_ms.max(segment.duration_ms());
            self.msn += 1;
        }
        let most = self.config.window + SPARE_SEGMENTS;
        while self.kept.segments.len() > most {
            self.drop_oldest();
        }
    }

    /// Makes a part of what waits; it ends at `at`.
    fn close_part(&mut self, at: i64) {
        let Some(open) = &mut self.open else { return };
        if self.frames.is_empty() && self.sounds.is_empty() {
            return;
        }
        let duration_ms = (at - open.part_start_ms).max(0);
        let (wall_ms, first) = (open.wall_ms, !core::mem::replace(&mut open.has_parts, true));
        open.part_start_ms = at;
        if first {
            let last = self.kept.versions.back();
            let had_audio = last.is_some_and(|last| last.tracks.audio == self.tracks.audio);
            let has_audio = had_audio || !self.sounds.is_empty();
            let tracks = Tracks {
                video: self.tracks.video.clone(),
                audio: self.tracks.audio.clone().filter(|_| has_audio),
            };
            self.discontinuity |= self.kept.set_tracks(tracks, self.config.container);
        }
        let Some(version) = self.kept.versions.back() else { return };
        let Tracks { video, audio } = &version.tracks;
        let independent = video.is_none() || self.frames.first().is_some_and(|frame| frame.sync);
        let bytes = match self.config.container {
            Container::Fmp4 => {
                self.fragments = self.fragments.wrapping_add(1);
                let audio_end =
                    self.sounds.last().zip(audio.as_ref()).map_or(0, |(sound, audio)| {
                        sound.dts + i64::from(audio.samples(&sound.data))
                    });
                let runs = [
                    Run { track: fmp4::VIDEO_TRACK, samples: &self.frames, end: at },
                    Run { track: fmp4::AUDIO_TRACK, samples: &self.sounds, end: audio_end },
                ];
                fmp4::fragment(self.fragments, &runs)
            }
            Container::Ts => self.ts.write(ts::write::Program {
                video: video.as_ref().map(|video| (video, &self.frames[..])),
                audio: audio.as_ref().map(|audio| (audio, &self.sounds[..])),
            }),
        };
        let number = version.number;
        self.frames.clear();
        self.sounds.clear();
        self.waiting = 0;
        self.dirty = true;
        if first {
            let discontinuity = core::mem::take(&mut self.discontinuity) && self.msn > 0;
            self.kept.segments.push_back(Segment {
                msn: self.msn,
                version: number,
                discontinuity,
                wall_ms,
                parts: Vec::new(),
                complete: false,
            });
        }
        self.kept.push_part(Part { bytes, duration_ms, independent });
    }

    /// Holds the hard limit: oldest segments go first, at last the one that is growing.
    fn limit(&mut self) {
        while self.kept.bytes + self.waiting > self.config.bytes {
            if self.kept.segments.front().is_some_and(|segment| segment.complete) {
                self.drop_oldest();
                continue;
            }
            self.overflows += 1;
            self.frames.clear();
            self.sounds.clear();
            self.waiting = 0;
            self.discontinuity = true;
            if self.open.take().is_some_and(|open| open.has_parts) {
                self.drop_oldest();
                self.msn += 1;
            }
        }
    }

    fn drop_oldest(&mut self) {
        self.kept.drop_oldest();
        self.dirty = true;
    }

    /// Writes the playlists anew if they are out of date.
    fn render(&mut self) -> bool {
        let dirty = core::mem::take(&mut self.dirty);
        // A first segment shows how long groups of pictures and frames are.
        if dirty && (self.playlists.is_some() || self.longest_segment_ms > 0 || self.ended) {
            let [full, delta] = [false, true].map(|skip| Bytes::from(self.media_playlist(skip)));
            self.playlists = Some([full, delta]);
            self.master = self.master_playlist().map(Bytes::from).or(self.master.take());
        }
        dirty
    }

    /// Bytes of media that are kept.
    pub fn bytes(&self) -> usize {
        self.kept.bytes + self.waiting
    }

    /// How often a group of pictures alone was above the limit and was given up.
    pub fn overflows(&self) -> u64 {
        self.overflows
    }
}

/// What the master playlist calls the media playlist.
pub const MEDIA_PLAYLIST: &str = "media.m3u8";

#[cfg(test)]
mod tests;
