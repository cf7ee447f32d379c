//! ART, "Accelerating Loss Recovery for Content Delivery Network": redundancy for retransmissions
//! alone, adapted to the loss of copies ([`TestAndVerify`], section 6.1) and spread over time against
//! bursts ([`Replicas`], section 6.2).
//!
//! Replicas may pass the congestion window a little, and a loss is a signal of congestion only if a
//! whole round is lost (section 6.4). The bandits and the DQN of appendix A take the adapter's place
//! and nothing else.

mod adapter;
mod bandit;
mod bitmap;

pub mod dqn;
mod reward;
mod scheduler;

pub use adapter::{Options, Rules, TestAndVerify, step};
pub use bandit::{Arms, Bandit, Options as BanditOptions, SharedArms, Strategy};
pub use bitmap::Bitmap;
pub use reward::{ETA, GAMMA, Penalty};
pub use scheduler::{Replicas, Spread};

use crate::fixed::Reading;
use crate::{Arq, LossSignal, RedundancyAdapter, Scheme};
use std::sync::Arc;

/// The paper's escape space, with α = 1.
const ESCAPE: Spread = Spread::EscapeSpace { alpha: 1.0 };

fn scheme(
    name: &'static str,
    adapter: impl RedundancyAdapter + 'static,
    spread: Spread,
    seed: u64,
) -> Scheme {
    with_schedule(Scheme::new(name, adapter, Arq), spread, seed)
}

/// "art-paper": ART as its paper has it.
pub fn paper(reading: Reading, seed: u64) -> Scheme {
    with_options("art-paper", Options::paper(reading), ESCAPE, seed)
}

/// "art-code": ART as its published code has it, which counts extra copies. With [`Reading::Copies`] R_1
/// hardly ever rises: the loss of a round's only copy is the last one's, which its bitmap does not
/// learn of.
pub fn code(reading: Reading, seed: u64) -> Scheme {
    with_options("art-code", Options::code(reading), Spread::RoundTrip, seed)
}

/// Test and verification by any options over any spread: the sensitivity to L_queue (figure 15), to α,
/// and what each difference between paper and code does.
pub fn with_options(name: &'static str, options: Options, spread: Spread, seed: u64) -> Scheme {
    scheme(name, TestAndVerify::new(options), spread, seed)
}

/// "art-egreedy": an ε-greedy bandit with these arms, ε = 0.1, R counted as in `reading`.
pub fn egreedy(reading: Reading, arms: SharedArms, penalty: Penalty, seed: u64) -> Scheme {
    bandit("art-egreedy", Strategy::EpsilonGreedy(0.1), reading, arms, penalty, seed)
}

/// "art-ucb": a bandit by upper confidence bounds with these arms, R counted as in `reading`.
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
    // Choices and moments are drawn apart.
    scheme(name, Bandit::new(options, arms, !seed), ESCAPE, seed)
}

/// "art-dqn": a trained network, R counted as in `reading`.
pub fn dqn(network: Arc<dqn::Network>, reading: Reading, seed: u64) -> Scheme {
    scheme("art-dqn", dqn::adapter(network, reading), ESCAPE, seed)
}

/// Another scheme's redundancy with ART's window, signal and a schedule: over a fixed redundancy, the
/// "ART-fix" of figure 18(b), and with [`Spread::AtOnce`] its "ART-norand".
pub fn with_schedule(other: Scheme, spread: Spread, seed: u64) -> Scheme {
    Scheme {
        scheduler: Box::new(Replicas::new(spread, seed)),
        signal: LossSignal::WhollyLost,
        opportunism: true,
        ..other
    }
}
