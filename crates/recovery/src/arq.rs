//! Automatic repeat request: one copy per round (level 0), the baseline of every paper.

use crate::{
    LostUnit, RedundancyAdapter, ReplicaScheduler, Scheme, SendOpportunity, UnitKey, UnitTable,
    View,
};
use units::Timestamp;

/// Retransmission without replicas.
#[derive(Clone, Copy, Debug)]
pub struct Arq;

impl Arq {
    /// Returns plain retransmission as a scheme.
    pub fn scheme() -> Scheme {
        // Both are zero-sized, so boxing does not allocate.
        Scheme::new("arq", Arq, Arq)
    }
}

impl RedundancyAdapter for Arq {
    fn level(&mut self, _: UnitKey, _: u32, _: &View<'_>) -> u32 {
        0
    }
    fn explain(&self, tell: &mut dyn FnMut(&'static str, f64)) {
        tell("level", 0.0);
    }
}

impl ReplicaScheduler for Arq {
    fn on_retransmitted(&mut self, _: Timestamp, _: UnitKey, _: &LostUnit, _: u32, _: &View<'_>) {}
    fn on_replica_sent(&mut self, _: Timestamp, _: UnitKey, _: &LostUnit) {}
    fn on_finished(&mut self, _: UnitKey) {}
    fn poll(&mut self, _: Timestamp, _: &SendOpportunity, _: &UnitTable) -> Option<UnitKey> {
        None
    }
    fn next_timeout(&self) -> Option<Timestamp> {
        None
    }
}
