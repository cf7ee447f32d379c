//! How much was lost of late: above 20 %, ART's signal of congestion falls back to every loss
//! (section 6.4).

use core::time::Duration;
use units::Timestamp;

/// Acknowledged and lost packets of the last 1 to 2 seconds.
#[derive(Debug)]
pub(crate) struct RecentLoss {
    since: Timestamp,
    /// Acknowledged, lost.
    present: (u64, u64),
    former: (u64, u64),
}

impl RecentLoss {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { since: now, present: (0, 0), former: (0, 0) }
    }

    pub(crate) fn count(&mut self, now: Timestamp, acked: u64, lost: u64) {
        let age = now.since(self.since);
        if age >= Duration::from_secs(1) {
            let recent = age < Duration::from_secs(2);
            self.former = if recent { self.present } else { (0, 0) };
            self.present = (0, 0);
            self.since = now;
        }
        self.present.0 += acked;
        self.present.1 += lost;
    }

    /// Whether more than 20 % were lost.
    pub(crate) fn is_heavy(&self) -> bool {
        let acked = self.present.0 + self.former.0;
        let lost = self.present.1 + self.former.1;
        lost * 4 > acked && lost >= 5
    }
}
