//! A small neural network, and its file format. Layers of weighted sums with rectifiers in between
//! estimate the value of each R from 1 to 10.
//!
//! File format: `MDQN`; version 1; length of a note in two bytes (big-endian) and the note in
//! UTF-8, on the network's origin; number of layers; sizes of the layers, one byte each, from the 7
//! inputs to the 10 outputs; then for each step between layers all weights, output by output, and
//! the biases, each as a little-endian IEEE 754 single.

use super::super::bandit::ARMS;
use crate::random::Random;
use core::fmt;

/// Number of inputs.
pub const INPUTS: usize = 7;
/// Maximum number of neurons per hidden layer.
pub const MAX_WIDTH: usize = 32;
/// Maximum number of hidden layers.
pub const MAX_HIDDEN: usize = 2;

const MAGIC: &[u8; 4] = b"MDQN";
const VERSION: u8 = 1;

/// State of a decision, each value roughly 0 to 1.
pub(crate) type Input = [f32; INPUTS];
/// Values of a layer, padded with 0.
type Values = [f32; MAX_WIDTH];

/// Error in a network file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadNetwork {
    /// It does not start with `MDQN`.
    Magic,
    /// Its version is not 1.
    Version(u8),
    /// Its note is truncated or not UTF-8.
    Note,
    /// Its layers are not 7 inputs, 1 or 2 hidden layers of 1 to 32 neurons, and 10 outputs.
    Sizes,
    /// Its length does not match its layers.
    Length {
        /// Expected length in bytes.
        expected: usize,
        /// Actual length in bytes.
        found: usize,
    },
    /// A weight or bias is not finite.
    NotFinite,
}

impl fmt::Display for BadNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic => write!(f, "not a network file: must start with MDQN"),
            Self::Version(version) => write!(f, "network version {version} is not {VERSION}"),
            Self::Note => write!(f, "note of the network is truncated or not UTF-8"),
            Self::Sizes => write!(
                f,
                "network must have {INPUTS} inputs, 1 to {MAX_HIDDEN} layers of 1 to {MAX_WIDTH} \
                 neurons, {ARMS} outputs"
            ),
            Self::Length { expected, found } => {
                write!(f, "network file has {found} bytes, not {expected}")
            }
            Self::NotFinite => write!(f, "network has a weight that is not finite"),
        }
    }
}

impl core::error::Error for BadNetwork {}

/// Weights and biases between two layers.
#[derive(Clone, PartialEq, Debug)]
struct Step {
    inputs: usize,
    /// Output by output, `inputs` each.
    weights: Vec<f32>,
    /// One per output.
    biases: Vec<f32>,
}

impl Step {
    fn apply(&self, from: &Values, rectify: bool) -> Values {
        let mut to = [0.0; MAX_WIDTH];
        let rows = self.weights.chunks_exact(self.inputs).zip(&self.biases);
        for (sum, (weights, bias)) in to.iter_mut().zip(rows) {
            *sum =
                weights.iter().zip(from).fold(*bias, |sum, (weight, value)| sum + weight * value);
            if rectify {
                *sum = sum.max(0.0);
            }
        }
        to
    }
}

/// A network of 1 or 2 hidden layers.
#[derive(Clone, PartialEq, Debug)]
pub struct Network {
    steps: Vec<Step>,
}

/// Values of all layers for an input.
pub(crate) struct Trace {
    layers: [Values; MAX_HIDDEN + 2],
    depth: usize,
}

impl Trace {
    pub(crate) fn outputs(&self) -> &[f32] {
        &self.layers[self.depth][..ARMS]
    }
}

impl Network {
    fn with_sizes(sizes: &[usize], mut weight: impl FnMut(usize) -> f32) -> Self {
        let steps = sizes.windows(2).map(|pair| Step {
            inputs: pair[0],
            weights: (0..pair[0] * pair[1]).map(|_| weight(pair[0])).collect(),
            biases: vec![0.0; pair[1]],
        });
        Self { steps: steps.collect() }
    }

    /// Creates an untrained network with hidden layers of these sizes.
    ///
    /// # Errors
    /// If the sizes are out of range.
    pub fn untrained(hidden: &[usize], seed: u64) -> Result<Self, BadNetwork> {
        Self::random(hidden, &mut Random::new(seed))
    }

    /// Creates a network that prefers this R, from 1 to 10, in every state.
    pub fn always(r: u32) -> Self {
        let mut network = Self::with_sizes(&[INPUTS, 1, ARMS], |_| 0.0);
        let biases = network.steps.iter_mut().flat_map(|step| &mut step.biases);
        let best = r.clamp(1, ARMS as u32) as usize;
        // The bias of the hidden neuron comes first.
        biases.skip(best).take(1).for_each(|bias| *bias = 1.0);
        network
    }

    /// Draws small weights (He and others, "Delving deep into rectifiers", 2015, but uniform).
    pub(crate) fn random(hidden: &[usize], random: &mut Random) -> Result<Self, BadNetwork> {
        let sizes = [&[INPUTS], hidden, &[ARMS]].concat();
        check(&sizes)?;
        Ok(Self::with_sizes(&sizes, |inputs| {
            let limit = (6.0 / inputs as f64).sqrt();
            ((2.0 * random.fraction() - 1.0) * limit) as f32
        }))
    }

    /// Parses the contents of a network file.
    ///
    /// # Errors
    /// If the contents are not exactly a network of finite numbers within the limits.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadNetwork> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(BadNetwork::Magic)?;
        let (&version, rest) = rest.split_first().ok_or(BadNetwork::Sizes)?;
        if version != VERSION {
            return Err(BadNetwork::Version(version));
        }
        let (length, rest) = rest.split_first_chunk::<2>().ok_or(BadNetwork::Note)?;
        let length = u16::from_be_bytes(*length).into();
        let (note, rest) = rest.split_at_checked(length).ok_or(BadNetwork::Note)?;
        core::str::from_utf8(note).map_err(|_| BadNetwork::Note)?;
        let (&count, rest) = rest.split_first().ok_or(BadNetwork::Sizes)?;
        let (sizes, numbers) = rest.split_at_checked(count.into()).ok_or(BadNetwork::Sizes)?;
        let sizes: Vec<_> = sizes.iter().map(|&size| usize::from(size)).collect();
        check(&sizes)?;
        let mut network = Self::with_sizes(&sizes, |_| 0.0);
        let expected = bytes.len() - numbers.len() + 4 * network.numbers().count();
        if bytes.len() != expected {
            return Err(BadNetwork::Length { expected, found: bytes.len() });
        }
        let (numbers, _) = numbers.as_chunks::<4>();
        for (place, bytes) in network.numbers_mut().zip(numbers) {
            *place = f32::from_le_bytes(*bytes);
        }
        if network.numbers().all(|number| number.is_finite()) {
            Ok(network)
        } else {
            Err(BadNetwork::NotFinite)
        }
    }

    /// Returns the contents of a file, with a note on the network's origin, cut to 65,535 bytes.
    pub fn to_bytes(&self, note: &str) -> Vec<u8> {
        let most = note.len().min(u16::MAX.into());
        let end = (0..=most).rev().find(|&at| note.is_char_boundary(at)).unwrap_or(0);
        let note = &note[..end];
        let mut bytes = MAGIC.to_vec();
        bytes.push(VERSION);
        bytes.extend((note.len() as u16).to_be_bytes());
        bytes.extend_from_slice(note.as_bytes());
        bytes.push(self.steps.len() as u8 + 1);
        bytes.extend(self.steps.iter().map(|step| step.inputs as u8));
        bytes.push(ARMS as u8);
        self.numbers().for_each(|number| bytes.extend(number.to_le_bytes()));
        bytes
    }

    /// Yields all weights and biases in file order.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = f32> {
        self.steps.iter().flat_map(|step| step.weights.iter().chain(&step.biases).copied())
    }

    /// Yields all weights and biases for modification.
    pub(crate) fn numbers_mut(&mut self) -> impl Iterator<Item = &mut f32> {
        self.steps.iter_mut().flat_map(|step| step.weights.iter_mut().chain(&mut step.biases))
    }

    pub(crate) fn trace(&self, input: &Input) -> Trace {
        let mut trace = Trace { layers: Default::default(), depth: self.steps.len() };
        trace.layers[0][..INPUTS].copy_from_slice(input);
        for (place, step) in self.steps.iter().enumerate() {
            let rectify = place + 1 < self.steps.len();
            trace.layers[place + 1] = step.apply(&trace.layers[place], rectify);
        }
        trace
    }

    /// Returns the value of each R from 1 in this state.
    pub(crate) fn evaluate(&self, input: &Input) -> [f32; ARMS] {
        let trace = self.trace(input);
        core::array::from_fn(|arm| trace.outputs()[arm])
    }

    /// Adds to `gradient`, a network of the same sizes, the derivatives of the output of `arm`,
    /// times `error`.
    pub(crate) fn add_gradient(&self, gradient: &mut Self, trace: &Trace, arm: usize, error: f32) {
        let mut errors: Values = [0.0; MAX_WIDTH];
        errors[arm] = error;
        for (place, (step, sums)) in self.steps.iter().zip(&mut gradient.steps).enumerate().rev() {
            let from = &trace.layers[place];
            let mut before: Values = [0.0; MAX_WIDTH];
            let rows = step.weights.chunks_exact(step.inputs);
            let sums = sums.weights.chunks_exact_mut(step.inputs).zip(&mut sums.biases);
            for ((&error, weights), (slopes, bias)) in errors.iter().zip(rows).zip(sums) {
                *bias += error;
                for (((slope, weight), value), back) in
                    slopes.iter_mut().zip(weights).zip(from).zip(&mut before)
                {
                    *slope += error * value;
                    // A rectified neuron propagates no error.
                    *back += if *value > 0.0 { error * weight } else { 0.0 };
                }
            }
            errors = before;
        }
    }
}

fn check(sizes: &[usize]) -> Result<(), BadNetwork> {
    match sizes {
        [INPUTS, hidden @ .., ARMS]
            if (1..=MAX_HIDDEN).contains(&hidden.len())
                && hidden.iter().all(|width| (1..=MAX_WIDTH).contains(width)) =>
        {
            Ok(())
        }
        _ => Err(BadNetwork::Sizes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INPUT: Input = [0.1, 0.9, 0.4, 0.5, 0.0, 0.7, 0.05];

    fn network(hidden: &[usize], seed: u64) -> Network {
        Network::random(hidden, &mut Random::new(seed)).expect("good sizes")
    }

    #[test]
    fn a_network_survives_its_file() {
        for hidden in [&[1][..], &[32], &[32, 32], &[5, 9]] {
            let network = network(hidden, 3);
            let bytes = network.to_bytes("Made by α.");
            assert_eq!(Network::from_bytes(&bytes).as_ref(), Ok(&network));
            for end in 0..bytes.len() {
                assert!(Network::from_bytes(&bytes[..end]).is_err(), "{end} bytes");
            }
        }
    }

    #[test]
    fn bad_files_are_distinguished() {
        let good = network(&[3], 3).to_bytes("");
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            Network::from_bytes(&bytes).map(|_| ())
        };
        assert_eq!(with(0, b'X'), Err(BadNetwork::Magic));
        assert_eq!(with(4, 2), Err(BadNetwork::Version(2)));
        assert_eq!(with(5, 255), Err(BadNetwork::Note), "longer than the file");
        assert_eq!(with(6, 1), Err(BadNetwork::Sizes), "a count of 7");
        for (at, byte) in [(7, 0), (7, 2), (7, 255), (8, 8), (9, 0), (9, 33), (10, 11)] {
            assert_eq!(with(at, byte), Err(BadNetwork::Sizes), "{at} {byte}");
        }
        let mut noted = network(&[3], 3).to_bytes("x");
        noted[7] = 0xff;
        assert_eq!(Network::from_bytes(&noted), Err(BadNetwork::Note));
        let found = good.len();
        let one_wider = BadNetwork::Length { expected: found + 4 * (7 + 1 + 10), found };
        assert_eq!(with(9, 4), Err(one_wider));
        let longer = [&good[..], &[0]].concat();
        let length = BadNetwork::Length { expected: found, found: found + 1 };
        assert_eq!(Network::from_bytes(&longer), Err(length));
        for bad in [f32::NAN, f32::INFINITY] {
            let mut bytes = good.clone();
            bytes[found - 4..].copy_from_slice(&bad.to_le_bytes());
            assert_eq!(Network::from_bytes(&bytes), Err(BadNetwork::NotFinite));
        }
    }

    #[test]
    fn a_long_note_is_cut() {
        let network = network(&[3], 3);
        let bytes = network.to_bytes(&"ü".repeat(40_000));
        assert_eq!(bytes.len(), network.to_bytes("").len() + 65_534);
        assert_eq!(Network::from_bytes(&bytes), Ok(network));
    }

    #[test]
    fn a_constant_network_prefers_its_r_everywhere() {
        for r in 1..=ARMS {
            let outputs = Network::always(r as u32).evaluate(&INPUT);
            assert_eq!(super::super::super::bandit::first_highest(&outputs), r - 1);
        }
    }

    #[test]
    fn layers_are_weighted_sums_rectified_in_between() {
        let mut network = network(&[2], 1);
        let mut numbers = vec![0.0; network.numbers().count()];
        // Hidden 0 = 2·input 0 − input 1 + 0.5, hidden 1 = input 2.
        (numbers[0], numbers[1], numbers[7 + 2]) = (2.0, -1.0, 1.0);
        numbers[14] = 0.5;
        // Output 3: hidden 0 + 10·hidden 1 − 1.
        (numbers[16 + 6], numbers[16 + 7], numbers[16 + 20 + 3]) = (1.0, 10.0, -1.0);
        network.numbers_mut().zip(numbers).for_each(|(place, number)| *place = number);
        let mut input = [0.0; INPUTS];
        (input[0], input[1], input[2]) = (1.0, 0.25, 0.125);
        let outputs = network.evaluate(&input);
        assert_eq!((outputs[2], outputs[3]), (0.0, 2.0 - 0.25 + 0.5 + 1.25 - 1.0));
        input[1] = 99.0;
        assert_eq!(network.evaluate(&input)[3], 0.25, "hidden 0 is rectified");
    }

    #[test]
    fn gradients_match_finite_differences() {
        let network = network(&[6, 5], 8);
        let trace = network.trace(&INPUT);
        let mut gradient = network.clone();
        gradient.numbers_mut().for_each(|slope| *slope = 0.0);
        network.add_gradient(&mut gradient, &trace, 4, 2.0);
        let slopes: Vec<_> = gradient.numbers().collect();
        assert!(slopes.iter().filter(|&&slope| slope != 0.0).count() > 20);
        for (place, slope) in slopes.into_iter().enumerate() {
            let moved = |by: f32| {
                let mut other = network.clone();
                *other.numbers_mut().nth(place).expect("in range") += by;
                f64::from(other.evaluate(&INPUT)[4])
            };
            let found = 2.0 * (moved(1e-2) - moved(-1e-2)) / 2e-2;
            assert!((found - f64::from(slope)).abs() < 1e-3, "{place}: {found} {slope}");
        }
    }
}
