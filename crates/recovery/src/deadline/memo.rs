//! What was worked out lately. Data that was lost together is in one situation, and a connection that loses hundreds of
//! packets a second does not work out each one's.

use core::time::Duration;

use super::curve::Curve;
use super::plan::{Plan, Situation, Slack};
use units::Timestamp;

/// What is known of the path holds for this part of a round-trip time: what is measured within it tells of one outage at
/// most.
const HOLDS: u32 = 4;
/// Situations whose times differ by no more than this part of a round are one: a quarter of a place for copies.
const ALIKE: u32 = 32;

/// What is known of the path.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Known {
    pub curve: Curve,
    /// By how much data is supposed to be of use for longer than `patience` to players that are not known.
    pub longer: Duration,
    /// The price of copies for those of them who keep no more than `patience`.
    pub dear: Duration,
}

/// What is known of the path, and the plans that were made by it last.
#[derive(Debug, Default)]
pub(super) struct Memo {
    known: Option<(Timestamp, Known)>,
    /// By what is supposed of the player.
    plans: [Option<Planned>; 2],
}

/// A plan and what it answers.
#[derive(Debug)]
struct Planned {
    gap: Duration,
    losses: u32,
    slack: Slack,
    round: Duration,
    price: Duration,
    most: usize,
    plan: Plan,
}

impl Planned {
    fn answers(&self, situation: &Situation<'_>, price: Duration, most: usize) -> bool {
        let alike = |a: Duration, b: Duration| a.abs_diff(b) <= self.round / ALIKE;
        (self.price, self.most) == (price, most)
            && self.losses == situation.losses
            && alike(self.gap, situation.gap)
            && self.slack.unsure == situation.slack.unsure
            && (self.slack.left - situation.slack.left).abs() <= (self.round / ALIKE).as_secs_f64()
            && alike(self.round, situation.round)
    }
}

impl Memo {
    /// What is known by now; `find` is asked if that does not hold any more.
    pub(super) fn known(
        &mut self,
        now: Timestamp,
        rtt: Duration,
        find: impl FnOnce() -> Known,
    ) -> Known {
        if let Some((at, known)) = self.known
            && now.since(at) < rtt / HOLDS
        {
            return known;
        }
        let known = find();
        *self = Self { known: Some((now, known)), plans: [None, None] };
        known
    }

    /// The plan by that, for the supposition of this number.
    pub(super) fn plan(
        &mut self,
        number: usize,
        situation: &Situation<'_>,
        price: Duration,
        most: usize,
    ) -> Plan {
        let last = &mut self.plans[number];
        if let Some(planned) = last.as_ref().filter(|last| last.answers(situation, price, most)) {
            return planned.plan;
        }
        let plan = situation.plan(price, most);
        let Situation { gap, losses, slack, round, .. } = *situation;
        *last = Some(Planned { gap, losses, slack, round, price, most, plan });
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_curve_holds_for_a_quarter_of_a_round_trip_and_a_plan_no_longer() {
        let known = |curve| Known { curve, longer: Duration::ZERO, dear: MS * 2 };
        let (flat, calls) = (Curve::flat(0.07), Curve::of(None));
        let mut memo = Memo::default();
        let mut at =
            |ms, found| memo.known(Timestamp::from_millis(ms), MS * 100, || known(found)).curve;
        assert_eq!(at(0, flat), flat);
        assert_eq!(at(24, calls), flat);
        assert_eq!(at(25, calls), calls);
        let of = |gap, left| {
            let slack = Slack { left: f64::from(left) / 1e3, unsure: MS * 10 };
            Situation { gap: MS * gap, losses: 1, slack, round: MS * 128, curve: &calls }
        };
        let (price, first) = (MS * 2, of(150, 40));
        let plan = first.plan(price, 2);
        assert_eq!(memo.plan(0, &first, price, 2), plan);
        assert_eq!(memo.plan(0, &of(154, 37), price, 2), plan, "alike");
        for (other, price, most) in [
            (of(150, 0), price, 2),
            (of(20, 40), price, 2),
            (of(150, 40), price, 0),
            (of(150, 40), MS * 200, 2),
        ] {
            assert_eq!(memo.plan(0, &first, MS * 2, 2), plan);
            let planned = memo.plan(0, &other, price, most);
            assert_eq!(planned, other.plan(price, most));
            assert_ne!(planned, plan);
        }
        memo.plan(0, &first, price, 2);
        let unsure = Situation { slack: Slack { unsure: MS * 200, ..first.slack }, ..first };
        assert_eq!(memo.plan(0, &unsure, price, 2), unsure.plan(price, 2));
        assert_ne!(unsure.plan(price, 2), plan);
        memo.plan(0, &first, price, 2);
        // The plan goes with its curve.
        memo.known(Timestamp::from_millis(60), MS * 100, || known(flat));
        let independent = Situation { curve: &flat, ..first };
        assert_eq!(memo.plan(0, &independent, price, 2), independent.plan(price, 2));
    }
}
