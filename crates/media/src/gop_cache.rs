//! The newest groups of pictures of a stream, for joining viewers and slow ones.
//!
//! Tags are numbered from the stream's start. The cache holds a run of them that begins at a group
//! of pictures and ends with the newest tag, bounded by a number of groups and, hard, by bytes.
//! With each group it remembers the headers in force, so that playing can start at any of them. A
//! stream without video has a group each second: any audio frame is a start.
//!
//! Where video has not come for [`VIDEO_GONE_MS`] of audio, its last key frame is repeated until it
//! is back with a new one: a browser stops the sound as well when it has no picture, and few
//! players bear that a track goes or comes. Video that never had a key frame is gone.
//!
//! Audio is active if a frame arrived within the last [`SOUND_GONE_MS`] of video. A header alone
//! announces audio for [`SOUND_EXPECTED_MS`]: players wait forever for an announced track without
//! data. Audio that starts late, or restarts, starts with its header.
//!
//! Only the default audio and video tracks are kept ([`crate::tracks`]).

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use crate::codec::Role;
use crate::flv::{Kind, Tag};

/// Length of a group in a stream without video, in milliseconds.
const AUDIO_GROUP_MS: u32 = 1_000;

/// Video counts as stopped after this long without a frame, in milliseconds of audio. Otherwise
/// new viewers would start at its last key frame, however old.
pub const VIDEO_GONE_MS: u32 = 5_000;

/// Audio that stops for longer than this, in milliseconds of video, is not announced to new
/// viewers.
pub const SOUND_GONE_MS: u32 = VIDEO_GONE_MS;

/// Wait for the first audio frame after an audio header, in milliseconds of video. The kinds of
/// tracks are unknown meanwhile.
pub const SOUND_EXPECTED_MS: u32 = 1_000;

/// Interval at which the last key frame of such video is repeated, in milliseconds of audio.
/// Players of Low-Latency HLS need a picture once per part.
pub const STILL_MS: u32 = 300;

/// Bytes of repeated key frames for each byte of sound, at most: a publisher's little must not
/// become much by itself. AAC of 128 kbit/s pays for a key frame of 300 KB each 300 ms.
const STILL_PER_SOUND: usize = 64;
/// Memory per tag beside its bytes: its entry in the cache and its buffer's bookkeeping.
const TAG_COST: usize = size_of::<Tag>() + 64;

/// Limits of the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Groups of pictures, the one that is still growing included; at least 1.
    pub groups: usize,
    /// Bytes of tags.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { groups: 2, bytes: 16 << 20 }
    }
}

/// Headers that a player needs before the first frame.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Headers {
    /// `onMetaData`.
    pub metadata: Option<Tag>,
    /// The video codec's configuration.
    pub video: Option<Tag>,
    /// The audio codec's configuration.
    pub audio: Option<Tag>,
}

impl Headers {
    /// The headers, in the order in which a player gets them.
    pub fn tags(&self) -> impl Iterator<Item = &Tag> {
        [&self.metadata, &self.video, &self.audio].into_iter().flatten()
    }

    /// Takes the tag in if it is a header.
    pub fn take(&mut self, tag: &Tag) {
        match (tag.role(), tag.kind()) {
            (Role::Metadata, _) => self.metadata = Some(tag.clone()),
            (Role::SequenceHeader, Kind::Video) => self.video = Some(tag.clone()),
            (Role::SequenceHeader, _) => self.audio = Some(tag.clone()),
            _ => {}
        }
    }
}

/// The start of a group of pictures.
#[derive(Clone, Debug)]
pub struct Group {
    /// The number of its first tag.
    pub start: u64,
    /// That tag's time, in milliseconds.
    pub timestamp: u32,
    /// The headers in force there.
    pub headers: Arc<Headers>,
}

/// Whether a stream has video.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
enum Video {
    #[default]
    None,
    /// The newest tag that is not script is video.
    Newest,
    /// Since this time of its audio, none came. Audio alone is the measure: it may be seconds
    /// before or behind its video.
    MissingSince(u32),
}

/// Whether a stream has audio.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
enum Sound {
    #[default]
    None,
    /// Its header came, and video frames since this time, but none of its own.
    Expected(Option<u32>),
    /// The newest frame is audio.
    Newest,
    /// Since this time of its video, none came.
    MissingSince(u32),
}

/// The newest tags of a stream.
///
/// ```
/// use mendcast_media::{GopCache, Kind, Limits, Tag};
///
/// let mut cache = GopCache::new(Limits { groups: 1, ..Limits::default() });
/// for (timestamp, first) in [(0, 0x17), (40, 0x27), (80, 0x17)] {
///     cache.push(Tag::new(Kind::Video, timestamp, &[first, 1, 0, 0, 0]).unwrap());
/// }
/// // Only the newest group of pictures remains.
/// assert_eq!(cache.groups().next().unwrap().timestamp, 80);
/// assert_eq!(cache.head() - cache.base(), 1);
/// ```
#[derive(Debug, Default)]
pub struct GopCache {
    limits: Limits,
    headers: Arc<Headers>,
    tags: VecDeque<Tag>,
    /// The number of the first tag in `tags`.
    base: u64,
    groups: VecDeque<Group>,
    bytes: usize,
    video: Video,
    /// The last key frame of the video in force.
    key: Option<Tag>,
    /// The newest time of its frames.
    video_ms: u32,
    /// Bytes that the sound since then allows to repeat.
    still_credit: usize,
    /// The header of video that is gone.
    idle_video: Option<Tag>,
    /// Video frames are of no use before the next key frame.
    awaits_key: bool,
    sound: Sound,
    /// The header of audio that does not play.
    idle_audio: Option<Tag>,
    has_frames: bool,
    /// The number of the first tag of the present publisher.
    publisher: u64,
    overflows: u64,
}

impl GopCache {
    /// An empty cache.
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Announces a new publisher. The headers and tracks of the last publisher do not apply to its
    /// tags, and its video starts with its first key frame. If the last publisher sent no frame,
    /// its tags are dropped: headers alone start no group, and would pile up.
    pub fn on_publisher(&mut self) {
        if !self.has_frames {
            self.drop_before(self.publisher);
        }
        self.publisher = self.head();
        self.headers = Arc::default();
        self.video = Video::None;
        self.key = None;
        self.idle_video = None;
        self.awaits_key = true;
        self.sound = Sound::None;
        self.idle_audio = None;
        self.has_frames = false;
    }

    /// The new publisher continues the same stream: its video may resume at any frame.
    pub fn resume(&mut self) {
        self.awaits_key = false;
    }

    /// Appends a tag. Repeated headers are dropped, and so is video that cannot be decoded because
    /// its key frame is missing. Returns whether the tag was appended.
    pub fn push(&mut self, tag: Tag) -> bool {
        let idle = self.idle_video.iter().chain(&self.idle_audio);
        let repeated = self.headers.tags().chain(idle).any(|header| {
            header.kind() == tag.kind()
                && header.role() == tag.role()
                && header.payload() == tag.payload()
        });
        if repeated {
            return false;
        }
        match (tag.kind(), tag.role()) {
            (Kind::Video, Role::SequenceHeader) => {
                self.idle_video = None;
                self.key = None;
            }
            (Kind::Video, Role::KeyFrame) => {
                self.awaits_key = false;
                self.key = Some(tag.clone());
                // Viewers who joined while there was no video lack the header.
                if let Some(header) = self.idle_video.take() {
                    self.append(header.with_timestamp(tag.timestamp()));
                }
            }
            (Kind::Video, Role::InterFrame) if self.awaits_key => return false,
            (Kind::Audio, Role::AudioFrame) => {
                self.look_for_video(&tag);
                // Viewers who joined while there was no audio lack the header.
                if let Some(header) = self.idle_audio.take() {
                    self.append(header.with_timestamp(tag.timestamp()));
                }
            }
            _ => {}
        }
        if matches!(tag.role(), Role::KeyFrame | Role::InterFrame) {
            self.look_for_sound(tag.timestamp());
        }
        self.append(tag);
        true
    }

    /// Takes back the announcement of audio that does not come, at this time of a video frame.
    fn look_for_sound(&mut self, now: u32) {
        let (then, patience) = match self.sound {
            Sound::None => return,
            Sound::Expected(None) => return self.sound = Sound::Expected(Some(now)),
            Sound::Newest => return self.sound = Sound::MissingSince(now),
            Sound::Expected(Some(then)) => (then, SOUND_EXPECTED_MS),
            Sound::MissingSince(then) => (then, SOUND_GONE_MS),
        };
        if !(patience..1 << 31).contains(&now.wrapping_sub(then)) {
            return;
        }
        if let Sound::Expected(_) = self.sound {
            for group in self.groups.iter_mut().filter(|group| group.start >= self.publisher) {
                Arc::make_mut(&mut group.headers).audio = None;
            }
        }
        self.sound = Sound::None;
        self.idle_audio = Arc::make_mut(&mut self.headers).audio.take();
    }

    /// Repeats the last key frame of video that stopped; video without one is forgotten.
    fn look_for_video(&mut self, sound: &Tag) {
        let now = sound.timestamp();
        let then = match self.video {
            Video::None => return,
            Video::Newest => {
                self.video = Video::MissingSince(now);
                self.still_credit = 0;
                return;
            }
            Video::MissingSince(then) => then,
        };
        let is_still = self.key.is_some() && self.awaits_key;
        let patience = if is_still { STILL_MS } else { VIDEO_GONE_MS };
        let missing = now.wrapping_sub(then);
        let size = self.key.as_ref().map_or(0, |key| key.bytes().len());
        self.still_credit = (self.still_credit + STILL_PER_SOUND * sound.bytes().len()).min(size);
        if !(patience..1 << 31).contains(&missing) || self.still_credit < size {
            return;
        }
        self.still_credit = 0;
        self.awaits_key = true;
        match self.key.clone() {
            Some(key) => {
                self.append(key.with_timestamp(self.video_ms.wrapping_add(missing)));
                self.video = Video::MissingSince(now);
            }
            None => {
                self.video = Video::None;
                self.idle_video = Arc::make_mut(&mut self.headers).video.take();
            }
        }
    }

    fn append(&mut self, mut tag: Tag) {
        match (tag.kind(), tag.role()) {
            (Kind::Video, Role::SequenceHeader) => self.video = Video::Newest,
            (Kind::Video, Role::KeyFrame | Role::InterFrame) => {
                // Stills have audio timestamps, which differ slightly from video's.
                if self.video_ms.wrapping_sub(tag.timestamp()) < VIDEO_GONE_MS && self.key.is_some()
                {
                    tag = tag.with_timestamp(self.video_ms);
                }
                self.video_ms = tag.timestamp();
                self.video = Video::Newest;
            }
            (Kind::Audio, Role::AudioFrame) => self.sound = Sound::Newest,
            (Kind::Audio, Role::SequenceHeader) => {
                self.idle_audio = None;
                if self.sound == Sound::None {
                    self.sound = Sound::Expected(None);
                }
            }
            _ => {}
        }
        self.has_frames |=
            matches!(tag.role(), Role::KeyFrame | Role::InterFrame | Role::AudioFrame);
        if tag.role().is_header() {
            // Groups keep the headers that they were made with.
            Arc::make_mut(&mut self.headers).take(&tag);
        }
        if self.starts_group(&tag) {
            let (start, timestamp) = (self.head(), tag.timestamp());
            self.groups.push_back(Group { start, timestamp, headers: self.headers.clone() });
        }
        self.bytes += tag.bytes().len();
        self.tags.push_back(tag);
        while self.groups.len() > self.limits.groups.max(1) {
            let next = self.groups[1].start;
            self.drop_before(next);
        }
        // A single group above the limit loses its oldest tags: new viewers cannot join there any
        // more, present viewers continue.
        while self.bytes > self.limits.bytes && self.tags.len() > 1 {
            self.drop_first();
        }
    }

    /// Evicts groups before the newest one, oldest first, until `excess` bytes of
    /// [`GopCache::held`] are free. New viewers do not need them.
    pub fn shed(&mut self, excess: usize) {
        let enough = self.held().saturating_sub(excess);
        while self.held() > enough
            && let Some(next) = self.groups.iter().map(|g| g.start).find(|at| *at > self.base)
        {
            self.drop_before(next);
        }
        self.give_room_back();
    }

    /// Evicts the oldest tags until at most `most` bytes are [held](GopCache::held), or only the
    /// newest tag is left. A larger group loses its start, as with the byte limit.
    pub fn cut(&mut self, most: usize) {
        while self.held() > most && self.tags.len() > 1 {
            self.drop_first();
        }
        self.give_room_back();
    }

    fn drop_first(&mut self) {
        self.overflows += u64::from(self.groups.front().is_some_and(|g| g.start == self.base));
        self.drop_before(self.base + 1);
    }

    fn give_room_back(&mut self) {
        if self.tags.len() < self.tags.capacity() / 8 {
            self.tags.shrink_to(self.tags.len() * 2);
        }
    }

    fn starts_group(&self, tag: &Tag) -> bool {
        match tag.role() {
            Role::KeyFrame if !self.awaits_key => true,
            // One that is repeated, or a sound in a stream without video.
            Role::KeyFrame | Role::AudioFrame
                if tag.kind() == Kind::Video || self.video == Video::None =>
            {
                self.groups.back().is_none_or(|group| {
                    tag.timestamp().wrapping_sub(group.timestamp) >= AUDIO_GROUP_MS
                })
            }
            _ => false,
        }
    }

    fn drop_before(&mut self, number: u64) {
        while self.base < number
            && let Some(tag) = self.tags.pop_front()
        {
            self.bytes -= tag.bytes().len();
            self.base += 1;
        }
        while self.groups.front().is_some_and(|group| group.start < self.base) {
            self.groups.pop_front();
        }
    }

    /// The number of the next tag to come.
    pub fn head(&self) -> u64 {
        self.base + self.tags.len() as u64
    }

    /// The number of the oldest tag that is kept.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// The tag with this number, if it is kept.
    pub fn get(&self, number: u64) -> Option<&Tag> {
        let place = number.checked_sub(self.base)?;
        self.tags.get(usize::try_from(place).ok()?)
    }

    /// The newest tag.
    pub fn newest(&self) -> Option<&Tag> {
        self.tags.back()
    }

    /// The groups that are kept from their start on, oldest first.
    pub fn groups(&self) -> impl DoubleEndedIterator<Item = &Group> {
        self.groups.iter()
    }

    /// The headers in force after the newest tag.
    pub fn headers(&self) -> &Arc<Headers> {
        &self.headers
    }

    /// Bytes of tags that are kept.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Time span of the kept tags. Wrong if the publisher's clock jumped: callers bound it.
    pub fn span(&self) -> Duration {
        let ends = self.tags.front().zip(self.tags.back());
        let ms = ends.map_or(0, |(first, last)| last.timestamp().wrapping_sub(first.timestamp()));
        Duration::from_millis(ms.into())
    }

    /// Memory in bytes: all kept tags with their overhead, and the headers of the oldest group,
    /// even if their tags are gone.
    pub fn held(&self) -> usize {
        let headers = self.groups.front().map_or(&self.headers, |group| &group.headers);
        let headers = headers
            .tags()
            .chain(&self.idle_video)
            .chain(&self.idle_audio)
            .map(|tag| tag.bytes().len());
        self.bytes + self.tags.len() * TAG_COST + headers.sum::<usize>()
    }

    /// Whether audio is active, and whether there is video, for the FLV file header. `None` before
    /// a publisher's first frame, which the headers of all tracks precede, and while audio is
    /// expected.
    pub fn kinds(&self) -> Option<(bool, bool)> {
        let is_known = self.has_frames && !matches!(self.sound, Sound::Expected(_));
        is_known.then_some((self.sound != Sound::None, self.video != Video::None))
    }

    /// Groups that lost their start to the byte limit.
    pub fn overflows(&self) -> u64 {
        self.overflows
    }
}

#[cfg(test)]
mod tests;
