//! Cache of recent plans. Units lost together are in the same situation, so a connection that loses
//! hundreds of packets per second does not compute a plan for each.

use core::time::Duration;

use super::curve::LossCurve;
use super::plan::{CopyPlan, Situation, Slack};
use units::Timestamp;

/// Fraction of a round-trip time for which a path model is reused. Measurements within it cover at
/// most one outage.
const MODEL_LIFETIME: u32 = 4;
/// Tolerance for situations that share a plan, as a fraction of a round: a quarter
/// of a slot.
const TOLERANCE: u32 = 32;

/// Loss behaviour of the path, and its consequences for unknown players.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct PathModel {
    pub curve: LossCurve,
    /// Time beyond `patience` for which data is assumed to be useful to unknown players.
    pub extra_patience: Duration,
    /// Price of copies for unknown players with no more than `patience`.
    pub raised_price: Duration,
}

/// The current path model, and the last plans made with it.
#[derive(Debug, Default)]
pub(super) struct Memo {
    model: Option<(Timestamp, PathModel)>,
    /// Indexed by hypothesis about the player.
    plans: [Option<Planned>; 2],
}

#[derive(Debug)]
struct Planned {
    gap: Duration,
    losses: u32,
    slack: Slack,
    round: Duration,
    price: Duration,
    max: usize,
    plan: CopyPlan,
}

impl Planned {
    fn matches(&self, situation: &Situation<'_>, price: Duration, max: usize) -> bool {
        let close = |a: Duration, b: Duration| a.abs_diff(b) <= self.round / TOLERANCE;
        (self.price, self.max) == (price, max)
            && self.losses == situation.losses
            && close(self.gap, situation.gap)
            && self.slack.uncertainty == situation.slack.uncertainty
            && (self.slack.left - situation.slack.left).abs()
                <= (self.round / TOLERANCE).as_secs_f64()
            && close(self.round, situation.round)
    }
}

impl Memo {
    /// Returns the current model; calls `compute` if the cached one has expired.
    pub(super) fn model(
        &mut self,
        now: Timestamp,
        rtt: Duration,
        compute: impl FnOnce() -> PathModel,
    ) -> PathModel {
        if let Some((at, model)) = self.model
            && now.since(at) < rtt / MODEL_LIFETIME
        {
            return model;
        }
        let model = compute();
        *self = Self { model: Some((now, model)), plans: [None, None] };
        model
    }

    /// Returns the plan for the hypothesis of this number.
    pub(super) fn plan(
        &mut self,
        number: usize,
        situation: &Situation<'_>,
        price: Duration,
        max: usize,
    ) -> CopyPlan {
        let last = &mut self.plans[number];
        if let Some(planned) = last.as_ref().filter(|last| last.matches(situation, price, max)) {
            return planned.plan;
        }
        let plan = situation.plan(price, max);
        let Situation { gap, losses, slack, round, .. } = *situation;
        *last = Some(Planned { gap, losses, slack, round, price, max, plan });
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_model_lasts_a_quarter_of_a_round_trip_and_plans_no_longer() {
        let model =
            |curve| PathModel { curve, extra_patience: Duration::ZERO, raised_price: MS * 2 };
        let (flat, calls) = (LossCurve::flat(0.07), LossCurve::of(None));
        let mut memo = Memo::default();
        let mut at =
            |ms, found| memo.model(Timestamp::from_millis(ms), MS * 100, || model(found)).curve;
        assert_eq!(at(0, flat), flat);
        assert_eq!(at(24, calls), flat);
        assert_eq!(at(25, calls), calls);
        let of = |gap, left| {
            let slack = Slack { left: f64::from(left) / 1e3, uncertainty: MS * 10 };
            Situation { gap: MS * gap, losses: 1, slack, round: MS * 128, curve: &calls }
        };
        let (price, first) = (MS * 2, of(150, 40));
        let plan = first.plan(price, 2);
        assert_eq!(memo.plan(0, &first, price, 2), plan);
        assert_eq!(memo.plan(0, &of(154, 37), price, 2), plan, "within the tolerance");
        for (other, price, max) in [
            (of(150, 0), price, 2),
            (of(20, 40), price, 2),
            (of(150, 40), price, 0),
            (of(150, 40), MS * 200, 2),
        ] {
            assert_eq!(memo.plan(0, &first, MS * 2, 2), plan);
            let planned = memo.plan(0, &other, price, max);
            assert_eq!(planned, other.plan(price, max));
            assert_ne!(planned, plan);
        }
        memo.plan(0, &first, price, 2);
        let uncertain =
            Situation { slack: Slack { uncertainty: MS * 200, ..first.slack }, ..first };
        assert_eq!(memo.plan(0, &uncertain, price, 2), uncertain.plan(price, 2));
        assert_ne!(uncertain.plan(price, 2), plan);
        memo.plan(0, &first, price, 2);
        // Plans expire with their model.
        memo.model(Timestamp::from_millis(60), MS * 100, || model(flat));
        let independent = Situation { curve: &flat, ..first };
        assert_eq!(memo.plan(0, &independent, price, 2), independent.plan(price, 2));
    }
}
