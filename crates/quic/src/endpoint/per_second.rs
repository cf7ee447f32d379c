//! Counting what happens within a second.

use units::Timestamp;

/// Event count of the current second.
#[derive(Clone, Copy, Default)]
pub(super) struct PerSecond {
    second: u64,
    count: u32,
}

impl PerSecond {
    /// The count of the second of `now`.
    pub(super) fn at(&mut self, now: Timestamp) -> &mut u32 {
        let second = now.as_nanos() / 1_000_000_000;
        if self.second != second {
            *self = Self { second, count: 0 };
        }
        &mut self.count
    }

    /// Counts once more, up to `limit`. Returns whether there was room.
    pub(super) fn take(&mut self, now: Timestamp, limit: u32) -> bool {
        let count = self.at(now);
        let has_room = *count < limit;
        *count += u32::from(has_room);
        has_room
    }
}
