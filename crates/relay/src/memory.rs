//! Accounting and limit of the media memory of all streams.
//!
//! Each stream has a [`Share`]. Everything that stores its media, such as the relay's cache or a
//! packager, has an [`Account`] there. Accounting costs a few additions per tag, independent of the
//! number of streams. `Memory::divide` runs rarely and decides which streams must shrink. A tag
//! only reads the *level*, the maximum memory of a stream.
//!
//! The level is max-min fair (water-filling): small streams keep all their media, and the others
//! divide the rest equally. It is at least the fair share, `LOW` of the limit divided by the number
//! of streams. Memory below that is never taken from a stream.
//!
//! Memory pressure has three stages:
//! 1. Above `HIGH` of the limit, streams above the level shrink to the media that new viewers need.
//! 2. If that does not suffice, new streams are rejected ([`Memory::is_full`]).
//! 3. At the limit, streams above the level are cut down to it. Their viewers continue, and new
//!    viewers wait for the next key frame.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::task::{Context, Poll, Waker};
use std::sync::{Arc, Mutex, PoisonError};

/// Fraction of the limit above which streams shrink, in eighths.
const HIGH: u64 = 7;
/// Fraction of the limit down to which streams shrink, in eighths.
const LOW: u64 = 6;
/// Level without memory pressure.
const NO_LEVEL: u64 = u64::MAX;

/// The memory of all streams.
#[derive(Debug)]
pub struct Memory {
    limit: AtomicU64,
    held: AtomicU64,
    level: AtomicU64,
    /// Whether streams are cut down to the level.
    cuts: AtomicBool,
    full: AtomicBool,
    /// Whether the waiting task was woken because of pressure.
    pressed: AtomicBool,
    waker: Mutex<Option<Waker>>,
    events: [AtomicU64; Event::ALL.len()],
}

/// Reactions to memory pressure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A stream without HLS viewers is no longer packaged.
    Unpacked,
    /// A stream above the level evicted media.
    Shrunk,
    /// A new stream was rejected.
    Refused,
}

impl Event {
    /// All events, in the order of their discriminants.
    pub const ALL: [Self; 3] = [Self::Unpacked, Self::Shrunk, Self::Refused];

    /// Label in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unpacked => "hls_unpacked",
            Self::Shrunk => "stream_shrunk",
            Self::Refused => "stream_refused",
        }
    }
}

impl Default for Memory {
    /// Unlimited.
    fn default() -> Self {
        Self {
            limit: AtomicU64::new(u64::MAX),
            held: AtomicU64::new(0),
            level: AtomicU64::new(NO_LEVEL),
            cuts: AtomicBool::new(false),
            full: AtomicBool::new(false),
            pressed: AtomicBool::new(false),
            waker: Mutex::default(),
            events: Default::default(),
        }
    }
}

impl Memory {
    /// Limit in bytes.
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Sets the limit in bytes. If more is in use, streams shrink from the next tag on.
    pub fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// Bytes in use.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns true if new streams are rejected because shrinking did not suffice.
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Returns true if usage exceeds the pressure threshold.
    pub fn is_pressed(&self) -> bool {
        self.held() > self.eighths(HIGH)
    }

    /// Counts an event.
    pub fn count(&self, event: Event) {
        self.events[event as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the count of an event.
    pub fn count_of(&self, event: Event) -> u64 {
        self.events[event as usize].load(Ordering::Relaxed)
    }

    /// Waits for memory pressure. Supports one waiting task.
    pub fn poll_pressed(&self, context: &mut Context<'_>) -> Poll<()> {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.waker().clone());
        if self.is_pressed() {
            return Poll::Ready(());
        }
        self.pressed.store(false, Ordering::SeqCst);
        // Covers additions made before the flag was cleared.
        if self.is_pressed() { Poll::Ready(()) } else { Poll::Pending }
    }

    fn eighths(&self, number: u64) -> u64 {
        self.limit() / 8 * number
    }

    /// Sets the level for streams that use `shares` bytes. Calls `trim` up to two times to make
    /// them evict media above the level.
    pub(crate) fn divide(&self, shares: Vec<u64>, trim: impl Fn()) {
        if self.held() <= self.eighths(LOW) {
            self.level.store(NO_LEVEL, Ordering::Relaxed);
            self.cuts.store(false, Ordering::Relaxed);
            self.full.store(false, Ordering::Relaxed);
            return;
        }
        if !self.is_pressed() {
            // The fair share may have grown since the level was set.
            let streams = shares.iter().filter(|share| **share > 0).count() as u64;
            self.level.fetch_max(self.eighths(LOW) / streams.max(1), Ordering::Relaxed);
            return;
        }
        let step = |eighths| {
            let level = water_level(shares.clone(), self.eighths(eighths));
            self.level.store(level, Ordering::Relaxed);
            trim();
        };
        step(if self.cuts.load(Ordering::Relaxed) { HIGH } else { LOW });
        if self.is_pressed() {
            self.full.store(true, Ordering::Relaxed);
        }
        if self.held() > self.limit() && !self.cuts.swap(true, Ordering::Relaxed) {
            step(HIGH);
        }
    }

    fn change(&self, before: u64, after: u64) {
        // Wraps, so that a decrease is also an addition.
        let change = after.wrapping_sub(before);
        let held = self.held.fetch_add(change, Ordering::Relaxed).wrapping_add(change);
        if after > before
            && held > self.eighths(HIGH)
            && !self.pressed.load(Ordering::Relaxed)
            && !self.pressed.swap(true, Ordering::SeqCst)
        {
            let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).clone();
            waker.into_iter().for_each(Waker::wake);
        }
    }
}

/// Returns the level at which truncated `shares` add up to `room`, or `NO_LEVEL` if they already
/// fit.
fn water_level(mut shares: Vec<u64>, room: u64) -> u64 {
    shares.sort_unstable();
    let (mut below, count) = (0u64, shares.len());
    for (index, share) in shares.into_iter().enumerate() {
        let rest = (count - index) as u64;
        if below.saturating_add(share.saturating_mul(rest)) > room {
            return (room - below) / rest;
        }
        below += share;
    }
    NO_LEVEL
}

/// Memory of one stream.
#[derive(Debug)]
pub struct Share {
    memory: Arc<Memory>,
    held: AtomicU64,
}

impl Share {
    pub(crate) fn new(memory: &Arc<Memory>) -> Arc<Self> {
        Arc::new(Self { memory: memory.clone(), held: AtomicU64::new(0) })
    }

    /// Bytes used by the stream.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// The memory of all streams.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Opens an account for another holder of the stream's media.
    pub fn account(self: &Arc<Self>) -> Account {
        Account { share: self.clone(), bytes: 0 }
    }
}

/// Memory of a stream held by one component. Dropping it releases the bytes.
#[derive(Debug)]
pub struct Account {
    share: Arc<Share>,
    bytes: u64,
}

/// Media that the holder of an account must evict.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Surplus {
    /// Up to this many bytes, but nothing that a new viewer needs.
    Excess(usize),
    /// Everything beyond this many bytes.
    Beyond(usize),
}

impl Account {
    /// Sets the bytes in use. Returns the surplus to evict.
    pub fn set(&mut self, bytes: usize) -> Option<Surplus> {
        let before = core::mem::replace(&mut self.bytes, bytes as u64);
        let (share, memory) = (&*self.share, &*self.share.memory);
        let change = self.bytes.wrapping_sub(before);
        let held = share.held.fetch_add(change, Ordering::Relaxed).wrapping_add(change);
        memory.change(before, self.bytes);
        let level = memory.level.load(Ordering::Relaxed);
        if held <= level {
            return None;
        }
        if !memory.cuts.load(Ordering::Relaxed) {
            return Some(Surplus::Excess((held - level) as usize));
        }
        // Other holders get half of the level, or their actual use if that is less.
        let others = held.saturating_sub(self.bytes);
        let most = level - others.min(level / 2);
        (self.bytes > most).then_some(Surplus::Beyond(most as usize))
    }

    /// Sets the bytes in use after eviction.
    pub fn shrink(&mut self, bytes: usize) {
        if (bytes as u64) < self.bytes {
            self.share.memory.count(Event::Shrunk);
        }
        let _ = self.set(bytes);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let _ = self.set(0);
    }
}

#[cfg(test)]
mod tests;
