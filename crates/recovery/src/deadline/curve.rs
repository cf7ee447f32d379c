//! Probability that a packet is lost as a function of the time since an earlier loss: measurements
//! on this connection, smoothed towards a prior so that even the first loss has an estimate.

use core::time::Duration;

use super::TUNING;
use crate::correlation::{CALLS, Chances, LAGS, LossCorrelation};

/// Weights of the evidence of a class for classes at each distance.
const NEIGHBOUR_WEIGHTS: [f64; LAGS.len()] = {
    let mut weights = [1.0; LAGS.len()];
    let mut distance = 1;
    while distance < weights.len() {
        weights[distance] = weights[distance - 1] / TUNING.class_decay;
        distance += 1;
    }
    weights
};
/// Earlier losses of the same data that are distinguished; more count as this many.
const MAX_LOSSES: usize = 4;

/// Loss probabilities by time since a loss; they never rise with time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LossCurve {
    chances: Chances,
    /// Limit at long lags.
    floor: f64,
}

/// Loss probabilities of a transmission, by the number of earlier losses of the same data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Losses([f64; MAX_LOSSES]);

impl Losses {
    /// Returns the probability after `losses` (1 or more) earlier losses.
    pub(super) fn given(self, losses: u32) -> f64 {
        self.0[(losses.max(1) as usize).min(MAX_LOSSES) - 1]
    }
}

impl LossCurve {
    /// Builds the curve from measurements and the prior.
    pub(super) fn of(measured: Option<&LossCorrelation>) -> Self {
        let counts = measured.map(LossCorrelation::counts).unwrap_or_default();
        let episodes = measured.map_or(0, LossCorrelation::episodes).max(1) as f64;
        let expected = measured.map_or(CALLS, LossCorrelation::expected);
        // Packets of one episode share its fate, so the prior is weighted in episodes, converted to
        // packets.
        let prior_share = TUNING.prior_episodes / episodes;
        let least = TUNING.prior_packets;
        let mut chances = expected;
        for (class, chance) in chances.iter_mut().enumerate() {
            // Few packets fall into some classes. A class without any follows its neighbours.
            let (mut observed, mut predicted) = (least * *chance, least * *chance);
            for (other, ((sent, lost), prior)) in counts.iter().zip(expected).enumerate() {
                let weight = NEIGHBOUR_WEIGHTS[class.abs_diff(other)];
                let expected = *sent as f64 * prior;
                observed += weight * (*lost as f64 + prior_share * expected);
                predicted += weight * (1.0 + prior_share) * expected;
            }
            let prior = (*chance * (observed / predicted).min(2.0)).min(1.0);
            let (sent, lost) = counts[class];
            let weight = (prior_share * sent as f64).max(least);
            *chance = (lost as f64 + prior * weight) / (sent as f64 + weight);
        }
        for class in (1..chances.len()).rev() {
            chances[class - 1] = chances[class - 1].max(chances[class]);
        }
        Self::falling(chances)
    }

    /// Builds the curve from the prior alone.
    pub(super) fn expected(measured: Option<&LossCorrelation>) -> Self {
        Self::falling(measured.map_or(CALLS, LossCorrelation::expected))
    }

    fn falling(chances: Chances) -> Self {
        Self { chances, floor: TUNING.tail_floor * chances[LAGS.len() - 1] }
    }

    /// Builds the curve of independent losses with this probability.
    pub(super) fn flat(chance: f64) -> Self {
        Self { chances: [chance; LAGS.len()], floor: chance }
    }

    /// Returns the loss probabilities of a packet sent `lag` after the last of several lost
    /// transmissions of the same data.
    ///
    /// Outages vary in length, and data that was lost several times has probably met a long one.
    /// The part of the correlation that remains at `lag` after n losses is the n-th root of the
    /// part that remains after one. Independent losses are unaffected.
    pub(super) fn after(&self, lag: Duration) -> Losses {
        let far = self.at(TUNING.independence_lag);
        let (near, one) = (self.at(Duration::ZERO), self.at(lag));
        if near <= far {
            return Losses([one; MAX_LOSSES]);
        }
        let left = ((one - far) / (near - far)).clamp(0.0, 1.0);
        let second = left.sqrt();
        let chance = |left: f64| far + (near - far) * left;
        Losses([one, chance(second), chance(left.cbrt()), chance(second.sqrt())])
    }

    /// Returns the loss probability of a packet sent `lag` after a lost one.
    fn at(&self, lag: Duration) -> f64 {
        let Some(class) = LAGS.iter().position(|&end| lag <= end) else {
            let above = self.chances[LAGS.len() - 1] - self.floor;
            let beyond = (lag - LAGS[LAGS.len() - 1]).as_secs_f64();
            let half_lives = beyond / TUNING.tail_half_life;
            return self.floor + above * (-half_lives * core::f64::consts::LN_2).exp();
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

    /// Builds the curve for a packet every 2 ms.
    fn measured(lost: impl Fn(u64) -> bool) -> LossCurve {
        let mut all = LossCorrelation::default();
        for number in 0..100_000 {
            all.on_settled(Timestamp::from_millis(2 * number), lost(number));
            all.on_all_settled();
        }
        LossCurve::of(Some(&all))
    }

    #[test]
    fn the_prior_is_the_curve_of_calls_and_never_rises() {
        let curve = LossCurve::of(None);
        assert!((curve.at(ms(20)) - 0.43).abs() < 0.01);
        assert!((curve.at(ms(100)) - 0.24).abs() < 0.01);
        let chances: Vec<f64> = (0..2_000).map(|lag| curve.at(ms(lag))).collect();
        assert!(chances.is_sorted_by(|a, b| a >= b));
        assert!((0.06..0.1).contains(&curve.at(ms(1_500))), "{}", curve.at(ms(1_500)));
    }

    #[test]
    fn repeated_losses_raise_the_estimate_unless_losses_are_independent() {
        let calls = LossCurve::of(None);
        let of = |losses| calls.after(ms(100)).given(losses);
        assert!(of(1) < of(2) && of(2) < of(4) && of(4) < 0.8, "{} {} {}", of(1), of(2), of(4));
        let independent = measured(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59 == 0);
        assert!(independent.after(ms(100)).given(4) < 0.06);
    }

    #[test]
    fn the_last_visit_replaces_the_default_prior() {
        let mut known = LossCorrelation::default();
        known.expect([0.04; LAGS.len()]);
        let curve = LossCurve::of(Some(&known));
        assert!((curve.at(ms(20)) - 0.04).abs() < 0.01, "{}", curve.at(ms(20)));
        // It weighs no more than any prior.
        for number in 0..100_000 {
            known.on_settled(Timestamp::from_millis(2 * number), number % 250 < 10);
            known.on_all_settled();
        }
        assert!(LossCurve::of(Some(&known)).at(ms(2)) > 0.8);
    }

    #[test]
    fn measurements_outweigh_the_prior() {
        // Pseudo-random: 1 packet in 32, at all lags alike.
        let independent = measured(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59 == 0);
        for lag in [2, 20, 100, 200] {
            assert!(independent.at(ms(lag)) < 0.06, "{lag} ms: {}", independent.at(ms(lag)));
        }
        // 10 consecutive packets of 250: 20 ms of every 500 ms.
        let outages = measured(|n| n % 250 < 10);
        assert!(outages.at(ms(2)) > 0.8, "{}", outages.at(ms(2)));
        assert!(outages.at(ms(50)) < 0.02, "{}", outages.at(ms(50)));
    }
}
