//! Times of the replicas of a round: [`Replicas`] sends them at the times that a [`Spread`] or a
//! plan sets. Schemes of any origin share this scheduler, so it knows neither levels nor papers.

mod spread;

pub use spread::Spread;

use crate::by_unit::ByUnit;
use crate::random::Random;
use crate::{LostUnit, ReplicaScheduler, SendOpportunity, UnitKey, UnitTable, View};
use core::time::Duration;
use std::collections::VecDeque;
use units::Timestamp;

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
