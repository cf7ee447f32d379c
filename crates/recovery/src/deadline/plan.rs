//! Plans when the copies of a lost unit leave (docs/develop/deadline.md).
//!
//! The retransmission leaves now. It is lost with the probability for its distance from the lost
//! packet; each copy is lost with the probability for its distance from the transmission before it.
//! The loss of each transmission is answered by another one a round later, which costs nothing.
//!
//! A copy is worth the *lateness* that it saves: the expected delay of the data beyond its
//! deadline, plus [`Tuning::miss_penalty`] times the probability of missing it. Both are integrals
//! over time of the probability that nothing has arrived. Deadlines are uncertain, so data that
//! arrives near its deadline may miss it.
//!
//! Copies are placed greedily: each goes where it saves most lateness, while that exceeds its
//! price.
//!
//! [`Tuning::miss_penalty`]: super::Tuning::miss_penalty

use core::time::Duration;

use super::TUNING;
use super::curve::{LossCurve, Losses};

/// Maximum number of copies per round, besides the retransmission.
pub(super) const MAX_COPIES: usize = 2;
/// Send times per round that plans choose from.
const SLOTS: usize = 8;
/// Planning horizon, in rounds. Data still missing at its end counts as late until then, and later
/// deadlines get no copies.
const HORIZON: usize = 4;

/// Time left for a copy to leave and still be in time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Slack {
    /// In seconds; negative if it is already too late.
    pub left: f64,
    /// Half-width of the deadline's uniform distribution; more than 0.
    pub uncertainty: Duration,
}

/// State of a unit at its retransmission.
#[derive(Clone, Copy, Debug)]
pub(super) struct Situation<'a> {
    /// Time since the last lost transmission of the data.
    pub gap: Duration,
    /// Lost transmissions of the data.
    pub losses: u32,
    pub slack: Slack,
    /// Time from a transmission to the reaction to its loss.
    pub round: Duration,
    /// Loss probabilities of the path.
    pub curve: &'a LossCurve,
}

/// Slots of a round at which copies leave, in order. The retransmission leaves at slot 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Slots {
    all: [usize; MAX_COPIES],
    len: usize,
}

impl Slots {
    fn all(&self) -> &[usize] {
        &self.all[..self.len]
    }

    fn with(mut self, slot: usize) -> Self {
        self.all[self.len] = slot;
        self.len += 1;
        self.all[..self.len].sort_unstable();
        self
    }
}

/// Planned copies and their expected benefit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct CopyPlan {
    slots: Slots,
    step: Duration,
    /// Probability that the retransmission is lost.
    pub lost_again: f64,
    /// Expected lateness without and with these copies.
    pub without: Duration,
    pub with: Duration,
}

impl CopyPlan {
    /// Yields the delays of the copies after the retransmission, in order.
    pub(super) fn times(&self) -> impl ExactSizeIterator<Item = Duration> + '_ {
        self.slots.all().iter().map(|&slot| self.step * slot as u32)
    }
}

/// A situation with all times in slots, and the loss probabilities that its plans need.
struct Grid {
    /// Loss probability of the retransmission.
    first: f64,
    /// Loss probabilities by distance from the transmission before.
    chances: [Losses; SLOTS + 1],
    losses: u32,
    slack: f64,
    uncertainty: f64,
    miss: f64,
}

impl Grid {
    fn of(situation: &Situation<'_>) -> Self {
        let Situation { gap, losses, slack, round, curve } = *situation;
        let step = round / SLOTS as u32;
        let steps = |time: f64| time / step.as_secs_f64();
        Self {
            first: curve.after(gap).given(losses),
            chances: core::array::from_fn(|slot| curve.after(step * slot as u32)),
            losses,
            slack: steps(slack.left),
            uncertainty: steps(slack.uncertainty.as_secs_f64()),
            miss: steps(TUNING.miss_penalty.as_secs_f64()),
        }
    }

    /// Returns the lateness of data that is sent `at` and arrives, in slots.
    fn late(&self, at: f64) -> f64 {
        let overrun = at - self.slack;
        let missed = ((overrun + self.uncertainty) / (2.0 * self.uncertainty)).clamp(0.0, 1.0);
        overrun.max(0.0) + self.miss * missed
    }

    /// Returns the expected additional lateness, in slots.
    fn lateness(&self, copies: &Slots) -> f64 {
        let end = (HORIZON * SLOTS) as f64;
        let (mut missing, mut losses, mut last) = (self.first, self.losses + 1, 0);
        let (mut late, mut counted) = (0.0, self.late(0.0));
        let later = (1..HORIZON).map(|round| round * SLOTS);
        let starts = core::iter::once(0).chain(later);
        let transmissions = starts.flat_map(|start| {
            let again = (start > 0).then_some(start);
            again.into_iter().chain(copies.all().iter().map(move |slot| start + slot))
        });
        for slot in transmissions {
            let at = self.late(slot as f64);
            late += missing * (at - counted);
            counted = at;
            missing *= self.chances[slot - last].given(losses);
            losses += 1;
            last = slot;
        }
        late + missing * (self.late(end) - counted)
    }
}

impl Situation<'_> {
    /// Returns the lateness that a retransmission now saves over one after `wait`.
    pub(super) fn gain(&self, wait: Duration) -> Duration {
        let step = self.round / SLOTS as u32;
        let left = self.slack.left - wait.as_secs_f64();
        let (gap, slack) = (self.gap + wait, Slack { left, ..self.slack });
        let (now, later) = (Grid::of(self), Grid::of(&Self { gap, slack, ..*self }));
        // Data that is already late accrues lateness while it waits.
        let waiting = now.late(wait.as_secs_f64() / step.as_secs_f64()) - now.late(0.0);
        let lateness = |grid: &Grid| grid.lateness(&Slots::default());
        step.mul_f64((waiting + lateness(&later) - lateness(&now)).max(0.0))
    }

    /// Returns the plan of at most `max` copies that each save more than `price`.
    pub(super) fn plan(&self, price: Duration, max: usize) -> CopyPlan {
        let step = self.round / SLOTS as u32;
        let grid = Grid::of(self);
        let price = price.as_secs_f64() / step.as_secs_f64();
        let mut slots = Slots::default();
        let without = grid.lateness(&slots);
        let mut late = without;
        while slots.len < max.min(MAX_COPIES) && late > price {
            let each = (0..SLOTS).map(|slot| {
                let with = slots.with(slot);
                let late = grid.lateness(&with);
                let surcharge = TUNING.delay_surcharge * slot as f64 / SLOTS as f64;
                (late + price * (1.0 + surcharge), late, with)
            });
            let best = each.min_by(|a, b| a.0.total_cmp(&b.0));
            let Some((_, least, with)) = best.filter(|(cost, ..)| *cost < late) else { break };
            (slots, late) = (with, least);
        }
        let (lost_again, without, with) = (grid.first, step.mul_f64(without), step.mul_f64(late));
        CopyPlan { slots, step, lost_again, without, with }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlation::LossCorrelation;
    use units::Timestamp;

    const PRICE: Duration = Duration::from_millis(2);
    const MISS: Duration = TUNING.miss_penalty;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn curve(mut lost: impl FnMut(u64) -> bool) -> LossCurve {
        let mut all = LossCorrelation::default();
        for number in 0..100_000 {
            all.on_settled(Timestamp::from_millis(2 * number), lost(number));
            all.on_all_settled();
        }
        LossCurve::of(Some(&all))
    }

    fn independent() -> LossCurve {
        curve(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59 == 0)
    }

    fn situation(curve: &LossCurve, left: i16) -> Situation<'_> {
        let slack = Slack { left: f64::from(left) / 1e3, uncertainty: ms(10) };
        Situation { gap: ms(170), losses: 1, slack, round: ms(170), curve }
    }

    fn times(situation: &Situation<'_>, price: Duration) -> Vec<Duration> {
        situation.plan(price, MAX_COPIES).times().collect()
    }

    #[test]
    fn lateness_is_the_expected_overrun_plus_the_miss_penalty() {
        // A lost retransmission makes the data 120 ms late, a second loss another 170 ms.
        let independent = independent();
        let lost = |losses| independent.after(ms(170)).given(losses);
        assert!((0.02..0.05).contains(&lost(1)), "{}", lost(1));
        let late = |left| situation(&independent, left).plan(PRICE, 0);
        let more = ms(170).mul_f64(lost(1) * lost(2));
        for (left, expected) in [
            (50, (ms(120) + MISS).mul_f64(lost(1)) + more),
            (170, (MISS / 2).mul_f64(lost(1)) + more + (MISS / 2).mul_f64(lost(1) * lost(2))),
            (-80, ms(170).mul_f64(lost(1)) + more),
        ] {
            let plan = late(left);
            let off = plan.without.as_secs_f64() / expected.as_secs_f64();
            assert!((0.99..1.05).contains(&off), "{left}: {:?} {expected:?}", plan.without);
            assert_eq!((plan.with, plan.times().len()), (plan.without, 0));
        }
    }

    #[test]
    fn units_with_rounds_left_get_no_copies() {
        let calls = LossCurve::of(None);
        assert_eq!(times(&situation(&calls, 2_000), PRICE), []);
        assert!(!times(&situation(&calls, 120), PRICE).is_empty());
    }

    #[test]
    fn late_units_get_copies_that_shorten_the_delay() {
        let calls = LossCurve::of(None);
        assert!(!times(&situation(&calls, -100), PRICE).is_empty());
    }

    #[test]
    fn copies_leave_at_once_under_independent_loss_and_later_under_outages() {
        let (independent, mut outages) = (independent(), crate::deadline::outages());
        assert_eq!(times(&situation(&independent, 0), PRICE).first(), Some(&ms(0)));
        let outages = curve(|_| outages());
        // The retransmission leaves a round after the outage. An outage that hits it also hits
        // copies sent with it.
        let planned = times(&situation(&outages, 120), ms(1));
        assert!(planned.iter().all(|&time| time >= ms(20)), "{planned:?}");
        assert!(!planned.is_empty());
    }

    #[test]
    fn a_miss_of_a_few_milliseconds_is_worth_a_copy() {
        // The next round is 20 ms late. The lateness alone is not worth a copy, the miss penalty
        // is.
        let independent = independent();
        let planned = times(&situation(&independent, 150), PRICE);
        assert_eq!(planned.len(), 1);
        assert_eq!(times(&situation(&independent, 190), PRICE), []);
    }

    #[test]
    fn copies_keep_the_deadlines_uncertainty_as_a_distance() {
        let mut outages = crate::deadline::outages();
        let outages = curve(|_| outages());
        let first = |uncertainty| {
            let known = situation(&outages, 100);
            let slack = Slack { uncertainty: ms(uncertainty), ..known.slack };
            times(&Situation { slack, ..known }, PRICE)[0]
        };
        assert!(first(10) <= ms(90), "{:?}", first(10));
        assert!(first(30) <= ms(70) && first(30) < first(10), "{:?}", first(30));
    }

    #[test]
    fn waiting_costs_late_data_its_duration_and_early_data_nothing() {
        let independent = independent();
        let gain = |left| situation(&independent, left).gain(ms(100));
        // A transmission after the wait is as likely to be lost as one now.
        assert!((ms(99)..ms(101)).contains(&gain(-50)), "{:?}", gain(-50));
        let missed = (ms(60) + MISS).mul_f64(0.97);
        assert!((missed..missed + ms(6)).contains(&gain(40)), "{:?}", gain(40));
        assert!(gain(300) < ms(10), "{:?}", gain(300));
        assert_eq!(gain(5_000), ms(0));
    }

    #[test]
    fn a_higher_price_means_fewer_copies() {
        let calls = LossCurve::of(None);
        let of = |price| times(&situation(&calls, 150), ms(price)).len();
        let bought: Vec<usize> = [1, 3, 10, 100].map(of).to_vec();
        assert!(
            bought.is_sorted_by(|a, b| a >= b) && bought[0] > 0 && bought[3] == 0,
            "{bought:?}"
        );
    }

    #[test]
    fn extreme_situations_stay_in_bounds() {
        let curve = LossCurve::of(None);
        for round in [ms(1), ms(40), Duration::from_secs(600)] {
            for left in [-1e18, -0.04, 0.0, 0.039, 3_600.0, 1e18] {
                for losses in [1, 2, 5, u32::MAX - 40] {
                    let slack = Slack { left, uncertainty: ms(200) };
                    let situation =
                        Situation { gap: Duration::MAX / 4, losses, slack, round, curve: &curve };
                    let plan = situation.plan(PRICE, usize::MAX);
                    assert!(plan.with <= plan.without, "{situation:?} {plan:?}");
                    assert!(plan.times().all(|time| time < round), "{situation:?} {plan:?}");
                }
            }
        }
    }
}
