//! Virtual time shared by the platforms: events, and a sender that is paced.

use core::time::Duration;
use units::{Rate, Timestamp};

/// Returns the earliest of these times.
pub(crate) fn earliest(times: impl IntoIterator<Item = Option<Timestamp>>) -> Option<Timestamp> {
    times.into_iter().flatten().min()
}

/// Paces packets at the path's rate, so that a frame leaves as a burst of back-to-back packets.
#[derive(Debug)]
pub(crate) struct Pace {
    gap: Duration,
    free: Timestamp,
    /// Whether the sender may have a packet that waits for the pace.
    pub is_asked: bool,
}

impl Pace {
    pub(crate) fn new(rate: Rate, packet: u64) -> Self {
        Self { gap: rate.time_for(packet), free: Timestamp::ZERO, is_asked: false }
    }

    pub(crate) fn is_free(&self, now: Timestamp) -> bool {
        self.free <= now
    }

    pub(crate) fn on_sent(&mut self, now: Timestamp) {
        self.free = self.free.max(now) + self.gap;
    }

    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.is_asked.then_some(self.free)
    }
}
