//! "deadline": copies for those who need them, when they help.
//!
//! Whether a lost unit needs copies is decided by its deadline: who has several rounds of retransmission left gets none.
//! When they leave is decided by how losses come together on this path, as measured ([`LossCorrelation`]): where losses
//! are independent at once, where they come in outages so far apart as the deadline allows. How many is decided by what
//! each takes off the time by which the data is expected to be late (`plan`). Copies leave only when nothing else
//! waits and no queue grows, and the loss of each copy is answered, not only that of the last one. Data whose
//! acknowledgement is overdue leaves once more before it is known to be lost.
//!
//! [`LossCorrelation`]: crate::LossCorrelation

mod curve;
mod plan;

use core::time::Duration;

use units::Timestamp;

use crate::art::{Replicas, Spread};
use crate::fixed::{Fixed, Reading};
use crate::range::OutOfRange;
use crate::{
    LostUnit, PathState, ReplicaScheduler, Scheme, SendOpportunity, UnitKey, UnitTable, View,
};
use curve::Curve;
use plan::{MAX, Plan, Situation};

/// The highest price of a copy.
pub const DEAREST: Duration = Duration::from_secs(1);

/// Data is to be there so long before the player comes to it: what a player says is some tens of milliseconds off when it
/// is used, and what comes at the last moment leaves the next frame none.
const MARGIN: Duration = Duration::from_millis(150);
/// A queue shorter than this is what a key frame makes.
const QUEUE: Duration = Duration::from_millis(25);
/// Overdue data leaves once more where a copy is lost with less than this chance.
const AGAIN: f64 = 0.4;

/// What the scheme goes by.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// The time that a copy has to take off how late the data is expected to be, at most [`DEAREST`]: 0 sends as many
    /// as help at all.
    pub price: Duration,
    /// How long after its first sending data is of use, where the application says nothing of that.
    pub patience: Duration,
    /// Whether data leaves once more when its acknowledgement is overdue, before it is known to be lost.
    pub overdue: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            price: Duration::from_millis(2),
            patience: Duration::from_millis(200),
            overdue: true,
        }
    }
}

impl Options {
    /// The same if it makes sense.
    ///
    /// # Errors
    /// When `price` is more than [`DEAREST`].
    pub fn checked(self) -> Result<Self, OutOfRange> {
        match self.price <= DEAREST {
            true => Ok(self),
            false => Err(OutOfRange { key: "price", allowed: "0 to 1 s" }),
        }
    }
}

/// "deadline" with these options.
///
/// # Errors
/// When an option is out of range.
pub fn scheme(options: Options) -> Result<Scheme, OutOfRange> {
    let options = options.checked()?;
    let most = Fixed { slope: 0, offset: MAX as i32, reading: Reading::Extra };
    let copies =
        Copies { options, replicas: Replicas::new(Spread::AtOnce, 0), last: Last::default() };
    let scheme = Scheme::new("deadline", most, copies).when_idle();
    Ok(Scheme { correlation: true, answers_each: true, overdue: options.overdue, ..scheme })
}

/// Whether the queue of the bottleneck is what loses packets, as far as round-trip times tell (the rule of Spike: Cen,
/// Cosman and Voelker, IEEE/ACM Transactions on Networking 11(5), 2003): copies would make it longer.
fn is_full(path: &PathState) -> bool {
    let above = path.latest_rtt.saturating_sub(path.min_rtt);
    above > QUEUE && above * 3 > path.peak_rtt.saturating_sub(path.min_rtt)
}

/// What the last decision followed from.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    slack: Duration,
    plan: Plan,
}

/// Plans copies by deadline and correlation.
#[derive(Debug)]
struct Copies {
    options: Options,
    replicas: Replicas,
    last: Last,
}

impl ReplicaScheduler for Copies {
    fn on_retransmitted(
        &mut self,
        now: Timestamp,
        key: UnitKey,
        unit: &LostUnit,
        level: u32,
        view: &View<'_>,
    ) {
        let deadline = unit.mark.and_then(|mark| mark.deadline);
        let deadline = match deadline {
            Some(deadline) => deadline - MARGIN,
            None => unit.first_sent + self.options.patience,
        };
        let rtt = view.path.smoothed_rtt;
        // A copy needs half a round trip, and comes a little late as often as not.
        let slack = deadline.since(now).saturating_sub(rtt / 2 + rtt / 16);
        let curve = Curve::of(view.correlation);
        let round = rtt + rtt / 8 + Duration::from_millis(10);
        let situation = Situation {
            gap: if unit.round > 1 { round } else { now.since(unit.first_sent) },
            losses: unit.round,
            slack,
            round,
            curve: &curve,
        };
        // The answer to a copy's loss is one more copy, while others of the unit are in flight: if each answer brought
        // copies of its own, they would multiply just where most of them are lost.
        let is_answer = unit.outstanding > 1;
        let most = if is_answer || is_full(&view.path) { 0 } else { level as usize };
        let plan = situation.plan(self.options.price, most);
        self.replicas.plan(now, key, plan.times());
        self.last = Last { slack, plan };
    }

    fn wants_overdue(&self, age: Duration, view: &View<'_>) -> bool {
        // What was lost in a bad time that is not over would be lost again, and its loss be known late.
        Curve::of(view.correlation).after(age).given(1) < AGAIN
    }

    fn on_replica_sent(&mut self, now: Timestamp, key: UnitKey, unit: &LostUnit) {
        self.replicas.on_replica_sent(now, key, unit);
    }

    fn on_finished(&mut self, key: UnitKey) {
        self.replicas.on_finished(key);
    }

    fn poll(
        &mut self,
        now: Timestamp,
        opportunity: &SendOpportunity,
        units: &UnitTable,
    ) -> Option<UnitKey> {
        self.replicas.poll(now, opportunity, units)
    }

    fn next_timeout(&self) -> Option<Timestamp> {
        self.replicas.next_timeout()
    }

    fn explain(&self, tell: &mut dyn FnMut(&'static str, f64)) {
        tell("slack_ms", self.last.slack.as_secs_f64() * 1e3);
        let Plan { without, with, .. } = self.last.plan;
        tell("late_without_copies_ms", without.as_secs_f64() * 1e3);
        tell("late_ms", with.as_secs_f64() * 1e3);
        tell("copies", self.last.plan.times().len() as f64);
    }
}

#[cfg(test)]
fn outages() -> impl FnMut() -> bool {
    // 20 ms in 400, both in the mean, with a packet each 2 ms.
    let (mut random, mut is_out) = (crate::Random::new(3), false);
    move || {
        let leaves = if is_out { 2.0 / 20.0 } else { 2.0 / 380.0 };
        is_out ^= random.fraction() < leaves;
        is_out
    }
}
#[cfg(test)]
mod tests;
