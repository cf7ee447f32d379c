//! The last buffer level that a player reported, shared with its connection's thread.

use core::time::Duration;
use std::sync::atomic::{AtomicU64, Ordering};

use delivery::{Buffered, STALE_REPORT};

/// Maximum buffer level accepted from a player.
pub(super) const MAX_BUFFER: Duration = Duration::from_millis(records::MAX_BUFFER_MS as u64);

/// The last reported buffer level.
#[derive(Debug, Default)]
pub(super) struct BufferReport {
    /// Number of the report (high 32 bits, 0 for none) and buffer level in ms (low 32 bits).
    buffered: AtomicU64,
    /// Session age at the report, in ms.
    at: AtomicU64,
}

impl BufferReport {
    /// Stores a report at this session age.
    pub(super) fn set(&self, age: Duration, buffered: Duration) {
        let reports = self.buffered.load(Ordering::Relaxed) >> 32;
        let next = (reports as u32).checked_add(1).unwrap_or(1);
        let ms = buffered.min(MAX_BUFFER).as_millis() as u64;
        self.at.store(age.as_millis() as u64, Ordering::Relaxed);
        self.buffered.store(u64::from(next) << 32 | ms, Ordering::Relaxed);
    }

    /// Returns the last report, unless it is stale at this session age.
    pub(super) fn get(&self, age: Duration) -> Option<Buffered> {
        let at = Duration::from_millis(self.at.load(Ordering::Relaxed));
        if age.saturating_sub(at) > STALE_REPORT {
            return None;
        }
        let packed = self.buffered.load(Ordering::Relaxed);
        let report = (packed >> 32) as u32;
        let media = Duration::from_millis(packed & u64::from(u32::MAX));
        (report > 0).then_some(Buffered { report, media })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_expires_after_30_s_and_is_clamped_to_the_maximum() {
        let seconds = Duration::from_secs;
        let reported = BufferReport::default();
        assert_eq!(reported.get(seconds(0)), None);
        reported.set(seconds(100), Duration::from_millis(1_234));
        let first = Buffered { report: 1, media: Duration::from_millis(1_234) };
        assert_eq!(reported.get(seconds(100)), Some(first));
        assert_eq!(reported.get(seconds(130)), Some(first));
        assert_eq!(reported.get(seconds(131)), None, "stale");
        reported.set(seconds(200), seconds(1_000_000));
        assert_eq!(reported.get(seconds(200)), Some(Buffered { report: 2, media: MAX_BUFFER }));
    }
}
