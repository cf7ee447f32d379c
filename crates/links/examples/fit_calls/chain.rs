//! A hidden Markov chain with a loss rate per state, and its maximum-likelihood fit (Baum, Petrie,
//! Soules and Weiss 1970; with the scaling of Rabiner 1989, section V-A).

pub(crate) const STATES: usize = 6;
/// States that are only left for the quiet state: short and long outages.
const OUTAGES: [usize; 2] = [4, 5];

/// Transition probabilities and loss rates by state.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    pub moves: [[f64; STATES]; STATES],
    pub loss: [f64; STATES],
}

/// Expected counts of an expectation step.
struct Expected {
    moves: [[f64; STATES]; STATES],
    visits: [f64; STATES],
    losses: [f64; STATES],
    log_likelihood: f64,
}

impl Chain {
    /// Start of the fit: quiet periods, independent losses, scattered losses, bursts, and outages
    /// with mean lengths of `outages` slots. Transitions that are impossible here stay impossible.
    /// States therefore have the same meaning at all rates, and the model can interpolate them.
    pub(crate) fn start(rate: f64, outages: [f64; 2]) -> Self {
        let [short, long] = outages.map(f64::recip);
        let mut moves = [
            [0.0, 0.002, 0.002, 0.008, 0.002, 0.0002],
            [0.003, 0.0, 0.001, 0.0005, 0.0, 0.0],
            [0.01, 0.01, 0.0, 0.03, 0.0, 0.0],
            [0.25, 0.01, 0.05, 0.0, 0.02, 0.0],
            [short, 0.0, 0.0, 0.0, 0.0, 0.0],
            [long, 0.0, 0.0, 0.0, 0.0, 0.0],
        ];
        for (state, row) in moves.iter_mut().enumerate() {
            row[state] = 1.0 - row.iter().sum::<f64>();
        }
        Self { moves, loss: [0.001, rate, (0.2 + rate).min(0.5), 0.97, 0.99, 0.999] }
    }

    /// Stationary distribution of the states.
    fn shares(&self) -> [f64; STATES] {
        let mut shares = [1.0 / STATES as f64; STATES];
        for _ in 0..10_000 {
            shares = core::array::from_fn(|to| {
                (0..STATES).map(|from| shares[from] * self.moves[from][to]).sum()
            });
        }
        shares
    }

    fn chance(&self, state: usize, is_lost: bool) -> f64 {
        if is_lost { self.loss[state] } else { 1.0 - self.loss[state] }
    }

    /// Probabilities of the states at each slot given the fates up to it, and those of the fates.
    fn forward(&self, fates: &[bool]) -> (Vec<[f64; STATES]>, Vec<f64>) {
        let (mut states, mut scales) = (Vec::new(), Vec::new());
        let mut before = self.shares();
        for (slot, &is_lost) in fates.iter().enumerate() {
            let reached = |to: usize| match slot {
                0 => before[to],
                _ => (0..STATES).map(|from| before[from] * self.moves[from][to]).sum(),
            };
            let joint: [f64; STATES] =
                core::array::from_fn(|to| reached(to) * self.chance(to, is_lost));
            let scale: f64 = joint.iter().sum();
            before = joint.map(|chance| chance / scale);
            states.push(before);
            scales.push(scale);
        }
        (states, scales)
    }

    /// Adds the expected counts of these fates.
    fn expect(&self, fates: &[bool], expected: &mut Expected) {
        let (states, scales) = self.forward(fates);
        expected.log_likelihood += scales.iter().map(|scale| scale.ln()).sum::<f64>();
        let mut after = [1.0; STATES];
        for slot in (0..fates.len()).rev() {
            for (state, visits) in expected.visits.iter_mut().enumerate() {
                let chance = states[slot][state] * after[state];
                *visits += chance;
                expected.losses[state] += if fates[slot] { chance } else { 0.0 };
            }
            let Some(before) = slot.checked_sub(1) else { break };
            let ahead: [f64; STATES] =
                core::array::from_fn(|to| self.chance(to, fates[slot]) * after[to] / scales[slot]);
            for (from, row) in expected.moves.iter_mut().enumerate() {
                for (to, moves) in row.iter_mut().enumerate() {
                    *moves += states[before][from] * self.moves[from][to] * ahead[to];
                }
            }
            after = core::array::from_fn(|from| {
                (0..STATES).map(|to| self.moves[from][to] * ahead[to]).sum()
            });
        }
    }

    /// One round of expectation and maximization. Also returns the log-likelihood before the round.
    fn improved(&self, recordings: &[Vec<bool>]) -> (Self, f64) {
        let mut expected = Expected {
            moves: [[0.0; STATES]; STATES],
            visits: [0.0; STATES],
            losses: [0.0; STATES],
            log_likelihood: 0.0,
        };
        recordings.iter().for_each(|fates| self.expect(fates, &mut expected));
        let moves = expected.moves.map(|row| {
            let all: f64 = row.iter().sum();
            row.map(|moves| moves / all)
        });
        // A state that loses every packet would make recordings with an arrival in it impossible.
        let loss = core::array::from_fn(|state| {
            (expected.losses[state] / expected.visits[state]).min(1.0 - 1e-6)
        });
        (Self { moves, loss }, expected.log_likelihood)
    }

    /// Returns the chain after `rounds` rounds, and its log-likelihood.
    pub(crate) fn fitted(self, recordings: &[Vec<bool>], rounds: usize) -> (Self, f64) {
        let (mut chain, mut likelihood) = (self, f64::NEG_INFINITY);
        for _ in 0..rounds {
            let (better, before) = chain.improved(recordings);
            if before - likelihood < 1e-4 {
                return (chain, before);
            }
            (chain, likelihood) = (better, before);
        }
        (chain, likelihood)
    }

    /// Orders the outage states by length.
    pub(crate) fn by_length(mut self) -> Self {
        let [short, long] = OUTAGES;
        if self.moves[short][short] > self.moves[long][long] {
            self.moves.swap(short, long);
            self.moves.iter_mut().for_each(|row| row.swap(short, long));
            self.loss.swap(short, long);
        }
        self
    }
}
