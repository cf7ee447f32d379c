//! ART, "Accelerating Loss Recovery for Content Delivery Network": redundancy for retransmissions,
//! adapted to the loss of copies ([`TestAndVerify`], section 6.1) and spread over time against
//! bursts ([`Spread`], section 6.2).
//!
//! Replicas may exceed the congestion window, and only a wholly lost round signals congestion
//! (section 6.4). Both have a limit that the paper does not state: [`WindowExcess::Bounded`] and
//! [`LossSignal::WhollyLostUnlessHeavy`]. The bandits and the DQN of appendix A replace the adapter
//! only.

mod adapter;
mod bitmap;
#[cfg(feature = "testbed")]
mod learning;

pub use crate::schedule::Spread;
pub use adapter::{Options, Rules, TestAndVerify, step};
pub use bitmap::Bitmap;
#[cfg(feature = "testbed")]
pub use learning::*;

use crate::level::fixed::Reading;
use crate::schedule::Replicas;
use crate::{Arq, LossSignal, RedundancyAdapter, Scheme, WindowExcess};

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

/// "art-paper": ART as in its paper.
pub fn paper(reading: Reading, seed: u64) -> Scheme {
    with_options("art-paper", Options::paper(reading), ESCAPE, seed)
}

/// "art-code": ART as in its published code, which counts replicas. With [`Reading::Copies`] R_1
/// hardly ever rises, because its bitmap ignores the loss of a round's last copy, which is then the
/// only one.
pub fn code(reading: Reading, seed: u64) -> Scheme {
    with_options("art-code", Options::code(reading), Spread::RoundTrip, seed)
}

/// Test and verification with any options and spread, for the sensitivity to L_queue (figure 15)
/// and α, and to each difference between paper and code.
pub fn with_options(name: &'static str, options: Options, spread: Spread, seed: u64) -> Scheme {
    scheme(name, TestAndVerify::new(options), spread, seed)
}

/// Adds ART's window, signal and a schedule to another scheme. With fixed redundancy this is
/// "ART-fix" of figure 18(b), and with [`Spread::AtOnce`] "ART-norand".
pub fn with_schedule(other: Scheme, spread: Spread, seed: u64) -> Scheme {
    Scheme {
        scheduler: Box::new(Replicas::new(spread, seed)),
        signal: LossSignal::WhollyLostUnlessHeavy,
        excess: WindowExcess::Bounded,
        ..other
    }
}
