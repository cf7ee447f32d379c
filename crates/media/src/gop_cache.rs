//! Cache of a stream's newest groups of pictures, for joining viewers and slow ones.
//!
//! Tags are numbered from the start of the stream. The cache holds a contiguous range of them, from
//! the start of a group of pictures to the newest tag. It is limited by a number of groups and by
//! bytes. Each group stores the sequence headers that apply to it, so that playback can start at
//! any group. A stream without video has a group per second, because playback can start at any
//! audio frame.
//!
//! If no video frame arrives during [`VIDEO_GONE_MS`] of audio, the last key frame is repeated
//! until a new one arrives. Browsers also stop audio if they have no video frame, and few players
//! tolerate tracks that appear or disappear. Video without a key frame is treated as stopped.
//!
//! Audio is active if a frame arrived within the last [`AUDIO_GONE_MS`] of video. A sequence header
//! alone announces audio for [`AUDIO_EXPECTED_MS`], because players wait forever for an announced
//! track without data. Audio that starts late, or restarts, starts with its sequence header.
//!
//! Only the default audio and video tracks are stored ([`crate::tracks`]).

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use units::release_capacity;

use crate::codec::Role;
use crate::flv::{Kind, Tag};

/// Duration of a group in a stream without video, in milliseconds.
const AUDIO_GROUP_MS: u32 = 1_000;

/// Time without a video frame after which video is treated as stopped, in milliseconds of audio.
/// Otherwise new viewers would start at its last key frame, however old.
pub const VIDEO_GONE_MS: u32 = 5_000;

/// Time without an audio frame after which audio is no longer announced to new viewers, in
/// milliseconds of video.
pub const AUDIO_GONE_MS: u32 = VIDEO_GONE_MS;

/// Maximum wait for the first audio frame after an audio header, in milliseconds of video. Until
/// then, it is unknown whether the stream has audio.
pub const AUDIO_EXPECTED_MS: u32 = 1_000;

/// Interval at which the last key frame of stopped video is repeated, in milliseconds of audio.
/// Players of Low-Latency HLS need a video frame in each part.
pub const KEY_FRAME_REPEAT_MS: u32 = 300;

/// Maximum number of bytes of repeated key frames per byte of audio, which limits amplification of
/// a publisher's data. AAC at 128 kbit/s allows a key frame of 300 KB every 300 ms.
const MAX_REPEAT_RATIO: usize = 64;
/// Memory per tag in addition to its bytes: its entry in the cache and the overhead of its buffer.
const TAG_COST: usize = size_of::<Tag>() + 64;

/// Limits of the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheLimits {
    /// Groups of pictures including the growing one, at least 1.
    pub groups: usize,
    /// Bytes of tags.
    pub bytes: usize,
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self { groups: 2, bytes: 16 << 20 }
    }
}

/// Sequence headers and metadata that a player needs before the first frame.
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
    /// Returns the headers in the order of transmission.
    pub fn tags(&self) -> impl Iterator<Item = &Tag> {
        [&self.metadata, &self.video, &self.audio].into_iter().flatten()
    }

    /// Stores the tag if it is a header.
    pub fn take(&mut self, tag: &Tag) {
        match (tag.role(), tag.kind()) {
            (Role::Metadata, _) => self.metadata = Some(tag.clone()),
            (Role::SequenceHeader, Kind::Video) => self.video = Some(tag.clone()),
            (Role::SequenceHeader, _) => self.audio = Some(tag.clone()),
            _ => {}
        }
    }
}

/// Start of a group of pictures.
#[derive(Clone, Debug)]
pub struct GopStart {
    /// Number of the group's first tag.
    pub start: u64,
    /// Timestamp of this tag, in milliseconds.
    pub timestamp: u32,
    /// Headers that apply to the group.
    pub headers: Arc<Headers>,
}

/// Presence of video in a stream.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
enum Video {
    #[default]
    None,
    /// The newest audio or video tag is video.
    Newest,
    /// No video frame has arrived since this time of the audio. Only audio measures the time: it
    /// may be seconds ahead of or behind its video.
    MissingSince(u32),
}

/// Presence of audio in a stream.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
enum Audio {
    #[default]
    None,
    /// The audio header has arrived, but no frame. Video frames have arrived since this time.
    Expected(Option<u32>),
    /// The newest frame is audio.
    Newest,
    /// No audio frame has arrived since this time of the video.
    MissingSince(u32),
}

/// Cache of a stream's newest tags.
///
/// ```
/// use mendcast_media::{GopCache, Kind, CacheLimits, Tag};
///
/// let mut cache = GopCache::new(CacheLimits { groups: 1, ..CacheLimits::default() });
/// for (timestamp, first) in [(0, 0x17), (40, 0x27), (80, 0x17)] {
///     cache.push(Tag::new(Kind::Video, timestamp, &[first, 1, 0, 0, 0]).unwrap());
/// }
/// // Only the newest group of pictures remains.
/// assert_eq!(cache.groups().next().unwrap().timestamp, 80);
/// assert_eq!(cache.head() - cache.base(), 1);
/// ```
#[derive(Debug, Default)]
pub struct GopCache {
    limits: CacheLimits,
    headers: Arc<Headers>,
    tags: VecDeque<Tag>,
    /// Number of the first tag in `tags`.
    base: u64,
    groups: VecDeque<GopStart>,
    bytes: usize,
    video: Video,
    /// Newest key frame for the current video header.
    key: Option<Tag>,
    /// Timestamp of the newest video frame.
    video_ms: u32,
    /// Bytes of key frames that may be repeated, earned by later audio.
    repeat_credit: usize,
    /// Sequence header of video that has stopped.
    idle_video: Option<Tag>,
    /// Whether video frames are dropped until the next key frame.
    awaits_key: bool,
    audio: Audio,
    /// Sequence header of audio that is not active.
    idle_audio: Option<Tag>,
    has_frames: bool,
    /// Number of the current publisher's first tag.
    publisher: u64,
    overflows: u64,
}

impl GopCache {
    /// Creates an empty cache.
    pub fn new(limits: CacheLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Announces a new publisher. The headers and tracks of the previous publisher do not apply to
    /// its tags, and its video starts at its first key frame. If the previous publisher sent no
    /// frame, its tags are dropped: headers alone start no group, and would accumulate.
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
        self.audio = Audio::None;
        self.idle_audio = None;
        self.has_frames = false;
    }

    /// Announces that the new publisher continues the same stream, so that its video may resume at
    /// any frame.
    pub fn resume(&mut self) {
        self.awaits_key = false;
    }

    /// Appends a tag. Repeated headers are dropped, as is video that cannot be decoded because its
    /// key frame is missing. Returns whether the tag was appended.
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
                // Viewers who joined without video lack the header.
                if let Some(header) = self.idle_video.take() {
                    self.append(header.with_timestamp(tag.timestamp()));
                }
            }
            (Kind::Video, Role::InterFrame) if self.awaits_key => return false,
            (Kind::Audio, Role::AudioFrame) => {
                self.check_video(&tag);
                // Viewers who joined without audio lack the header.
                if let Some(header) = self.idle_audio.take() {
                    self.append(header.with_timestamp(tag.timestamp()));
                }
            }
            _ => {}
        }
        if matches!(tag.role(), Role::KeyFrame | Role::InterFrame) {
            self.check_audio(tag.timestamp());
        }
        self.append(tag);
        true
    }

    /// Withdraws the announcement of audio that has not arrived by `now`, the time of a video
    /// frame.
    fn check_audio(&mut self, now: u32) {
        let (then, timeout) = match self.audio {
            Audio::None => return,
            Audio::Expected(None) => return self.audio = Audio::Expected(Some(now)),
            Audio::Newest => return self.audio = Audio::MissingSince(now),
            Audio::Expected(Some(then)) => (then, AUDIO_EXPECTED_MS),
            Audio::MissingSince(then) => (then, AUDIO_GONE_MS),
        };
        if !(timeout..1 << 31).contains(&now.wrapping_sub(then)) {
            return;
        }
        if let Audio::Expected(_) = self.audio {
            for group in self.groups.iter_mut().filter(|group| group.start >= self.publisher) {
                Arc::make_mut(&mut group.headers).audio = None;
            }
        }
        self.audio = Audio::None;
        self.idle_audio = Arc::make_mut(&mut self.headers).audio.take();
    }

    /// Repeats the last key frame of stopped video. Video without a key frame is removed from the
    /// headers.
    fn check_video(&mut self, frame: &Tag) {
        let now = frame.timestamp();
        let then = match self.video {
            Video::None => return,
            Video::Newest => {
                self.video = Video::MissingSince(now);
                self.repeat_credit = 0;
                return;
            }
            Video::MissingSince(then) => then,
        };
        let repeats = self.key.is_some() && self.awaits_key;
        let timeout = if repeats { KEY_FRAME_REPEAT_MS } else { VIDEO_GONE_MS };
        let missing = now.wrapping_sub(then);
        let size = self.key.as_ref().map_or(0, |key| key.bytes().len());
        self.repeat_credit =
            (self.repeat_credit + MAX_REPEAT_RATIO * frame.bytes().len()).min(size);
        if !(timeout..1 << 31).contains(&missing) || self.repeat_credit < size {
            return;
        }
        self.repeat_credit = 0;
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
                // Repeated key frames have audio timestamps, which differ slightly from video's.
                if self.video_ms.wrapping_sub(tag.timestamp()) < VIDEO_GONE_MS && self.key.is_some()
                {
                    tag = tag.with_timestamp(self.video_ms);
                }
                self.video_ms = tag.timestamp();
                self.video = Video::Newest;
            }
            (Kind::Audio, Role::AudioFrame) => self.audio = Audio::Newest,
            (Kind::Audio, Role::SequenceHeader) => {
                self.idle_audio = None;
                if self.audio == Audio::None {
                    self.audio = Audio::Expected(None);
                }
            }
            _ => {}
        }
        self.has_frames |=
            matches!(tag.role(), Role::KeyFrame | Role::InterFrame | Role::AudioFrame);
        if tag.role().is_header() {
            // Groups keep the headers that they started with.
            Arc::make_mut(&mut self.headers).take(&tag);
        }
        if self.starts_group(&tag) {
            let (start, timestamp) = (self.head(), tag.timestamp());
            self.groups.push_back(GopStart { start, timestamp, headers: self.headers.clone() });
        }
        self.bytes += tag.bytes().len();
        self.tags.push_back(tag);
        while self.groups.len() > self.limits.groups.max(1) {
            let next = self.groups[1].start;
            self.drop_before(next);
        }
        // A single group above the limit loses its oldest tags: new viewers can no longer join
        // there, present viewers continue.
        while self.bytes > self.limits.bytes && self.tags.len() > 1 {
            self.drop_first();
        }
    }

    /// Evicts groups before the newest one, oldest first, until `excess` bytes of
    /// [`GopCache::memory`] are free. New viewers do not need them.
    pub fn shed(&mut self, excess: usize) {
        let enough = self.memory().saturating_sub(excess);
        while self.memory() > enough
            && let Some(next) = self.groups.iter().map(|g| g.start).find(|at| *at > self.base)
        {
            self.drop_before(next);
        }
        release_capacity(&mut self.tags);
    }

    /// Evicts the oldest tags until at most `most` bytes of [memory](GopCache::memory) are used, or
    /// only the newest tag is left. A larger group loses its start, as with the byte limit.
    pub fn cut(&mut self, most: usize) {
        while self.memory() > most && self.tags.len() > 1 {
            self.drop_first();
        }
        release_capacity(&mut self.tags);
    }

    fn drop_first(&mut self) {
        self.overflows += u64::from(self.groups.front().is_some_and(|g| g.start == self.base));
        self.drop_before(self.base + 1);
    }

    fn starts_group(&self, tag: &Tag) -> bool {
        match tag.role() {
            Role::KeyFrame if !self.awaits_key => true,
            // A repeated key frame, or audio in a stream without video.
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

    /// Returns the number of the next tag to be appended.
    pub fn head(&self) -> u64 {
        self.base + self.tags.len() as u64
    }

    /// Returns the number of the oldest stored tag.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Returns the tag with this number, if it is stored.
    pub fn get(&self, number: u64) -> Option<&Tag> {
        let place = number.checked_sub(self.base)?;
        self.tags.get(usize::try_from(place).ok()?)
    }

    /// Returns the number of the current publisher's first tag, which may have been evicted.
    pub fn publisher(&self) -> u64 {
        self.publisher
    }

    /// Returns the newest tag.
    pub fn newest(&self) -> Option<&Tag> {
        self.tags.back()
    }

    /// Returns the groups with a stored start, oldest first.
    pub fn groups(&self) -> impl DoubleEndedIterator<Item = &GopStart> {
        self.groups.iter()
    }

    /// Returns the headers that apply after the newest tag.
    pub fn headers(&self) -> &Arc<Headers> {
        &self.headers
    }

    /// Returns the size of the stored tags, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the time span of the stored tags. Wrong if the publisher's clock jumped: callers
    /// must bound it.
    pub fn span(&self) -> Duration {
        let ends = self.tags.front().zip(self.tags.back());
        let ms = ends.map_or(0, |(first, last)| last.timestamp().wrapping_sub(first.timestamp()));
        Duration::from_millis(ms.into())
    }

    /// Returns the memory use in bytes: all stored tags with their overhead, and the headers of the
    /// oldest group, even if their tags are evicted.
    pub fn memory(&self) -> usize {
        let headers = self.groups.front().map_or(&self.headers, |group| &group.headers);
        let headers = headers
            .tags()
            .chain(&self.idle_video)
            .chain(&self.idle_audio)
            .map(|tag| tag.bytes().len());
        self.bytes + self.tags.len() * TAG_COST + headers.sum::<usize>()
    }

    /// Returns whether audio is active, and whether there is video, for the FLV file header. `None`
    /// before a publisher's first frame, which the headers of all tracks precede, and while audio
    /// is expected.
    pub fn kinds(&self) -> Option<(bool, bool)> {
        let is_known = self.has_frames && !matches!(self.audio, Audio::Expected(_));
        is_known.then_some((self.audio != Audio::None, self.video != Video::None))
    }

    /// Returns the number of groups that lost their start to the byte limit.
    pub fn overflows(&self) -> u64 {
        self.overflows
    }
}

#[cfg(test)]
mod tests;
