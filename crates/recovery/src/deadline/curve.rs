//! How likely a packet is lost that leaves some time after a lost one: what was measured on this connection, smoothed
//! by what real paths are like, so that the first loss is already met with something.

use core::time::Duration;

use crate::correlation::{CALLS, Chances, LAGS, LossCorrelation};

/// Episodes of loss that the prior weighs, and the fewest packets of a class.
const EPISODES: f64 = 4.0;
const LEAST: f64 = 16.0;
/// What a class says of those so far from it: a quarter of the one before.
const NEIGHBOURS: [f64; LAGS.len()] = {
    let mut shares = [1.0; LAGS.len()];
    let mut distance = 1;
    while distance < shares.len() {
        shares[distance] = shares[distance - 1] / 4.0;
        distance += 1;
    }
    shares
};
/// Beyond the last class: the time in which what is above the floor halves, and the floor as a share of the last
/// class's chance.
const HALVES: f64 = 0.2;
const FLOOR: f64 = 0.4;
/// So long after a loss a packet is lost as any other.
const FAR: Duration = Duration::from_secs(2);

/// Chances of loss by the time since a loss; they never rise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Curve {
    chances: Chances,
    /// What they come down to.
    floor: f64,
}

/// As many losses before a sending are told apart; more count as so many.
const KNOWN: usize = 4;

/// The chances that a sending is lost, by how many of the same data were lost before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Losses([f64; KNOWN]);

impl Losses {
    /// With `losses` (1 or more) before it.
    pub(super) fn given(self, losses: u32) -> f64 {
        self.0[(losses.max(1) as usize).min(KNOWN) - 1]
    }
}

impl Curve {
    /// What is known by now.
    pub(super) fn of(measured: Option<&LossCorrelation>) -> Self {
        let counts = measured.map(LossCorrelation::counts).unwrap_or_default();
        let episodes = measured.map_or(0, LossCorrelation::episodes).max(1) as f64;
        let expected = measured.map_or(CALLS, LossCorrelation::expected);
        // Packets that went along with an episode share its fate: the prior weighs as many of them as of episodes.
        let share = EPISODES / episodes;
        let mut chances = expected;
        for (class, chance) in chances.iter_mut().enumerate() {
            // Few packets leave at some lags: a class without any follows its neighbours by way of its prior.
            let (mut seen, mut foreseen) = (LEAST * *chance, LEAST * *chance);
            for (other, ((sent, lost), prior)) in counts.iter().zip(expected).enumerate() {
                let near = NEIGHBOURS[class.abs_diff(other)];
                let expected = *sent as f64 * prior;
                seen += near * (*lost as f64 + share * expected);
                foreseen += near * (1.0 + share) * expected;
            }
            let prior = (*chance * (seen / foreseen).min(2.0)).min(1.0);
            let (sent, lost) = counts[class];
            let weight = (share * sent as f64).max(LEAST);
            *chance = (lost as f64 + prior * weight) / (sent as f64 + weight);
        }
        for class in (1..chances.len()).rev() {
            chances[class - 1] = chances[class - 1].max(chances[class]);
        }
        Self::falling(chances)
    }

    /// What was known when the connection began.
    pub(super) fn expected(measured: Option<&LossCorrelation>) -> Self {
        Self::falling(measured.map_or(CALLS, LossCorrelation::expected))
    }

    fn falling(chances: Chances) -> Self {
        Self { chances, floor: FLOOR * chances[LAGS.len() - 1] }
    }

    /// Whatever was lost before, each packet is lost with this chance.
    pub(super) fn flat(chance: f64) -> Self {
        Self { chances: [chance; LAGS.len()], floor: chance }
    }

    /// The chances that a packet is lost that leaves `lag` after the last of some sendings of the same data, all lost.
    ///
    /// Bad times are of many lengths, and who lost several sendings is mostly in a long one: how much of what losses
    /// have in common is left after `lag` goes by its root. Where losses are independent nothing changes.
    pub(super) fn after(&self, lag: Duration) -> Losses {
        let (least, most, one) = (self.at(FAR), self.at(Duration::ZERO), self.at(lag));
        if most <= least {
            return Losses([one; KNOWN]);
        }
        let left = ((one - least) / (most - least)).clamp(0.0, 1.0);
        let second = left.sqrt();
        let chance = |left: f64| least + (most - least) * left;
        Losses([one, chance(second), chance(left.cbrt()), chance(second.sqrt())])
    }

    /// The chance that a packet is lost that leaves `lag` after a lost one.
    fn at(&self, lag: Duration) -> f64 {
        let Some(class) = LAGS.iter().position(|&end| lag <= end) else {
            let above = self.chances[LAGS.len() - 1] - self.floor;
            let beyond = (lag - LAGS[LAGS.len() - 1]).as_secs_f64();
            return self.floor + above * (-beyond / HALVES * core::f64::consts::LN_2).exp();
        };
        if class == 0 {
            return self.chances[0];
        }
        let (from, to) = (LAGS[class - 1].as_secs_f64(), LAGS[class].as_secs_f64());
        let part = (lag.as_secs_f64() - from) / (to - from);
        self.chances[class - 1] + (self.chances[class] - self.chances[class - 1]) * part
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Timestamp;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// A packet every 2 ms.
    fn measured(lost: impl Fn(u64) -> bool) -> Curve {
        let mut all = LossCorrelation::default();
        for number in 0..100_000 {
            all.on_settled(Timestamp::from_millis(2 * number), lost(number));
            all.on_all_settled();
        }
        Curve::of(Some(&all))
    }

    #[test]
    fn without_measurement_it_is_that_of_calls_and_never_rises() {
        let curve = Curve::of(None);
        assert!((curve.at(ms(20)) - 0.43).abs() < 0.01);
        assert!((curve.at(ms(100)) - 0.24).abs() < 0.01);
        let chances: Vec<f64> = (0..2_000).map(|lag| curve.at(ms(lag))).collect();
        assert!(chances.is_sorted_by(|a, b| a >= b));
        assert!((0.06..0.1).contains(&curve.at(ms(1_500))), "{}", curve.at(ms(1_500)));
    }

    #[test]
    fn who_lost_several_times_is_in_a_long_bad_time_unless_losses_are_independent() {
        let calls = Curve::of(None);
        let of = |losses| calls.after(ms(100)).given(losses);
        assert!(of(1) < of(2) && of(2) < of(4) && of(4) < 0.8, "{} {} {}", of(1), of(2), of(4));
        let independent = measured(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59 == 0);
        assert!(independent.after(ms(100)).given(4) < 0.06);
    }

    #[test]
    fn what_was_measured_on_the_last_visit_comes_before_what_is_usual() {
        let mut known = LossCorrelation::default();
        known.expect([0.04; LAGS.len()]);
        let curve = Curve::of(Some(&known));
        assert!((curve.at(ms(20)) - 0.04).abs() < 0.01, "{}", curve.at(ms(20)));
        // And counts for no more than any prior does.
        for number in 0..100_000 {
            known.on_settled(Timestamp::from_millis(2 * number), number % 250 < 10);
            known.on_all_settled();
        }
        assert!(Curve::of(Some(&known)).at(ms(2)) > 0.8);
    }

    #[test]
    fn what_is_measured_takes_the_priors_place() {
        // Multiples of a prime: one in 21, alike at all lags.
        let independent = measured(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59 == 0);
        for lag in [2, 20, 100, 200] {
            assert!(independent.at(ms(lag)) < 0.06, "{lag} ms: {}", independent.at(ms(lag)));
        }
        // 10 of 250 packets, one after the other: 20 ms of 500.
        let outages = measured(|n| n % 250 < 10);
        assert!(outages.at(ms(2)) > 0.8, "{}", outages.at(ms(2)));
        assert!(outages.at(ms(50)) < 0.02, "{}", outages.at(ms(50)));
    }
}
