//! A live stream: its cached tags, status, and waiting viewers.
//!
//! **Audio waits for the next picture**, up to [`Settings::merge_ms`] (`[live] merge`, 40 ms), if
//! the stream has video. AAC at 48 kHz has 47 frames per second, of 340 bytes at 128 kbps.
//! Each would wake every viewer and leave in a packet of its own, which costs the server as much
//! encryption, system calls and acknowledgements as a full one. At 25 to 30 pictures per second,
//! three of five wake-ups would be for audio only. A waiting frame leaves with the picture instead.

use core::ops::RangeInclusive;
use core::sync::atomic::{AtomicU64, Ordering};
use core::task::Waker;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use media::{CacheLimits, GopCache, Kind, Tag, Timeline, default_track, flv};
use units::Rate;

use crate::cursor::Lags;
use crate::memory::{Account, Share, Surplus};

/// Valid time spans for the bit rate. Caches are shorter than the maximum unless the clock jumped.
const BITRATE_SPANS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(120);

/// Settings shared by all viewers of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Cache limits, for new and slow viewers.
    pub cache: CacheLimits,
    /// Lag limits of viewers.
    pub lags: Lags,
    /// Maximum time that audio waits for a video frame, in milliseconds; default 40, 0 disables
    /// merging. Less delays audio less and costs more packets.
    pub merge_ms: u32,
    /// Maximum number of concurrent viewers; default 100,000.
    pub max_viewers: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cache: CacheLimits::default(),
            lags: Lags { thin: 500, skip: 5_000 },
            merge_ms: 40,
            max_viewers: 100_000,
        }
    }
}

/// Life cycle of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Status {
    /// Nothing was published yet.
    Waiting,
    /// A publisher is connected.
    Live,
    /// The publisher disconnected and may return; viewers stay.
    Interrupted,
    /// Finished.
    Ended,
}

/// Statistics of a stream.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Stats {
    /// Current viewers.
    pub viewers: u64,
    /// Viewers rejected at the limit.
    pub refused: u64,
    /// Skips of all viewers.
    pub skips: u64,
    /// Media skipped by all viewers, in milliseconds.
    pub skipped_ms: u64,
    /// Disposable frames dropped for viewers that were behind.
    pub thinned: u64,
    /// Received tags.
    pub tags: u64,
    /// Received bytes of tags.
    pub bytes: u64,
    /// Received tags with only non-default tracks, which are not relayed.
    pub other_tracks: u64,
    /// Publishers, including earlier ones.
    pub publishers: u64,
    /// Jumps of publishers' clocks.
    pub jumps: u64,
    /// Groups of pictures that lost their start to the cache's byte limit.
    pub overflows: u64,
}

impl Stats {
    /// Adds the statistics of another stream.
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
pub(crate) struct LiveState {
    pub cache: GopCache,
    /// Memory used by the cache.
    account: Account,
    pub status: Status,
    timeline: Timeline,
    /// Timestamp of the newest tag that woke viewers.
    last_wake: u32,
    /// Number of wakes.
    pub wakes: u64,
    /// Number of the current publisher. Tags of replaced publishers are rejected.
    publisher: u64,
    tags: u64,
    bytes: u64,
    other_tracks: u64,
}

impl LiveState {
    fn start_publisher(&mut self) -> u64 {
        self.status = Status::Live;
        self.publisher += 1;
        self.timeline.on_upstream();
        self.cache.on_publisher();
        self.publisher
    }

    /// Updates the memory accounting and evicts beyond the stream's share.
    fn settle(&mut self) {
        let Some(surplus) = self.account.set(self.cache.memory()) else { return };
        match surplus {
            Surplus::Excess(bytes) => self.cache.shed(bytes),
            Surplus::Beyond(bytes) => self.cache.cut(bytes),
        }
        self.account.shrink(self.cache.memory());
    }
}

/// A live stream, shared by all threads.
#[derive(Debug)]
pub struct Stream {
    name: String,
    settings: Settings,
    memory: Arc<Share>,
    live: RwLock<LiveState>,
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
        let live = LiveState {
            cache: GopCache::new(settings.cache),
            account: memory.account(),
            status: Status::Waiting,
            timeline: Timeline::default(),
            last_wake: 0,
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

    /// Name, for example `live/demo`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Settings shared by all viewers.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Memory used by the cache and by packagers.
    pub fn memory(&self) -> &Arc<Share> {
        &self.memory
    }

    /// Evicts beyond the stream's share, also without new tags.
    pub(crate) fn trim(&self) {
        self.write().settle();
    }

    /// Current status.
    pub fn status(&self) -> Status {
        self.read().status
    }

    /// Reads the cache.
    pub fn with_cache<T>(&self, look: impl FnOnce(&GopCache) -> T) -> T {
        look(&self.read().cache)
    }

    /// Published bit rate, averaged over the cached groups of pictures. An incomplete newest group
    /// biases it upwards. `None` below 1 s of media.
    pub fn bitrate(&self) -> Option<Rate> {
        let (bytes, span) = self.with_cache(|cache| (cache.bytes() as u64, cache.span()));
        (BITRATE_SPANS.contains(&span)).then(|| Rate::from_bytes_in(bytes, span))
    }

    /// Current statistics.
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

    /// Counts a tag with only non-default tracks that was dropped before it entered the stream.
    pub fn count_other_track(&self) {
        self.write().other_tracks += 1;
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

    /// Adds a publisher and returns its number, or `None` if there is one already. It may be
    /// another encoder: the track headers of the previous one no longer apply.
    pub(crate) fn start(&self) -> Option<u64> {
        let mut live = self.write();
        if matches!(live.status, Status::Live | Status::Ended) {
            return None;
        }
        Some(live.start_publisher())
    }

    /// Replaces a publisher. Returns `None` if it is not the current one.
    pub(crate) fn replace(&self, publisher: u64) -> Option<u64> {
        let mut live = self.write();
        if live.status != Status::Live || live.publisher != publisher {
            return None;
        }
        let number = live.start_publisher();
        // Tags may still wait to be merged.
        self.wake(live);
        Some(number)
    }

    /// Sets the start of the timeline of a new stream.
    pub(crate) fn begin_at(&self, start: u32) {
        self.write().timeline.begin_at(start);
    }

    /// Sets the stream time of a new publisher's time 0.
    pub(crate) fn align(&self, base: u32) {
        self.write().timeline.on_base(base);
    }

    /// Whether `publisher` is the current one.
    pub(crate) fn has_publisher(&self, publisher: u64) -> bool {
        let live = self.read();
        live.status == Status::Live && live.publisher == publisher
    }

    /// Appends a tag. Returns false if `publisher` is not the current one.
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
        // Encoders and servers send headers with arbitrary timestamps, mostly 0.
        let kind = if tag.role().is_header() { Kind::Script } else { tag.kind() };
        let Some(time) = live.timeline.map_new(kind, tag.timestamp()) else { return true };
        // Audio waits to be merged only if the stream has video.
        let may_wait = tag.kind() == Kind::Audio
            && live.cache.kinds().is_some_and(|(_, video)| video)
            && time.wrapping_sub(live.last_wake) < self.settings.merge_ms;
        let wakes = live.cache.push(tag.with_timestamp(time)) && !may_wait;
        live.settle();
        if wakes {
            live.last_wake = time;
            self.wake(live);
        }
        true
    }

    /// Marks the stream as interrupted if `publisher` is the current one.
    pub(crate) fn interrupt(&self, publisher: u64) {
        let mut live = self.write();
        if live.status == Status::Live && live.publisher == publisher {
            live.status = Status::Interrupted;
            // Tags may still wait to be merged.
            self.wake(live);
        }
    }

    /// Ends the stream, or only if it had no publisher since number `publishers`. Its viewers
    /// receive the remaining tags, then the end. Returns true if it has ended.
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

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, LiveState> {
        self.live.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, LiveState> {
        self.live.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn wakers(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a waker for the next change. The caller must hold [`Stream::read`], so that no
    /// change is missed between reading and waiting.
    pub(crate) fn register(&self, waker: Waker) {
        self.wakers().push(waker);
    }

    fn wake(&self, mut live: RwLockWriteGuard<'_, LiveState>) {
        live.wakes += 1;
        let mut wakers = self.wakers();
        drop(live);
        wakers.drain(..).for_each(Waker::wake);
    }

    /// Counts a new viewer. Returns false at the limit of viewers.
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

    /// Adds a viewer's skips and dropped frames.
    pub(crate) fn count_skipped(&self, skips: u64, skipped_ms: u64, thinned: u64) {
        self.skips.fetch_add(skips, Ordering::Relaxed);
        self.skipped_ms.fetch_add(skipped_ms, Ordering::Relaxed);
        self.thinned.fetch_add(thinned, Ordering::Relaxed);
    }
}
