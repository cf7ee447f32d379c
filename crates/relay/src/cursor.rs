//! Where a viewer is in a stream: where it starts, what it gets next, what it leaves out.
//!
//! Who is behind and does not catch up gets no pictures that no other needs ([`Marks`]) until it is half as far behind;
//! if that is not enough, it skips to the newest key frame. Whether it catches up is looked at once in a second of media:
//! a burst of the publisher's, or the group that a viewer begins with, puts it behind too, but not for long.

use media::gop_cache::{Group, Headers};
use media::{GopCache, Kind, Marks, Role, Tag};

/// Tags that are looked at for the earliest time of a group.
const LOOK_AHEAD: u64 = 64;
/// Milliseconds of media between two looks at whether a viewer catches up.
const LOOK: u32 = 1_000;

/// Where a new viewer starts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Start {
    /// At the next key frame: the least delay behind the publisher, the longest wait for a picture.
    KeyFrame,
    /// At the newest key frame that is there: a picture at once, up to a group of pictures behind.
    LatestGop,
    /// At whichever of the two is nearer: neither the wait nor the delay is more than half a group.
    LowDelay,
    /// At the oldest key frame that is there: for packagers, who want as much as there is.
    Oldest,
}

/// What a viewer gets next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// This tag.
    Tag(Tag),
    /// Nothing until the stream goes on.
    Wait,
}

/// How many milliseconds of media may be before a viewer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lags {
    /// With more than this, and no fewer than a second of media before, it gets no pictures that no other needs.
    pub thin: u32,
    /// With more than this it skips.
    pub most: u32,
}

impl Lags {
    /// For who wants all that is kept.
    pub const ANY: Self = Self { thin: u32::MAX, most: u32::MAX };
}

/// Whether a viewer gets all pictures.
#[derive(Clone, Copy, Debug)]
enum Thinning {
    /// It does; of one that is behind, the tag's time and the lag when that was looked at last.
    Off(Option<(u32, u32)>),
    On,
}

/// A place in a stream.
#[derive(Clone, Debug)]
pub struct Cursor {
    start: Start,
    lags: Lags,
    thinning: Thinning,
    /// How the pictures are marked that no other needs; `None` where that is not known.
    marks: Option<Marks>,
    place: Place,
    /// Headers to send, in reverse order.
    headers: Vec<Tag>,
    /// The newest header of each kind that was sent.
    sent: Headers,
    /// Time of the newest frame that was given, or of the one that is next.
    time: Option<u32>,
    /// Time of the first frame, or of one that is a little earlier and comes behind it.
    origin: Option<u32>,
    skips: u64,
    skipped_ms: u64,
    thinned: u64,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    /// Not joined yet.
    New,
    /// Waits for a group that starts at this tag or later.
    Waits(u64),
    /// This tag is next.
    At(u64),
}

impl Cursor {
    /// A cursor that has not joined yet.
    pub fn new(start: Start, lags: Lags) -> Self {
        Self {
            start,
            lags,
            thinning: Thinning::Off(None),
            marks: None,
            place: Place::New,
            headers: Vec::new(),
            sent: Headers::default(),
            time: None,
            origin: None,
            skips: 0,
            skipped_ms: 0,
            thinned: 0,
        }
    }

    /// What comes next.
    pub fn next(&mut self, cache: &GopCache) -> Next {
        if let Some(header) = self.headers.pop() {
            return self.give(header);
        }
        match self.place {
            Place::New => {
                // Headers first: a player can set its decoders up while it waits for a frame.
                self.place = match self.join(cache) {
                    Some(group) => {
                        self.owe_headers(group.headers.tags());
                        self.time = Some(group.timestamp);
                        self.origin = Some(earliest(cache, group));
                        Place::At(group.start)
                    }
                    None => {
                        self.owe_headers(cache.headers().tags());
                        Place::Waits(cache.head())
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

    /// The group that a new viewer gets now; `None` if it waits for the next one.
    fn join<'a>(&self, cache: &'a GopCache) -> Option<&'a Group> {
        let newest = cache.groups().next_back()?;
        let age = cache.newest().map_or(0, |tag| ms_between(newest.timestamp, tag.timestamp()));
        match self.start {
            Start::KeyFrame => None,
            Start::LatestGop => Some(newest),
            Start::Oldest => cache.groups().next(),
            Start::LowDelay => {
                // The last complete group tells how long they are.
                let length = cache.groups().rev().nth(1);
                let length = length.map_or(0, |g| ms_between(g.timestamp, newest.timestamp));
                (length == 0 || age <= length / 2).then_some(newest)
            }
        }
    }

    /// One step of a cursor that has joined.
    fn step(&mut self, cache: &GopCache) -> Next {
        let at = match self.place {
            Place::Waits(from) => {
                let mut groups = cache.groups();
                let Some(group) = groups.find(|group| group.start >= from) else {
                    return Next::Wait;
                };
                return self.jump(cache, &group.clone());
            }
            Place::At(at) => at,
            Place::New => return Next::Wait,
        };
        if at >= cache.head() {
            return Next::Wait;
        }
        let lost = at < cache.base();
        if lost || self.lag_ms(cache) > self.lags.most {
            let group = cache.groups().next_back().filter(|group| group.start > at).cloned();
            match group {
                Some(group) => {
                    self.skips += 1;
                    return self.jump(cache, &group);
                }
                // Behind what is kept, and no key frame is: the next one.
                None if lost => {
                    self.skips += 1;
                    self.place = Place::Waits(cache.head());
                    return Next::Wait;
                }
                // Late in the newest group: nothing nearer to go to.
                None => {}
            }
        }
        self.look(cache, at);
        let at = self.leave_out(cache, at);
        self.place = Place::At(at);
        match cache.get(at) {
            Some(tag) => {
                self.place = Place::At(at + 1);
                self.give(tag.clone())
            }
            None => Next::Wait,
        }
    }

    /// Looks whether the viewer, who gets the tag `at` next, is behind and catches up. Who only waits for the next frame
    /// is not behind, however long that takes.
    fn look(&mut self, cache: &GopCache, at: u64) {
        let next = cache.get(at).filter(|tag| !tag.role().is_header());
        let (Some(next), Some(newest)) = (next.map(Tag::timestamp), cache.newest()) else { return };
        let lag = ms_between(next, newest.timestamp());
        self.thinning = match self.thinning {
            Thinning::On if lag > self.lags.thin / 2 => Thinning::On,
            Thinning::Off(looked) if lag > self.lags.thin => match looked {
                Some((at, _)) if ms_between(at, next) < LOOK => return,
                Some((_, before)) if lag >= before => Thinning::On,
                _ => Thinning::Off(Some((next, lag))),
            },
            _ => Thinning::Off(None),
        };
    }

    /// The first tag from `at` on that the viewer gets: of one who is thinned out, the first that others need.
    fn leave_out(&mut self, cache: &GopCache, mut at: u64) -> u64 {
        let (Thinning::On, Some(marks)) = (self.thinning, self.marks) else { return at };
        // It ends where the stream does.
        while let Some(tag) = cache.get(at).filter(|tag| marks.is_disposable(tag)) {
            self.time = Some(tag.timestamp());
            self.thinned += 1;
            at += 1;
        }
        at
    }

    fn jump(&mut self, cache: &GopCache, group: &Group) -> Next {
        self.place = Place::At(group.start);
        self.origin.get_or_insert_with(|| earliest(cache, group));
        self.owe_headers(group.headers.tags());
        // For the first time, there is nothing that it leaves out.
        let left_out = self.time.map_or(0, |time| ms_between(time, group.timestamp));
        self.skipped_ms += u64::from(left_out);
        self.time = Some(group.timestamp);
        match (self.headers.pop(), cache.get(group.start)) {
            (Some(header), _) => self.give(header),
            (None, Some(tag)) => {
                self.place = Place::At(group.start + 1);
                self.give(tag.clone())
            }
            (None, None) => Next::Wait,
        }
    }

    /// Queues those of `headers` that the viewer does not have.
    fn owe_headers<'a>(&mut self, headers: impl Iterator<Item = &'a Tag>) {
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
        }
        Next::Tag(tag)
    }

    /// Where the viewer's own time begins in the stream's; `None` before its first frame is known.
    pub fn origin(&self) -> Option<u32> {
        self.origin
    }

    /// How often it skipped, and how many milliseconds of media altogether: from the last frame
    /// before to the first one after.
    pub fn skips(&self) -> (u64, u64) {
        (self.skips, self.skipped_ms)
    }

    /// Pictures that it left out because no other needs them.
    pub fn thinned(&self) -> u64 {
        self.thinned
    }

    /// Milliseconds of media between the frame that it gave last and the newest tag: how long ago that
    /// frame came, if the publisher keeps time.
    pub fn lag_ms(&self, cache: &GopCache) -> u32 {
        match (self.time, cache.newest()) {
            (Some(time), Some(newest)) => ms_between(time, newest.timestamp()),
            _ => 0,
        }
    }
}

/// The earliest time of the first tags of a group: sound may stand behind the key frame that it begins
/// before.
fn earliest(cache: &GopCache, group: &Group) -> u32 {
    let frames = (group.start..group.start + LOOK_AHEAD).map_while(|number| cache.get(number));
    let times = frames.filter(|tag| !tag.role().is_header()).map(Tag::timestamp);
    times
        .fold(group.timestamp, |first, time| if ms_between(time, first) > 0 { time } else { first })
}

/// From `earlier` to `later` on a clock that wraps; 0 when they are the other way round.
fn ms_between(earlier: u32, later: u32) -> u32 {
    match later.wrapping_sub(earlier) {
        ms if ms < 1 << 31 => ms,
        _ => 0,
    }
}
