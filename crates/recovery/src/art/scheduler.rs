//! The replica scheduler (ART, section 6.2): replicas leave at random moments of an *escape space*,
//! so that not all copies of a round fall into one burst of losses.
//!
//! Equation 6: escape_space = min(bdp, α · B_max), in sending cycles; a cycle is the time that a
//! packet takes at the pacing rate. Without a pacing rate it is that of a window per round trip. As
//! bdp cycles last one round trip, the first term is the paper's other rule, "all replicas should be
//! sent in one RTT"; and as the space of R copies sent at once is R, it is never less.
//!
//! "We randomly select a time interval less than escape_space" (section 6.3): with α = 1 no replica
//! is B_max cycles behind the retransmission, and the copies of a round can all be in the longest
//! burst, contrary to section 6.2. An α above 1 avoids that.

use crate::by_unit::ByUnit;
use crate::random::Random;
use crate::{LostUnit, PathState, ReplicaScheduler, SendOpportunity, UnitKey, UnitTable, View};
use core::time::Duration;
use std::collections::VecDeque;
use units::Timestamp;

/// Over what time the replicas of a round are spread.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Spread {
    /// Over none: each is due at once.
    AtOnce,
    /// Each anywhere in the escape space of the paper.
    EscapeSpace {
        /// α, at least 1; anything else is taken as 1.
        alpha: f64,
    },
    /// As in the paper's code: the first anywhere in one minimum round-trip time, each next one anywhere
    /// in what is left of it. (There, the generator starts again from the second of the day with
    /// every draw; here, draws are independent.)
    RoundTrip,
    /// None is drawn: each is due a step after the copy before it, a step being `rtts` smoothed round-trip
    /// times, and `least` if that is more ([`crate::spare`]).
    Apart {
        /// The shortest step.
        least: Duration,
        /// Round-trip times of a step, 0 and above; anything else is taken as 0.
        rtts: f64,
    },
}

/// The time that one packet takes at the rate at which packets leave.
fn cycle(path: &PathState) -> Duration {
    let packet = u64::from(path.packet);
    match path.pacing_rate {
        Some(rate) => rate.time_for(packet),
        None => path.smoothed_rtt.mul_f64(packet as f64 / path.window.max(packet).max(1) as f64),
    }
}

impl Spread {
    /// The escape space of `level` replicas as a time.
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
            // There is none before the first sample.
            Self::RoundTrip if path.min_rtt.is_zero() => path.smoothed_rtt,
            Self::RoundTrip => path.min_rtt,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Planned {
    due: Timestamp,
    key: UnitKey,
    /// The unit's plan that it belongs to: replicas of a former plan never leave.
    plan: u64,
}

/// The replicas that are to leave, by time.
#[derive(Debug)]
pub struct Replicas {
    spread: Spread,
    random: Random,
    /// In order of time; the first one is always of a plan in force.
    queue: VecDeque<Planned>,
    /// The plan in force for each unit; none once its round is over.
    plans: ByUnit<u64>,
    newest_plan: u64,
}

impl Replicas {
    /// A schedule without replicas. The seed determines all draws.
    pub fn new(spread: Spread, seed: u64) -> Self {
        Self {
            spread,
            random: Random::new(seed),
            queue: VecDeque::new(),
            plans: ByUnit::default(),
            newest_plan: 0,
        }
    }

    /// Replicas of this unit leave these times after `now`, in place of those that were planned.
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

    /// Replicas planned, also of rounds that are over and not dropped yet.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.queue.len()
    }

    /// Drops what is first and of no plan in force.
    fn settle(&mut self) {
        while self.queue.front().is_some_and(|p| self.plans.get(p.key) != Some(&p.plan)) {
            self.queue.pop_front();
        }
    }

    /// Makes room for `more` replicas, and drops finished ones before it grows.
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
