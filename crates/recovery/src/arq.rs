//! Automatic repeat request: one copy per round (level 0), the baseline of every paper.

use crate::{
    IntervalMetrics, LostUnit, RecoveryEvent, RedundancyAdapter, ReplicaScheduler, SendOpportunity,
    UnitKey, UnitTable,
};
use ::units::Timestamp;

/// Retransmission alone, no replica ever.
#[derive(Clone, Copy, Debug)]
pub struct Arq;

impl RedundancyAdapter for Arq {
    fn on_event(&mut self, _: &RecoveryEvent) {}
    fn on_interval(&mut self, _: &IntervalMetrics) {}
    fn level(&self, _: u32) -> u32 {
        0
    }
}

impl ReplicaScheduler for Arq {
    fn on_retransmitted(&mut self, _: Timestamp, _: UnitKey, _: &LostUnit, _: u32) {}
    fn on_finished(&mut self, _: UnitKey) {}
    fn poll(&mut self, _: Timestamp, _: &SendOpportunity, _: &UnitTable) -> Option<UnitKey> {
        None
    }
    fn next_timeout(&self) -> Option<Timestamp> {
        None
    }
}
