//! Cuts a stream of FLV tags into segments and parts.
//!
//! A segment starts at a key frame, or anywhere in a stream without video, and is a list of parts,
//! cut at any frame. Samples wait until their part is complete, because only the next frame gives
//! a frame's duration. The tracks of a segment are fixed when its first part is complete, so that
//! slightly late headers still apply. Different tracks, or a jump in time, start a new segment
//! with a discontinuity.
//!
//! **A segment depends on the stream's time and content, not on when packing started.** Cuts,
//! numbers, names and bytes are the same on all servers that pack the stream: see `pace` for cuts
//! and numbers, `clock` for the time, `grid` for audio, and `name`. Servers differ only in their
//! first segment, if they started within a slot, and in EXT-X-DISCONTINUITY-SEQUENCE and dates,
//! which count from their start.
//!
//! Video times are FLV's milliseconds.

use core::time::Duration;

use bytes::Bytes;

use super::clock::{Clock, MAX_FORWARD_MS, Place};
pub use super::config::{Config, Container};
use super::grid::Grid;
use super::kept::{Kept, Part, Segment, Tracks};
use super::name::Name;
use super::pace::Pace;
use super::parts::{Groups, MAX_FRAME_MS};
use crate::codec::{Codec, Role};
use crate::flv::{Kind, Tag};
use crate::fmp4::config::{Audio, Video};
use crate::fmp4::{self, Run, Sample};
use crate::ts;

/// Video counts as gone after this long without a frame, in audio's time.
const VIDEO_GONE_MS: i64 = MAX_FORWARD_MS;
/// Time of video without audio after which segments leave the audio track out. Publishers of AAC LC
/// have silence instead ([`crate::assemble`]).
const AUDIO_GONE_MS: i64 = VIDEO_GONE_MS;
/// Slots without media for which a window is kept: numbers catch up with one slot per segment.
const MAX_BEHIND: u64 = 8;
/// Wall time may differ this much from media time before dates follow it,
const MAX_WALL_DRIFT_MS: i64 = 1_000;
/// which they do by this much from segment to segment: players take dates for exact, and a step
/// without a discontinuity makes them ask for media at places where there is none.
const MAX_WALL_STEP_MS: i64 = 10;
/// Segments kept after they leave the playlist, for downloads under way. RFC 8216, section 6.2.2,
/// requires another whole window, which live players do not need.
const SPARE_SEGMENTS: usize = 2;
/// Overhead of a sample: at most two packets of a transport stream.
const SAMPLE_COST: usize = 2 * ts::PACKET_LEN;

/// The segment that is growing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    id: u64,
    pub(super) start_ms: i64,
    pub(super) part_start_ms: i64,
    wall_ms: i64,
    /// Whether it has a part, which is then in the last of [`Kept::segments`].
    pub(super) has_parts: bool,
}

/// Makes segments, parts and playlists of a stream's tags.
#[derive(Debug, Default)]
pub struct Segmenter {
    pub(super) config: Config,
    /// The newest headers.
    pub(super) tracks: Tracks,
    /// A video header that is out of use because no frames come.
    idle_video: Option<Video>,
    /// An audio header that is out of use because no frames come.
    idle_audio: Option<Audio>,
    /// The codec of the last frame that cannot be packed, with the times of the first such frame
    /// and of the last.
    pub(super) unpacked: Option<(Codec, u32, u32)>,
    /// Whether the headers differ from those of the growing segment.
    pub(super) changed: bool,
    pub(super) clock: Clock,
    /// The newest video frame's time.
    video_ms: i64,
    /// Time of the first audio frame after the newest video frame.
    sound_since_ms: Option<i64>,
    /// Time of the first video frame after the newest audio frame.
    silent_since_ms: Option<i64>,
    /// How long a video frame lasts: the distance of the last two; 40 ms before there are two.
    pub(super) frame_ms: i64,
    grid: Grid,
    /// The latest distances of key frames.
    pub(super) groups: Groups,
    pub(super) frames: Vec<Sample>,
    /// For each frame that waits, how many of the sounds that wait came before it.
    pub(super) sounds_before: Vec<usize>,
    /// With the times that the stream gives them; [`Grid`] corrects those.
    pub(super) sounds: Vec<Sample>,
    pub(super) open: Option<Open>,
    /// The next segment is not continuous with the last.
    pub(super) discontinuity: bool,
    /// A media time and its wall time.
    wall: Option<(i64, i64)>,
    pub(super) kept: Kept,
    /// The number of the segment that is growing or next; provisional before the pace is settled.
    pub(super) msn: u64,
    /// Settled by the first segment.
    pub(super) pace: Option<Pace>,
    ts: ts::Writer,
    /// Bytes of samples that wait.
    pub(super) waiting: usize,
    pub(super) ended: bool,
    /// Whether the playlists are out of date.
    pub(super) dirty: bool,
    pub(super) playlists: Option<[Bytes; 2]>,
    pub(super) master: Option<Bytes>,
    pub(super) overflows: u64,
}

impl Segmenter {
    /// An empty stream.
    pub fn new(mut config: Config) -> Self {
        config.segment =
            config.segment.clamp(Duration::from_millis(100), Duration::from_secs(3_600));
        config.part = config.part.clamp(Duration::from_millis(20), config.segment);
        config.window = config.window.max(1);
        config.bytes = config.bytes.min(1 << 30);
        Self { config, frame_ms: 40, ..Self::default() }
    }

    /// Takes the stream's next tag, which arrived `wall_ms` milliseconds after 1970. Returns
    /// whether there is a new part, so that waiting requests can check again.
    pub fn push(&mut self, tag: &Tag, wall_ms: u64) -> bool {
        if self.ended {
            return false;
        }
        let class = tag.class();
        let data = tag.payload().slice(class.data_at.min(tag.payload().len())..);
        let wall_ms = i64::try_from(wall_ms).unwrap_or(0);
        self.note_codec(&class, tag.timestamp());
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
                    self.on_sound(codec, data, now, wall_ms);
                }
            }
            _ => {}
        }
        self.cut(self.config.bytes);
        self.render()
    }

    /// Ends the stream: waiting samples become the last part.
    pub fn end(&mut self) {
        self.close_segment(self.pending_end());
        self.ended = true;
        self.dirty = true;
        self.render();
    }

    /// The time of a tag with media data; a jump ends the segment.
    fn on_time(&mut self, tag: &Tag, wall_ms: i64) -> Option<i64> {
        match self.clock.place(tag, wall_ms) {
            Place::Stray => None,
            Place::At(time) => Some(time),
            Place::Jumped(time) => {
                self.close_segment(self.pending_end());
                self.discontinuity = true;
                self.drop_sounds();
                self.wall = None;
                self.video_ms = time;
                self.groups.interrupt();
                self.sound_since_ms = None;
                self.silent_since_ms = None;
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
        // Audio before the first part is no stream without video.
        if self.open.is_some_and(|open| !open.has_parts) && self.tracks.video.is_none() {
            self.open = None;
        } else {
            self.close_segment(self.pending_end());
        }
        self.tracks.video = Some(video);
        self.discontinuity |= !self.kept.versions.is_empty();
        self.idle_video = None;
        self.groups.interrupt();
        self.video_ms = i64::MIN;
        self.sound_since_ms = None;
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
        let stands_in = self.kept.versions.back().and_then(|version| version.tracks.audio.as_ref());
        let is_other = stands_in.is_some_and(|other| *other != audio);
        if self.tracks.audio.replace(audio).is_some() || is_other {
            // Frames of the old track cannot share a segment with the new one.
            self.changed = self.open.is_some();
            self.discontinuity |= !self.kept.versions.is_empty();
            self.drop_sounds();
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
        self.sound_since_ms = None;
        self.groups.push(at, frame.sync);
        let since = *self.silent_since_ms.get_or_insert(at);
        if self.tracks.audio.is_some() && at.saturating_sub(since) > AUDIO_GONE_MS {
            self.idle_audio = self.tracks.audio.take();
            let version = self.kept.versions.back();
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
        self.waiting += self.cost(&frame);
        self.sounds_before.push(self.sounds.len());
        self.frames.push(frame);
    }

    /// Upper bound of the size of a waiting sample, in bytes.
    pub(super) fn cost(&self, sample: &Sample) -> usize {
        let video = self.tracks.video.as_ref().filter(|_| sample.sync);
        let sets = video.map_or(0, |video| video.parameter_sets.iter().map(Bytes::len).sum());
        sample.data.len() + sets + SAMPLE_COST
    }

    fn on_sound(&mut self, codec: Codec, data: Bytes, now: i64, wall_ms: i64) {
        self.silent_since_ms = None;
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
        let since = *self.sound_since_ms.get_or_insert(now);
        if self.tracks.video.is_some() && now - since > VIDEO_GONE_MS {
            self.close_segment(self.pending_end());
            self.idle_video = self.tracks.video.take();
        }
        match self.open {
            // Waits for a key frame.
            None if self.tracks.video.is_some() => return,
            None => self.open(now, wall_ms, &data),
            Some(_) if self.changed => return,
            Some(open) if self.tracks.video.is_none() => {
                self.cut_sound(open, now, samples * 1_000_000 / rate, wall_ms, &data);
            }
            Some(_) => {}
        }
        // Tracks are settled with the first part; this one is not among them before the next
        // segment.
        let left_out = self.open.is_some_and(|open| open.has_parts)
            && self.kept.versions.back().is_some_and(|version| version.tracks.audio.is_none());
        if !left_out {
            let dts = now * rate / 1_000;
            let sound = Sample { data, dts, composition: 0, sync: true };
            self.waiting += self.cost(&sound);
            self.sounds.push(sound);
        }
    }

    /// Opens a segment at `at` with the sample `first`.
    pub(super) fn open(&mut self, at: i64, wall_ms: i64, first: &Bytes) {
        let (time, wall) = self.wall.unwrap_or((at, wall_ms));
        let expected = wall + at - time;
        let drift = wall_ms - expected;
        let step = if drift.abs() > MAX_WALL_DRIFT_MS { drift } else { 0 };
        let wall_ms = expected + step.clamp(-MAX_WALL_STEP_MS, MAX_WALL_STEP_MS);
        self.wall = Some((at, wall_ms));
        self.drop_sounds();
        self.changed = false;
        self.grid = Grid::default();
        self.ts = ts::Writer::default();
        let stream_ms = self.clock.stream_ms(at);
        // After so long without media, no request waits for earlier segments.
        if let Some(slot) = self.pace.map(|pace| pace.slot(stream_ms))
            && slot > self.msn + MAX_BEHIND
        {
            while !self.kept.segments.is_empty() {
                self.drop_oldest();
            }
            self.msn = slot;
        }
        let cuts = self.pace.map_or([0; 3], |pace| pace.cuts(self.groups.longest_frames()));
        let id = self.tracks.segment_id(&self.config, &cuts, stream_ms, first);
        let (start_ms, part_start_ms) = (at, at);
        self.open = Some(Open { id, start_ms, part_start_ms, wall_ms, has_parts: false });
    }

    fn drop_sounds(&mut self) {
        let sounds = core::mem::take(&mut self.sounds);
        let size: usize = sounds.iter().map(|sound| self.cost(sound)).sum();
        self.waiting = self.waiting.saturating_sub(size);
        self.sounds_before.fill(0);
    }

    /// End of the waiting samples if nothing follows.
    pub(super) fn pending_end(&self) -> i64 {
        let frame_ms = self.frame_ms.min(MAX_FRAME_MS);
        let video = self.frames.last().map(|frame| frame.dts + frame_ms);
        let audio = self.tracks.audio.as_ref().zip(self.sounds.last()).map(|(audio, sound)| {
            let rate = i64::from(audio.sample_rate);
            (sound.dts + i64::from(audio.samples(&sound.data))) * 1_000 / rate
        });
        video.or(audio).unwrap_or(0)
    }

    pub(super) fn close_segment(&mut self, at: i64) {
        self.settle(at);
        self.split_long_part(at);
        self.close_part(at);
        if self.open.is_some_and(|open| open.has_parts) {
            if let Some(segment) = self.kept.segments.back_mut() {
                segment.complete = true;
            }
            self.msn += 1;
        }
        self.open = None;
        let most = self.config.window + SPARE_SEGMENTS;
        while self.kept.segments.len() > most {
            self.drop_oldest();
        }
    }

    /// Makes a part of the waiting samples; it ends at `at`.
    pub(super) fn close_part(&mut self, at: i64) {
        let Some(open) = &mut self.open else { return };
        if self.frames.is_empty() && self.sounds.is_empty() {
            return;
        }
        let part_start_ms = core::mem::replace(&mut open.part_start_ms, at);
        let duration_ms = (at - part_start_ms).max(0);
        let (id, wall_ms) = (open.id, open.wall_ms);
        let first = !core::mem::replace(&mut open.has_parts, true);
        if first {
            let last = self.kept.versions.back();
            let had_audio = last.is_some_and(|last| last.tracks.audio == self.tracks.audio);
            let has_audio = had_audio || !self.sounds.is_empty();
            let video = self.tracks.video.clone();
            let audio = self.tracks.audio.clone().filter(|_| has_audio);
            let tracks = Tracks { video, audio };
            self.discontinuity |= self.kept.set_tracks(tracks, self.config.container);
        }
        let Some(version) = self.kept.versions.back() else { return };
        let Tracks { video, audio } = &version.tracks;
        let independent = video.is_none() || self.frames.first().is_some_and(|frame| frame.sync);
        if let Some(audio) = audio {
            self.grid.lay(audio, &mut self.sounds);
        }
        let bytes = match self.config.container {
            Container::Fmp4 => {
                let audio_end =
                    self.sounds.last().zip(audio.as_ref()).map_or(0, |(sound, audio)| {
                        sound.dts + i64::from(audio.samples(&sound.data))
                    });
                let runs = [
                    Run { track: fmp4::VIDEO_TRACK, samples: &self.frames, end: at },
                    Run { track: fmp4::AUDIO_TRACK, samples: &self.sounds, end: audio_end },
                ];
                // The sequence number only has to increase.
                fmp4::fragment(part_start_ms as u32, &runs)
            }
            Container::Ts => self.ts.write(ts::write::Program {
                video: video.as_ref().map(|video| (video, &self.frames[..])),
                audio: audio.as_ref().map(|audio| (audio, &self.sounds[..])),
            }),
        };
        let number = version.number;
        self.frames.clear();
        self.sounds_before.clear();
        self.sounds.clear();
        self.waiting = 0;
        self.dirty = true;
        if first {
            let discontinuity = core::mem::take(&mut self.discontinuity);
            self.kept.segments.push_back(Segment {
                name: Name { msn: self.msn, id },
                version: number,
                discontinuity,
                wall_ms,
                parts: Vec::new(),
                complete: false,
            });
        }
        self.kept.push_part(Part { bytes, duration_ms, independent });
    }

    /// Updates the playlists if they are outdated.
    pub(super) fn render(&mut self) -> bool {
        let dirty = core::mem::take(&mut self.dirty);
        // A first segment shows how long groups of pictures and frames are.
        if dirty && (self.has_complete() || self.ended) {
            let [full, delta] = [false, true].map(|skip| Bytes::from(self.media_playlist(skip)));
            self.playlists = Some([full, delta]);
            self.master = self.master_playlist().map(Bytes::from).or(self.master.take());
        }
        dirty
    }

    fn has_complete(&self) -> bool {
        self.kept.segments.front().is_some_and(|segment| segment.complete)
    }

    /// The name of the segment that is growing; `None` while there is none.
    pub(super) fn growing(&self) -> Option<Name> {
        self.open.filter(|_| self.pace.is_some()).map(|open| Name { msn: self.msn, id: open.id })
    }
}

/// Name of the media playlist in the master playlist.
pub const MEDIA_PLAYLIST: &str = "media.m3u8";

#[cfg(test)]
mod tests;
