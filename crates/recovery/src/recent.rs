//! Recent loss rates. More than 20 % in a second or two makes every loss a signal of congestion
//! under ART's rule (section 6.4). The loss rate of about a minute is what schemes take for the
//! path's.

use crate::table::CopyKind;
use core::time::Duration;
use units::Timestamp;

/// Evidence below which the loss rate is scaled down: time and packets. Otherwise an early outage
/// would make a path look worse than others.
const MIN_EVIDENCE: (Duration, u64) = (Duration::from_secs(4), 400);

/// Recently acknowledged and lost packets.
#[derive(Debug)]
pub(crate) struct RecentLoss {
    short: PeriodCounts<1>,
    long: PeriodCounts<32>,
}

impl RecentLoss {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { short: PeriodCounts::new(now), long: PeriodCounts::new(now) }
    }

    /// Counts a settled packet; `copy` is its role if it was a copy.
    pub(crate) fn count(&mut self, now: Timestamp, copy: Option<CopyKind>, is_lost: bool) {
        self.short.count(now, is_lost);
        if copy.is_none() {
            self.long.count(now, is_lost);
        }
    }

    /// Reverts the loss of a packet that has arrived.
    pub(crate) fn take_back(&mut self, now: Timestamp, copy: Option<CopyKind>) {
        self.count(now, copy, false);
        self.short.take_back();
        if copy.is_none() {
            self.long.take_back();
        }
    }

    /// Returns whether more than 20 % were lost in the last 1 to 2 seconds.
    pub(crate) fn is_heavy(&self) -> bool {
        let (acked, lost) = self.short.all();
        lost * 4 > acked && lost >= 5
    }

    /// Returns the loss rate of first transmissions in the last 32 to 64 seconds. Copies do not
    /// count: they follow losses closely and are lost more often.
    pub(crate) fn rate(&self, now: Timestamp) -> f64 {
        let (acked, lost) = self.long.all();
        let packets = (acked + lost).max(1) as f64;
        let (time, count) = MIN_EVIDENCE;
        let span = now.since(self.long.began).as_secs_f64() / time.as_secs_f64();
        lost as f64 / packets * span.min(packets / count as f64).min(1.0)
    }
}

/// Packets of the current and the previous period, each of `SECONDS`.
#[derive(Debug)]
struct PeriodCounts<const SECONDS: u64> {
    /// Start of the previous period, or of the current one without a previous one.
    began: Timestamp,
    /// End of the current period.
    until: Timestamp,
    /// Acknowledged and lost packets.
    present: (u32, u32),
    former: (u32, u32),
}

impl<const SECONDS: u64> PeriodCounts<SECONDS> {
    const SPAN: Duration = Duration::from_secs(SECONDS);

    fn new(now: Timestamp) -> Self {
        Self { began: now, until: now + Self::SPAN, present: (0, 0), former: (0, 0) }
    }

    fn count(&mut self, now: Timestamp, is_lost: bool) {
        if now >= self.until {
            self.turn(now);
        }
        self.present.0 += u32::from(!is_lost);
        self.present.1 += u32::from(is_lost);
    }

    /// Starts a period.
    fn turn(&mut self, now: Timestamp) {
        if now >= self.until + Self::SPAN {
            *self = Self::new(now);
        } else {
            (self.began, self.until) = (self.until - Self::SPAN, now + Self::SPAN);
            self.former = core::mem::take(&mut self.present);
        }
    }

    fn take_back(&mut self) {
        let lost = if self.present.1 > 0 { &mut self.present.1 } else { &mut self.former.1 };
        *lost = lost.saturating_sub(1);
    }

    /// Returns the acknowledged and lost packets of both periods.
    fn all(&self) -> (u64, u64) {
        let sum = |now, before| u64::from(now) + u64::from(before);
        (sum(self.present.0, self.former.0), sum(self.present.1, self.former.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bad_second_is_heavy_and_the_loss_rate_spans_a_minute() {
        let at = Timestamp::from_millis;
        let mut recent = RecentLoss::new(at(0));
        assert_eq!((recent.rate(at(0)), recent.is_heavy()), (0.0, false));
        // Sends 100 packets that arrive, and `lost` that do not.
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
            "half of a second, at a quarter of the evidence: {rate}"
        );
        for n in 1..39 {
            second(n, 0);
        }
        let (rate, is_heavy) = second(39, 100);
        assert!(is_heavy && (0.04..0.05).contains(&rate), "{rate}");
        assert!(!second(42, 0).1);
        let after = (43..140).map(|n| second(n, 0).0).last();
        assert_eq!(after, Some(0.0), "more than a minute ago");
    }

    #[test]
    fn after_a_pause_of_minutes_a_bad_second_weighs_as_little_as_at_the_start() {
        let at = Timestamp::from_millis;
        let mut recent = RecentLoss::new(at(0));
        (0..6_000).for_each(|n| recent.count(at(n * 10), None, false));
        let mut second = |from: u64| {
            (0..100).for_each(|n| recent.count(at(from + n * 10), None, n < 20));
            recent.rate(at(from + 1_000))
        };
        assert!((second(60_000) - 20.0 / 6_100.0).abs() < 1e-9);
        assert!((second(180_000) - 0.05).abs() < 1e-9, "a quarter of the evidence");
    }

    #[test]
    fn few_packets_weigh_little_over_any_time() {
        let at = Timestamp::from_millis;
        let mut recent = RecentLoss::new(at(0));
        (0..4).for_each(|n| recent.count(at(20_000 + n), None, n < 2));
        assert!((recent.rate(at(30_000)) - 0.5 * 0.01).abs() < 1e-9);
    }

    #[test]
    fn late_arrivals_revert_losses() {
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
    fn copies_do_not_count_in_the_loss_rate_of_the_path() {
        let at = Timestamp::from_millis;
        let mut recent = RecentLoss::new(at(0));
        (0..1_000).for_each(|n| recent.count(at(n * 10), None, n % 10 == 0));
        (0..1_000).for_each(|n| recent.count(at(9_000 + n), Some(CopyKind::Replica), true));
        recent.take_back(at(10_000), Some(CopyKind::Replica));
        assert!((recent.rate(at(10_000)) - 0.1).abs() < 1e-9);
        assert!(recent.is_heavy(), "copies do count in the short window");
    }
}
