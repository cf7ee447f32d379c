//! Adapters that learn (ART, appendix A): bandits and a deep Q-network, with the rewards of both.

mod bandit;
pub mod dqn;
mod reward;

pub use bandit::{Arms, Bandit, Options as BanditOptions, SharedArms, Strategy};
pub use reward::{ETA, GAMMA, Penalty};

use super::{ESCAPE, scheme};
use crate::Scheme;
use crate::level::fixed::Reading;
use std::sync::Arc;

/// "art-egreedy": an ε-greedy bandit with these arms and ε = 0.1.
pub fn egreedy(reading: Reading, arms: SharedArms, penalty: Penalty, seed: u64) -> Scheme {
    bandit("art-egreedy", Strategy::EpsilonGreedy(0.1), reading, arms, penalty, seed)
}

/// "art-ucb": a bandit with these arms by upper confidence bounds.
pub fn ucb(reading: Reading, arms: SharedArms, penalty: Penalty, seed: u64) -> Scheme {
    bandit("art-ucb", Strategy::UpperBound(0.5), reading, arms, penalty, seed)
}

fn bandit(
    name: &'static str,
    strategy: Strategy,
    reading: Reading,
    arms: SharedArms,
    penalty: Penalty,
    seed: u64,
) -> Scheme {
    let options = BanditOptions { strategy, penalty, reading };
    // Arms and send times use separate generators.
    scheme(name, Bandit::new(options, arms, !seed), ESCAPE, seed)
}

/// "art-dqn": a trained network.
pub fn dqn(network: Arc<dqn::Network>, reading: Reading, seed: u64) -> Scheme {
    scheme("art-dqn", dqn::adapter(network, reading), ESCAPE, seed)
}
