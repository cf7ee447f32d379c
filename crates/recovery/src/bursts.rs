//! Runs of consecutive lost packets: their sizes, and the longest recent one, which is the distance
//! that a replica needs to escape a burst (ART, equation 6: B_max "in the past several RTTs (e.g.,
//! 5 ~ 10 RTTs)").

use core::time::Duration;
use units::Timestamp;

/// Number of size classes; the last one counts all longer runs.
pub const SIZES: usize = 32;
/// Length of a period for [`Bursts::recent`], in round-trip times.
const PERIOD_RTTS: u32 = 5;

/// Runs of consecutive lost packet numbers.
#[derive(Clone, Debug, Default)]
pub struct Bursts {
    /// Runs by size, from 1; the last entry counts runs of [`SIZES`] packets and more.
    counts: Option<Box<[u32; SIZES]>>,
    longest: u32,
    last: Option<u64>,
    run: u32,
    /// Longest run since `turned`, and in the period before.
    present: u32,
    former: u32,
    turned: Timestamp,
}

impl Bursts {
    pub(crate) fn on_lost(&mut self, now: Timestamp, rtt: Duration, number: u64) {
        self.turn(now, rtt);
        let follows = self.last.is_some_and(|last| last + 1 == number);
        let counts = self.counts.get_or_insert_with(|| Box::new([0; SIZES]));
        if follows {
            // Move the run to the next size class.
            let before = &mut counts[(self.run as usize).min(SIZES) - 1];
            *before = before.saturating_sub(1);
            self.run = self.run.saturating_add(1);
        } else {
            self.run = 1;
        }
        let place = &mut counts[(self.run as usize).min(SIZES) - 1];
        *place = place.saturating_add(1);
        self.last = Some(number);
        self.present = self.present.max(self.run);
        self.longest = self.longest.max(self.run);
    }

    fn turn(&mut self, now: Timestamp, rtt: Duration) {
        let age = now.since(self.turned);
        let period = rtt * PERIOD_RTTS;
        if age >= period {
            self.former = if age < period * 2 { self.present } else { 0 };
            self.present = 0;
            self.turned = now;
        }
    }

    /// Returns B_max, the longest run in the last 5 to 10 round-trip times; 0 without a loss.
    pub(crate) fn recent(&mut self, now: Timestamp, rtt: Duration) -> u32 {
        self.turn(now, rtt);
        self.present.max(self.former)
    }

    /// Returns the runs by size, from 1; the last entry counts runs of 32 packets and more.
    pub fn counts(&self) -> &[u32] {
        self.counts.as_ref().map_or(&[], |counts| &counts[..])
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
        for number in [3, 4, 5, 9, 20, 21].into_iter().chain(100..150) {
            bursts.on_lost(Timestamp::ZERO, rtt, number);
        }
        let of = |size: usize| bursts.counts()[size - 1];
        assert_eq!((of(1), of(2), of(3), of(SIZES)), (1, 1, 1, 1));
        assert_eq!(bursts.counts().iter().sum::<u32>(), 4);
        assert_eq!(bursts.longest(), 50);
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
