//! The redundancy adapter as a multi-armed bandit (ART, appendix A.1): an arm for each R from 1 to 10,
//! pulled for each retransmission, by ε-greedy choice or by upper confidence bounds (Auer,
//! Cesa-Bianchi and Fischer, 2002).

use super::reward::{Choices, Penalty};
use crate::fixed::Reading;
use crate::random::Random;
use crate::{RecoveryEvent, RedundancyAdapter, UnitKey, View};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Arms: R = 1 to 10.
pub const ARMS: usize = 10;

/// How an arm is chosen. Of equal arms, the one with the least R.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Strategy {
    /// With this probability any arm, else the one of the highest mean. An arm that was never tried
    /// has a mean of 0.
    EpsilonGreedy(f64),
    /// The arm of the highest mean + factor · √(2 ln N ÷ n), where n of N rewards were its own; first
    /// those without any. Appendix A.1 gives no factor; its code has 0.5.
    UpperBound(f64),
}

/// The bandit's parameters.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// How an arm is chosen.
    pub strategy: Strategy,
    /// What a lost round costs. The paper's η is 1.01.
    pub penalty: Penalty,
    /// What R counts.
    pub reading: Reading,
}

/// What a bandit knows of its arms, from R = 1.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Arms {
    /// Rewards that each got.
    pub counts: [u64; ARMS],
    /// Mean of each one's rewards; 0 without any.
    pub means: [f64; ARMS],
}

/// Names under which counts and means are told.
const NAMES: [[&str; 2]; ARMS] = [
    ["count_1", "mean_1"],
    ["count_2", "mean_2"],
    ["count_3", "mean_3"],
    ["count_4", "mean_4"],
    ["count_5", "mean_5"],
    ["count_6", "mean_6"],
    ["count_7", "mean_7"],
    ["count_8", "mean_8"],
    ["count_9", "mean_9"],
    ["count_10", "mean_10"],
];

impl Arms {
    fn reward(&mut self, arm: usize, reward: f64) {
        self.counts[arm] += 1;
        self.means[arm] += (reward - self.means[arm]) / self.counts[arm] as f64;
    }

    fn choose(&self, strategy: Strategy, random: &mut Random) -> usize {
        match strategy {
            Strategy::EpsilonGreedy(epsilon) if random.fraction() < epsilon => {
                random.below(ARMS as u32) as usize
            }
            Strategy::EpsilonGreedy(_) => first_highest(&self.means),
            Strategy::UpperBound(factor) => {
                let total: u64 = self.counts.iter().sum();
                let spread = 2.0 * (total.max(1) as f64).ln();
                first_highest(&core::array::from_fn::<_, ARMS, _>(|arm| match self.counts[arm] {
                    0 => f64::INFINITY,
                    count => self.means[arm] + factor * (spread / count as f64).sqrt(),
                }))
            }
        }
    }
}

/// Arms that bandits have in common: those of one connection after the other, or of several at a time.
#[derive(Clone, Debug, Default)]
pub struct SharedArms(Arc<Mutex<Arms>>);

impl SharedArms {
    /// What is known of them now.
    pub fn get(&self) -> Arms {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Arms> {
        // Numbers are whole after each statement that changes them.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The same arms, not equal ones.
impl PartialEq for SharedArms {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The place of the highest value, the first of equal ones.
pub(crate) fn first_highest<T: PartialOrd + Copy>(values: &[T]) -> usize {
    let mut best = 0;
    for (place, value) in values.iter().enumerate() {
        if *value > values[best] {
            best = place;
        }
    }
    best
}

/// The bandit of one connection. What the arms are worth is not the path's alone: a new path changes
/// nothing, as a new connection does not.
#[derive(Debug)]
pub struct Bandit {
    options: Options,
    arms: SharedArms,
    choices: Choices<usize>,
    newest: usize,
    random: Random,
}

impl Bandit {
    /// A bandit with these arms. The seed determines all draws.
    pub fn new(options: Options, arms: SharedArms, seed: u64) -> Self {
        let random = Random::new(seed);
        Self { options, arms, choices: Choices::default(), newest: 0, random }
    }
}

impl RedundancyAdapter for Bandit {
    fn on_event(&mut self, event: &RecoveryEvent) {
        if let Some((round, arm, arrived)) = self.choices.settled(event) {
            let reward = self.options.penalty.reward(round, arm as u32 + 1, arrived);
            self.arms.lock().reward(arm, reward);
        }
    }

    fn level(&mut self, unit: UnitKey, round: u32, _: &View<'_>) -> u32 {
        self.newest = self.arms.lock().choose(self.options.strategy, &mut self.random);
        self.choices.made(unit, round, self.newest);
        self.options.reading.level(self.newest as u32 + 1)
    }

    fn explain(&self, tell: &mut dyn FnMut(&'static str, f64)) {
        let r = self.newest as u32 + 1;
        tell("level", self.options.reading.level(r).into());
        tell("r", r.into());
        let arms = self.arms.get();
        for (arm, [count, mean]) in NAMES.into_iter().enumerate() {
            tell(count, arms.counts[arm] as f64);
            tell(mean, arms.means[arm]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arq, CopyKind, Recovery, Scheme};
    use units::Timestamp;

    fn options(strategy: Strategy) -> Options {
        Options { strategy, penalty: Penalty::Quotient(1.01), reading: Reading::Extra }
    }

    fn recovery(bandit: Bandit) -> Recovery<()> {
        let scheme = Scheme { adapter: Box::new(bandit), ..Arq::scheme() };
        Recovery::new(scheme, None, Timestamp::ZERO)
    }

    #[test]
    fn upper_bounds_try_every_arm_first_and_then_weigh_mean_and_doubt() {
        let mut random = Random::new(1);
        let mut known = Arms::default();
        let strategy = Strategy::UpperBound(0.5);
        for arm in 0..ARMS {
            assert_eq!(known.choose(strategy, &mut random), arm);
            known.reward(arm, -1.0);
        }
        assert_eq!(known.choose(strategy, &mut random), 0, "all alike");
        known.reward(3, 1.0);
        // -1 + 0.5·√(2 ln 11) = 0.095 for the others, 0 + 0.5·√(ln 11) = 0.774 for this one.
        assert_eq!(known.choose(strategy, &mut random), 3);
        known.counts[3] = 1_000_000;
        assert_eq!(known.choose(strategy, &mut random), 0, "doubt grows with N");
    }

    #[test]
    fn greed_explores_one_time_in_ten_and_takes_the_best_else() {
        let mut random = Random::new(2);
        let mut known = Arms::default();
        known.reward(6, 0.5);
        let strategy = Strategy::EpsilonGreedy(0.1);
        let best = (0..10_000).filter(|_| known.choose(strategy, &mut random) == 6).count();
        // 90 % and a tenth of 10 %.
        assert!((9_020..=9_180).contains(&best), "{best}");
    }

    #[test]
    fn rounds_are_rewarded_by_their_fate_and_the_arms_outlive_the_connection() {
        let arms = SharedArms::default();
        let bandit = |seed| Bandit::new(options(Strategy::UpperBound(0.5)), arms.clone(), seed);
        let mut r = recovery(bandit(3));
        let now = Timestamp::from_millis(1);
        let send = |r: &mut Recovery<()>, key| r.copy_sent(now, key, CopyKind::Retransmission);
        let [a, b, c] = [0; 3].map(|_| r.opened(now, Timestamp::ZERO, 1));
        send(&mut r, a);
        assert!(r.copy_lost(now, a, CopyKind::Retransmission));
        send(&mut r, a);
        r.finish(now, a, None);
        send(&mut r, b);
        r.abandon(now, b);
        assert_eq!(arms.get().counts[..3], [1, 1, 0]);
        assert_eq!(arms.get().means[..2], [-1.01, 1.0 / (2.0 * 2.0)]);
        r.finish(now, c, None);
        assert_eq!(arms.get().counts[..3], [1, 1, 0], "it arrived before a round began");
        drop(r);
        // The third arm is the next that was never rewarded, in another connection too.
        let mut other = recovery(bandit(3));
        let d = other.opened(now, Timestamp::ZERO, 1);
        send(&mut other, d);
        other.finish(now, d, None);
        assert_eq!(arms.get().counts[..4], [1, 1, 1, 0]);
        let mut told = 0.0;
        other.explain(&mut |name, value| {
            told += if name.starts_with("count") { value } else { 0.0 }
        });
        assert_eq!(told, 3.0);
    }

    #[test]
    fn both_strategies_find_the_arm_of_the_highest_reward() {
        for strategy in [Strategy::EpsilonGreedy(0.1), Strategy::UpperBound(0.5)] {
            let mut random = Random::new(7);
            let mut known = Arms::default();
            let mut pulls = [0; ARMS];
            for _ in 0..5_000 {
                let arm = known.choose(strategy, &mut random);
                pulls[arm] += 1;
                // Copies get lost 30 % of the time, each on its own.
                let arrived = (0..=arm).any(|_| random.fraction() >= 0.3);
                known.reward(arm, Penalty::Quotient(1.01).reward(1, arm as u32 + 1, arrived));
            }
            // R = 1: 0.7 − 0.3 · 1.01 = 0.397; R = 2: (0.91 − 0.09 · 1.01) / 2 = 0.410; R = 3: 0.315.
            assert!(pulls[0] + pulls[1] > 3_500, "{strategy:?}: {pulls:?}");
        }
    }
}
