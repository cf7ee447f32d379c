//! The Redundancy Adapter of AutoRec's journal version (section V-A), whose level keeps recovery
//! latency below α if possible, within the costs β and γ; and an adapter with a constant level.

use super::{MAX_LEVEL, UnitTime, formulas};
use crate::range::OutOfRange;
use crate::{Expected, IntervalMetrics, RedundancyAdapter, UnitKey, View};
use core::time::Duration;

/// Latency target and cost limits. Defaults are the paper's testbed values.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tolerances {
    /// α: target of the mean recovery latency. 0 is unreachable and uses all that β and γ allow.
    /// Default 30 ms.
    pub latency: Duration,
    /// β: maximum replicas per packet that is not a copy. 0 and above, default 0.3.
    pub cost: f64,
    /// γ: maximum fraction of goodput that replicas take while new data waits. 0 to 1, default 0.2.
    pub goodput: f64,
}

impl Default for Tolerances {
    fn default() -> Self {
        Self { latency: Duration::from_millis(30), cost: 0.3, goodput: 0.2 }
    }
}

impl Tolerances {
    /// Returns the tolerances if all are in range.
    ///
    /// # Errors
    /// If `cost` or `goodput` is out of range or NaN.
    pub fn checked(self) -> Result<Self, OutOfRange> {
        if !(self.cost.is_finite() && self.cost >= 0.0) {
            return Err(OutOfRange { key: "cost", allowed: "a finite number, 0 and above" });
        }
        if !(0.0..=1.0).contains(&self.goodput) {
            return Err(OutOfRange { key: "goodput", allowed: "a number from 0 to 1" });
        }
        Ok(self)
    }
}

/// Decision after an interval, and its inputs.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Decision {
    loss_rate: f64,
    t_unit: Duration,
    k_alpha: u32,
    k_beta: u32,
    k_gamma: u32,
    level: u32,
}

/// Decides by the formulas F, G and H. Its level covers the life of a unit.
#[derive(Debug)]
pub struct FormulaAdapter {
    tolerances: Tolerances,
    t_unit: UnitTime,
    decision: Decision,
}

impl FormulaAdapter {
    /// Creates an adapter that sends no replicas until an interval with loss ends or
    /// [`RedundancyAdapter::on_expected`] is called.
    pub fn new(tolerances: Tolerances) -> Self {
        Self { tolerances, t_unit: UnitTime::default(), decision: Decision::default() }
    }

    fn decide(&mut self, loss_rate: f64, t_unit: Duration) {
        let Tolerances { latency, cost, goodput } = self.tolerances;
        let k_alpha = formulas::level_for_latency(loss_rate, t_unit, latency, MAX_LEVEL);
        let k_beta = formulas::level_for_cost(loss_rate, cost, MAX_LEVEL);
        let k_gamma = formulas::level_for_goodput(loss_rate, goodput, MAX_LEVEL);
        // "When there is no packet loss (i.e., loss rate = 0) in the last decision interval, the
        // Redundancy Adapter directly sets the redundancy level to 0." Else equation 4.
        let level = if loss_rate > 0.0 { k_alpha.min(k_beta).min(k_gamma) } else { 0 };
        self.decision = Decision { loss_rate, t_unit, k_alpha, k_beta, k_gamma, level };
    }
}

impl RedundancyAdapter for FormulaAdapter {
    fn on_interval(&mut self, metrics: &IntervalMetrics, view: &View<'_>) {
        self.t_unit.measured(metrics);
        self.decide(metrics.loss_rate(), self.t_unit.or(view.path.smoothed_rtt));
    }

    fn on_expected(&mut self, expected: &Expected) {
        self.decide(expected.loss_rate, expected.rtt);
    }

    fn on_new_path(&mut self) {
        *self = Self::new(self.tolerances);
    }

    fn level(&mut self, _: UnitKey, round: u32, _: &View<'_>) -> u32 {
        if round == 1 { self.decision.level } else { 0 }
    }

    fn ceiling(&self) -> u32 {
        self.decision.level
    }

    fn explain(&self, tell: &mut dyn FnMut(&'static str, f64)) {
        let Decision { loss_rate, t_unit, k_alpha, k_beta, k_gamma, level } = self.decision;
        tell("loss_rate", loss_rate);
        tell("t_unit_ms", t_unit.as_secs_f64() * 1e3);
        tell("k_alpha", k_alpha.into());
        tell("k_beta", k_beta.into());
        tell("k_gamma", k_gamma.into());
        tell("level", level.into());
    }
}

/// A constant level for the life of a unit (journal, figure 13).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FixedLife {
    level: u32,
}

impl FixedLife {
    /// Creates an adapter with `level` replicas per unit, 0 to 10.
    ///
    /// # Errors
    /// If `level` is above 10.
    pub fn new(level: u32) -> Result<Self, OutOfRange> {
        if level > MAX_LEVEL {
            return Err(OutOfRange { key: "level", allowed: "0 to 10" });
        }
        Ok(Self { level })
    }
}

impl RedundancyAdapter for FixedLife {
    fn level(&mut self, _: UnitKey, round: u32, _: &View<'_>) -> u32 {
        if round == 1 { self.level } else { 0 }
    }

    fn ceiling(&self) -> u32 {
        self.level
    }

    fn explain(&self, tell: &mut dyn FnMut(&'static str, f64)) {
        tell("level", self.level.into());
    }
}
