//! What a player said last that it has buffered. Its connection reads this on another thread.

use core::time::Duration;
use std::sync::atomic::{AtomicU64, Ordering};

use delivery::{Buffered, STALE_REPORT};

/// The most that a player is believed to have buffered.
pub(super) const MOST: Duration = Duration::from_millis(records::MAX_BUFFER_MS as u64);

/// The last report.
#[derive(Debug, Default)]
pub(super) struct Reported {
    /// In milliseconds, below the number of the report; 0 if there was none.
    buffered: AtomicU64,
    /// How long the session had lasted, in milliseconds.
    at: AtomicU64,
}

impl Reported {
    /// The player said that it has this buffered, in a session that has lasted so long.
    pub(super) fn set(&self, age: Duration, buffered: Duration) {
        let reports = self.buffered.load(Ordering::Relaxed) >> 32;
        let next = (reports as u32).checked_add(1).unwrap_or(1);
        let ms = buffered.min(MOST).as_millis() as u64;
        self.at.store(age.as_millis() as u64, Ordering::Relaxed);
        self.buffered.store(u64::from(next) << 32 | ms, Ordering::Relaxed);
    }

    /// The last report, if it still holds in a session that has lasted so long.
    pub(super) fn get(&self, age: Duration) -> Option<Buffered> {
        let at = Duration::from_millis(self.at.load(Ordering::Relaxed));
        if age.saturating_sub(at) > STALE_REPORT {
            return None;
        }
        let known = self.buffered.load(Ordering::Relaxed);
        let report = (known >> 32) as u32;
        let media = Duration::from_millis(known & u64::from(u32::MAX));
        (report > 0).then_some(Buffered { report, media })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_holds_for_half_a_minute_and_is_not_believed_without_bound() {
        let seconds = Duration::from_secs;
        let reported = Reported::default();
        assert_eq!(reported.get(seconds(0)), None);
        reported.set(seconds(100), Duration::from_millis(1_234));
        let first = Buffered { report: 1, media: Duration::from_millis(1_234) };
        assert_eq!(reported.get(seconds(100)), Some(first));
        assert_eq!(reported.get(seconds(130)), Some(first));
        assert_eq!(reported.get(seconds(131)), None, "nothing was heard for long");
        reported.set(seconds(200), seconds(1_000_000));
        assert_eq!(reported.get(seconds(200)), Some(Buffered { report: 2, media: MOST }));
    }
}
