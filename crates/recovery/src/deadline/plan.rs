//! When the copies of a lost unit leave (docs/deadline.md: who needs copies is decided by the deadline, how far
//! apart by how losses come together, how many by what they bring).
//!
//! The retransmission leaves now and is lost with the chance that a packet is lost so long after the one that was lost.
//! Each further copy is lost with the chance that goes with its distance from the sending before it, and each sending
//! that is lost is followed by another a round later, for nothing. What copies are worth is the *lateness* that they
//! take away: the time by which the data is expected to miss its deadline, since others wait behind it, and [`MISS`] for
//! missing it at all, since a player that has to stop fills its buffer before it goes on. Both are integrals over time
//! of the chance that nothing has arrived. No deadline is known for sure: what comes near it misses it by chance.
//!
//! Copies are placed one by one, each where it takes most off the lateness, for as long as that is worth its price.

use core::time::Duration;

use super::curve::{Curve, Losses};

/// The most copies of a round beyond the retransmission.
pub(super) const MAX: usize = 2;
/// Places in a round at which copies may leave.
const GRID: usize = 8;
/// Rounds of retransmission that are looked ahead. What has not arrived by their end counts as late until then; whose
/// deadline is later gets no copies.
const ROUNDS: usize = 4;
/// What a missed deadline counts beside the lateness, as if the data were so much later.
const MISS: Duration = Duration::from_millis(150);
/// What a copy at the end of a round costs more than one at once: what is early is good for much that no model knows.
const LATE: f64 = 0.05;

/// How long a copy can still leave and be in time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Slack {
    /// In seconds; below 0 for what is late already.
    pub left: f64,
    /// The deadline is up to so much earlier or later, alike likely; more than 0.
    pub unsure: Duration,
}

/// What is known of a unit at its retransmission.
#[derive(Clone, Copy, Debug)]
pub(super) struct Situation<'a> {
    /// Since the last sending that was lost.
    pub gap: Duration,
    /// Sendings that were lost.
    pub losses: u32,
    pub slack: Slack,
    /// From a sending to the moment at which its loss would be answered.
    pub round: Duration,
    /// Chances of loss.
    pub curve: &'a Curve,
}

/// Places of a round at which copies leave, in order; the retransmission leaves at place 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Places {
    all: [usize; MAX],
    len: usize,
}

impl Places {
    fn all(&self) -> &[usize] {
        &self.all[..self.len]
    }

    fn with(mut self, place: usize) -> Self {
        self.all[self.len] = place;
        self.len += 1;
        self.all[..self.len].sort_unstable();
        self
    }
}

/// What was planned, and what it is expected to bring.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Plan {
    places: Places,
    step: Duration,
    /// The chance that the retransmission is lost.
    pub lost_again: f64,
    /// Expected lateness without copies, and with these.
    pub without: Duration,
    pub with: Duration,
}

impl Plan {
    /// When copies leave after the retransmission, in order.
    pub(super) fn times(&self) -> impl ExactSizeIterator<Item = Duration> + '_ {
        self.places.all().iter().map(|&place| self.step * place as u32)
    }
}

/// A situation in steps of the grid, with the chances of loss that it asks for.
struct Grid {
    /// That the retransmission is lost.
    first: f64,
    /// By the distance to the sending before: that a sending is lost, given how many were lost before it.
    chances: [Losses; GRID + 1],
    losses: u32,
    slack: f64,
    unsure: f64,
    miss: f64,
}

impl Grid {
    fn of(situation: &Situation<'_>) -> Self {
        let Situation { gap, losses, slack, round, curve } = *situation;
        let step = round / GRID as u32;
        let steps = |time: f64| time / step.as_secs_f64();
        Self {
            first: curve.after(gap).given(losses),
            chances: core::array::from_fn(|place| curve.after(step * place as u32)),
            losses,
            slack: steps(slack.left),
            unsure: steps(slack.unsure.as_secs_f64()),
            miss: steps(MISS.as_secs_f64()),
        }
    }

    /// The lateness of what is sent `at` and arrives, in steps.
    fn late(&self, at: f64) -> f64 {
        let behind = at - self.slack;
        let missed = ((behind + self.unsure) / (2.0 * self.unsure)).clamp(0.0, 1.0);
        behind.max(0.0) + self.miss * missed
    }

    /// Expected lateness beyond what it has by now, in steps.
    fn lateness(&self, copies: &Places) -> f64 {
        let end = (ROUNDS * GRID) as f64;
        let (mut missing, mut losses, mut last) = (self.first, self.losses + 1, 0);
        let (mut late, mut counted) = (0.0, self.late(0.0));
        let later = (1..ROUNDS).map(|round| round * GRID);
        let starts = core::iter::once(0).chain(later);
        let sendings = starts.flat_map(|start| {
            let again = (start > 0).then_some(start);
            again.into_iter().chain(copies.all().iter().map(move |place| start + place))
        });
        for sending in sendings {
            let at = self.late(sending as f64);
            late += missing * (at - counted);
            counted = at;
            missing *= self.chances[sending - last].given(losses);
            losses += 1;
            last = sending;
        }
        late + missing * (self.late(end) - counted)
    }
}

impl Situation<'_> {
    /// What the retransmission takes off the lateness if it leaves now and not after `wait`.
    pub(super) fn gain(&self, wait: Duration) -> Duration {
        let step = self.round / GRID as u32;
        let left = self.slack.left - wait.as_secs_f64();
        let (gap, slack) = (self.gap + wait, Slack { left, ..self.slack });
        let (now, later) = (Grid::of(self), Grid::of(&Self { gap, slack, ..*self }));
        // Who is late already is so for as long as it waits.
        let waiting = now.late(wait.as_secs_f64() / step.as_secs_f64()) - now.late(0.0);
        let lateness = |grid: &Grid| grid.lateness(&Places::default());
        step.mul_f64((waiting + lateness(&later) - lateness(&now)).max(0.0))
    }

    /// The plan in which each copy takes more than `price` off the lateness, and at most `most` copies leave.
    pub(super) fn plan(&self, price: Duration, most: usize) -> Plan {
        let step = self.round / GRID as u32;
        let grid = Grid::of(self);
        let price = price.as_secs_f64() / step.as_secs_f64();
        let mut places = Places::default();
        let without = grid.lateness(&places);
        let mut late = without;
        while places.len < most.min(MAX) && late > price {
            let each = (0..GRID).map(|place| {
                let with = places.with(place);
                let late = grid.lateness(&with);
                (late + price * (1.0 + LATE * place as f64 / GRID as f64), late, with)
            });
            let best = each.min_by(|a, b| a.0.total_cmp(&b.0));
            let Some((_, least, with)) = best.filter(|(cost, ..)| *cost < late) else { break };
            (places, late) = (with, least);
        }
        let (lost_again, without, with) = (grid.first, step.mul_f64(without), step.mul_f64(late));
        Plan { places, step, lost_again, without, with }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlation::LossCorrelation;
    use units::Timestamp;

    const PRICE: Duration = Duration::from_millis(2);

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn curve(mut lost: impl FnMut(u64) -> bool) -> Curve {
        let mut all = LossCorrelation::default();
        for number in 0..100_000 {
            all.on_settled(Timestamp::from_millis(2 * number), lost(number));
            all.on_all_settled();
        }
        Curve::of(Some(&all))
    }

    fn independent() -> Curve {
        curve(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59 == 0)
    }

    fn situation(curve: &Curve, left: i16) -> Situation<'_> {
        let slack = Slack { left: f64::from(left) / 1e3, unsure: ms(10) };
        Situation { gap: ms(170), losses: 1, slack, round: ms(170), curve }
    }

    fn times(situation: &Situation<'_>, price: Duration) -> Vec<Duration> {
        situation.plan(price, MAX).times().collect()
    }

    #[test]
    fn lateness_is_the_time_for_which_the_data_is_missed_and_that_it_is() {
        // What takes the retransmission makes it 120 ms late, and what takes the next one 170 ms more.
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
    fn who_has_rounds_left_gets_nothing() {
        let calls = Curve::of(None);
        assert_eq!(times(&situation(&calls, 2_000), PRICE), []);
        assert!(!times(&situation(&calls, 120), PRICE).is_empty());
    }

    #[test]
    fn who_is_late_already_is_helped_to_be_less_so() {
        let calls = Curve::of(None);
        assert!(!times(&situation(&calls, -100), PRICE).is_empty());
    }

    #[test]
    fn independent_losses_are_met_at_once_and_outages_later() {
        let (independent, mut outages) = (independent(), crate::deadline::outages());
        assert_eq!(times(&situation(&independent, 0), PRICE).first(), Some(&ms(0)));
        let outages = curve(|_| outages());
        // The retransmission is a round behind the outage; what takes it takes what follows at once.
        let planned = times(&situation(&outages, 120), ms(1));
        assert!(planned.iter().all(|&time| time >= ms(20)), "{planned:?}");
        assert!(!planned.is_empty());
    }

    #[test]
    fn what_is_a_little_late_is_missed_too() {
        // The next round is 20 ms behind the deadline: 20 ms are not worth a copy, a miss is.
        let independent = independent();
        let planned = times(&situation(&independent, 150), PRICE);
        assert_eq!(planned.len(), 1);
        assert_eq!(times(&situation(&independent, 190), PRICE), []);
    }

    #[test]
    fn copies_stay_clear_of_a_deadline_by_as_much_as_it_is_unsure() {
        let mut outages = crate::deadline::outages();
        let outages = curve(|_| outages());
        let first = |unsure| {
            let known = situation(&outages, 100);
            let slack = Slack { unsure: ms(unsure), ..known.slack };
            times(&Situation { slack, ..known }, PRICE)[0]
        };
        assert!(first(10) <= ms(90), "{:?}", first(10));
        assert!(first(30) <= ms(70) && first(30) < first(10), "{:?}", first(30));
    }

    #[test]
    fn to_wait_costs_the_late_its_time_and_those_with_time_nothing() {
        let independent = independent();
        let gain = |left| situation(&independent, left).gain(ms(100));
        // What waits is lost as often as what leaves at once.
        assert!((ms(99)..ms(101)).contains(&gain(-50)), "{:?}", gain(-50));
        let missed = (ms(60) + MISS).mul_f64(0.97);
        assert!((missed..missed + ms(6)).contains(&gain(40)), "{:?}", gain(40));
        assert!(gain(300) < ms(10), "{:?}", gain(300));
        assert_eq!(gain(5_000), ms(0));
    }

    #[test]
    fn a_dearer_copy_is_bought_less_often() {
        let calls = Curve::of(None);
        let of = |price| times(&situation(&calls, 150), ms(price)).len();
        let bought: Vec<usize> = [1, 3, 10, 100].map(of).to_vec();
        assert!(
            bought.is_sorted_by(|a, b| a >= b) && bought[0] > 0 && bought[3] == 0,
            "{bought:?}"
        );
    }

    #[test]
    fn no_situation_takes_it_out_of_bounds() {
        let curve = Curve::of(None);
        for round in [ms(1), ms(40), Duration::from_secs(600)] {
            for left in [-1e18, -0.04, 0.0, 0.039, 3_600.0, 1e18] {
                for losses in [1, 2, 5, u32::MAX - 40] {
                    let slack = Slack { left, unsure: ms(200) };
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
