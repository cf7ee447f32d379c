//! BBR's bottleneck bandwidth filter (draft-cardwell-iccrg-bbr-congestion-control-00, section
//! 4.1.1.5): the maximum over the last ten rounds. For application-limited senders it also covers
//! the last four seconds, and the last ten rounds with a sample: one poor sample after an outage
//! must not expire samples from before a long period without any.

use core::time::Duration;

use units::{Rate, Timestamp};

/// `BtlBwFilterLen`: rounds for which a sample counts.
pub(super) const ROUNDS: usize = 10;
/// Minimum time for which a sample counts for limited senders, in slots: two cycles of ProbeBW as
/// in draft-ietf-ccwg-bbr (`MaxBwFilterLen`), which also filters over time.
pub(super) const MIN_TIME: Duration = Duration::from_secs(4);
const SLOTS: usize = 8;
const SLOT_LENGTH: Duration = Duration::from_millis(500);

/// Maximum sample of each of the last `N` positions. Samples expire only when new ones arrive, so
/// an application-limited period without samples expires nothing.
#[derive(Clone, Debug)]
struct Ring<const N: usize> {
    best: [Rate; N],
    last: u64,
    max: Rate,
}

impl<const N: usize> Default for Ring<N> {
    fn default() -> Self {
        Self { best: [Rate::ZERO; N], last: 0, max: Rate::ZERO }
    }
}

impl<const N: usize> Ring<N> {
    /// Adds a sample at a position, which does not decrease.
    fn update(&mut self, place: u64, sample: Rate) {
        for skipped in (self.last + 1..=place).rev().take(N) {
            self.best[(skipped % N as u64) as usize] = Rate::ZERO;
        }
        self.last = place;
        let slot = &mut self.best[(place % N as u64) as usize];
        *slot = sample.max(*slot);
        self.max = self.best.into_iter().fold(Rate::ZERO, Rate::max);
    }
}

/// The bandwidth filter.
#[derive(Clone, Debug, Default)]
pub(super) struct MaxFilter {
    rounds: Ring<ROUNDS>,
    /// Round of the last sample.
    round: u64,
    slots: Ring<SLOTS>,
    max: Rate,
}

impl MaxFilter {
    /// Adds a sample of `round`; neither it nor `now` decreases. With `keeps`, samples of the last
    /// four seconds count beyond ten rounds, and only rounds with samples count.
    pub(super) fn update(&mut self, round: u64, now: Timestamp, sample: Rate, keeps: bool) {
        let rounds = round - self.round;
        self.round = round;
        self.rounds.update(self.rounds.last + if keeps { rounds.min(1) } else { rounds }, sample);
        self.slots.update(now.as_nanos() / SLOT_LENGTH.as_nanos() as u64, sample);
        self.max = if keeps { self.rounds.max.max(self.slots.max) } else { self.rounds.max };
    }

    /// Returns the maximum; `None` before the first sample.
    pub(super) fn get(&self) -> Option<Rate> {
        (self.max > Rate::ZERO).then_some(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mbps(n: u64) -> Rate {
        Rate::from_mbps(n)
    }

    /// Adds a sample of a round of 10 ms.
    fn update(f: &mut MaxFilter, round: u64, sample: Rate) {
        f.update(round, Timestamp::from_millis(10 * round), sample, false);
    }

    #[test]
    fn a_maximum_counts_for_ten_rounds() {
        let mut f = MaxFilter::default();
        assert_eq!(f.get(), None);
        update(&mut f, 3, mbps(20));
        for round in 3..13 {
            update(&mut f, round, mbps(10));
            assert_eq!(f.get(), Some(mbps(20)), "round {round}");
        }
        update(&mut f, 13, mbps(9));
        assert_eq!(f.get(), Some(mbps(10)));
    }

    #[test]
    fn a_gap_without_samples_expires_values_only_at_the_next_sample() {
        let mut f = MaxFilter::default();
        update(&mut f, 0, mbps(20));
        update(&mut f, 5, mbps(8));
        assert_eq!(f.get(), Some(mbps(20)));
        update(&mut f, 14, mbps(7));
        assert_eq!(f.get(), Some(mbps(8)));
        f.update(u64::MAX - 1, Timestamp::from_nanos(u64::MAX), mbps(1), false);
        assert_eq!(f.get(), Some(mbps(1)));
    }

    #[test]
    fn a_kept_maximum_counts_for_four_seconds() {
        let mut f = MaxFilter::default();
        let at = Timestamp::from_millis;
        f.update(0, at(600), mbps(20), true);
        for round in 1..340 {
            f.update(round, at(600 + 10 * round), mbps(10), true);
            assert_eq!(f.get(), Some(mbps(20)), "round {round}");
        }
        // Without `keeps` it expires at once.
        f.update(340, at(4_000), mbps(10), false);
        assert_eq!(f.get(), Some(mbps(10)));
        f.update(341, at(4_010), mbps(10), true);
        assert_eq!(f.get(), Some(mbps(20)));
        f.update(342, at(4_600), mbps(10), true);
        assert_eq!(f.get(), Some(mbps(10)));
        // Ten rounds of 300 ms last for three seconds; ten of 1 s last longer than four.
        f.update(343, at(10_000), mbps(30), true);
        f.update(352, at(19_000), mbps(10), true);
        assert_eq!(f.get(), Some(mbps(30)));
        assert_eq!(SLOT_LENGTH * SLOTS as u32, MIN_TIME);
    }

    #[test]
    fn a_kept_maximum_counts_for_ten_rounds_with_samples() {
        for keeps in [true, false] {
            let mut f = MaxFilter::default();
            f.update(1, Timestamp::from_millis(100), mbps(20), keeps);
            // Half a minute of application-limited samples, which are not added.
            for (n, round) in (300..309).enumerate() {
                f.update(round, Timestamp::from_millis(30_000 + 100 * n as u64), mbps(1), keeps);
                assert_eq!(f.get(), Some(if keeps { mbps(20) } else { mbps(1) }), "{round}");
            }
            f.update(309, Timestamp::from_millis(31_000), mbps(1), keeps);
            assert_eq!(f.get(), Some(mbps(1)));
        }
    }
}
