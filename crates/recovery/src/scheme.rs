//! The two questions that a recovery scheme answers, and what it may look at. *How many* and
//! *when* stay apart, so that every combination of the papers is a pair of types.

use crate::{Arq, CopyKind, LostUnit, UnitKey, UnitTable};
use ::units::Timestamp;
use core::fmt::Debug;
use core::time::Duration;

/// How many replicas a lost unit may get.
pub trait RedundancyAdapter: Debug {
    /// Something happened to a unit.
    fn on_event(&mut self, event: &RecoveryEvent);
    /// A decision interval ended.
    fn on_interval(&mut self, metrics: &IntervalMetrics);
    /// Replicas that a unit may get beyond the retransmission of `round` (from 1).
    fn level(&self, round: u32) -> u32;
}

/// When each replica leaves.
pub trait ReplicaScheduler: Debug {
    /// The first copy of a round was sent; `level` replicas may follow.
    fn on_retransmitted(&mut self, now: Timestamp, key: UnitKey, unit: &LostUnit, level: u32);
    /// The round is over: acknowledged, abandoned, or wholly lost.
    fn on_finished(&mut self, key: UnitKey);
    /// The unit of which a replica should leave now, if any.
    fn poll(
        &mut self,
        now: Timestamp,
        opportunity: &SendOpportunity,
        units: &UnitTable,
    ) -> Option<UnitKey>;
    /// When `poll` wants to be asked again.
    fn next_timeout(&self) -> Option<Timestamp>;
}

/// A moment at which the sender could put one more packet on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendOpportunity {
    /// No first copy waits and no stream has new bytes that flow control lets go.
    pub off_mode: bool,
    /// Bytes that window and pacer let go now.
    pub room: u64,
}

/// What happened to a unit.
#[derive(Clone, Debug)]
pub enum RecoveryEvent {
    /// A packet with stream data was declared lost for the first time.
    Opened {
        /// When.
        now: Timestamp,
        /// The unit that it became.
        unit: UnitKey,
    },
    /// A copy was sent.
    CopySent {
        /// When.
        now: Timestamp,
        /// Of which unit.
        unit: UnitKey,
        /// What the copy is to its round.
        kind: CopyKind,
        /// The unit's round, from 1.
        round: u32,
    },
    /// A copy was declared lost.
    CopyLost {
        /// When.
        now: Timestamp,
        /// Of which unit.
        unit: UnitKey,
        /// What the copy was to its round.
        kind: CopyKind,
        /// The round that it belonged to, from 1.
        round: u32,
        /// No copy of the round is outstanding any more.
        wholly: bool,
    },
    /// Every byte of the unit was acknowledged.
    Finished {
        /// When.
        now: Timestamp,
        /// Which unit.
        unit: UnitKey,
        /// Its last state.
        state: LostUnit,
    },
    /// The unit's stream was reset.
    Abandoned {
        /// When.
        now: Timestamp,
        /// Which unit.
        unit: UnitKey,
    },
}

/// What a decision interval measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct IntervalMetrics {
    /// End of the interval.
    pub now: Timestamp,
    /// Its length.
    pub span: Duration,
    /// Smoothed round-trip time at its end.
    pub smoothed_rtt: Duration,
    /// Packets acknowledged in it.
    pub acked: u64,
    /// Packets declared lost in it, those acknowledged later taken out.
    pub lost: u64,
}

/// A scheme: one answer to *how many*, one to *when*.
#[derive(Debug)]
pub struct Scheme {
    /// How many replicas.
    pub adapter: Box<dyn RedundancyAdapter>,
    /// When each leaves.
    pub scheduler: Box<dyn ReplicaScheduler>,
}

impl Scheme {
    /// Plain retransmission: level 0.
    pub fn arq() -> Self {
        // Both are zero-sized: boxing them takes no memory.
        Self { adapter: Box::new(Arq), scheduler: Box::new(Arq) }
    }
}
