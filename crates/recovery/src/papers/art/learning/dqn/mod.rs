//! Redundancy adapter as a deep Q-network (ART, appendix A.2): a trained network estimates the
//! value of each R from 1 to 10 in the connection's state.
//!
//! The state consists of send rate, acknowledgement rate, minimum and smoothed round-trip time,
//! number of lost units, bytes in flight, and the round. As in the paper, decisions are made per
//! connection, not per packet: once per decision interval for each round that occurs. R is 1 in the
//! first interval.

mod network;
pub mod train;

pub use network::{BadNetwork, MAX_HIDDEN, MAX_WIDTH, Network};

use super::bandit::first_highest;
use super::reward::Choices;
use crate::level::fixed::{ROUNDS, Reading};
use crate::{IntervalMetrics, RecoveryEvent, RedundancyAdapter, UnitKey, View};
use core::fmt::Debug;
use core::time::Duration;
use network::{INPUTS, Input};
use std::sync::Arc;

/// The part of the state that all rounds share.
type Observed = [f32; INPUTS - 1];

/// Compresses values logarithmically: 0 to 0, 1,000 to 1, and each doubling adds about 0.1.
fn scaled(value: f64) -> f32 {
    (value.max(0.0).ln_1p() / 1_000_f64.ln_1p()) as f32
}

/// Returns the state at the end of an interval: rates in Mbps, times in ms, number of units, and
/// packets in flight, each scaled.
fn observe(metrics: &IntervalMetrics, view: &View<'_>) -> Observed {
    let path = &view.path;
    let seconds = metrics.span.as_secs_f64();
    let mbps = |bytes: f64| if seconds > 0.0 { scaled(bytes * 8e-6 / seconds) } else { 0.0 };
    let ms = |time: Duration| scaled(time.as_secs_f64() * 1e3);
    let packet = f64::from(path.packet);
    [
        mbps(metrics.sent_bytes as f64),
        mbps(metrics.acked as f64 * packet),
        ms(path.min_rtt),
        ms(path.smoothed_rtt),
        scaled(view.units.len() as f64),
        scaled(path.in_flight as f64 / packet.max(1.0)),
    ]
}

/// Returns the state of a round; rounds from 20 share one.
fn input(observed: &Observed, round: u32) -> Input {
    let mut input = [round.min(ROUNDS) as f32 / ROUNDS as f32; INPUTS];
    input[..INPUTS - 1].copy_from_slice(observed);
    input
}

/// A transition (s1, a, r, s2).
#[derive(Clone, Debug)]
struct Transition {
    before: Input,
    action: usize,
    round: u32,
    arrived: bool,
    after: Input,
}

/// A source of decisions.
trait Policy: Debug {
    /// Whether transitions are needed.
    const LEARNS: bool;

    /// Returns R − 1 for this state.
    fn choose(&mut self, input: &Input) -> usize;

    fn remember(&mut self, transition: Transition);
}

impl Policy for Arc<Network> {
    const LEARNS: bool = false;

    fn choose(&mut self, input: &Input) -> usize {
        first_highest(&self.evaluate(input))
    }

    fn remember(&mut self, _: Transition) {}
}

/// The adapter, for trained networks and for training.
#[derive(Debug)]
struct Decider<P> {
    policy: P,
    reading: Reading,
    observed: Option<Observed>,
    /// R of each round in this interval; 0 if undecided.
    decided: [u32; ROUNDS as usize],
    choices: Choices<(Input, usize)>,
}

impl<P: Policy> Decider<P> {
    fn new(policy: P, reading: Reading) -> Self {
        Self {
            policy,
            reading,
            observed: None,
            decided: [0; ROUNDS as usize],
            choices: Choices::default(),
        }
    }
}

/// Creates an adapter that uses a trained network.
pub(super) fn adapter(network: Arc<Network>, reading: Reading) -> impl RedundancyAdapter {
    Decider::new(network, reading)
}

impl<P: Policy> RedundancyAdapter for Decider<P> {
    fn on_event(&mut self, event: &RecoveryEvent) {
        if P::LEARNS
            && let Some((round, (before, action), arrived)) = self.choices.settled(event)
            && let Some(observed) = &self.observed
        {
            // After an arrival the next decision concerns a first round.
            let after = input(observed, if arrived { 1 } else { round.saturating_add(1) });
            self.policy.remember(Transition { before, action, round, arrived, after });
        }
    }

    fn on_interval(&mut self, metrics: &IntervalMetrics, view: &View<'_>) {
        self.observed = Some(observe(metrics, view));
        self.decided = [0; ROUNDS as usize];
    }

    fn on_new_path(&mut self) {
        self.observed = None;
        self.decided = [0; ROUNDS as usize];
    }

    fn level(&mut self, unit: UnitKey, round: u32, _: &View<'_>) -> u32 {
        let Some(observed) = &self.observed else { return self.reading.level(1) };
        let state = input(observed, round);
        let r = &mut self.decided[round.clamp(1, ROUNDS) as usize - 1];
        if *r == 0 {
            *r = self.policy.choose(&state) as u32 + 1;
        }
        if P::LEARNS {
            self.choices.made(unit, round, (state, *r as usize - 1));
        }
        self.reading.level(*r)
    }

    fn explain(&self, tell: &mut dyn FnMut(&'static str, f64)) {
        tell("level", self.reading.level(self.decided[0].max(1)).into());
        for (name, r) in ["r_1", "r_2", "r_3"].into_iter().zip(self.decided) {
            tell(name, r.into());
        }
        let names = ["send_rate", "ack_rate", "min_rtt", "smoothed_rtt", "lost_units", "in_flight"];
        for (name, value) in names.into_iter().zip(self.observed.into_iter().flatten()) {
            tell(name, value.into());
        }
    }
}

#[cfg(test)]
mod tests;
