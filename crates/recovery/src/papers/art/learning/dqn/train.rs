//! Training of the network of [`super`], for the testbed: Q-learning with experience replay and a
//! target network (Mnih and others, "Playing Atari with deep reinforcement learning", 2013),
//! optimised by Adam (Kingma and Ba, 2015).
//!
//! Connections under [`scheme`] decide and report results, with the rewards of appendix A.2. The
//! learner's [`Phase`] determines their behaviour. A seed determines everything, if the connections
//! are deterministic.

use super::super::bandit::{ARMS, first_highest};
use super::super::reward::{GAMMA, Penalty};
use super::{BadNetwork, Decider, Input, Network, Policy, Transition};
use crate::Scheme;
use crate::level::fixed::Reading;
use crate::random::Random;
use std::sync::{Arc, Mutex, PoisonError};

/// Behaviour of connections in training.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Random decisions; results are stored.
    Record,
    /// ε-greedy decisions; results are stored, each followed by a learning step.
    Learn,
    /// Decisions by the network; results are ignored.
    Judge,
}

/// Results since the last query.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Tally {
    /// Settled rounds.
    pub rounds: u64,
    /// Sum of their rewards.
    pub reward: f64,
    /// Sum of their R.
    pub r: u64,
    /// Learning steps.
    pub steps: u64,
    /// Sum of the mean absolute error of each step's batch.
    pub error: f64,
}

/// Options of training.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// Widths of the 1 or 2 hidden layers, 1 to 32 each.
    pub hidden: Vec<usize>,
    /// Penalty of a lost round; the paper's γ is 1.05.
    pub penalty: Penalty,
    /// Probability of a random decision in [`Phase::Learn`], 0 to 1.
    pub epsilon: f64,
    /// Discount of rewards per decision, 0 to 1.
    pub discount: f32,
    /// Learning rate of Adam.
    pub rate: f32,
    /// Capacity of the replay memory in transitions, at least one batch.
    pub replay: usize,
    /// Transitions per learning step, at least 1.
    pub batch: usize,
    /// Learning steps between updates of the target network, at least 1.
    pub target_steps: u64,
}

impl Default for Options {
    /// Two layers of 32, γ = 1.05, and 2,048 stored transitions as in the paper's code. The paper
    /// does not state the others; they are common values.
    fn default() -> Self {
        Self {
            hidden: vec![32, 32],
            penalty: Penalty::Quotient(GAMMA),
            epsilon: 0.1,
            discount: 0.9,
            rate: 1e-3,
            replay: 2_048,
            batch: 32,
            target_steps: 300,
        }
    }
}

/// A network in training. [`Phase::Learn`] makes one step per transition once a batch is stored.
#[derive(Debug)]
pub struct Learner {
    options: Options,
    phase: Phase,
    tally: Tally,
    online: Network,
    target: Network,
    memory: Vec<(Input, usize, f32, Input)>,
    /// Number of transitions, which determines the next one's slot.
    transitions: usize,
    steps: u64,
    /// Adam's first and second moment of each derivative.
    moments: Vec<(f32, f32)>,
    random: Random,
}

impl Learner {
    /// Creates a learner with an untrained network, in [`Phase::Learn`].
    ///
    /// # Errors
    /// If the hidden layers are not 1 or 2 of 1 to 32 each.
    pub fn new(options: Options, seed: u64) -> Result<Self, BadNetwork> {
        let mut random = Random::new(seed);
        let online = Network::random(&options.hidden, &mut random)?;
        Ok(Self::with(options, online, random))
    }

    /// Creates a learner that continues with `network`, in [`Phase::Learn`]; `hidden` is ignored.
    pub fn of(network: Network, options: Options, seed: u64) -> Self {
        Self::with(options, network, Random::new(seed))
    }

    fn with(options: Options, online: Network, random: Random) -> Self {
        let batch = options.batch.max(1);
        Self {
            phase: Phase::Learn,
            tally: Tally::default(),
            target: online.clone(),
            moments: vec![(0.0, 0.0); online.numbers().count()],
            online,
            memory: Vec::new(),
            transitions: 0,
            steps: 0,
            random,
            options: Options {
                batch,
                replay: options.replay.max(batch),
                target_steps: options.target_steps.max(1),
                ..options
            },
        }
    }

    /// Sets the behaviour of connections.
    pub fn set_phase(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// Returns the results since the last call.
    pub fn take_tally(&mut self) -> Tally {
        core::mem::take(&mut self.tally)
    }

    /// Makes `steps` learning steps on stored transitions; none without a full batch.
    pub fn study(&mut self, steps: u64) {
        if self.memory.len() >= self.options.batch {
            (0..steps).for_each(|_| self.learn());
        }
    }

    /// Returns the number of stored transitions.
    pub fn remembered(&self) -> usize {
        self.memory.len()
    }

    /// Returns the current network.
    pub fn network(&self) -> &Network {
        &self.online
    }

    /// Returns the number of learning steps.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    fn choose(&mut self, input: &Input) -> usize {
        let by_chance = match self.phase {
            Phase::Record => 1.0,
            Phase::Learn => self.options.epsilon,
            Phase::Judge => 0.0,
        };
        // Evaluation draws no random numbers, so it does not affect later training.
        if by_chance > 0.0 && self.random.fraction() < by_chance {
            self.random.below(ARMS as u32) as usize
        } else {
            first_highest(&self.online.evaluate(input))
        }
    }

    fn remember(&mut self, transition: Transition) {
        let Transition { before, action, round, arrived, after } = transition;
        let r = action as u32 + 1;
        let reward = self.options.penalty.reward(round, r, arrived);
        self.tally.rounds += 1;
        self.tally.reward += reward;
        self.tally.r += u64::from(r);
        if self.phase == Phase::Judge {
            return;
        }
        let record = (before, action, reward as f32, after);
        if self.memory.len() < self.options.replay {
            self.memory.push(record);
        } else {
            self.memory[self.transitions % self.options.replay] = record;
        }
        self.transitions += 1;
        if self.phase == Phase::Learn {
            self.study(1);
        }
    }

    /// Makes a gradient step on a batch's squared errors, each error clipped to 1.
    fn learn(&mut self) {
        let mut gradient = self.online.clone();
        gradient.numbers_mut().for_each(|slope| *slope = 0.0);
        let mut errors = 0.0;
        for _ in 0..self.options.batch {
            let place = self.random.below(self.memory.len() as u32) as usize;
            let (before, action, reward, after) = &self.memory[place];
            let ahead = self.target.evaluate(after);
            let aim = reward + self.options.discount * ahead[first_highest(&ahead)];
            let trace = self.online.trace(before);
            let error = trace.outputs()[*action] - aim;
            errors += f64::from(error.abs());
            let error = error.clamp(-1.0, 1.0);
            let share = error / self.options.batch as f32;
            self.online.add_gradient(&mut gradient, &trace, *action, share);
        }
        self.steps += 1;
        self.tally.steps += 1;
        self.tally.error += errors / self.options.batch as f64;
        self.descend(&gradient);
        if self.steps.is_multiple_of(self.options.target_steps) {
            self.target = self.online.clone();
        }
    }

    /// Applies Adam with the decay rates of its paper.
    fn descend(&mut self, gradient: &Network) {
        const DECAY: f32 = 0.9;
        const SQUARE_DECAY: f32 = 0.999;
        let step = self.steps.min(1_000_000) as i32;
        let (unbias, unbias_square) = (1.0 - DECAY.powi(step), 1.0 - SQUARE_DECAY.powi(step));
        let slopes = gradient.numbers().zip(&mut self.moments);
        for (number, (slope, (mean, square))) in self.online.numbers_mut().zip(slopes) {
            *mean += (slope - *mean) * (1.0 - DECAY);
            *square += (slope * slope - *square) * (1.0 - SQUARE_DECAY);
            let root = (*square / unbias_square).sqrt() + 1e-8;
            *number -= self.options.rate * (*mean / unbias) / root;
        }
    }
}

impl Policy for Arc<Mutex<Learner>> {
    const LEARNS: bool = true;

    fn choose(&mut self, input: &Input) -> usize {
        self.lock().unwrap_or_else(PoisonError::into_inner).choose(input)
    }

    fn remember(&mut self, transition: Transition) {
        self.lock().unwrap_or_else(PoisonError::into_inner).remember(transition);
    }
}

/// "art-dqn-training": a connection that decides by the learner's network and reports to it.
pub fn scheme(learner: Arc<Mutex<Learner>>, reading: Reading, seed: u64) -> Scheme {
    let adapter = Decider::new(learner, reading);
    super::super::super::scheme("art-dqn-training", adapter, super::super::super::ESCAPE, seed)
}
