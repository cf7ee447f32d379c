//! The replica scheduler (ART, section 6.2): replicas leave at random times within an *escape
//! space*, so that a burst of losses does not hit all copies of a round.
//!
//! Equation 6: escape_space = min(bdp, α · B_max), in sending cycles. A cycle is the time per
//! packet at the pacing rate, or at a window per round trip without one. Since bdp cycles last one
//! round trip, the first term is the paper's rule that "all replicas should be sent in one RTT". R
//! copies sent at once take R cycles, so the space is never smaller.
//!
//! "We randomly select a time interval less than escape_space" (section 6.3): with α = 1 no replica
//! is B_max cycles after the retransmission, so the longest burst may hit all copies, contrary to
//! section 6.2. A greater α avoids that.

use crate::by_unit::ByUnit;
use crate::random::Random;
use crate::{LostUnit, PathState, ReplicaScheduler, SendOpportunity, UnitKey, UnitTable, View};
use core::time::Duration;
use std::collections::VecDeque;
use units::Timestamp;

/// How the replicas of a round are spread over time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Spread {
    /// All leave at once.
    AtOnce,
    /// Each leaves at a random time in the paper's escape space.
    EscapeSpace {
        /// α, at least 1; other values count as 1.
        alpha: f64,
    },
    /// As in the paper's code: the first at a random time in one minimum round-trip time, each next
    /// one at a random time in the rest of it. (The code reseeds its generator from the second of
    /// the day before every draw; here draws are independent.)
    RoundTrip,
    /// Evenly, by a step of `rtts` smoothed round-trip times, at least `least` ([`crate::spare`]).
    Apart {
        /// Minimum step.
        least: Duration,
        /// Step in round-trip times, 0 and above; other values count as 0.
        rtts: f64,
    },
}

/// Returns the time per packet at the current sending rate.
fn cycle(path: &PathState) -> Duration {
    let packet = u64::from(path.packet);
    match path.pacing_rate {
        Some(rate) => rate.time_for(packet),
        None => path.smoothed_rtt.mul_f64(packet as f64 / path.window.max(packet).max(1) as f64),
    }
}

impl Spread {
    /// Returns the period over which `level` replicas are spread.
    pub fn span(self, level: u32, view: &View<'_>) -> Duration {
        let path = &view.path;
        match self {
            Self::AtOnce => Duration::ZERO,
            Self::EscapeSpace { .. } if path.smoothed_rtt.is_zero() => Duration::ZERO,
            Self::EscapeSpace { alpha } => {
                let alpha = if alpha.is_finite() { alpha.clamp(1.0, 1e6) } else { 1.0 };
                let cycles = (alpha * f64::from(view.longest_burst)).max(f64::from(level));
                let rtt = path.smoothed_rtt;
                let share = cycle(path).as_secs_f64() * cycles / rtt.as_secs_f64();
                rtt.mul_f64(share.min(1.0))
            }
            Self::Apart { least, rtts } => {
                let rtts = if rtts.is_finite() { rtts.clamp(0.0, 1e3) } else { 0.0 };
                path.smoothed_rtt.mul_f64(rtts).max(least) * level
            }
            // The minimum is zero before the first sample.
            Self::RoundTrip if path.min_rtt.is_zero() => path.smoothed_rtt,
            Self::RoundTrip => path.min_rtt,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Planned {
    due: Timestamp,
    key: UnitKey,
    /// Plan of the unit that this replica belongs to. Replicas of outdated plans are skipped.
    plan: u64,
}

/// Replicas to be sent, by time.
#[derive(Debug)]
pub struct Replicas {
    spread: Spread,
    random: Random,
    /// In order of time; the first entry always belongs to a current plan.
    queue: VecDeque<Planned>,
    /// Current plan of each unit, until its round is over.
    plans: ByUnit<u64>,
    newest_plan: u64,
}

impl Replicas {
    /// Creates an empty schedule. The seed determines all draws.
    pub fn new(spread: Spread, seed: u64) -> Self {
        Self {
            spread,
            random: Random::new(seed),
            queue: VecDeque::new(),
            plans: ByUnit::default(),
            newest_plan: 0,
        }
    }

    /// Replaces the unit's plan: replicas leave these times after `now`.
    pub(crate) fn plan(
        &mut self,
        now: Timestamp,
        key: UnitKey,
        times: impl ExactSizeIterator<Item = Duration>,
    ) {
        self.newest_plan += 1;
        let plan = self.newest_plan;
        self.plans.set(key, plan);
        self.settle();
        self.make_room(times.len());
        for after in times {
            let due = now + after;
            let place = self.queue.partition_point(|planned| planned.due <= due);
            self.queue.insert(place, Planned { due, key, plan });
        }
    }

    /// Returns the queue's length, including outdated entries.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.queue.len()
    }

    /// Drops outdated entries at the front.
    fn settle(&mut self) {
        while self.queue.front().is_some_and(|p| self.plans.get(p.key) != Some(&p.plan)) {
            self.queue.pop_front();
        }
    }

    /// Reserves room for `more` replicas; drops outdated entries before growing.
    fn make_room(&mut self, more: usize) {
        if self.queue.len() + more > self.queue.capacity() {
            let plans = &self.plans;
            self.queue.retain(|p| plans.get(p.key) == Some(&p.plan));
            if (self.queue.len() + more) * 2 > self.queue.capacity() {
                self.queue.reserve(self.queue.len() + more * 2);
            }
        }
    }
}

impl ReplicaScheduler for Replicas {
    fn on_retransmitted(
        &mut self,
        now: Timestamp,
        key: UnitKey,
        _: &LostUnit,
        level: u32,
        view: &View<'_>,
    ) {
        let (spread, span) = (self.spread, self.spread.span(level, view));
        let mut random = core::mem::replace(&mut self.random, Random::new(0));
        let mut after = Duration::ZERO;
        let times = (0..level).map(|_| {
            let drawn = random.fraction();
            after = match spread {
                Spread::AtOnce => Duration::ZERO,
                Spread::EscapeSpace { .. } => span.mul_f64(drawn),
                Spread::RoundTrip => after + span.saturating_sub(after).mul_f64(drawn),
                Spread::Apart { .. } => after + span / level,
            };
            after
        });
        self.plan(now, key, times);
        self.random = random;
    }

    fn on_replica_sent(&mut self, _: Timestamp, key: UnitKey, _: &LostUnit) {
        if self.queue.front().is_some_and(|first| first.key == key) {
            self.queue.pop_front();
            self.settle();
        }
    }

    fn on_finished(&mut self, key: UnitKey) {
        self.plans.take(key);
        self.settle();
    }

    fn poll(&mut self, now: Timestamp, _: &SendOpportunity, _: &UnitTable) -> Option<UnitKey> {
        self.queue.front().filter(|first| first.due <= now).map(|first| first.key)
    }

    fn next_timeout(&self) -> Option<Timestamp> {
        self.queue.front().map(|first| first.due)
    }
}

#[cfg(test)]
mod tests;
