//! Losses of calls: isolated losses, periods with partial loss, bursts with nearly complete loss,
//! and short and long outages.
//!
//! A chain of six states steps every 20 ms, with a loss rate per state. `examples/fit_calls` fits
//! it by maximum likelihood (Baum and Welch) to recorded fates from the loss generator of Opus 1.6
//! at eight nominal rates, with 60,000 packets 20 ms apart for each. That generator is a recurrent
//! network trained on losses of real calls. Rates between the eight are interpolated. The tests
//! state how well the chain reproduces two statistics: the loss probability 20 ms to 2 s after a
//! loss, and the distribution of run lengths. Both are plotted in
//! `docs/reproduce/pictures/calls-fit.svg`. The generator has a heavier tail than these 20 minutes,
//! which contain two outages above 1 s at 5 %: `tests/clairvoyant.rs` quantifies the difference.

use core::time::Duration;

use crate::random::{DrawStream, Probability};

/// Time between two steps of the chain.
pub(crate) const SLOT: Duration = Duration::from_millis(20);
/// Range of fitted rates.
pub(crate) const RATES: core::ops::RangeInclusive<f64> = 0.01..=0.2;

const STATES: usize = 6;
/// State with independent losses. Its rate compensates interpolation errors.
const STEADY: usize = 1;
/// Slots after which the chain restarts, so that long gaps are cheap: 82 s.
const BLOCK: u64 = 4_096;

/// A fit: transition probabilities and loss rates by state.
#[derive(Clone, Copy)]
struct Fit {
    /// Loss rate of the fitted fates, slightly different from the nominal rate.
    rate: f64,
    moves: [[f64; STATES]; STATES],
    loss: [f64; STATES],
}

#[rustfmt::skip]
const FITS: [Fit; 8] = [
    Fit {
        rate: 0.0106,
        moves: [
            [0.994878, 0.000002, 0.001709, 0.002013, 0.000772, 0.000627],
            [0.001832, 0.997113, 0.001026, 0.000030, 0.000000, 0.000000],
            [0.000915, 0.009177, 0.903009, 0.086899, 0.000000, 0.000000],
            [0.072583, 0.655685, 0.005025, 0.266708, 0.000000, 0.000000],
            [0.159598, 0.000000, 0.000000, 0.000000, 0.840402, 0.000000],
            [0.159598, 0.000000, 0.000000, 0.000000, 0.000000, 0.840402],
        ],
        loss: [0.000000, 0.006232, 0.083722, 0.996707, 0.993569, 0.993569],
    },
    Fit {
        rate: 0.0210,
        moves: [
            [0.992677, 0.001163, 0.002626, 0.000099, 0.002807, 0.000627],
            [0.002131, 0.997869, 0.000000, 0.000000, 0.000000, 0.000000],
            [0.010980, 0.009477, 0.894184, 0.085359, 0.000000, 0.000000],
            [0.241372, 0.026828, 0.308482, 0.402530, 0.020789, 0.000000],
            [0.366362, 0.000000, 0.000000, 0.000000, 0.633638, 0.000000],
            [0.132792, 0.000000, 0.000000, 0.000000, 0.000000, 0.867208],
        ],
        loss: [0.000000, 0.021190, 0.070831, 0.999914, 0.999999, 0.982752],
    },
    Fit {
        rate: 0.0360,
        moves: [
            [0.992633, 0.001162, 0.001905, 0.001720, 0.002412, 0.000167],
            [0.003512, 0.996021, 0.000416, 0.000051, 0.000000, 0.000000],
            [0.005441, 0.018843, 0.842855, 0.132861, 0.000000, 0.000000],
            [0.089600, 0.009063, 0.406319, 0.472271, 0.022747, 0.000000],
            [0.172715, 0.000000, 0.000000, 0.000000, 0.827285, 0.000000],
            [0.032976, 0.000000, 0.000000, 0.000000, 0.000000, 0.967024],
        ],
        loss: [0.000906, 0.032294, 0.031806, 0.906439, 0.994553, 0.999999],
    },
    Fit {
        rate: 0.0542,
        moves: [
            [0.988625, 0.001290, 0.003208, 0.000263, 0.006111, 0.000504],
            [0.002659, 0.996621, 0.000688, 0.000032, 0.000000, 0.000000],
            [0.015276, 0.010976, 0.855610, 0.118137, 0.000000, 0.000000],
            [0.035651, 0.003325, 0.417119, 0.510995, 0.032911, 0.000000],
            [0.256748, 0.000000, 0.000000, 0.000000, 0.743252, 0.000000],
            [0.053312, 0.000000, 0.000000, 0.000000, 0.000000, 0.946688],
        ],
        loss: [0.000184, 0.054110, 0.050241, 0.990947, 0.977394, 0.999999],
    },
    Fit {
        rate: 0.0842,
        moves: [
            [0.983239, 0.001604, 0.003681, 0.000078, 0.010765, 0.000634],
            [0.002489, 0.996003, 0.001508, 0.000000, 0.000000, 0.000000],
            [0.019410, 0.012398, 0.851936, 0.116256, 0.000000, 0.000000],
            [0.001687, 0.007557, 0.487726, 0.486189, 0.016841, 0.000000],
            [0.229678, 0.000000, 0.000000, 0.000000, 0.770322, 0.000000],
            [0.040415, 0.000000, 0.000000, 0.000000, 0.000000, 0.959585],
        ],
        loss: [0.000461, 0.078242, 0.097798, 0.999919, 0.979499, 0.999999],
    },
    Fit {
        rate: 0.0996,
        moves: [
            [0.983740, 0.002686, 0.001228, 0.003505, 0.008372, 0.000468],
            [0.002864, 0.995275, 0.000457, 0.001404, 0.000000, 0.000000],
            [0.020837, 0.009370, 0.844976, 0.124817, 0.000000, 0.000000],
            [0.018446, 0.021106, 0.428132, 0.506639, 0.025678, 0.000000],
            [0.170995, 0.000000, 0.000000, 0.000000, 0.829005, 0.000000],
            [0.039736, 0.000000, 0.000000, 0.000000, 0.000000, 0.960264],
        ],
        loss: [0.002125, 0.101216, 0.089130, 0.999873, 0.979527, 0.999999],
    },
    Fit {
        rate: 0.1495,
        moves: [
            [0.977253, 0.002996, 0.001698, 0.002328, 0.014720, 0.001004],
            [0.002308, 0.996384, 0.000889, 0.000418, 0.000000, 0.000000],
            [0.018978, 0.005104, 0.819537, 0.156382, 0.000000, 0.000000],
            [0.000465, 0.007695, 0.262831, 0.721253, 0.007756, 0.000000],
            [0.167432, 0.000000, 0.000000, 0.000000, 0.832568, 0.000000],
            [0.044611, 0.000000, 0.000000, 0.000000, 0.000000, 0.955389],
        ],
        loss: [0.001150, 0.148836, 0.065757, 0.777718, 0.999999, 0.977277],
    },
    Fit {
        rate: 0.1969,
        moves: [
            [0.969133, 0.004377, 0.001590, 0.003241, 0.019602, 0.002056],
            [0.002359, 0.992892, 0.000552, 0.004197, 0.000000, 0.000000],
            [0.012395, 0.011706, 0.926980, 0.048919, 0.000000, 0.000000],
            [0.000254, 0.102822, 0.221018, 0.657649, 0.018258, 0.000000],
            [0.166967, 0.000000, 0.000000, 0.000000, 0.833033, 0.000000],
            [0.047398, 0.000000, 0.000000, 0.000000, 0.000000, 0.952602],
        ],
        loss: [0.002654, 0.183156, 0.345142, 0.976311, 0.999998, 0.912501],
    },
];

/// Chain for one mean loss rate.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    /// Cumulative transition probabilities by state.
    moves: [[Probability; STATES - 1]; STATES],
    /// Cumulative stationary distribution, for the start of a block.
    initial: [Probability; STATES - 1],
    loss: [Probability; STATES],
    /// The last evaluated slot, and its state.
    known: Option<(u64, usize)>,
}

impl Chain {
    /// Creates the chain with the mean loss rate `rate`, clamped to [`RATES`].
    pub(crate) fn new(rate: f64) -> Self {
        let rate = rate.clamp(*RATES.start(), *RATES.end());
        let fit = Fit::at(rate);
        let shares = fit.shares();
        let mut loss = fit.loss;
        let others: f64 = (0..STATES).filter(|&s| s != STEADY).map(|s| shares[s] * loss[s]).sum();
        loss[STEADY] = (rate - others) / shares[STEADY];
        Self {
            moves: fit.moves.map(cumulated),
            initial: cumulated(shares),
            loss: loss.map(Probability::clamped),
            known: None,
        }
    }

    /// Returns the loss rate in a slot. It depends only on the seed and the slot.
    #[inline]
    pub(crate) fn rate(&mut self, states: DrawStream, slot: u64) -> Probability {
        let (mut at, mut state) = match self.known {
            Some((known, state)) if known <= slot && known / BLOCK == slot / BLOCK => {
                (known, state)
            }
            _ => {
                let first = slot - slot % BLOCK;
                (first, next(&self.initial, states.at(first)))
            }
        };
        while at < slot {
            at += 1;
            state = next(&self.moves[state], states.at(at));
        }
        self.known = Some((slot, state));
        self.loss[state]
    }
}

/// Returns the state selected by a draw.
fn next(chances: &[Probability; STATES - 1], draw: u64) -> usize {
    chances.iter().take_while(|chance| !chance.hit(draw)).count()
}

fn cumulated(chances: [f64; STATES]) -> [Probability; STATES - 1] {
    let total: f64 = chances.iter().sum();
    let mut sum = 0.0;
    core::array::from_fn(|state| {
        sum += chances[state] / total;
        Probability::clamped(sum)
    })
}

impl Fit {
    /// Interpolates between the two fits around `rate`, linearly in its logarithm.
    fn at(rate: f64) -> Self {
        let above = FITS.iter().position(|fit| fit.rate >= rate).unwrap_or(FITS.len() - 1).max(1);
        let (a, b) = (&FITS[above - 1], &FITS[above]);
        // Isolated losses make up for rates slightly outside of the fits.
        let part = ((rate / a.rate).ln() / (b.rate / a.rate).ln()).clamp(0.0, 1.0);
        let mix = |a: f64, b: f64| a + (b - a) * part;
        Self {
            rate,
            moves: core::array::from_fn(|from| {
                core::array::from_fn(|to| mix(a.moves[from][to], b.moves[from][to]))
            }),
            loss: core::array::from_fn(|state| mix(a.loss[state], b.loss[state])),
        }
    }

    /// Returns the stationary distribution, approximated by 10,000 steps.
    fn shares(&self) -> [f64; STATES] {
        let mut shares = [1.0 / STATES as f64; STATES];
        for _ in 0..10_000 {
            shares = core::array::from_fn(|to| {
                let moved: f64 = (0..STATES).map(|from| shares[from] * self.moves[from][to]).sum();
                moved
            });
            let total: f64 = shares.iter().sum();
            shares = shares.map(|share| share / total);
        }
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fates of packets 20 ms apart.
    fn fates(rate: f64, seed: u64, packets: u64) -> Vec<bool> {
        let (fates, states) =
            (DrawStream::new(seed, "calls", "loss"), DrawStream::new(seed, "calls", "loss state"));
        let mut chain = Chain::new(rate);
        (0..packets).map(|slot| chain.rate(states, slot).hit(fates.at(slot))).collect()
    }

    /// Fraction of packets lost at this lag after a lost one, in slots.
    fn after(fates: &[bool], lag: usize) -> f64 {
        let pairs = fates.iter().zip(&fates[lag..]).filter(|(lost, _)| **lost);
        let (both, lost) =
            pairs.fold((0, 0), |(both, lost), (_, then)| (both + u32::from(*then), lost + 1));
        f64::from(both) / f64::from(lost)
    }

    fn runs(fates: &[bool]) -> Vec<usize> {
        fates.split(|lost| !lost).map(<[bool]>::len).filter(|length| *length > 0).collect()
    }

    /// Measurements of the generator, two thirds of them not used for the fit. Columns: rate; loss
    /// probability 20, 40, 60, 100, 200, 500 ms, 1 and 2 s after a loss; fraction of runs of one
    /// packet; 99th percentile of run lengths.
    const MEASURED: &str = include_str!("calls-measured.csv");

    fn rows<const COLUMNS: usize>(text: &str) -> impl Iterator<Item = [f64; COLUMNS]> {
        let lines = text.lines().filter(|line| line.starts_with("0."));
        lines.map(|line| {
            let numbers: Vec<f64> =
                line.split(',').map(|number| number.parse().expect("a number")).collect();
            numbers.try_into().expect("all columns")
        })
    }

    #[test]
    fn losses_are_correlated_as_in_calls() {
        const LAGS: [usize; 8] = [1, 2, 3, 5, 10, 25, 50, 100];
        for [rate, shares @ .., single, longest] in rows::<11>(MEASURED) {
            let fates = fates(rate, 7, 3_000_000);
            let lost = fates.iter().filter(|lost| **lost).count() as f64 / fates.len() as f64;
            assert!((lost / rate - 1.0).abs() < 0.05, "{rate}: {lost}");
            let errors: Vec<f64> =
                LAGS.iter().zip(shares).map(|(&lag, share)| after(&fates, lag) - share).collect();
            println!("{rate}: errors {errors:.3?}");
            assert!(errors.iter().all(|error| error.abs() < 0.08), "{rate}: {errors:.3?}");
            let mut runs = runs(&fates);
            runs.sort_unstable();
            let ones = runs.iter().filter(|run| **run == 1).count() as f64 / runs.len() as f64;
            let p99 = runs[runs.len() * 99 / 100];
            println!("{rate}: {ones:.3} of {single} alone, 99 % of runs up to {p99} of {longest}");
            // In the fates fitted at 1 %, one run in a hundred has 13 packets.
            assert!(
                (ones - single).abs() < 0.06 && p99.abs_diff(longest as usize) <= 5,
                "{ones} {p99}"
            );
        }
    }

    /// Statistics of the fitted fates: rate, and fractions of losses in runs of each length.
    const FITTED: &str = include_str!("calls-runs.csv");

    #[test]
    fn run_lengths_match_the_fitted_fates() {
        const LENGTHS: [usize; 5] = [1, 5, 15, 50, usize::MAX];
        for [rate, measured @ ..] in rows::<6>(FITTED) {
            let runs = runs(&fates(rate, 11, 3_000_000));
            let all: usize = runs.iter().sum();
            let shares: [f64; 5] = core::array::from_fn(|class| {
                let least = class.checked_sub(1).map_or(0, |before| LENGTHS[before]);
                let of = runs.iter().filter(|run| **run > least && **run <= LENGTHS[class]);
                of.sum::<usize>() as f64 / all as f64
            });
            println!("{rate}: {shares:.3?}, fitted {measured:?}");
            for (share, fitted) in shares.into_iter().zip(measured) {
                assert!((share - fitted).abs() < 0.03, "{rate}: {shares:.3?} {measured:?}");
            }
        }
    }

    #[test]
    fn interpolated_chains_have_the_requested_rate() {
        for rate in [0.013, 0.04, 0.067, 0.12, 0.17] {
            let fates = fates(rate, 3, 3_000_000);
            let lost = fates.iter().filter(|lost| **lost).count() as f64 / fates.len() as f64;
            assert!((lost / rate - 1.0).abs() < 0.05, "{rate}: {lost}");
        }
    }

    #[test]
    fn the_rate_of_a_slot_does_not_depend_on_earlier_queries() {
        let states = DrawStream::new(1, "calls", "loss state");
        let (mut all, mut some) = (Chain::new(0.05), Chain::new(0.05));
        let each: Vec<_> = (0..20_000).map(|slot| all.rate(states, slot)).collect();
        for slot in (0..20_000).step_by(37) {
            assert_eq!(some.rate(states, slot), each[slot as usize]);
        }
    }
}
