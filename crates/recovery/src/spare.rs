//! A spare copy of what was lost, in spare time: "spare", the scheme that servers begin with.
//!
//! A copy that leaves while new data waits takes that data's place. Where the network is hardly wider
//! than the stream, that costs more freezes than the copy prevents. [`WhenIdle`] makes any schedule
//! one whose replicas leave only when nothing else waits.
//!
//! Real losses come in bursts: what is sent at the moment of the retransmission shares its fate. The
//! replicas of this scheme are due [`APART`]: each 20 ms after the copy before it, and later on long
//! paths. Later still, and a copy comes hardly earlier than the next round (experiments/live-default.toml
//! measures it). Each lost round is a loss of its own and gets as many replicas again.

use crate::art::{Replicas, Spread};
use crate::fixed::{Fixed, Reading};
use crate::range::OutOfRange;
use crate::{
    IntervalMetrics, LostUnit, ReplicaScheduler, Scheme, SendOpportunity, UnitKey, UnitTable, View,
};
use core::time::Duration;
use units::Timestamp;

/// The most replicas of a round.
pub const MAX_COPIES: u32 = 10;

/// How far the copies of a round are apart when they become due.
pub const APART: Spread = Spread::Apart { least: Duration::from_millis(20), rtts: 0.25 };

/// Another schedule whose replicas leave only in off-mode: when no first copy of a round waits
/// and no stream has new bytes that flow control lets go. What is due at another time waits for that.
#[derive(Debug)]
pub struct WhenIdle(pub Box<dyn ReplicaScheduler>);

impl ReplicaScheduler for WhenIdle {
    fn on_interval(&mut self, metrics: &IntervalMetrics, ceiling: u32) {
        self.0.on_interval(metrics, ceiling);
    }

    fn on_new_path(&mut self) {
        self.0.on_new_path();
    }

    fn on_retransmitted(
        &mut self,
        now: Timestamp,
        key: UnitKey,
        unit: &LostUnit,
        level: u32,
        view: &View<'_>,
    ) {
        self.0.on_retransmitted(now, key, unit, level, view);
    }

    fn on_replica_sent(&mut self, now: Timestamp, key: UnitKey, unit: &LostUnit) {
        self.0.on_replica_sent(now, key, unit);
    }

    fn on_probe_sent(&mut self, now: Timestamp, key: UnitKey, unit: &LostUnit) {
        self.0.on_probe_sent(now, key, unit);
    }

    fn on_finished(&mut self, key: UnitKey) {
        self.0.on_finished(key);
    }

    fn poll(
        &mut self,
        now: Timestamp,
        opportunity: &SendOpportunity,
        units: &UnitTable,
    ) -> Option<UnitKey> {
        if opportunity.off_mode { self.0.poll(now, opportunity, units) } else { None }
    }

    fn next_timeout(&self) -> Option<Timestamp> {
        self.0.next_timeout()
    }
}

impl Scheme {
    /// The same scheme with replicas that leave only when nothing else waits.
    pub fn when_idle(self) -> Self {
        Self { scheduler: Box::new(WhenIdle(self.scheduler)), ..self }
    }
}

/// "spare": `copies` replicas of each round, 0 to [`MAX_COPIES`], spread like this, for example [`APART`],
/// and only when nothing else waits. With 0 copies it is plain retransmission.
///
/// # Errors
/// When `copies` is out of range.
pub fn scheme(copies: u32, spread: Spread) -> Result<Scheme, OutOfRange> {
    if copies > MAX_COPIES {
        return Err(OutOfRange { key: "copies", allowed: "0 to 10" });
    }
    let fixed = Fixed { slope: 0, offset: copies.cast_signed(), reading: Reading::Extra };
    // Nothing is drawn: the seed decides nothing.
    Ok(Scheme::new("spare", fixed, Replicas::new(spread, 0)).when_idle())
}

#[cfg(test)]
mod tests;
