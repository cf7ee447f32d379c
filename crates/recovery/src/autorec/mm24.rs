//! The Redundancy Adapter of AutoRec's first version (MM'24, section 4.1): a level that climbs along
//! a utility of latency and goodput, one step per decision interval.
//!
//! What the paper leaves open or states wrongly is read so:
//!
//! - "T_thres" in the sigmoid of equation 1 and in the sentence on falling back means A_thres.
//! - With a = 0.1 the sigmoid goes from 0.45 to 0.55 over the levels 0 to 4: cost hardly counts.
//!   The goodput of a live stream that fits its link is its bitrate, so that the utility measures
//!   latency for the most part. Both are kept.
//! - The recovery latency of equation 1 is the mean over all lost data of the interval, 0 for those
//!   whose first retransmission arrived: section 2.3 defines it "when any data is detected lost", as
//!   "zero or more T_unit"; only "displayed" figures leave out the zeros. An interval in which no lost
//!   datum was recovered has that of the one before. Where there is no utility yet, or none can be had
//!   (no round-trip time, nothing arrived), or the one before is 0, R_Δ is 0.
//! - λ is −1 when the level did not move: a utility that got worse then raises it, one that got
//!   better lowers it. That reacts to the network in the right direction and is kept.
//! - E_waiting close to Θ would switch the scheme on and off with the noise of the round-trip time:
//!   at the paper's testbed point it is 47.5 ms for one retransmission and 52.3 ms for two, Θ being 50
//!   ms. Once on, the scheme stays on until E_waiting is 10 % below Θ.
//! - After a level that was forced to 0, λ is 1: there is no way but up.
//! - The utility that an explored level is judged by is that of the level before; after a fall-back
//!   the search goes on from where it was, as if there had been no exploration.
//! - The length of decision intervals is not stated. 5 round-trip times, as in the journal version, is
//!   the default here; the fewer data are lost twice in an interval, the more is R_Δ noise.

use super::MAX_LEVEL;
use crate::random::Random;
use crate::range::OutOfRange;
use crate::{IntervalMetrics, RedundancyAdapter, UnitKey, View};
use core::time::Duration;

/// Intervals of an unchanged level before another one is tried.
const PATIENCE: u32 = 10;
/// E_waiting may fall so far below Θ before the scheme goes off.
const BAND: f64 = 0.9;

/// The adapter's parameters. The defaults are the paper's testbed (section 5.1).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// α of the sigmoid: what cost counts; above 0.
    pub a: f64,
    /// Θ: how much waiting does no harm. In production "between the 50th and 80th percentile" of
    /// round-trip times.
    pub theta: Duration,
    /// R_nor: a relative change of the utility that is noise; 0 and above.
    pub r_nor: f64,
    /// Highest level, at most 10.
    pub max: u32,
    /// Whether an E_waiting below Θ turns replicas off; without, variant 3 of figure 12.
    pub gate: bool,
    /// Turns replicas off above this loss rate, 0 to 1 (production: 0.1).
    pub off_above: Option<f64>,
    /// Length of a decision interval in smoothed round-trip times, 1 to 1,000.
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
            off_above: None,
            interval_rtts: 5,
        }
    }
}

impl Options {
    /// The options, if they make sense.
    ///
    /// # Errors
    /// When one of them is out of range or no number.
    pub fn checked(self) -> Result<Self, OutOfRange> {
        let refuse = |key, allowed| Err(OutOfRange { key, allowed });
        if !(self.a.is_finite() && self.a > 0.0) {
            return refuse("a", "a finite number above 0");
        }
        if !(self.r_nor.is_finite() && self.r_nor >= 0.0) {
            return refuse("r_nor", "a finite number, 0 and above");
        }
        if self.max > MAX_LEVEL {
            return refuse("max", "0 to 10");
        }
        if self.off_above.is_some_and(|loss| !(0.0..=1.0).contains(&loss)) {
            return refuse("off_above", "a number from 0 to 1");
        }
        if !(1..=1_000).contains(&self.interval_rtts) {
            return refuse("interval_rtts", "1 to 1,000");
        }
        Ok(self)
    }
}

/// An unexplored level to fall back to, and its utility.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Fallback {
    level: u32,
    utility: Option<f64>,
}

/// Decides by utility. Its level is for the life of a unit.
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
    /// Times that the gate opened or closed.
    turns: u64,
    /// Decisions that left the level as it was.
    unchanged: u32,
    exploring: Option<Fallback>,
}

impl UtilityAdapter {
    /// An adapter at level 0, with `seed` for its explorations.
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

    /// U, equation 1: lower is better. None if there is no saying.
    fn measure(&mut self, metrics: &IntervalMetrics, min_rtt: Duration) -> Option<f64> {
        self.latency = metrics.recovery_latency.or(self.latency);
        let goodput = metrics.goodput_bytes as f64 / metrics.span.as_secs_f64();
        let per = min_rtt.as_secs_f64() * goodput;
        let cost = 1.0 / (1.0 + (-self.options.a * (f64::from(self.level) - 2.0)).exp());
        // Not so without bytes, without time, and without a round-trip time.
        (per > 0.0 && per.is_finite()).then_some(self.latency?.as_secs_f64() * cost / per)
    }

    /// Whether replicas may leave at all.
    fn passes(&mut self, metrics: &IntervalMetrics, smoothed_rtt: Duration) -> bool {
        let loss = metrics.loss_rate();
        if metrics.rounds_max > 0 {
            self.rounds_max = metrics.rounds_max;
        }
        self.waiting = waiting(loss, smoothed_rtt.as_secs_f64(), self.rounds_max);
        let theta = self.options.theta.as_secs_f64() * if self.open { BAND } else { 1.0 };
        let calm = self.options.gate && self.waiting < theta;
        let heavy = self.options.off_above.is_some_and(|limit| loss > limit);
        !calm && !heavy
    }

    /// The next level, equation 4.
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

    /// Another level, any other with the same chance.
    fn other_level(&mut self) -> u32 {
        let drawn = self.random.below(self.options.max);
        if drawn < self.level { drawn } else { (drawn + 1).min(self.options.max) }
    }
}

/// E_waiting, equation 3, in the unit of `rtt`, for at most `rounds` retransmissions.
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
        // Equation 2: above 0 means better.
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
        if self.unchanged >= PATIENCE && self.options.max > 0 {
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
