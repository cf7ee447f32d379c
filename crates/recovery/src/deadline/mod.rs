//! "deadline": copies for those who need them, when they help.
//!
//! Whether a lost unit needs copies is decided by its deadline: who has several rounds of retransmission left gets none.
//! When they leave is decided by how losses come together on this path, as measured ([`LossCorrelation`]): where losses
//! are independent at once, where they come in outages so far apart as the deadline allows. How many is decided by what
//! each takes off the time by which the data is expected to be late (`plan`). Copies leave only when nothing else
//! waits or a viewer catches up on a wide path, and no queue grows; and the loss of each copy is answered, not only that
//! of the last one. Where a path loses much, and copies cost most, players that are not known are supposed to keep
//! more, as most of them do. Overdue data gets a copy before its loss is known, if nothing else
//! waits or most of the recent overdue data was lost.
//!
//! [`LossCorrelation`]: crate::LossCorrelation

mod curve;
mod memo;
mod plan;

use core::ops::RangeInclusive;
use core::time::Duration;

use units::Timestamp;

use crate::art::{Replicas, Spread};
use crate::range::OutOfRange;
use crate::{
    LostUnit, Overdue, PathState, RedundancyAdapter, ReplicaScheduler, Scheme, SendOpportunity,
    UnitKey, UnitTable, View,
};
use curve::Curve;
use memo::{Known, Memo};
use plan::{MAX, Plan, Situation, Slack};

/// The highest price of a copy: 1 s.
pub const DEAREST: Duration = Duration::from_secs(1);

/// The longest that data is of use, where the application says nothing of that: 60 s.
pub const MOST_PATIENT: Duration = Duration::from_secs(60);

/// The values that [`Options::patient_above`] may have: 0.01 to 1.
pub const PATIENT_ABOVE: RangeInclusive<f64> = 0.01..=1.0;

/// Data is to be there so long before the player comes to it: a frame has to be whole and decoded, and a player stops
/// when it has shown the one before.
const MARGIN: Duration = Duration::from_millis(60);
/// What a player says of itself, or its playlist of it, is so much off when it is used.
const HEARD: Duration = Duration::from_millis(75);
/// And so much may players that say nothing differ from `patience`.
const GUESSED: Duration = Duration::from_millis(200);
/// A queue shorter than this is what a key frame makes.
const QUEUE: Duration = Duration::from_millis(25);
/// Highest chance of loss at which a copy of overdue data leaves.
const MAX_COPY_LOSS: f64 = 0.3;
/// Least share of recent overdue data that was lost: at most two copies are redundant for one that
/// is needed.
const MIN_OVERDUE_LOST: f64 = 1.0 / 3.0;
/// Where a path loses more than [`Options::patient_above`], data is supposed to be of use for so much longer by that
/// share: 50 ms with each hundredth.
const LONGER: Duration = Duration::from_secs(5);
/// For players that keep no more than [`Options::patience`] the price doubles with each such share.
const DOUBLES: f64 = 0.02;

/// What says how losses come together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Together {
    /// What was measured on this connection, and before it the last visit or what is usual.
    #[default]
    Measured,
    /// Only what was known at the connection's beginning.
    Expected,
    /// Nothing: each packet is lost as any other, whatever was lost before it.
    Nothing,
}

/// What the scheme goes by.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// The time that a copy has to take off how late the data is expected to be: 2 ms by default, at most [`DEAREST`]. 0
    /// sends as many as help at all, also where `patient_above` makes them dearer.
    pub price: Duration,
    /// How long after its first sending data is of use, where the application says nothing of that: 350 ms by default, at
    /// most [`MOST_PATIENT`].
    pub patience: Duration,
    /// Whether overdue data gets a copy before its loss is known, if nothing else waits or most of
    /// the recent overdue data was lost. Default: true.
    pub overdue: bool,
    /// What says how losses come together.
    pub together: Together,
    /// The share of loss, of [`PATIENT_ABOVE`], above which players that are not known are supposed to have more
    /// patience, 0.05 by default: a path that loses much wants the most copies, and most players keep more than those who
    /// need them all. 1 is never.
    pub patient_above: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            price: Duration::from_millis(2),
            patience: Duration::from_millis(350),
            overdue: true,
            together: Together::Measured,
            patient_above: 0.05,
        }
    }
}

impl Options {
    /// The same if it makes sense.
    ///
    /// # Errors
    /// When `price` is more than [`DEAREST`], `patience` more than [`MOST_PATIENT`], or `patient_above` outside
    /// [`PATIENT_ABOVE`].
    pub fn checked(self) -> Result<Self, OutOfRange> {
        if self.price > DEAREST {
            return Err(OutOfRange { key: "price", allowed: "0 to 1 s" });
        }
        if self.patience > MOST_PATIENT {
            return Err(OutOfRange { key: "patience", allowed: "0 to 60 s" });
        }
        if !PATIENT_ABOVE.contains(&self.patient_above) {
            return Err(OutOfRange { key: "patient_above", allowed: "0.01 to 1" });
        }
        Ok(self)
    }
}

/// "deadline" with these options.
///
/// # Errors
/// When an option is out of range.
pub fn scheme(options: Options) -> Result<Scheme, OutOfRange> {
    let options = options.checked()?;
    let scheme = Scheme::new("deadline", Most, Copies::new(options)).when_idle();
    Ok(Scheme { correlation: true, answers_each: true, overdue: options.overdue, ..scheme })
}

/// As many copies as a plan may have: the scheduler decides how many of them leave, and says why.
#[derive(Debug)]
struct Most;

impl RedundancyAdapter for Most {
    fn level(&mut self, _: UnitKey, _: u32, _: &View<'_>) -> u32 {
        MAX as u32
    }
    fn explain(&self, _: &mut dyn FnMut(&'static str, f64)) {}
}

/// Whether the queue of the bottleneck is what loses packets, as far as round-trip times tell (the rule of Spike: Cen,
/// Cosman and Voelker, IEEE/ACM Transactions on Networking 11(5), 2003): copies would make it longer.
fn is_full(path: &PathState) -> bool {
    let above = |rtt: Duration| rtt.saturating_sub(path.trough_rtt);
    let queued = above(path.latest_rtt);
    queued > QUEUE && queued * 3 > above(path.peak_rtt)
}

/// From a sending to the moment at which its loss would be answered.
fn round(rtt: Duration) -> Duration {
    rtt + rtt / 8 + Duration::from_millis(10)
}

/// Why copies of a retransmission were planned or none. The guard may still refuse them, and the unit be over before.
#[derive(Clone, Copy, Debug)]
enum Verdict {
    Planned,
    /// Retransmissions are expected to be in time.
    InTime,
    /// No copy would take its price off the lateness.
    Dear,
    /// The queue of the bottleneck is what loses packets.
    QueueFull,
    /// Other copies of the unit are in flight.
    Answer,
}

impl Verdict {
    const NAMES: [&str; 5] =
        ["copies_planned", "had_time", "copies_too_dear", "queue_was_full", "was_answer"];
}

/// What the last decision followed from, and how all were made.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    /// In seconds.
    slack: f64,
    queue_full: bool,
    plan: Plan,
    /// By [`Verdict`].
    verdicts: [u64; Verdict::NAMES.len()],
    overdue_wanted: u64,
    overdue_declined: u64,
    overdue_lost: f64,
}

/// What may be so of a player: how long a copy can still wait, and what it has to bring then.
#[derive(Clone, Copy, Debug)]
struct Supposed {
    slack: Slack,
    price: Duration,
}

/// Plans copies by deadline and correlation.
#[derive(Debug)]
struct Copies {
    options: Options,
    replicas: Replicas,
    memo: Memo,
    told: Told,
}

impl Copies {
    fn new(options: Options) -> Self {
        let replicas = Replicas::new(Spread::AtOnce, 0);
        Self { options, replicas, memo: Memo::default(), told: Told::default() }
    }

    fn known(&mut self, now: Timestamp, view: &View<'_>) -> Known {
        let Options { price, together, patient_above, .. } = self.options;
        self.memo.known(now, view.path.smoothed_rtt, || {
            let curve = match together {
                Together::Measured => Curve::of(view.correlation),
                Together::Expected => Curve::expected(view.correlation),
                Together::Nothing => Curve::flat(view.loss_rate),
            };
            let above = (view.loss_rate - patient_above).max(0.0);
            let dear = price.as_secs_f64() * (above / DOUBLES).exp2();
            Known {
                curve,
                longer: LONGER.mul_f64(above),
                dear: Duration::from_secs_f64(dear.min(DEAREST.as_secs_f64())),
            }
        })
    }

    /// What is supposed of the player, the likeliest first.
    fn supposed(
        &self,
        now: Timestamp,
        data: &Overdue,
        rtt: Duration,
        known: &Known,
    ) -> impl Iterator<Item = Supposed> + use<> {
        let Options { price, patience, .. } = self.options;
        // A copy needs half a round trip, and comes a little late as often as not.
        let now = now + rtt / 2 + rtt / 16;
        let until = |deadline: Timestamp, unsure| {
            let left = deadline.since(now).as_secs_f64() - now.since(deadline).as_secs_f64();
            Slack { left, unsure }
        };
        let (first, second) = match data.mark.and_then(|mark| mark.deadline) {
            Some(deadline) => (Supposed { slack: until(deadline - MARGIN, HEARD), price }, None),
            None => {
                let most = until(data.first_sent + patience + known.longer, GUESSED);
                let few = until(data.first_sent + patience, GUESSED);
                let is_lossy = known.longer > Duration::ZERO;
                let second = is_lossy.then_some(Supposed { slack: few, price: known.dear });
                (Supposed { slack: most, price }, second)
            }
        };
        core::iter::once(first).chain(second)
    }
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
        let rtt = view.path.smoothed_rtt;
        let known = self.known(now, view);
        let round = round(rtt);
        let gap = if unit.round > 1 { round } else { now.since(unit.first_sent) };
        let data = Overdue { first_sent: unit.first_sent, mark: unit.mark };
        // The answer to a copy's loss is one more copy, while others of the unit are in flight: if each answer brought
        // copies of its own, they would multiply just where most of them are lost.
        let is_answer = unit.outstanding > 1;
        let queue_full = is_full(&view.path);
        let most = if is_answer || queue_full { 0 } else { level as usize };
        let (mut plan, mut slack) = (Plan::default(), 0.0);
        for (number, supposed) in self.supposed(now, &data, rtt, &known).enumerate() {
            let Supposed { slack: of, price } = supposed;
            let losses = unit.round;
            let situation = Situation { gap, losses, slack: of, round, curve: &known.curve };
            plan = self.memo.plan(number, &situation, price, most);
            slack = of.left;
            if plan.times().len() > 0 {
                break;
            }
        }
        self.replicas.plan(now, key, plan.times());
        let verdict = match plan.times().len() {
            1.. => Verdict::Planned,
            0 if plan.without <= self.options.price => Verdict::InTime,
            0 if is_answer => Verdict::Answer,
            0 if queue_full => Verdict::QueueFull,
            0 => Verdict::Dear,
        };
        self.told.verdicts[verdict as usize] += 1;
        self.told = Told { slack, queue_full, plan, ..self.told };
    }

    fn wants_overdue(&mut self, now: Timestamp, data: &Overdue, view: &View<'_>) -> bool {
        let rtt = view.path.smoothed_rtt;
        let known = self.known(now, view);
        let gap = now.since(data.first_sent);
        let mut supposed = self.supposed(now, data, rtt, &known);
        let mut gains = || {
            supposed.any(|Supposed { slack, price }| {
                let round = round(rtt);
                Situation { gap, losses: 1, slack, round, curve: &known.curve }.gain(round) > price
            })
        };
        // What waits in a queue is not lost; what was lost in a bad time that is not over would be lost again, and its
        // loss be known late; and without this the loss would be known a round later.
        let wants = view.overdue_lost > MIN_OVERDUE_LOST
            && !is_full(&view.path)
            && known.curve.after(gap).given(1) < MAX_COPY_LOSS
            && gains();
        self.told.overdue_lost = view.overdue_lost;
        self.told.overdue_wanted += u64::from(wants);
        self.told.overdue_declined += u64::from(!wants);
        wants
    }

    fn on_replica_sent(&mut self, now: Timestamp, key: UnitKey, unit: &LostUnit) {
        self.replicas.on_replica_sent(now, key, unit);
    }

    fn on_finished(&mut self, key: UnitKey) {
        self.replicas.on_finished(key);
    }

    fn on_new_path(&mut self) {
        self.memo = Memo::default();
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
        let Told { slack, queue_full, plan, .. } = self.told;
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        tell("level", plan.times().len() as f64);
        tell("slack_ms", slack * 1e3);
        tell("lost_again_percent", plan.lost_again * 100.0);
        tell("late_without_copies_ms", ms(plan.without));
        tell("late_ms", ms(plan.with));
        for (name, time) in
            ["first_copy_after_ms", "second_copy_after_ms"].into_iter().zip(plan.times())
        {
            tell(name, ms(time));
        }
        tell("queue_is_full", f64::from(u8::from(queue_full)));
        for (name, count) in Verdict::NAMES.into_iter().zip(self.told.verdicts) {
            tell(name, count as f64);
        }
        tell("overdue_lost_percent", self.told.overdue_lost * 100.0);
        tell("overdue_wanted", self.told.overdue_wanted as f64);
        tell("overdue_declined", self.told.overdue_declined as f64);
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
