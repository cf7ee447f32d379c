//! How much was lost of late: above 20 % within a second or two, ART's signal of congestion falls back to every loss
//! (section 6.4); what was lost within about a minute is what schemes take for the path's loss.

use core::time::Duration;
use units::Timestamp;

const SHORT: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(32);
/// So long before the beginning nothing is taken to have been lost: a path whose first outage comes soon is no worse
/// than others.
const BEFORE: Duration = Duration::from_secs(4);

/// Acknowledged and lost packets of late.
#[derive(Debug)]
pub(crate) struct RecentLoss {
    began: Timestamp,
    short: Window,
    long: Window,
}

impl RecentLoss {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { began: now, short: Window::new(now, SHORT), long: Window::new(now, LONG) }
    }

    pub(crate) fn count(&mut self, now: Timestamp, acked: u64, lost: u64) {
        self.short.count(now, acked, lost);
        self.long.count(now, acked, lost);
    }

    /// Whether more than 20 % were lost within the last 1 to 2 seconds.
    pub(crate) fn is_heavy(&self) -> bool {
        let (acked, lost) = self.short.all();
        lost * 4 > acked && lost >= 5
    }

    /// The share that was lost within the last 32 to 64 seconds.
    pub(crate) fn rate(&self, now: Timestamp) -> f64 {
        let (acked, lost) = self.long.all();
        let known = now.since(self.began).as_secs_f64() / BEFORE.as_secs_f64();
        lost as f64 / (acked + lost).max(1) as f64 * known.min(1.0)
    }
}

/// Packets of the last one or two spans of time.
#[derive(Debug)]
struct Window {
    span: Duration,
    since: Timestamp,
    /// Acknowledged, lost.
    present: (u64, u64),
    former: (u64, u64),
}

impl Window {
    fn new(now: Timestamp, span: Duration) -> Self {
        Self { span, since: now, present: (0, 0), former: (0, 0) }
    }

    fn count(&mut self, now: Timestamp, acked: u64, lost: u64) {
        let age = now.since(self.since);
        if age >= self.span {
            let recent = age < self.span * 2;
            self.former = if recent { self.present } else { (0, 0) };
            self.present = (0, 0);
            self.since = now;
        }
        self.present.0 += acked;
        self.present.1 += lost;
    }

    fn all(&self) -> (u64, u64) {
        (self.present.0 + self.former.0, self.present.1 + self.former.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_second_is_heavy_and_the_paths_loss_is_that_of_a_minute() {
        let at = Timestamp::from_millis;
        let mut recent = RecentLoss::new(at(0));
        assert_eq!((recent.rate(at(0)), recent.is_heavy()), (0.0, false));
        let mut second = |from: u64, lost: u64| {
            (0..100).for_each(|n| recent.count(at(from * 1_000 + n * 10), 1, u64::from(n < lost)));
            (recent.rate(at(from * 1_000 + 1_000)), recent.is_heavy())
        };
        let (rate, is_heavy) = second(0, 100);
        assert!(
            is_heavy && (rate - 0.125).abs() < 1e-9,
            "half of a second, a quarter of what counts: {rate}"
        );
        for n in 1..39 {
            second(n, 0);
        }
        let (rate, is_heavy) = second(39, 100);
        assert!(is_heavy && (0.04..0.05).contains(&rate), "{rate}");
        assert!(!second(42, 0).1);
        let after = (43..140).map(|n| second(n, 0).0).last();
        assert_eq!(after, Some(0.0), "it is over for a minute");
    }
}
