//! Hairpin's decision process (Meng et al., NSDI 2024, section 4): how many repair packets go with
//! the packets of a frame that are still missing, in each round until the deadline.
//!
//! With *n* packets missing and *l* transmissions left before the deadline, *f* repair packets cost
//! λ f ÷ F, where F is the size of the frame. A frame that is incomplete after the last one costs
//! one. The receiver restores a round if at most *f* of its *n* + *f* packets are lost. Otherwise
//! the lost data packets go on to the next round.

use core::time::Duration;
use std::collections::BTreeMap;

use crate::error::BadValue;

/// λ of the low-cost variant (AutoRec, section VII-A).
pub const LOW_COST: f64 = 1e-1;
/// λ of the standard variant.
pub const STANDARD: f64 = 1e-4;
/// λ of the high-cost variant.
pub const HIGH_COST: f64 = 1e-7;

/// Highest number of rounds considered.
pub const MAX_ROUNDS: usize = 15;
/// Highest loss rate of the tables.
const MAX_LOSS: f64 = 0.5;
/// Step of the frame size, in packets.
const FRAME_STEP: usize = 5;
/// Largest frame of the tables, in packets.
const MAX_FRAME: usize = 55;

/// Ratios of repair to data packets among which a round chooses.
fn ratios() -> impl Iterator<Item = f64> {
    (0..20).map(|step| 0.05 * f64::from(step)).chain([1.0, 2.0, 3.0, 4.0, 5.0])
}

/// The decisions for one loss rate and frame size.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Repair packets by rounds left − 1 and missing packets − 1.
    repairs: Vec<Vec<usize>>,
    /// Expected costs, likewise.
    costs: Vec<Vec<f64>>,
}

/// Probabilities of 0 to `n` losses among `n` packets.
fn binomial(n: usize, loss: f64) -> Vec<f64> {
    let mut all = vec![1.0];
    for _ in 0..n {
        let mut next = vec![0.0; all.len() + 1];
        for (lost, chance) in all.iter().enumerate() {
            next[lost] += chance * (1.0 - loss);
            next[lost + 1] += chance * loss;
        }
        all = next;
    }
    all
}

/// Probabilities that 0 to `n` packets are missing after a round with `n` data and `f` repair
/// packets.
fn after_round(n: usize, f: usize, loss: f64) -> Vec<f64> {
    let (data, repair) = (binomial(n, loss), binomial(f, loss));
    let mut left = vec![0.0; n + 1];
    for (lost, chance) in data.iter().enumerate() {
        // Restored if lost data and lost repair packets are at most `f` together.
        let restored: f64 = (0..=f).filter(|r| lost + r <= f).map(|r| repair[r]).sum();
        left[0] += chance * restored;
        left[lost] += chance * (1.0 - restored);
    }
    left
}

fn checked_lambda(lambda: f64) -> Result<f64, BadValue> {
    let is_allowed = (0.0..=1e6).contains(&lambda);
    BadValue::unless(is_allowed, "lambda", lambda, "0 to 1,000,000")
}

impl Plan {
    /// Solves the process by backward induction over the rounds, for up to `frame` missing
    /// packets.
    ///
    /// # Errors
    /// The loss rate is not between 0 and 1, the frame is empty or has more than 55 packets, or λ
    /// is not between 0 and 1,000,000.
    pub fn solve(loss: f64, frame: usize, lambda: f64) -> Result<Self, BadValue> {
        BadValue::unless((0.0..1.0).contains(&loss), "loss", loss, "0 to below 1")?;
        let is_sized = (1..=MAX_FRAME).contains(&frame);
        BadValue::unless(is_sized, "frame", frame, "1 to 55 packets")?;
        checked_lambda(lambda)?;
        let rounds: Vec<_> = (1..=frame).map(|n| options(n, loss)).collect();
        let mut plan = Self { repairs: Vec::new(), costs: Vec::new() };
        for _ in 0..MAX_ROUNDS {
            let later = plan.costs.last();
            let cost_of = |left: usize| match (left, later) {
                (0, _) => 0.0,
                (_, None) => 1.0,
                (left, Some(costs)) => costs[left - 1],
            };
            let price = lambda / frame as f64;
            let (repairs, costs) = rounds.iter().map(|of| best(of, price, &cost_of)).unzip();
            plan.repairs.push(repairs);
            plan.costs.push(costs);
        }
        Ok(plan)
    }

    /// Repair packets for `missing` packets with `rounds` transmissions left, this one included.
    pub fn repairs(&self, rounds: usize, missing: usize) -> usize {
        let Some(row) = self.repairs.get(rounds.clamp(1, MAX_ROUNDS) - 1) else { return 0 };
        if missing == 0 { 0 } else { row[missing.min(row.len()) - 1] }
    }

    /// Expected cost of a state under the plan.
    pub fn cost(&self, rounds: usize, missing: usize) -> f64 {
        self.costs[rounds - 1][missing - 1]
    }
}

/// A number of repair packets, and the probabilities of missing packets after the round.
type Choice = (usize, Vec<f64>);

/// Returns the choices for `n` missing packets, with ascending numbers of repair packets.
fn options(n: usize, loss: f64) -> Vec<Choice> {
    let mut all: Vec<_> = ratios().map(|ratio| (ratio * n as f64).round() as usize).collect();
    all.dedup();
    all.into_iter().map(|f| (f, after_round(n, f, loss))).collect()
}

/// Returns the cheapest number of repair packets and its cost. The smaller number wins a tie.
fn best(options: &[Choice], price: f64, cost_of: &dyn Fn(usize) -> f64) -> (usize, f64) {
    let cost = |(f, left): &Choice| {
        let later = left.iter().enumerate().map(|(m, chance)| chance * cost_of(m));
        (*f, later.sum::<f64>() + price * *f as f64)
    };
    let costs = options.iter().map(cost);
    costs.reduce(|best, next| if next.1 < best.1 { next } else { best }).expect("0 is an option")
}

/// Returns how many transmissions fit before the deadline, this one included: the data must arrive
/// in time, and each further round takes a round trip (1 to [`MAX_ROUNDS`]).
pub fn rounds_left(until_deadline: Duration, rtt: Duration) -> usize {
    let rtt = rtt.as_secs_f64().max(1e-6);
    let rounds = (until_deadline.as_secs_f64() - rtt) / rtt;
    // A tenth of a microsecond of rounding does not cost a round.
    ((rounds + 1e-7).floor().max(1.0) as usize).min(MAX_ROUNDS)
}

/// Solved plans for one λ, on the grid of the published tables: loss in steps of 1 % up to 50 %,
/// frame sizes in steps of 5 packets, rounded up.
#[derive(Clone, Debug)]
pub struct Planner {
    lambda: f64,
    plans: BTreeMap<(u32, usize), Plan>,
}

impl Planner {
    /// Creates a planner.
    ///
    /// # Errors
    /// λ is not between 0 and 1,000,000.
    pub fn new(lambda: f64) -> Result<Self, BadValue> {
        checked_lambda(lambda)?;
        Ok(Self { lambda, plans: BTreeMap::new() })
    }

    /// Repair packets for `missing` packets of a frame.
    pub fn repairs(&mut self, loss: f64, frame: usize, rounds: usize, missing: usize) -> usize {
        let percent = (loss.clamp(0.0, MAX_LOSS) * 100.0).round() as u32;
        let frame = (frame.div_ceil(FRAME_STEP) * FRAME_STEP).clamp(FRAME_STEP, MAX_FRAME);
        let lambda = self.lambda;
        let plan = self.plans.entry((percent, frame)).or_insert_with(|| {
            Plan::solve(f64::from(percent) / 100.0, frame, lambda).expect("on the grid")
        });
        plan.repairs(rounds, missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_rows_are_reproduced() {
        // Tables of the published simulator at 10 % loss, F = 10, n = 6, for one, two and three
        // rounds left.
        for (lambda, rows) in
            [(STANDARD, &[6, 1, 0][..]), (LOW_COST, &[3, 0]), (HIGH_COST, &[12, 2, 0])]
        {
            let plan = Plan::solve(0.10, 10, lambda).expect("in range");
            let ours: Vec<_> = (1..=rows.len()).map(|rounds| plan.repairs(rounds, 6)).collect();
            assert_eq!(ours, rows, "lambda {lambda}");
        }
    }

    #[test]
    fn a_round_is_the_sum_over_all_its_fates() {
        let (n, f, loss) = (4, 3, 0.2);
        let mut expected = vec![0.0; n + 1];
        for fates in 0u32..1 << (n + f) {
            let lost = fates.count_ones() as usize;
            let data = (fates & ((1 << n) - 1)).count_ones() as usize;
            let chance = loss_power(loss, lost, n + f);
            expected[if lost <= f { 0 } else { data }] += chance;
        }
        for (ours, expected) in after_round(n, f, loss).iter().zip(&expected) {
            assert!((ours - expected).abs() < 1e-12);
        }
    }

    fn loss_power(loss: f64, lost: usize, all: usize) -> f64 {
        loss.powi(lost as i32) * (1.0 - loss).powi((all - lost) as i32)
    }

    /// The best cost by trying every number of repair packets of the grid in every round.
    fn searched(n: usize, rounds: usize, loss: f64, price: f64) -> f64 {
        if n == 0 || rounds == 0 {
            return f64::from(u8::from(n > 0));
        }
        let options = ratios().map(|ratio| (ratio * n as f64).round() as usize);
        let costs = options.map(|f| {
            let left = after_round(n, f, loss);
            let later = left.iter().enumerate();
            price * f as f64
                + later.map(|(m, c)| c * searched(m, rounds - 1, loss, price)).sum::<f64>()
        });
        costs.fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn no_search_finds_a_cheaper_plan() {
        let plan = Plan::solve(0.3, 3, STANDARD).expect("in range");
        for n in 1..=3 {
            let found = searched(n, 3, 0.3, STANDARD / 3.0);
            assert!((plan.cost(3, n) - found).abs() < 1e-12, "{n}");
        }
    }

    #[test]
    fn rounds_follow_the_deadline_and_bad_values_are_rejected() {
        let ms = Duration::from_millis;
        assert_eq!(rounds_left(ms(100), ms(30)), 2);
        assert_eq!(rounds_left(ms(100), ms(33)), 2);
        assert_eq!(rounds_left(ms(100), ms(34)), 1);
        assert_eq!(rounds_left(ms(100), ms(100)), 1);
        assert_eq!(rounds_left(ms(1_000), ms(10)), MAX_ROUNDS);
        let bad = Plan::solve(1.0, 6, STANDARD).expect_err("rejected").to_string();
        assert_eq!(bad, "loss = 1: expected 0 to below 1");
        assert!(Plan::solve(0.1, 0, STANDARD).is_err() && Planner::new(f64::NAN).is_err());
    }
}
