//! When the copies of a lost unit leave (real-loss.md's rule: who needs copies is decided by the deadline, how far
//! apart by how losses come together, how many by what they bring).
//!
//! The retransmission leaves now and is lost with the chance that a packet is lost so long after the one that was lost.
//! Each further copy is lost with the chance that goes with its distance from the copy before it. A round trip later
//! retransmission alone has another try, for nothing. Of all ways to place up to [`MAX`] copies on a grid, the best is
//! that whose chance to miss the deadline plus the price of its copies is least.

use core::time::Duration;

use super::curve::Curve;

/// The most copies of a round beyond the retransmission.
pub(super) const MAX: usize = 3;
/// Places at which copies may leave.
const GRID: usize = 4;
/// Rounds of retransmission that are looked ahead.
const ROUNDS: u32 = 4;
/// What a copy at the end of the window costs more than one at once: what is early is good for much that no model
/// knows.
const LATE: f64 = 0.25;

/// What is known of a unit at its retransmission.
#[derive(Clone, Copy, Debug)]
pub(super) struct Situation<'a> {
    /// Since the last sending that was lost.
    pub gap: Duration,
    /// Sendings that were lost.
    pub losses: u32,
    /// How long a copy can still leave and be in time.
    pub slack: Duration,
    /// From a sending to the moment at which its loss would be answered.
    pub round: Duration,
    /// The least distance of two copies that is worth a packet of its own.
    pub least: Duration,
    /// Chances of loss.
    pub curve: &'a Curve,
}

/// Times of copies after the retransmission.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Plan {
    times: [Duration; MAX],
    len: usize,
}

impl Plan {
    /// The times, in order.
    pub(super) fn times(&self) -> &[Duration] {
        &self.times[..self.len]
    }

    fn with(mut self, time: Duration) -> Self {
        if let Some(place) = self.times.get_mut(self.len) {
            *place = time;
            self.len += 1;
        }
        self
    }
}

impl Situation<'_> {
    /// The chance that nothing arrives in time, given these copies.
    pub(super) fn miss(&self, plan: &Plan) -> f64 {
        let mut losses = self.losses;
        let mut miss = self.curve.after(self.gap, losses);
        let mut last = Duration::ZERO;
        for &time in plan.times() {
            losses += 1;
            miss *= self.curve.after(time - last, losses);
            last = time;
        }
        // What retransmission brings besides: a round after each copy, of which the retransmission's own counts here.
        let mut at = self.round;
        for _ in 0..ROUNDS {
            if at > self.slack {
                break;
            }
            losses += 1;
            miss *= self.curve.after(at.saturating_sub(last).max(self.least), losses);
            last = last.max(at);
            at += self.round;
        }
        miss
    }

    /// The best plan, if a copy costs `price` (the chance of a miss that it has to take away).
    pub(super) fn best(&self, price: f64) -> Plan {
        let window = self.slack.min(self.round);
        let mut best = Plan::default();
        let mut least = self.miss(&best);
        if self.slack.is_zero() || least <= price || window < self.least {
            return best;
        }
        // Every subset of the grid with up to MAX places, in order of time.
        for places in 1u32..1 << GRID {
            let count = places.count_ones();
            if count as usize > MAX {
                continue;
            }
            let at = |place: usize| window * place as u32 / GRID as u32;
            let chosen = (0..GRID).filter(|place| places & (1 << place) != 0);
            let plan = chosen.fold(Plan::default(), |plan, place| plan.with(at(place)));
            let late: f64 = (0..GRID).filter(|p| places & (1 << p) != 0).map(|p| p as f64).sum();
            let copies = f64::from(count) + LATE * late / GRID as f64;
            let cost = self.miss(&plan) + price * copies;
            if cost < least {
                (best, least) = (plan, cost);
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlation::LossCorrelation;
    use units::Timestamp;

    const PRICE: f64 = 0.02;

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

    fn situation(curve: &Curve, slack: u64) -> Situation<'_> {
        Situation { gap: ms(170), losses: 1, slack: ms(slack), round: ms(170), least: ms(1), curve }
    }

    #[test]
    fn who_has_rounds_left_gets_nothing() {
        let calls = Curve::of(None);
        assert_eq!(situation(&calls, 2_000).best(PRICE).times(), []);
        assert!(!situation(&calls, 120).best(PRICE).times().is_empty());
        assert_eq!(situation(&calls, 0).best(PRICE).times(), [], "it is late already");
    }

    #[test]
    fn independent_losses_are_met_at_once_and_outages_later() {
        let independent = curve(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59 == 0);
        let plan = situation(&independent, 120).best(PRICE);
        assert_eq!(plan.times(), [ms(0)]);
        let mut outages = crate::deadline::outages();
        let outages = curve(|_| outages());
        let plan = situation(&outages, 120).best(PRICE);
        assert!(plan.times().iter().all(|&time| time >= ms(20)), "{plan:?}");
        assert!(!plan.times().is_empty());
    }

    #[test]
    fn a_dearer_copy_is_bought_less_often() {
        let calls = Curve::of(None);
        let of = |price| situation(&calls, 150).best(price).times().len();
        let bought: Vec<usize> = [0.001, 0.01, 0.05, 0.3].map(of).to_vec();
        assert!(
            bought.is_sorted_by(|a, b| a >= b) && bought[0] > 0 && bought[3] == 0,
            "{bought:?}"
        );
    }
}
