//! AutoRec, "reinjection in off-mode and at the right moment", in two versions. In the journal
//! version (arXiv 2511.22046) the level follows from tolerances by formulas; in the version of
//! MM'24 it follows a utility. Both share the Reinjection Controller, and a level K_θ for the life
//! of a unit: after the last copy of round 1 is lost, plain retransmission continues (journal,
//! section VIII-C).
//!
//! Ablations are combinations: `Scheme { scheduler: Box::new(ReinjectionController::new(…)),
//! ..scheme(tolerances) }`.

pub mod formulas;
mod journal;
#[cfg(feature = "testbed")]
mod mm24;
mod queue;
mod scheduler;

pub use journal::{FixedLife, FormulaAdapter, Tolerances};
#[cfg(feature = "testbed")]
pub use mm24::{Options, UtilityAdapter};
pub use scheduler::{Occasions, ReinjectionController};

use crate::{IntervalMetrics, RedundancyAdapter, Scheme};
use core::time::Duration;

/// "We limit the value range of the redundancy level to [0, 10]" (journal, section VII).
pub const MAX_LEVEL: u32 = 10;

/// T_unit of the last interval that measured it. Before that, the smoothed round-trip time is used.
/// Since detection takes at least that long, latency is underestimated and replicas are not
/// overspent.
#[derive(Clone, Copy, Debug, Default)]
struct UnitTime(Option<Duration>);

impl UnitTime {
    fn measured(&mut self, metrics: &IntervalMetrics) {
        self.0 = metrics.t_unit.or(self.0);
    }

    fn or(self, smoothed_rtt: Duration) -> Duration {
        self.0.unwrap_or(smoothed_rtt)
    }
}

fn reinjecting(name: &'static str, adapter: impl RedundancyAdapter + 'static) -> Scheme {
    Scheme::new(name, adapter, ReinjectionController::new(Occasions::default()))
}

/// AutoRec's journal version, "autorec".
pub fn scheme(tolerances: Tolerances) -> Scheme {
    reinjecting("autorec", FormulaAdapter::new(tolerances))
}

/// AutoRec's version of MM'24, "autorec-mm24"; `seed` determines its explorations.
#[cfg(feature = "testbed")]
pub fn scheme_mm24(options: Options, seed: u64) -> Scheme {
    reinjecting("autorec-mm24", UtilityAdapter::new(options, seed))
}

/// The Reinjection Controller at a constant level, "autorec-fixed": figure 13 of the journal
/// version, and variant 2 in figure 12 of MM'24 with level 2.
pub fn fixed(level: FixedLife) -> Scheme {
    reinjecting("autorec-fixed", level)
}

#[cfg(test)]
mod tests;
