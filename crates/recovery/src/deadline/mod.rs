//! "deadline": copies of lost data for viewers whom a retransmission would reach too late.
//!
//! The deadline of a lost unit decides *whether* it gets copies: a unit with time for several
//! retransmissions gets none. The loss correlation of the path, as measured by [`LossCorrelation`],
//! decides *when* they leave: at once if losses are independent, and spaced as widely as the
//! deadline allows if losses come in bursts. The lateness that each copy is expected to save
//! decides *how many* leave (`plan`).
//!
//! Copies leave only if nothing else waits or a viewer catches up on a wide path, and only while no
//! queue grows. The loss of each copy is answered, not only the loss of the last one. On paths with
//! heavy loss, where copies cost most, unknown players are assumed to have larger buffers, as most
//! do. Overdue data gets a copy before its loss is known, if nothing else waits or most recent
//! overdue data was lost.
//!
//! [`LossCorrelation`]: crate::LossCorrelation

mod curve;
mod memo;
mod plan;
mod tuning;

use core::ops::RangeInclusive;
use core::time::Duration;

use units::Timestamp;

use crate::range::OutOfRange;
use crate::schedule::{Replicas, Spread};
use crate::{
    LostUnit, Overdue, PathState, RedundancyAdapter, ReplicaScheduler, Scheme, SendOpportunity,
    UnitKey, UnitTable, View,
};
use curve::LossCurve;
use memo::{Memo, PathModel};
use plan::{CopyPlan, MAX_COPIES, Situation, Slack};

pub use tuning::{TUNING, Tuning};

/// Maximum of [`Options::price`]: 1 s.
pub const MAX_PRICE: Duration = Duration::from_secs(1);

/// Maximum of [`Options::patience`]: 60 s.
pub const MAX_PATIENCE: Duration = Duration::from_secs(60);

/// Range of [`Options::patient_above`].
pub const PATIENT_ABOVE_RANGE: RangeInclusive<f64> = 0.01..=1.0;

/// Source of the loss probabilities that plans use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CorrelationSource {
    /// Measurements on this connection, starting from the prior.
    #[default]
    Measured,
    /// The prior alone: the path's last visit, or [`CALLS`](crate::CALLS).
    Prior,
    /// The loss rate alone, as if losses were independent.
    Independent,
}

/// Options of the scheme.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// Lateness that a copy must be expected to save. 0 to [`MAX_PRICE`], default 2 ms. 0 sends
    /// every copy that helps at all, whatever `patient_above` says.
    pub price: Duration,
    /// Time after its first transmission for which data is useful, if the application sets no
    /// deadline. 0 to [`MAX_PATIENCE`], default 350 ms.
    pub patience: Duration,
    /// Whether overdue data gets a copy before its loss is known, if nothing else waits or most
    /// recent overdue data was lost. Default: true.
    pub overdue: bool,
    /// Source of the loss probabilities. Default: measured.
    pub correlation: CorrelationSource,
    /// Loss rate above which unknown players are assumed to be more patient.
    /// [`PATIENT_ABOVE_RANGE`], default 0.05; 1 disables it. Paths with heavy loss ask for most
    /// copies, and most players have larger buffers than those that need them all.
    pub patient_above: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            price: Duration::from_millis(2),
            patience: Duration::from_millis(350),
            overdue: true,
            correlation: CorrelationSource::Measured,
            patient_above: 0.05,
        }
    }
}

impl Options {
    /// Returns the options if all are in range.
    ///
    /// # Errors
    /// If `price`, `patience` or `patient_above` is out of range.
    pub fn checked(self) -> Result<Self, OutOfRange> {
        if self.price > MAX_PRICE {
            return Err(OutOfRange { key: "price", allowed: "0 to 1 s" });
        }
        if self.patience > MAX_PATIENCE {
            return Err(OutOfRange { key: "patience", allowed: "0 to 60 s" });
        }
        if !PATIENT_ABOVE_RANGE.contains(&self.patient_above) {
            return Err(OutOfRange { key: "patient_above", allowed: "0.01 to 1" });
        }
        Ok(self)
    }
}

/// Builds the scheme.
///
/// # Errors
/// If an option is out of range.
pub fn scheme(options: Options) -> Result<Scheme, OutOfRange> {
    let options = options.checked()?;
    let scheme = Scheme::new("deadline", MaxLevel, CopyPlanner::new(options)).when_idle();
    Ok(Scheme { correlation: true, answers_each: true, overdue: options.overdue, ..scheme })
}

/// Level of every unit: the size of the largest plan. The scheduler decides how many copies leave.
#[derive(Debug)]
struct MaxLevel;

impl RedundancyAdapter for MaxLevel {
    fn level(&mut self, _: UnitKey, _: u32, _: &View<'_>) -> u32 {
        MAX_COPIES as u32
    }
    fn explain(&self, _: &mut dyn FnMut(&'static str, f64)) {}
}

/// Returns whether round-trip times suggest that packets are lost to a full bottleneck queue, which
/// copies would lengthen further (the rule of Spike: Cen, Cosman and Voelker, IEEE/ACM Transactions
/// on Networking 11(5), 2003).
fn is_queue_full(path: &PathState) -> bool {
    let above = |rtt: Duration| rtt.saturating_sub(path.trough_rtt);
    let queued = above(path.latest_rtt);
    queued > TUNING.key_frame_queue && queued * 3 > above(path.peak_rtt)
}

/// Returns the time from a transmission to the reaction to its loss.
fn round(rtt: Duration) -> Duration {
    rtt + rtt / 8 + Duration::from_millis(10)
}

/// Outcome of a planning decision. The guard may still refuse planned copies, or the unit finish
/// first.
#[derive(Clone, Copy, Debug)]
enum PlanVerdict {
    Planned,
    /// Retransmissions are expected to be in time.
    InTime,
    /// No copy saves enough lateness for its price.
    TooExpensive,
    /// The bottleneck queue is full.
    QueueFull,
    /// The retransmission answers the loss of a copy while other copies are in flight.
    AnswersLoss,
}

impl PlanVerdict {
    const NAMES: [&str; 5] =
        ["copies_planned", "had_time", "copies_too_dear", "queue_was_full", "was_answer"];
}

/// The last decision and counts of all decisions, for [`ReplicaScheduler::explain`].
#[derive(Clone, Copy, Debug, Default)]
struct LastDecision {
    /// In seconds.
    slack: f64,
    queue_full: bool,
    plan: CopyPlan,
    /// Decisions, indexed by [`PlanVerdict`].
    verdicts: [u64; PlanVerdict::NAMES.len()],
    overdue_wanted: u64,
    overdue_declined: u64,
    overdue_lost: f64,
}

/// A possible deadline, and the price of copies that meet it.
#[derive(Clone, Copy, Debug)]
struct Hypothesis {
    slack: Slack,
    price: Duration,
}

/// Plans copies by deadline and loss correlation.
#[derive(Debug)]
struct CopyPlanner {
    options: Options,
    replicas: Replicas,
    memo: Memo,
    last: LastDecision,
}

impl CopyPlanner {
    fn new(options: Options) -> Self {
        let replicas = Replicas::new(Spread::AtOnce, 0);
        Self { options, replicas, memo: Memo::default(), last: LastDecision::default() }
    }

    fn model(&mut self, now: Timestamp, view: &View<'_>) -> PathModel {
        let Options { price, correlation, patient_above, .. } = self.options;
        self.memo.model(now, view.path.smoothed_rtt, || {
            let curve = match correlation {
                CorrelationSource::Measured => LossCurve::of(view.correlation),
                CorrelationSource::Prior => LossCurve::expected(view.correlation),
                CorrelationSource::Independent => LossCurve::flat(view.loss_rate),
            };
            let above = (view.loss_rate - patient_above).max(0.0);
            let raised_price = price.as_secs_f64() * (above / TUNING.price_doubling_loss).exp2();
            PathModel {
                curve,
                extra_patience: TUNING.extra_patience.mul_f64(above),
                raised_price: Duration::from_secs_f64(raised_price.min(MAX_PRICE.as_secs_f64())),
            }
        })
    }

    /// Yields the possible players, the likeliest first.
    fn hypotheses(
        &self,
        now: Timestamp,
        data: &Overdue,
        rtt: Duration,
        model: &PathModel,
    ) -> impl Iterator<Item = Hypothesis> + use<> {
        let Options { price, patience, .. } = self.options;
        // A copy takes half a round trip, and is a little late half of the time.
        let now = now + rtt / 2 + rtt / 16;
        let until = |deadline: Timestamp, uncertainty| {
            let left = deadline.since(now).as_secs_f64() - now.since(deadline).as_secs_f64();
            Slack { left, uncertainty }
        };
        let (first, second) = match data.mark.and_then(|mark| mark.deadline) {
            Some(deadline) => (
                Hypothesis {
                    slack: until(deadline - TUNING.decode_margin, TUNING.reported_uncertainty),
                    price,
                },
                None,
            ),
            None => {
                let patient = until(
                    data.first_sent + patience + model.extra_patience,
                    TUNING.assumed_uncertainty,
                );
                let impatient = until(data.first_sent + patience, TUNING.assumed_uncertainty);
                let is_lossy = model.extra_patience > Duration::ZERO;
                let second =
                    is_lossy.then_some(Hypothesis { slack: impatient, price: model.raised_price });
                (Hypothesis { slack: patient, price }, second)
            }
        };
        core::iter::once(first).chain(second)
    }
}

impl ReplicaScheduler for CopyPlanner {
    fn on_retransmitted(
        &mut self,
        now: Timestamp,
        key: UnitKey,
        unit: &LostUnit,
        level: u32,
        view: &View<'_>,
    ) {
        let rtt = view.path.smoothed_rtt;
        let model = self.model(now, view);
        let round = round(rtt);
        let gap = if unit.round > 1 { round } else { now.since(unit.first_sent) };
        let data = Overdue { first_sent: unit.first_sent, mark: unit.mark };
        // While other copies are in flight, the loss of a copy is answered by one retransmission
        // without copies of its own. Otherwise copies would multiply where most are lost.
        let is_answer = unit.outstanding > 1;
        let queue_full = is_queue_full(&view.path);
        let most = if is_answer || queue_full { 0 } else { level as usize };
        let (mut plan, mut time_left) = (CopyPlan::default(), 0.0);
        for (number, hypothesis) in self.hypotheses(now, &data, rtt, &model).enumerate() {
            let Hypothesis { slack, price } = hypothesis;
            let losses = unit.round;
            let situation = Situation { gap, losses, slack, round, curve: &model.curve };
            plan = self.memo.plan(number, &situation, price, most);
            time_left = slack.left;
            if plan.times().len() > 0 {
                break;
            }
        }
        self.replicas.plan(now, key, plan.times());
        let verdict = match plan.times().len() {
            1.. => PlanVerdict::Planned,
            0 if plan.without <= self.options.price => PlanVerdict::InTime,
            0 if is_answer => PlanVerdict::AnswersLoss,
            0 if queue_full => PlanVerdict::QueueFull,
            0 => PlanVerdict::TooExpensive,
        };
        self.last.verdicts[verdict as usize] += 1;
        self.last = LastDecision { slack: time_left, queue_full, plan, ..self.last };
    }

    fn wants_overdue(&mut self, now: Timestamp, data: &Overdue, view: &View<'_>) -> bool {
        let rtt = view.path.smoothed_rtt;
        let model = self.model(now, view);
        let gap = now.since(data.first_sent);
        let mut hypotheses = self.hypotheses(now, data, rtt, &model);
        let mut gains = || {
            hypotheses.any(|Hypothesis { slack, price }| {
                let round = round(rtt);
                Situation { gap, losses: 1, slack, round, curve: &model.curve }.gain(round) > price
            })
        };
        // Queued data is not lost, and a copy sent during an ongoing outage would be lost as well.
        // If no copy is sent now, the loss is answered a round later.
        let wants = view.overdue_lost > TUNING.min_overdue_loss
            && !is_queue_full(&view.path)
            && model.curve.after(gap).given(1) < TUNING.max_copy_loss
            && gains();
        self.last.overdue_lost = view.overdue_lost;
        self.last.overdue_wanted += u64::from(wants);
        self.last.overdue_declined += u64::from(!wants);
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
        let LastDecision { slack, queue_full, plan, .. } = self.last;
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
        for (name, count) in PlanVerdict::NAMES.into_iter().zip(self.last.verdicts) {
            tell(name, count as f64);
        }
        tell("overdue_lost_percent", self.last.overdue_lost * 100.0);
        tell("overdue_wanted", self.last.overdue_wanted as f64);
        tell("overdue_declined", self.last.overdue_declined as f64);
    }
}

/// Outages of 20 ms every 400 ms on average, for a packet every 2 ms.
#[cfg(test)]
fn outages() -> impl FnMut() -> bool {
    let (mut random, mut is_out) = (crate::Random::new(3), false);
    move || {
        let leaves = if is_out { 2.0 / 20.0 } else { 2.0 / 380.0 };
        is_out ^= random.fraction() < leaves;
        is_out
    }
}
#[cfg(test)]
mod tests;
