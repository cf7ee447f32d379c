//! One live stream: its newest tags, its state, and whom to wake when it goes on.

use core::ops::RangeInclusive;
use core::sync::atomic::{AtomicU64, Ordering};
use core::task::Waker;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use media::{GopCache, Kind, Limits, Tag, Timeline, default_track, flv};
use units::Rate;

use crate::cursor::Lags;
use crate::memory::{Account, Share, Surplus};

/// The times over which a stream's rate is taken: no longer than caches are, unless its clock has jumped.
const RATE_OVER: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(120);

/// What is the same for all viewers of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// What is kept for viewers to come and for slow ones.
    pub cache: Limits,
    /// How far behind a viewer may be.
    pub lags: Lags,
    /// Sound waits this many milliseconds for the next picture, so that both leave together: half of
    /// the packets of a stream with sound would carry nothing else.
    pub merge_ms: u32,
    /// Viewers at the same time.
    pub max_viewers: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cache: Limits::default(),
            lags: Lags { thin: 500, most: 5_000 },
            merge_ms: 40,
            max_viewers: 100_000,
        }
    }
}

/// Where a stream is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Status {
    /// Expected: nothing was published yet.
    Waiting,
    /// Being published.
    Live,
    /// The publisher is gone and may come back; viewers are kept.
    Interrupted,
    /// Over.
    Ended,
}

/// What happened in a stream so far.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Stats {
    /// Viewers now.
    pub viewers: u64,
    /// Viewers that were turned away because there were too many.
    pub refused: u64,
    /// Times that a viewer skipped.
    pub skips: u64,
    /// Milliseconds of media that viewers skipped.
    pub skipped_ms: u64,
    /// Pictures that no other needs and that viewers did not get who were behind.
    pub thinned: u64,
    /// Tags and bytes that came in.
    pub tags: u64,
    /// Bytes of tags that came in.
    pub bytes: u64,
    /// Of those, tags that only had other tracks than the default ones, which nobody gets.
    pub other_tracks: u64,
    /// Publishers so far.
    pub publishers: u64,
    /// Times that a publisher's clock jumped.
    pub jumps: u64,
    /// Groups of pictures that lost their start to the cache's byte limit.
    pub overflows: u64,
}

impl Stats {
    /// Adds those of another stream.
    pub(crate) fn add(&mut self, other: &Self) {
        self.viewers += other.viewers;
        self.refused += other.refused;
        self.skips += other.skips;
        self.skipped_ms += other.skipped_ms;
        self.thinned += other.thinned;
        self.tags += other.tags;
        self.bytes += other.bytes;
        self.other_tracks += other.other_tracks;
        self.publishers += other.publishers;
        self.jumps += other.jumps;
        self.overflows += other.overflows;
    }
}

#[derive(Debug)]
pub(crate) struct Live {
    pub cache: GopCache,
    /// What the cache takes.
    account: Account,
    pub status: Status,
    timeline: Timeline,
    /// Time of the newest tag that viewers were woken for.
    told: u32,
    /// How often they were.
    pub wakes: u64,
    /// Counts publishers: one that was replaced has no say any more.
    publisher: u64,
    tags: u64,
    bytes: u64,
    other_tracks: u64,
}

impl Live {
    fn begin(&mut self) -> u64 {
        self.status = Status::Live;
        self.publisher += 1;
        self.timeline.on_upstream();
        self.cache.on_publisher();
        self.publisher
    }

    /// Counts what the cache takes, and has it give up what the stream has too much.
    fn settle(&mut self) {
        let Some(surplus) = self.account.set(self.cache.held()) else { return };
        match surplus {
            Surplus::Excess(bytes) => self.cache.shed(bytes),
            Surplus::Beyond(bytes) => self.cache.cut(bytes),
        }
        self.account.shrink(self.cache.held());
    }
}

/// A live stream. All threads share it.
#[derive(Debug)]
pub struct Stream {
    name: String,
    settings: Settings,
    memory: Arc<Share>,
    live: RwLock<Live>,
    wakers: Mutex<Vec<Waker>>,
    viewers: AtomicU64,
    refused: AtomicU64,
    skips: AtomicU64,
    skipped_ms: AtomicU64,
    thinned: AtomicU64,
    corrections: Mutex<BTreeMap<&'static str, u64>>,
}

impl Stream {
    pub(crate) fn new(name: &str, settings: Settings, memory: Arc<Share>) -> Self {
        let live = Live {
            cache: GopCache::new(settings.cache),
            account: memory.account(),
            status: Status::Waiting,
            timeline: Timeline::default(),
            told: 0,
            wakes: 0,
            publisher: 0,
            tags: 0,
            bytes: 0,
            other_tracks: 0,
        };
        Self {
            name: name.to_owned(),
            settings,
            memory,
            live: RwLock::new(live),
            wakers: Mutex::default(),
            viewers: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            skips: AtomicU64::new(0),
            skipped_ms: AtomicU64::new(0),
            thinned: AtomicU64::new(0),
            corrections: Mutex::default(),
        }
    }

    /// The name, for example `live/demo`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What holds for all its viewers.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What is kept of it, by the cache and by those who pack it.
    pub fn memory(&self) -> &Arc<Share> {
        &self.memory
    }

    /// Gives up what it has too much, also if no tag comes.
    pub(crate) fn trim(&self) {
        self.write().settle();
    }

    /// Where it is in its life.
    pub fn status(&self) -> Status {
        self.read().status
    }

    /// Looks at what is kept.
    pub fn with_cache<T>(&self, look: impl FnOnce(&GopCache) -> T) -> T {
        look(&self.read().cache)
    }

    /// The rate at which it is published, by what is kept of it: a group of pictures or more, the newest of which may not be
    /// complete, so that it is rather too high. `None` before there is a second of it.
    pub fn bitrate(&self) -> Option<Rate> {
        let (bytes, span) = self.with_cache(|cache| (cache.bytes() as u64, cache.span()));
        (RATE_OVER.contains(&span)).then(|| Rate::from_bytes_in(bytes, span))
    }

    /// What happened so far.
    pub fn stats(&self) -> Stats {
        let live = self.read();
        Stats {
            viewers: self.viewers.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            skips: self.skips.load(Ordering::Relaxed),
            skipped_ms: self.skipped_ms.load(Ordering::Relaxed),
            thinned: self.thinned.load(Ordering::Relaxed),
            tags: live.tags,
            bytes: live.bytes,
            other_tracks: live.other_tracks,
            publishers: live.publisher,
            jumps: live.timeline.jumps(),
            overflows: live.cache.overflows(),
        }
    }

    /// Counts corrections of this kind that were made before tags entered the stream.
    pub fn count_corrections(&self, kind: &'static str, count: u64) {
        let mut corrections = self.corrections.lock().unwrap_or_else(PoisonError::into_inner);
        *corrections.entry(kind).or_default() += count;
    }

    /// Corrections by kind.
    pub fn corrections(&self) -> BTreeMap<&'static str, u64> {
        self.corrections.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A new publisher; `None` if there is one already. It may be another encoder, so that nothing
    /// that the last one said of its tracks holds.
    pub(crate) fn start(&self) -> Option<u64> {
        let mut live = self.write();
        if matches!(live.status, Status::Live | Status::Ended) {
            return None;
        }
        Some(live.begin())
    }

    /// A new publisher in place of that one; `None` if that one publishes no more.
    pub(crate) fn replace(&self, publisher: u64) -> Option<u64> {
        let mut live = self.write();
        if live.status != Status::Live || live.publisher != publisher {
            return None;
        }
        let number = live.begin();
        // For what may still wait.
        self.wake(live);
        Some(number)
    }

    /// Where the stream's time begins, unless it has begun.
    pub(crate) fn begin_at(&self, start: u32) {
        self.write().timeline.begin_at(start);
    }

    /// A tag of that publisher. Returns whether it still has a say.
    pub(crate) fn push(&self, publisher: u64, tag: Tag) -> bool {
        let mut live = self.write();
        if live.status != Status::Live || live.publisher != publisher {
            return false;
        }
        live.tags += 1;
        live.bytes += tag.bytes().len() as u64;
        if let Some(base) = flv::time_base(&tag) {
            live.timeline.on_base(base);
            live.cache.resume();
            return true;
        }
        let Some(tag) = default_track(tag) else {
            live.other_tracks += 1;
            return true;
        };
        // Encoders and servers give headers any time, most often 0.
        let kind = if tag.role().is_header() { Kind::Script } else { tag.kind() };
        let Some(time) = live.timeline.map_new(kind, tag.timestamp()) else { return true };
        // Sound may wait for a picture, if there are pictures.
        let may_wait = tag.kind() == Kind::Audio
            && live.cache.kinds().is_some_and(|(_, video)| video)
            && time.wrapping_sub(live.told) < self.settings.merge_ms;
        let news = live.cache.push(tag.with_timestamp(time)) && !may_wait;
        live.settle();
        if news {
            live.told = time;
            self.wake(live);
        }
        true
    }

    /// That publisher is gone.
    pub(crate) fn interrupt(&self, publisher: u64) {
        let mut live = self.write();
        if live.status == Status::Live && live.publisher == publisher {
            live.status = Status::Interrupted;
            // For what may still wait.
            self.wake(live);
        }
    }

    /// Ends the stream unless it is live again since publisher number `publishers` left: its
    /// viewers get what is left, then the end. Returns whether it is over.
    pub(crate) fn end(&self, publishers: Option<u64>) -> bool {
        let mut live = self.write();
        let ends = match publishers {
            None => true,
            Some(left) => live.publisher == left && live.status != Status::Live,
        };
        if ends {
            live.status = Status::Ended;
            self.wake(live);
        }
        ends
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Live> {
        self.live.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Live> {
        self.live.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn wakers(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes this one when the stream goes on. To be called while [`Stream::read`] is held, so that
    /// nothing is missed between looking and waiting.
    pub(crate) fn register(&self, waker: Waker) {
        self.wakers().push(waker);
    }

    fn wake(&self, mut live: RwLockWriteGuard<'_, Live>) {
        live.wakes += 1;
        let mut wakers = self.wakers();
        drop(live);
        wakers.drain(..).for_each(Waker::wake);
    }

    /// Counts a new viewer. Returns whether there is room for it.
    pub(crate) fn enter(&self) -> bool {
        let limit = self.settings.max_viewers;
        let more = |viewers| (viewers < limit).then_some(viewers + 1);
        let entered = self.viewers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        self.refused.fetch_add(u64::from(!entered), Ordering::Relaxed);
        entered
    }

    pub(crate) fn leave(&self) {
        self.viewers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts what a viewer left out.
    pub(crate) fn left_out(&self, skips: u64, skipped_ms: u64, thinned: u64) {
        self.skips.fetch_add(skips, Ordering::Relaxed);
        self.skipped_ms.fetch_add(skipped_ms, Ordering::Relaxed);
        self.thinned.fetch_add(thinned, Ordering::Relaxed);
    }
}
