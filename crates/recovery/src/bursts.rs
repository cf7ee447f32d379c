//! Runs of consecutive lost packets: their sizes, and the longest recent one, which is the distance
//! that a replica needs to escape a burst (ART, equation 6: B_max "in the past several RTTs (e.g.,
//! 5 ~ 10 RTTs)").

use core::time::Duration;
use units::Timestamp;

/// Upper limits of the size classes, in packets. A further class counts longer runs.
pub const BURST_SIZES: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// Runs by class of [`BURST_SIZES`], and longer ones.
pub type BurstCounts = [u32; BURST_SIZES.len() + 1];
/// Length of a period for [`Bursts::recent`], in round-trip times.
const PERIOD_RTTS: u32 = 5;

/// Runs of consecutive lost packet numbers.
#[derive(Clone, Debug, Default)]
pub struct Bursts {
    counts: BurstCounts,
    longest: u32,
    last: Option<u64>,
    run: u32,
    /// Longest run since `turned`, and in the period before.
    present: u32,
    former: u32,
    turned: Timestamp,
}

/// Returns the class of a run of `size` packets, 1 or more.
fn class(size: u32) -> usize {
    BURST_SIZES.partition_point(|&limit| limit < size)
}

impl Bursts {
    pub(crate) const EMPTY: Self = Self {
        counts: [0; BURST_SIZES.len() + 1],
        longest: 0,
        last: None,
        run: 0,
        present: 0,
        former: 0,
        turned: Timestamp::ZERO,
    };

    pub(crate) fn on_lost(&mut self, now: Timestamp, rtt: Duration, number: u64) {
        self.turn(now, rtt);
        let follows = self.last.is_some_and(|last| last + 1 == number);
        if follows {
            // The run may move to the next class.
            let before = &mut self.counts[class(self.run)];
            *before = before.saturating_sub(1);
            self.run = self.run.saturating_add(1);
        } else {
            self.run = 1;
        }
        let place = &mut self.counts[class(self.run)];
        *place = place.saturating_add(1);
        self.last = Some(number);
        self.present = self.present.max(self.run);
        self.longest = self.longest.max(self.run);
    }

    fn turn(&mut self, now: Timestamp, rtt: Duration) {
        if now.since(self.turned) >= rtt * PERIOD_RTTS {
            (self.former, self.present, self.turned) = (self.recent(now, rtt), 0, now);
        }
    }

    /// Returns B_max, the longest run in the last 5 to 10 round-trip times; 0 without a loss.
    pub(crate) fn recent(&self, now: Timestamp, rtt: Duration) -> u32 {
        let (age, period) = (now.since(self.turned), rtt * PERIOD_RTTS);
        if age < period {
            self.present.max(self.former)
        } else if age < period * 2 {
            self.present
        } else {
            0
        }
    }

    /// Returns the runs by size class.
    pub fn counts(&self) -> &BurstCounts {
        &self.counts
    }

    /// Returns the longest run.
    pub fn longest(&self) -> u32 {
        self.longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_counted_by_their_final_size() {
        let mut bursts = Bursts::default();
        let rtt = Duration::from_millis(10);
        let runs = [3..6, 9..10, 20..22, 100..104, 200..205, 300..428, 500..629];
        for number in runs.into_iter().flatten() {
            bursts.on_lost(Timestamp::ZERO, rtt, number);
        }
        assert_eq!(*bursts.counts(), [1, 1, 2, 1, 0, 0, 0, 1, 1]);
        assert_eq!(bursts.longest(), 129);
    }

    #[test]
    fn the_longest_recent_run_expires_after_5_to_10_round_trips() {
        let ms = Timestamp::from_millis;
        let rtt = Duration::from_millis(10);
        let mut bursts = Bursts::default();
        assert_eq!(bursts.recent(ms(0), rtt), 0);
        (7..10).for_each(|number| bursts.on_lost(ms(60), rtt, number));
        assert_eq!(bursts.recent(ms(61), rtt), 3);
        bursts.on_lost(ms(115), rtt, 50);
        assert_eq!(bursts.recent(ms(120), rtt), 3);
        assert_eq!(bursts.recent(ms(170), rtt), 1);
        assert_eq!(bursts.recent(ms(400), rtt), 0);
    }
}
