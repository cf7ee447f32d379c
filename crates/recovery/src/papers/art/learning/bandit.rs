//! Redundancy adapter as a multi-armed bandit (ART, appendix A.1), with an arm for each R from 1 to
//! 10. Each retransmission pulls an arm, chosen ε-greedily or by upper confidence bounds (Auer,
//! Cesa-Bianchi and Fischer, 2002).

use super::reward::{Choices, Penalty};
use crate::level::fixed::Reading;
use crate::random::Random;
use crate::{RecoveryEvent, RedundancyAdapter, UnitKey, View};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of arms: R = 1 to 10.
pub const ARMS: usize = 10;

/// How an arm is chosen. Ties go to the lowest R.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Strategy {
    /// A random arm with this probability, otherwise the arm with the highest mean. Untried arms
    /// have a mean of 0.
    EpsilonGreedy(f64),
    /// The arm with the highest mean + factor · √(2 ln N ÷ n), where n of N rewards were its own;
    /// untried arms first. Appendix A.1 gives no factor; its code uses 0.5.
    UpperBound(f64),
}

/// Parameters of the bandit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// How an arm is chosen.
    pub strategy: Strategy,
    /// Penalty of a lost round. The paper's η is 1.01.
    pub penalty: Penalty,
    /// Meaning of R.
    pub reading: Reading,
}

/// Statistics of the arms, from R = 1.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Arms {
    /// Number of rewards.
    pub counts: [u64; ARMS],
    /// Mean reward; 0 without any.
    pub means: [f64; ARMS],
}

/// Names of counts and means in `explain`.
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

/// Arms shared by bandits of successive or concurrent connections.
#[derive(Clone, Debug, Default)]
pub struct SharedArms(Arc<Mutex<Arms>>);

impl SharedArms {
    /// Returns the current statistics.
    pub fn get(&self) -> Arms {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Arms> {
        // Every statement leaves the numbers consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Identity, not equality of values.
impl PartialEq for SharedArms {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Returns the index of the highest value, the first of equal ones.
pub(crate) fn first_highest<T: PartialOrd + Copy>(values: &[T]) -> usize {
    let mut best = 0;
    for (place, value) in values.iter().enumerate() {
        if *value > values[best] {
            best = place;
        }
    }
    best
}

/// The bandit of a connection. Arms are not specific to a path, so a new path or connection keeps
/// them.
#[derive(Debug)]
pub struct Bandit {
    options: Options,
    arms: SharedArms,
    choices: Choices<usize>,
    newest: usize,
    random: Random,
}

impl Bandit {
    /// Creates a bandit with these arms. The seed determines all draws.
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
    fn upper_bounds_try_every_arm_and_then_weigh_mean_and_uncertainty() {
        let mut random = Random::new(1);
        let mut known = Arms::default();
        let strategy = Strategy::UpperBound(0.5);
        for arm in 0..ARMS {
            assert_eq!(known.choose(strategy, &mut random), arm);
            known.reward(arm, -1.0);
        }
        assert_eq!(known.choose(strategy, &mut random), 0, "all equal");
        known.reward(3, 1.0);
        // -1 + 0.5·√(2 ln 11) = 0.095 for the others, 0 + 0.5·√(ln 11) = 0.774 for this one.
        assert_eq!(known.choose(strategy, &mut random), 3);
        known.counts[3] = 1_000_000;
        assert_eq!(known.choose(strategy, &mut random), 0, "uncertainty grows with N");
    }

    #[test]
    fn greedy_choice_explores_one_time_in_ten() {
        let mut random = Random::new(2);
        let mut known = Arms::default();
        known.reward(6, 0.5);
        let strategy = Strategy::EpsilonGreedy(0.1);
        let best = (0..10_000).filter(|_| known.choose(strategy, &mut random) == 6).count();
        // 90 %, plus a tenth of 10 %.
        assert!((9_020..=9_180).contains(&best), "{best}");
    }

    #[test]
    fn rounds_are_rewarded_by_fate_and_arms_outlive_the_connection() {
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
        assert_eq!(arms.get().counts[..3], [1, 1, 0], "it arrived before a round started");
        drop(r);
        // Another connection continues with the third arm, the next untried one.
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
    fn both_strategies_find_the_best_arm() {
        for strategy in [Strategy::EpsilonGreedy(0.1), Strategy::UpperBound(0.5)] {
            let mut random = Random::new(7);
            let mut known = Arms::default();
            let mut pulls = [0; ARMS];
            for _ in 0..5_000 {
                let arm = known.choose(strategy, &mut random);
                pulls[arm] += 1;
                // Independent loss of 30 %.
                let arrived = (0..=arm).any(|_| random.fraction() >= 0.3);
                known.reward(arm, Penalty::Quotient(1.01).reward(1, arm as u32 + 1, arrived));
            }
            // R = 1: 0.7 − 0.3 · 1.01 = 0.397; R = 2: (0.91 − 0.09 · 1.01) / 2 = 0.410; R = 3:
            // 0.315.
            assert!(pulls[0] + pulls[1] > 3_500, "{strategy:?}: {pulls:?}");
        }
    }
}
