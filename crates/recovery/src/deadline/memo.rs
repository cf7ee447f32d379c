//! What was worked out lately. Data that was lost together is in one situation, and a connection that loses hundreds of
//! packets a second does not work out each one's.

use core::time::Duration;

use super::curve::Curve;
use super::plan::{Plan, Situation, Slack};
use units::Timestamp;

/// The curve holds for this part of a round-trip time: what is measured within it tells of one outage at most.
const HOLDS: u32 = 4;
/// Situations whose times differ by no more than this part of a round are one: a quarter of a place for copies.
const ALIKE: u32 = 32;

/// The curve, and the plan that was made by it last.
#[derive(Debug, Default)]
pub(super) struct Memo {
    curve: Option<(Timestamp, Curve)>,
    plan: Option<Planned>,
}

/// A plan and what it answers.
#[derive(Debug)]
struct Planned {
    gap: Duration,
    losses: u32,
    slack: Slack,
    round: Duration,
    most: usize,
    plan: Plan,
}

impl Planned {
    fn answers(&self, situation: &Situation<'_>, most: usize) -> bool {
        let alike = |a: Duration, b: Duration| a.abs_diff(b) <= self.round / ALIKE;
        self.most == most
            && self.losses == situation.losses
            && alike(self.gap, situation.gap)
            && self.slack.unsure == situation.slack.unsure
            && (self.slack.left - situation.slack.left).abs() <= (self.round / ALIKE).as_secs_f64()
            && alike(self.round, situation.round)
    }
}

impl Memo {
    /// The curve by now; `find` is asked if the last one does not hold any more.
    pub(super) fn curve(
        &mut self,
        now: Timestamp,
        rtt: Duration,
        find: impl FnOnce() -> Curve,
    ) -> Curve {
        if let Some((at, curve)) = self.curve
            && now.since(at) < rtt / HOLDS
        {
            return curve;
        }
        let curve = find();
        *self = Self { curve: Some((now, curve)), plan: None };
        curve
    }

    /// The plan by that curve.
    pub(super) fn plan(&mut self, situation: &Situation<'_>, price: Duration, most: usize) -> Plan {
        if let Some(planned) = self.plan.as_ref().filter(|last| last.answers(situation, most)) {
            return planned.plan;
        }
        let plan = situation.plan(price, most);
        let Situation { gap, losses, slack, round, .. } = *situation;
        self.plan = Some(Planned { gap, losses, slack, round, most, plan });
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_curve_holds_for_a_quarter_of_a_round_trip_and_a_plan_no_longer() {
        let (flat, calls) = (Curve::of(None).flat(), Curve::of(None));
        let mut memo = Memo::default();
        let mut at = |ms, found| memo.curve(Timestamp::from_millis(ms), MS * 100, || found);
        assert_eq!(at(0, flat), flat);
        assert_eq!(at(24, calls), flat);
        assert_eq!(at(25, calls), calls);
        let of = |gap, left| {
            let slack = Slack { left: f64::from(left) / 1e3, unsure: MS * 10 };
            Situation { gap: MS * gap, losses: 1, slack, round: MS * 128, curve: &calls }
        };
        let (price, first) = (MS * 2, of(150, 40));
        let plan = first.plan(price, 2);
        assert_eq!(memo.plan(&first, price, 2), plan);
        assert_eq!(memo.plan(&of(154, 37), price, 2), plan, "alike");
        for (other, most) in [(of(150, 0), 2), (of(20, 40), 2), (of(150, 40), 0)] {
            let planned = memo.plan(&other, price, most);
            assert_eq!(planned, other.plan(price, most));
            assert_ne!(planned, plan);
            memo.plan(&first, price, 2);
        }
        let unsure = Situation { slack: Slack { unsure: MS * 200, ..first.slack }, ..first };
        assert_eq!(memo.plan(&unsure, price, 2), unsure.plan(price, 2));
        assert_ne!(unsure.plan(price, 2), plan);
        memo.plan(&first, price, 2);
        // The plan goes with its curve.
        memo.curve(Timestamp::from_millis(60), MS * 100, || flat);
        let independent = Situation { curve: &flat, ..first };
        assert_eq!(memo.plan(&independent, price, 2), independent.plan(price, 2));
    }
}
