//! The windowed maximum over rounds from which BBR takes the bottleneck bandwidth
//! (draft-cardwell-iccrg-bbr-congestion-control-00, section 4.1.1.5).

use units::Rate;

/// `BtlBwFilterLen`: packet-timed rounds for which a sample counts.
pub(super) const ROUNDS: u64 = 10;

/// The largest sample of each of the last [`ROUNDS`] rounds that had one. Samples grow old only
/// when a new one comes: an application-limited stretch, which gives none, forgets nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct MaxFilter {
    best: [Rate; ROUNDS as usize],
    last_round: u64,
    max: Rate,
}

impl MaxFilter {
    /// Takes a sample of `round`, which is at least that of the sample before.
    pub(super) fn update(&mut self, round: u64, sample: Rate) {
        for skipped in (self.last_round + 1..=round).rev().take(self.best.len()) {
            self.best[(skipped % ROUNDS) as usize] = Rate::ZERO;
        }
        self.last_round = round;
        let slot = &mut self.best[(round % ROUNDS) as usize];
        *slot = sample.max(*slot);
        self.max = self.best.into_iter().fold(Rate::ZERO, Rate::max);
    }

    /// The maximum; `None` before the first sample.
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

    #[test]
    fn a_maximum_counts_for_ten_rounds() {
        let mut f = MaxFilter::default();
        assert_eq!(f.get(), None);
        f.update(3, mbps(20));
        for round in 3..13 {
            f.update(round, mbps(10));
            assert_eq!(f.get(), Some(mbps(20)), "round {round}");
        }
        f.update(13, mbps(9));
        assert_eq!(f.get(), Some(mbps(10)));
    }

    #[test]
    fn a_gap_without_samples_forgets_only_with_the_next_sample() {
        let mut f = MaxFilter::default();
        f.update(0, mbps(20));
        f.update(5, mbps(8));
        assert_eq!(f.get(), Some(mbps(20)));
        f.update(14, mbps(7));
        assert_eq!(f.get(), Some(mbps(8)));
        f.update(u64::MAX - 1, mbps(1));
        assert_eq!(f.get(), Some(mbps(1)));
    }
}
