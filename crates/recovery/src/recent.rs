//! How much was lost of late: above 20 % within a second or two, ART's signal of congestion falls back to every loss
//! (section 6.4); what was lost within about a minute is what schemes take for the path's loss.

use crate::table::CopyKind;
use core::time::Duration;
use units::Timestamp;

const SHORT: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(32);
/// Before so long was seen, and so many packets, what is lost counts for less: a path whose first outage comes soon is no
/// worse than others.
const ENOUGH: (Duration, u64) = (Duration::from_secs(4), 400);

/// Acknowledged and lost packets of late.
#[derive(Debug)]
pub(crate) struct RecentLoss {
    short: Window,
    long: Window,
}

impl RecentLoss {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { short: Window::new(now, SHORT), long: Window::new(now, LONG) }
    }

    /// The fate of a packet is known; `copy` says what it was if it was a copy.
    pub(crate) fn count(&mut self, now: Timestamp, copy: Option<CopyKind>, is_lost: bool) {
        self.short.count(now, is_lost);
        if copy.is_none() {
            self.long.count(now, is_lost);
        }
    }

    /// A packet that counts as lost has arrived.
    pub(crate) fn take_back(&mut self, now: Timestamp, copy: Option<CopyKind>) {
        self.count(now, copy, false);
        self.short.take_back();
        if copy.is_none() {
            self.long.take_back();
        }
    }

    /// Whether more than 20 % were lost within the last 1 to 2 seconds.
    pub(crate) fn is_heavy(&self) -> bool {
        let (acked, lost) = self.short.all();
        lost * 4 > acked && lost >= 5
    }

    /// The share of what was sent first that was lost within the last 32 to 64 seconds. Copies leave close behind losses,
    /// and more of them are lost: the more of them, the worse would the path seem.
    pub(crate) fn rate(&self, now: Timestamp) -> f64 {
        let (acked, lost) = self.long.all();
        let packets = (acked + lost).max(1) as f64;
        let (time, enough) = ENOUGH;
        let seen = now.since(self.long.began).as_secs_f64() / time.as_secs_f64();
        lost as f64 / packets * seen.min(packets / enough as f64).min(1.0)
    }
}

/// Packets of the last one or two spans of time.
#[derive(Debug)]
struct Window {
    span: Duration,
    /// Of both.
    began: Timestamp,
    since: Timestamp,
    /// Acknowledged, lost.
    present: (u64, u64),
    former: (u64, u64),
}

impl Window {
    fn new(now: Timestamp, span: Duration) -> Self {
        Self { span, began: now, since: now, present: (0, 0), former: (0, 0) }
    }

    fn count(&mut self, now: Timestamp, is_lost: bool) {
        let age = now.since(self.since);
        if age >= self.span * 2 {
            *self = Self::new(now, self.span);
        } else if age >= self.span {
            (self.began, self.since) = (self.since, now);
            self.former = core::mem::take(&mut self.present);
        }
        self.present.0 += u64::from(!is_lost);
        self.present.1 += u64::from(is_lost);
    }

    /// A lost packet is none.
    fn take_back(&mut self) {
        let lost = if self.present.1 > 0 { &mut self.present.1 } else { &mut self.former.1 };
        *lost = lost.saturating_sub(1);
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
        // 100 packets arrive, and so many more are lost.
        let mut second = |from: u64, lost: u64| {
            for n in 0..100 {
                let now = at(from * 1_000 + n * 10);
                recent.count(now, None, false);
                if n < lost {
                    recent.count(now, None, true);
                }
            }
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

    #[test]
    fn behind_a_pause_of_minutes_a_bad_second_counts_as_little_as_at_the_beginning() {
        let at = Timestamp::from_millis;
        let mut recent = RecentLoss::new(at(0));
        (0..6_000).for_each(|n| recent.count(at(n * 10), None, false));
        let mut second = |from: u64| {
            (0..100).for_each(|n| recent.count(at(from + n * 10), None, n < 20));
            recent.rate(at(from + 1_000))
        };
        assert!((second(60_000) - 20.0 / 6_100.0).abs() < 1e-9);
        assert!((second(180_000) - 0.05).abs() < 1e-9, "a quarter of what was lost");
    }

    #[test]
    fn few_packets_say_little_however_long_they_took() {
        let at = Timestamp::from_millis;
        let mut recent = RecentLoss::new(at(0));
        (0..4).for_each(|n| recent.count(at(20_000 + n), None, n < 2));
        assert!((recent.rate(at(30_000)) - 0.5 * 0.01).abs() < 1e-9);
    }

    #[test]
    fn what_arrives_after_all_was_not_lost() {
        let at = Timestamp::from_millis;
        let mut recent = RecentLoss::new(at(0));
        (0..1_000).for_each(|n| recent.count(at(n * 10), None, n < 500));
        (0..400).for_each(|n| recent.take_back(at(10_000 + n), None));
        assert!((recent.rate(at(10_400)) - 0.1).abs() < 1e-9);
        assert!(!recent.is_heavy());
        (0..1_000).for_each(|n| recent.take_back(at(11_000 + n), None));
        assert!(recent.rate(at(12_000)).abs() < 1e-9);
    }

    #[test]
    fn copies_say_nothing_of_the_path() {
        let at = Timestamp::from_millis;
        let mut recent = RecentLoss::new(at(0));
        (0..1_000).for_each(|n| recent.count(at(n * 10), None, n % 10 == 0));
        (0..1_000).for_each(|n| recent.count(at(9_000 + n), Some(CopyKind::Replica), true));
        recent.take_back(at(10_000), Some(CopyKind::Replica));
        assert!((recent.rate(at(10_000)) - 0.1).abs() < 1e-9);
        assert!(recent.is_heavy(), "but of what leaves now much is lost");
    }
}
