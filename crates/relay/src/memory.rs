//! What the streams of a server keep in memory, against one bound for all.
//!
//! Each stream has a [`Share`]; what keeps media of it, the relay's cache or a packager, has an [`Account`] there.
//! Counting costs a few additions for a tag, whatever the number of streams. Who has to give something
//! up is decided elsewhere and seldom (`Memory::divide`): all that a tag looks at is one number, the
//! *level*, which no stream is to be above.
//!
//! The level is found as water finds it: small streams keep what they have, and what is left over is the
//! others' in equal parts. It is never below the fair share, `LOW` of the bound divided by the streams, so
//! what a stream has below that is never taken for another one. There are three steps. Above `HIGH` of the bound, streams above
//! the level shrink to what a new viewer needs. If that is not enough there is no room for further
//! streams ([`Memory::is_full`]), and when even so the bound is reached, streams above the level are cut
//! down to it: their viewers go on, and new ones wait for the next key frame.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::task::{Context, Poll, Waker};
use std::sync::{Arc, Mutex, PoisonError};

/// Streams shrink where more is held than this share of the bound, in eighths.
const HIGH: u64 = 7;
/// They go on shrinking until no more is held than this share, in eighths.
const LOW: u64 = 6;
/// The level when there is room enough.
const NO_LEVEL: u64 = u64::MAX;

/// The memory of all streams.
#[derive(Debug)]
pub struct Memory {
    limit: AtomicU64,
    held: AtomicU64,
    level: AtomicU64,
    /// Whether streams above the level are cut down to it.
    cuts: AtomicBool,
    full: AtomicBool,
    /// Whether somebody was told that too much is held.
    pressed: AtomicBool,
    waker: Mutex<Option<Waker>>,
    events: [AtomicU64; Event::ALL.len()],
}

/// What want of memory leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A stream that nobody watches as HLS is no longer packed.
    Unpacked,
    /// A stream gave something up because it was above the level.
    Shrunk,
    /// A new stream was refused.
    Refused,
}

impl Event {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 3] = [Self::Unpacked, Self::Shrunk, Self::Refused];

    /// As it stands in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unpacked => "hls_unpacked",
            Self::Shrunk => "stream_shrunk",
            Self::Refused => "stream_refused",
        }
    }
}

impl Default for Memory {
    /// Without a bound.
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
    /// Bytes that may be held.
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Sets what may be held, in bytes. Less than is held has streams shrink from the next tag on.
    pub fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// Bytes that are held.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Whether there is no room for further streams, although those that there are have shrunk.
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Whether so much is held that something has to go.
    pub fn is_pressed(&self) -> bool {
        self.held() > self.eighths(HIGH)
    }

    /// It happened once more.
    pub fn count(&self, event: Event) {
        self.events[event as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often it happened so far.
    pub fn count_of(&self, event: Event) -> u64 {
        self.events[event as usize].load(Ordering::Relaxed)
    }

    /// Waits until too much is held. One task may wait.
    pub fn poll_pressed(&self, context: &mut Context<'_>) -> Poll<()> {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.waker().clone());
        if self.is_pressed() {
            return Poll::Ready(());
        }
        self.pressed.store(false, Ordering::SeqCst);
        // What was added before somebody could be told.
        if self.is_pressed() { Poll::Ready(()) } else { Poll::Pending }
    }

    fn eighths(&self, number: u64) -> u64 {
        self.limit() / 8 * number
    }

    /// Decides what streams that hold `shares` bytes may hold. `trim` has them give up what they have above
    /// that; it is called up to two times.
    pub(crate) fn divide(&self, shares: Vec<u64>, trim: impl Fn()) {
        if self.held() <= self.eighths(LOW) {
            self.level.store(NO_LEVEL, Ordering::Relaxed);
            self.cuts.store(false, Ordering::Relaxed);
            self.full.store(false, Ordering::Relaxed);
            return;
        }
        if !self.is_pressed() {
            // The fair share may be larger than when the level was set.
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
        // It wraps, as adding what is less than before should.
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

/// The level at which `shares` that are cut down to it are `room` together; no level if they are no more
/// anyway.
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

/// What is kept of one stream.
#[derive(Debug)]
pub struct Share {
    memory: Arc<Memory>,
    held: AtomicU64,
}

impl Share {
    pub(crate) fn new(memory: &Arc<Memory>) -> Arc<Self> {
        Arc::new(Self { memory: memory.clone(), held: AtomicU64::new(0) })
    }

    /// Bytes that are kept of the stream.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// The memory of all streams.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// An account for somebody who keeps media of the stream.
    pub fn account(self: &Arc<Self>) -> Account {
        Account { share: self.clone(), bytes: 0 }
    }
}

/// What one part of the server keeps of a stream. It keeps nothing more when this is dropped.
#[derive(Debug)]
pub struct Account {
    share: Arc<Share>,
    bytes: u64,
}

/// What the keeper of an account has to give up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Surplus {
    /// Up to this many bytes, as far as no new viewer needs them.
    Excess(usize),
    /// All beyond this many bytes.
    Beyond(usize),
}

impl Account {
    /// So many bytes are kept. Returns what has to go.
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
        // Who else keeps media of the stream has half of the level, or what it takes if that is less.
        let others = held.saturating_sub(self.bytes);
        let most = level - others.min(level / 2);
        (self.bytes > most).then_some(Surplus::Beyond(most as usize))
    }

    /// So many bytes are kept after something had to go.
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
