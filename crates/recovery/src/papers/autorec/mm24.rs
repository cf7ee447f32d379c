//! The Redundancy Adapter of AutoRec's first version (MM'24, section 4.1): a level that climbs
//! along a utility of latency and goodput, one step per decision interval.
//!
//! Interpretation of open questions and errors in the paper:
//!
//! - "T_thres" in the sigmoid of equation 1 and in the sentence on falling back means A_thres.
//! - With a = 0.1 the sigmoid only ranges from 0.45 to 0.55 over the levels 0 to 4, so cost hardly
//!   counts. The goodput of a live stream that fits its link is its bitrate, so the utility mainly
//!   measures latency. Both are kept.
//! - The recovery latency of equation 1 is the mean over all lost data of the interval, with 0 if
//!   the first retransmission arrived: section 2.3 defines it "when any data is detected lost", as
//!   "zero or more T_unit"; only "displayed" figures omit the zeros. An interval without recovered
//!   data keeps the latency of the previous one. R_Δ is 0 if there is no utility (none yet, no
//!   round-trip time, no arrivals) or the previous one is 0.
//! - λ is −1 if the level did not move: a worse utility then raises it, and a better one lowers it.
//!   This reacts to the network in the right direction and is kept.
//! - An E_waiting near Θ would switch the scheme on and off with the noise of the round-trip time:
//!   in the paper's testbed it is 47.5 ms for one retransmission and 52.3 ms for two, and Θ is 50
//!   ms. Once on, the scheme stays on until E_waiting is 10 % below Θ ([`Options::gate_band`]).
//! - After a level that was forced to 0, λ is 1, since the level can only rise.
//! - An explored level is compared with the utility of the previous level. After a fallback the
//!   search continues as if there had been no exploration.
//! - The length of decision intervals is not stated. The default is 5 round-trip times as in the
//!   journal version. The fewer data are lost twice in an interval, the noisier R_Δ is.

use super::MAX_LEVEL;
use crate::random::Random;
use crate::range::OutOfRange;
use crate::{IntervalMetrics, RedundancyAdapter, UnitKey, View};
use core::time::Duration;

/// Intervals at an unchanged level before another one is explored.
const EXPLORE_AFTER: u32 = 10;

/// Parameters of the adapter. Defaults are the paper's testbed values (section 5.1).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// α of the sigmoid: weight of cost; above 0. Default 0.1.
    pub a: f64,
    /// Θ: waiting time that does no harm. Default 50 ms; in production "between the 50th and 80th
    /// percentile" of round-trip times.
    pub theta: Duration,
    /// R_nor: relative change of the utility that counts as noise. 0 and above, default 0.03.
    pub r_nor: f64,
    /// Maximum level. At most 10, default 4.
    pub max: u32,
    /// Whether an E_waiting below Θ disables replicas; false for variant 3 of figure 12. Default
    /// true.
    pub gate: bool,
    /// Fraction of Θ below which E_waiting disables replicas again, 0 to 1. The paper has no band,
    /// which is 1. Default 0.9.
    pub gate_band: f64,
    /// Loss rate above which replicas are disabled, 0 to 1 (production: 0.1). Default: none.
    pub off_above: Option<f64>,
    /// Length of a decision interval in smoothed round-trip times. 1 to 1,000, default 5.
    pub interval_rtts: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            a: 0.1,
            theta: Duration::from_millis(50),
            r_nor: 0.03,
            max: 4,
            gate: true,
            gate_band: 0.9,
            off_above: None,
            interval_rtts: 5,
        }
    }
}

impl Options {
    /// Returns the options if all are in range.
    ///
    /// # Errors
    /// If an option is out of range or NaN.
    pub fn checked(self) -> Result<Self, OutOfRange> {
        let reject = |key, allowed| Err(OutOfRange { key, allowed });
        if !(self.a.is_finite() && self.a > 0.0) {
            return reject("a", "a finite number above 0");
        }
        if !(self.r_nor.is_finite() && self.r_nor >= 0.0) {
            return reject("r_nor", "a finite number, 0 and above");
        }
        if self.max > MAX_LEVEL {
            return reject("max", "0 to 10");
        }
        if !(0.0..=1.0).contains(&self.gate_band) {
            return reject("gate_band", "a number from 0 to 1");
        }
        if self.off_above.is_some_and(|loss| !(0.0..=1.0).contains(&loss)) {
            return reject("off_above", "a number from 0 to 1");
        }
        if !(1..=1_000).contains(&self.interval_rtts) {
            return reject("interval_rtts", "1 to 1,000");
        }
        Ok(self)
    }
}

/// Level and utility to restore after a failed exploration.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Fallback {
    level: u32,
    utility: Option<f64>,
}

/// Decides by utility. Its level covers the life of a unit.
#[derive(Debug)]
pub struct UtilityAdapter {
    options: Options,
    random: Random,
    /// A_thres.
    level: u32,
    /// λ.
    direction: i32,
    latency: Option<Duration>,
    utility: Option<f64>,
    change: f64,
    rounds_max: u32,
    waiting: f64,
    open: bool,
    /// Number of times the gate opened or closed.
    turns: u64,
    /// Decisions since the level last changed.
    unchanged: u32,
    exploring: Option<Fallback>,
}

impl UtilityAdapter {
    /// Creates an adapter at level 0; `seed` determines its explorations.
    pub fn new(options: Options, seed: u64) -> Self {
        let options = Options { max: options.max.min(MAX_LEVEL), ..options };
        Self::starting(options, Random::new(seed))
    }

    fn starting(options: Options, random: Random) -> Self {
        Self {
            options,
            random,
            level: 0,
            direction: 1,
            latency: None,
            utility: None,
            change: 0.0,
            rounds_max: 1,
            waiting: 0.0,
            open: false,
            turns: 0,
            unchanged: 0,
            exploring: None,
        }
    }

    /// Returns U (equation 1), for which lower is better; `None` if it is undefined.
    fn measure(&mut self, metrics: &IntervalMetrics, min_rtt: Duration) -> Option<f64> {
        self.latency = metrics.recovery_latency.or(self.latency);
        let goodput = metrics.goodput_bytes as f64 / metrics.span.as_secs_f64();
        let per = min_rtt.as_secs_f64() * goodput;
        let cost = 1.0 / (1.0 + (-self.options.a * (f64::from(self.level) - 2.0)).exp());
        // Zero or infinite without bytes, time or round-trip time.
        (per > 0.0 && per.is_finite()).then_some(self.latency?.as_secs_f64() * cost / per)
    }

    /// Returns whether replicas may leave at all.
    fn passes(&mut self, metrics: &IntervalMetrics, smoothed_rtt: Duration) -> bool {
        let loss = metrics.loss_rate();
        if metrics.rounds_max > 0 {
            self.rounds_max = metrics.rounds_max;
        }
        self.waiting = waiting(loss, smoothed_rtt.as_secs_f64(), self.rounds_max);
        let band = if self.open { self.options.gate_band } else { 1.0 };
        let theta = self.options.theta.as_secs_f64() * band;
        let calm = self.options.gate && self.waiting < theta;
        let heavy = self.options.off_above.is_some_and(|limit| loss > limit);
        !calm && !heavy
    }

    /// Returns the next level (equation 4).
    fn step(&self) -> u32 {
        let noise = self.options.r_nor;
        let sense = i32::from(self.change > noise) - i32::from(self.change < -noise);
        self.level.saturating_add_signed(sense * self.direction).min(self.options.max)
    }

    fn set_level(&mut self, level: u32) {
        self.direction = if level > self.level { 1 } else { -1 };
        self.unchanged = if level == self.level { self.unchanged + 1 } else { 0 };
        self.level = level;
    }

    /// Draws a different level uniformly.
    fn other_level(&mut self) -> u32 {
        let drawn = self.random.below(self.options.max);
        if drawn < self.level { drawn } else { (drawn + 1).min(self.options.max) }
    }
}

/// Returns E_waiting (equation 3), in the unit of `rtt`, for at most `rounds` retransmissions.
fn waiting(loss: f64, rtt: f64, rounds: u32) -> f64 {
    if loss >= 1.0 {
        return 0.0;
    }
    // (1 − r) Σ (k + 1) r^k for k below n is (1 − (n + 1) r^n + n r^(n+1)) ÷ (1 − r).
    let n = f64::from(rounds);
    let power = loss.powi(i32::try_from(rounds).unwrap_or(i32::MAX));
    rtt * (1.0 - (n + 1.0) * power + n * power * loss) / (1.0 - loss)
}

impl RedundancyAdapter for UtilityAdapter {
    fn on_interval(&mut self, metrics: &IntervalMetrics, view: &View<'_>) {
        let now = self.measure(metrics, view.path.min_rtt);
        // Equation 2: positive means better.
        self.change = match (self.utility, now) {
            (Some(before), Some(now)) if before > 0.0 => (before - now) / before,
            _ => 0.0,
        };
        self.utility = now.or(self.utility);

        let open = self.passes(metrics, view.path.smoothed_rtt);
        self.turns += u64::from(open != self.open);
        self.open = open;
        if !open {
            (self.level, self.direction, self.unchanged, self.exploring) = (0, 1, 0, None);
            return;
        }
        if let Some(old) = self.exploring.take()
            && self.change <= self.options.r_nor
        {
            (self.level, self.direction, self.unchanged) = (old.level, -1, 0);
            self.utility = old.utility;
            return;
        }
        if self.unchanged >= EXPLORE_AFTER && self.options.max > 0 {
            self.exploring = Some(Fallback { level: self.level, utility: self.utility });
            let level = self.other_level();
            self.set_level(level);
            return;
        }
        let level = self.step();
        self.set_level(level);
    }

    fn on_new_path(&mut self) {
        *self = Self::starting(self.options, self.random.clone());
    }

    fn level(&mut self, _: UnitKey, round: u32, _: &View<'_>) -> u32 {
        if round == 1 { self.level } else { 0 }
    }

    fn ceiling(&self) -> u32 {
        self.level
    }

    fn interval_rtts(&self) -> u32 {
        self.options.interval_rtts
    }

    fn explain(&self, tell: &mut dyn FnMut(&'static str, f64)) {
        tell("utility", self.utility.unwrap_or(0.0));
        tell("r_delta", self.change);
        tell("lambda", self.direction.into());
        tell("e_waiting_ms", self.waiting * 1e3);
        tell("gate_open", f64::from(u8::from(self.open)));
        tell("gate_turns", self.turns as f64);
        tell("exploring", f64::from(u8::from(self.exploring.is_some())));
        tell("level", self.level.into());
    }
}

#[cfg(test)]
mod tests;
