//! Position of a viewer in a stream: its join, next tag and skips.
//!
//! A viewer that is behind and not catching up gets no disposable frames ([`Marks`]) until its lag
//! has halved. If that does not suffice, it skips to the newest key frame. Catching up is checked
//! once per second of media, as bursts of the publisher and the initial group of pictures also
//! cause lag, but only briefly.

use media::gop_cache::{GopStart, Headers};
use media::{GopCache, Kind, Marks, Role, Tag};

/// Tags searched for the earliest timestamp of a group.
const LOOK_AHEAD: u64 = 64;
/// Media time between two checks whether a viewer catches up, in milliseconds.
const THINNING_CHECK_MS: u32 = 1_000;
/// Maximum difference of equal times in two streams, in milliseconds. Encoders round.
const MAX_ROUNDING_MS: u32 = 4;
/// Time after a switch for which audio may be late, in milliseconds.
const SEAM_MS: u32 = 2_000;
/// Tags before a key frame that are searched for audio which the viewer lacks.
const LOOK_BACK: u64 = 256;

/// Join position of a new viewer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Start {
    /// The next key frame: least delay behind the publisher, longest time to the first picture.
    KeyFrame,
    /// The newest cached key frame: a picture at once, up to one group of pictures behind.
    LatestGop,
    /// The nearer of the two: wait and delay are at most half a group.
    LowDelay,
    /// The oldest cached key frame, for packagers.
    Oldest,
    /// The oldest cached key frame of the current publisher, for packagers that start over with it.
    OldestOfPublisher,
}

/// Result of [`Cursor::next`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// The next tag.
    Tag(Tag),
    /// No tag until the stream continues.
    Wait,
}

/// Lag limits of a viewer, in milliseconds of media.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lags {
    /// Above this lag, disposable frames are dropped if the lag has not shrunk for 1 s.
    pub thin: u32,
    /// Above this lag, the viewer skips to the newest key frame.
    pub skip: u32,
}

impl Lags {
    /// No limits.
    pub const ANY: Self = Self { thin: u32::MAX, skip: u32::MAX };
}

/// State of dropping disposable frames.
#[derive(Clone, Copy, Debug)]
enum Thinning {
    /// Inactive. If the viewer is behind, timestamp and lag of the last check.
    Off(Option<(u32, u32)>),
    On,
}

/// Position in a stream.
#[derive(Clone, Debug)]
pub struct Cursor {
    start: Start,
    lags: Lags,
    thinning: Thinning,
    /// How the stream marks disposable frames; `None` if unknown.
    marks: Option<Marks>,
    position: Position,
    /// Headers to send, in reverse order.
    headers: Vec<Tag>,
    /// Newest delivered header of each kind.
    sent: Headers,
    /// Timestamp of the newest delivered audio frame.
    audio_time: Option<u32>,
    /// After a switch: which tags to leave out.
    seam: Option<Seam>,
    /// Timestamp of the newest delivered frame, or of the next one.
    time: Option<u32>,
    /// Timestamp of the first frame, or of a slightly earlier one that follows it.
    origin: Option<u32>,
    skips: u64,
    skipped_ms: u64,
    thinned: u64,
}

/// Where a viewer has come from another stream. The streams interleave audio and video differently.
#[derive(Clone, Copy, Debug)]
struct Seam {
    /// Number of the key frame. Before it, only audio is delivered.
    key: u64,
    /// Timestamp of the newest audio frame of the other stream.
    audio_time: u32,
}

#[derive(Clone, Copy, Debug)]
enum Position {
    /// Before joining.
    New,
    /// Waiting for a group that starts at this tag or later.
    Waiting(u64),
    /// This tag is next.
    At(u64),
}

impl Cursor {
    /// Creates a cursor that has not joined yet.
    pub fn new(start: Start, lags: Lags) -> Self {
        Self {
            start,
            lags,
            thinning: Thinning::Off(None),
            marks: None,
            position: Position::New,
            headers: Vec::new(),
            sent: Headers::default(),
            audio_time: None,
            seam: None,
            time: None,
            origin: None,
            skips: 0,
            skipped_ms: 0,
            thinned: 0,
        }
    }

    /// Returns the next tag.
    pub fn next(&mut self, cache: &GopCache) -> Next {
        if let Some(header) = self.headers.pop() {
            return self.give(header);
        }
        match self.position {
            Position::New => {
                // Headers first: players can set up their decoders while waiting for a frame.
                self.position = match self.join(cache) {
                    Some(group) => {
                        self.queue_new_headers(group.headers.tags());
                        self.time = Some(group.timestamp);
                        self.origin = Some(earliest(cache, group));
                        Position::At(group.start)
                    }
                    None => {
                        self.queue_new_headers(cache.headers().tags());
                        Position::Waiting(cache.head())
                    }
                };
                match self.headers.pop() {
                    Some(header) => self.give(header),
                    None => self.step(cache),
                }
            }
            _ => self.step(cache),
        }
    }

    /// Returns the group at which a new viewer joins now, or `None` to wait for the next one.
    fn join<'a>(&self, cache: &'a GopCache) -> Option<&'a GopStart> {
        let newest = cache.groups().next_back()?;
        let age = cache.newest().map_or(0, |tag| ms_between(newest.timestamp, tag.timestamp()));
        match self.start {
            Start::KeyFrame => None,
            Start::LatestGop => Some(newest),
            Start::Oldest => cache.groups().next(),
            Start::OldestOfPublisher => cache.groups().find(|g| g.start >= cache.publisher()),
            Start::LowDelay => {
                // Estimates the length of a group from the last complete one.
                let length = cache.groups().rev().nth(1);
                let length = length.map_or(0, |g| ms_between(g.timestamp, newest.timestamp));
                (length == 0 || age <= length / 2).then_some(newest)
            }
        }
    }

    /// Advances a cursor that has joined.
    fn step(&mut self, cache: &GopCache) -> Next {
        let at = match self.position {
            Position::Waiting(from) => {
                let mut groups = cache.groups();
                let Some(group) = groups.find(|group| group.start >= from) else {
                    return Next::Wait;
                };
                return self.jump(cache, &group.clone());
            }
            Position::At(at) => at,
            Position::New => return Next::Wait,
        };
        if at >= cache.head() {
            return Next::Wait;
        }
        let lost = at < cache.base();
        if lost || self.lag_ms(cache) > self.lags.skip {
            let group = cache.groups().next_back().filter(|group| group.start > at).cloned();
            match group {
                Some(group) => {
                    self.skips += 1;
                    return self.jump(cache, &group);
                }
                // The position is evicted and no key frame is cached.
                None if lost => {
                    self.skips += 1;
                    self.position = Position::Waiting(cache.head());
                    return Next::Wait;
                }
                // In the newest group, there is nothing to skip to.
                None => {}
            }
        }
        let at = self.pass_seam(cache, at);
        self.update_thinning(cache, at);
        let at = self.skip_disposable(cache, at);
        self.position = Position::At(at);
        match cache.get(at) {
            Some(tag) => {
                self.position = Position::At(at + 1);
                self.give(tag.clone())
            }
            None => Next::Wait,
        }
    }

    /// Checks whether the viewer with next tag `at` is behind without catching up. A viewer
    /// that waits for the next frame is not behind, whatever the frame interval.
    fn update_thinning(&mut self, cache: &GopCache, at: u64) {
        let next = cache.get(at).filter(|tag| !tag.role().is_header());
        let (Some(next), Some(newest)) = (next.map(Tag::timestamp), cache.newest()) else { return };
        let lag = ms_between(next, newest.timestamp());
        self.thinning = match self.thinning {
            Thinning::On if lag > self.lags.thin / 2 => Thinning::On,
            Thinning::Off(looked) if lag > self.lags.thin => match looked {
                Some((at, _)) if ms_between(at, next) < THINNING_CHECK_MS => return,
                Some((_, before)) if lag >= before => Thinning::On,
                _ => Thinning::Off(Some((next, lag))),
            },
            _ => Thinning::Off(None),
        };
    }

    /// Returns the next tag to deliver from `at` on. While thinning, skips disposable frames.
    fn skip_disposable(&mut self, cache: &GopCache, mut at: u64) -> u64 {
        let (Thinning::On, Some(marks)) = (self.thinning, self.marks) else { return at };
        // Terminates at the newest tag.
        while let Some(tag) = cache.get(at).filter(|tag| marks.is_disposable(tag)) {
            self.time = Some(tag.timestamp());
            self.thinned += 1;
            at += 1;
        }
        at
    }

    /// Returns the next tag to deliver from `at` on: the other stream has delivered the video
    /// before the key frame, and some of the audio.
    fn pass_seam(&mut self, cache: &GopCache, mut at: u64) -> u64 {
        let Some(seam) = self.seam else { return at };
        while let Some(tag) = cache.get(at) {
            let is_audio = tag.role() == Role::AudioFrame;
            let is_new = is_audio && is_later(seam.audio_time, tag.timestamp());
            let is_past = !is_audio && ms_between(seam.audio_time, tag.timestamp()) > SEAM_MS;
            if at > seam.key && (is_new || is_past) {
                self.seam = None;
            }
            if is_new || !is_audio && at >= seam.key {
                break;
            }
            at += 1;
        }
        at
    }

    /// Returns the timestamp of the next tag if it is available and a key frame, at which
    /// [`Cursor::switch`] is possible.
    pub fn next_key(&self, cache: &GopCache) -> Option<u32> {
        let Position::At(at) = self.position else { return None };
        let tag = cache.get(at).filter(|_| self.headers.is_empty() && self.seam.is_none())?;
        (tag.role() == Role::KeyFrame).then(|| tag.timestamp())
    }

    /// Returns true if the next tag is evicted, or too far behind, and a newer group is cached.
    pub fn must_skip(&self, cache: &GopCache) -> bool {
        let Position::At(at) = self.position else { return false };
        (at < cache.base() || self.lag_ms(cache) > self.lags.skip)
            && cache.groups().next_back().is_some_and(|group| group.start > at)
    }

    /// Continues with the cache of another stream with the same content on the same time line, at
    /// its key frame of this time, as returned by [`Cursor::next_key`]. Audio that the viewer has
    /// is left out, and audio that it lacks is added. Returns false, without a change, if the key
    /// frame is not cached or the codecs differ.
    pub fn switch(&mut self, cache: &GopCache, key_ms: u32) -> bool {
        let is_same = |group: &&GopStart| {
            let ahead = group.timestamp.wrapping_sub(key_ms);
            ahead.min(ahead.wrapping_neg()) <= MAX_ROUNDING_MS
        };
        let Some(group) = cache.groups().find(is_same).filter(|g| self.has_codecs_of(&g.headers))
        else {
            return false;
        };
        let mut start = group.start;
        if let Some(audio_time) = self.audio_time {
            self.seam = Some(Seam { key: group.start, audio_time });
            let lacks = |number: &u64| {
                let tag = cache.get(*number);
                tag.is_some_and(|tag| {
                    tag.role() == Role::AudioFrame && is_later(audio_time, tag.timestamp())
                })
            };
            let earliest = group.start.saturating_sub(LOOK_BACK).max(cache.base());
            start = (earliest..group.start).find(lacks).unwrap_or(start);
        }
        self.queue_new_headers(group.headers.tags());
        self.thinning = Thinning::Off(None);
        self.position = Position::At(start);
        true
    }

    /// Continues with the cache of another stream on the same time line, at its first key frame
    /// after the delivered media, or at its newest one if it has several of them. Counts a skip.
    /// Returns false, without a change, if the codecs differ.
    pub fn restart(&mut self, cache: &GopCache) -> bool {
        if !self.has_codecs_of(cache.headers()) {
            return false;
        }
        let is_after =
            |group: &&GopStart| self.time.is_none_or(|time| is_later(time, group.timestamp));
        let start = cache.groups().rev().find(is_after).map_or(cache.head(), |group| group.start);
        self.seam = self.audio_time.map(|audio_time| Seam { key: start, audio_time });
        self.headers.clear();
        self.thinning = Thinning::Off(None);
        self.position = Position::Waiting(start);
        self.skips += 1;
        true
    }

    /// Whether players can continue with these headers: tracks and codecs equal the
    /// delivered ones.
    fn has_codecs_of(&self, headers: &Headers) -> bool {
        let codecs = |headers: &Headers| {
            let of = |header: &Option<Tag>| header.as_ref().and_then(|tag| tag.class().codec);
            [of(&headers.video), of(&headers.audio)]
        };
        codecs(&self.sent) == codecs(headers)
    }

    fn jump(&mut self, cache: &GopCache, group: &GopStart) -> Next {
        self.position = Position::At(group.start);
        self.origin.get_or_insert_with(|| earliest(cache, group));
        self.queue_new_headers(group.headers.tags());
        // The first jump joins the stream and skips nothing.
        let skipped = self.time.map_or(0, |time| ms_between(time, group.timestamp));
        self.skipped_ms += u64::from(skipped);
        self.time = Some(group.timestamp);
        match (self.headers.pop(), cache.get(group.start)) {
            (Some(header), _) => self.give(header),
            (None, Some(tag)) => {
                self.position = Position::At(group.start + 1);
                self.give(tag.clone())
            }
            (None, None) => Next::Wait,
        }
    }

    /// Queues the headers that the viewer does not have yet.
    fn queue_new_headers<'a>(&mut self, headers: impl Iterator<Item = &'a Tag>) {
        let sent = &self.sent;
        self.headers =
            headers.filter(|header| sent.tags().all(|s| s != *header)).cloned().collect();
        self.headers.reverse();
    }

    fn give(&mut self, tag: Tag) -> Next {
        if tag.role().is_header() {
            self.sent.take(&tag);
            if (tag.role(), tag.kind()) == (Role::SequenceHeader, Kind::Video) {
                self.marks = Marks::of(&tag);
            }
        } else {
            self.time = Some(tag.timestamp());
            if tag.role() == Role::AudioFrame {
                self.audio_time = self.time;
            }
        }
        Next::Tag(tag)
    }

    /// Offset of the viewer's timeline in the stream's; `None` before its first frame is known.
    pub fn origin(&self) -> Option<u32> {
        self.origin
    }

    /// Number of skips, and the skipped media in milliseconds, from the last frame before to the
    /// first frame after each skip.
    pub fn skips(&self) -> (u64, u64) {
        (self.skips, self.skipped_ms)
    }

    /// Number of dropped disposable frames.
    pub fn thinned(&self) -> u64 {
        self.thinned
    }

    /// Milliseconds of media between the last delivered frame and the newest tag. For a real-time
    /// publisher, this is the age of that frame.
    pub fn lag_ms(&self, cache: &GopCache) -> u32 {
        match (self.time, cache.newest()) {
            (Some(time), Some(newest)) => ms_between(time, newest.timestamp()),
            _ => 0,
        }
    }
}

/// Returns the earliest timestamp among the first tags of a group. Audio that precedes the key
/// frame in time may follow it in order.
fn earliest(cache: &GopCache, group: &GopStart) -> u32 {
    let frames = (group.start..group.start + LOOK_AHEAD).map_while(|number| cache.get(number));
    let times = frames.filter(|tag| !tag.role().is_header()).map(Tag::timestamp);
    times
        .fold(group.timestamp, |first, time| if ms_between(time, first) > 0 { time } else { first })
}

/// Returns true if `time` is later than `than` by more than rounding.
fn is_later(than: u32, time: u32) -> bool {
    ms_between(than, time) > MAX_ROUNDING_MS
}

/// Returns the time from `earlier` to `later` on a wrapping clock; 0 if `later` precedes `earlier`.
fn ms_between(earlier: u32, later: u32) -> u32 {
    match later.wrapping_sub(earlier) {
        ms if ms < 1 << 31 => ms,
        _ => 0,
    }
}
