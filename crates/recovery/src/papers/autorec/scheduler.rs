//! The Reinjection Controller (journal, section V-B; MM'24, section 4.2). Replicas leave at once in
//! off-mode, and in on-mode when a unit has been silent for T_thres (equation 5).
//!
//! As in the paper, K_θ is the adapter's current ceiling and covers the whole life of a unit. This
//! scheduler therefore needs an adapter with a ceiling.

use super::UnitTime;
use super::queue::Queue;
use crate::{
    IntervalMetrics, LostUnit, ReplicaScheduler, SendOpportunity, UnitKey, UnitTable, View,
};
use core::time::Duration;
use units::Timestamp;

/// Occasions on which replicas may leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Occasions {
    /// At once in off-mode. If false, as in on-mode (the model of the formulas).
    pub off_mode: bool,
    /// When a unit has been silent for T_thres. If false: figure 17 of the journal version and
    /// variant 1 in figure 12 of MM'24.
    pub opportunistic: bool,
}

impl Default for Occasions {
    fn default() -> Self {
        Self { off_mode: true, opportunistic: true }
    }
}

/// The reinjection queue and its timer.
#[derive(Debug)]
pub struct ReinjectionController {
    occasions: Occasions,
    queue: Queue,
    /// K_θ.
    level: u32,
    t_unit: UnitTime,
    smoothed_rtt: Duration,
}

impl ReinjectionController {
    /// Creates a controller with an empty queue.
    pub fn new(occasions: Occasions) -> Self {
        Self {
            occasions,
            queue: Queue::default(),
            level: 0,
            t_unit: UnitTime::default(),
            smoothed_rtt: Duration::ZERO,
        }
    }

    /// Returns T_thres (equation 5).
    fn threshold(&self) -> Duration {
        self.t_unit.or(self.smoothed_rtt) / self.level.saturating_add(1)
    }

    /// Moves a queued unit that was just sent to the end, or out if it has reached the level.
    fn on_sent(&mut self, now: Timestamp, key: UnitKey, unit: &LostUnit) {
        if self.queue.remove(key) && unit.replicas < self.level {
            self.queue.push(key, unit.replicas, now);
        }
    }
}

impl ReplicaScheduler for ReinjectionController {
    fn on_interval(&mut self, metrics: &IntervalMetrics, ceiling: u32) {
        self.t_unit.measured(metrics);
        self.level = ceiling;
        // Units at the ceiling leave for good, even if the level rises again. Units waiting for an
        // acknowledgement rarely stay for more than two intervals.
        self.queue.remove_from(ceiling);
    }

    fn on_expected(&mut self, ceiling: u32) {
        self.level = ceiling;
    }

    fn on_new_path(&mut self) {
        self.t_unit = UnitTime::default();
    }

    fn on_retransmitted(
        &mut self,
        now: Timestamp,
        key: UnitKey,
        unit: &LostUnit,
        level: u32,
        view: &View<'_>,
    ) {
        self.smoothed_rtt = view.path.smoothed_rtt;
        self.on_sent(now, key, unit);
        // A unit enters once, before its first replica. Later it has left the queue for good.
        if level > 0 && unit.replicas == 0 {
            // The first interval may not have ended yet.
            self.level = level;
            self.queue.remove(key);
            self.queue.push(key, 0, now);
        }
    }

    fn on_replica_sent(&mut self, now: Timestamp, key: UnitKey, unit: &LostUnit) {
        self.on_sent(now, key, unit);
    }

    fn on_probe_sent(&mut self, now: Timestamp, key: UnitKey, unit: &LostUnit) {
        self.on_sent(now, key, unit);
    }

    fn on_finished(&mut self, key: UnitKey) {
        self.queue.remove(key);
    }

    fn poll(&mut self, now: Timestamp, at: &SendOpportunity, _: &UnitTable) -> Option<UnitKey> {
        let head = self.queue.front()?;
        let idle = self.occasions.off_mode && at.off_mode;
        let silent = self.occasions.opportunistic && head.sent + self.threshold() <= now;
        (idle || silent).then_some(head.key)
    }

    fn next_timeout(&self) -> Option<Timestamp> {
        let head = self.queue.front()?;
        self.occasions.opportunistic.then(|| head.sent + self.threshold())
    }
}
