//! Loss as calls have it: rare single losses, times in which a part of all packets is lost, short times in which
//! nearly all of them are, and outages.
//!
//! A chain of five states steps every 20 ms and has a loss rate in each. It was fitted by maximum likelihood
//! (Baum and Welch) to the fates that the loss generator of Opus 1.6 gives at eight nominal rates, 60,000
//! packets 20 ms apart each; that generator is a recurrent network trained on the losses of real calls. Between
//! the eight rates the fit is interpolated. What it reproduces, and how well, is in its tests: given that a packet
//! was lost, how probably one is that follows 20 ms to 2 s later, and how long runs of losses are. The former is
//! drawn in `docs/pictures/calls-fit.svg`.

use core::time::Duration;

use crate::random::{Probability, Stream};

/// The time between two steps of the chain.
pub(crate) const SLOT: Duration = Duration::from_millis(20);
/// The rates for which there is a fit.
pub(crate) const RATES: core::ops::RangeInclusive<f64> = 0.01..=0.2;

const STATES: usize = 5;
/// The state whose loss rate makes up for what interpolation leaves: packets are lost one by one in it.
const STEADY: usize = 1;
/// Slots after which the chain begins anew, so that a long silence costs little: 82 s.
const BLOCK: u64 = 4_096;

/// A fit: the chain's moves by state, and the loss rate in each.
#[derive(Clone, Copy)]
struct Fit {
    rate: f64,
    moves: [[f64; STATES]; STATES],
    loss: [f64; STATES],
}

#[rustfmt::skip]
const FITS: [Fit; 8] = [
    Fit {
        rate: 0.01,
        moves: [
            [0.9949, 0.0000, 0.0017, 0.0020, 0.0014],
            [0.0018, 0.9971, 0.0011, 0.0000, 0.0000],
            [0.0011, 0.0146, 0.9027, 0.0816, 0.0000],
            [0.0761, 0.6397, 0.0098, 0.2744, 0.0000],
            [0.1584, 0.0000, 0.0000, 0.0000, 0.8416],
        ],
        loss: [0.0000, 0.0062, 0.0828, 1.0000, 0.9936],
    },
    Fit {
        rate: 0.02,
        moves: [
            [0.9923, 0.0015, 0.0018, 0.0037, 0.0007],
            [0.0022, 0.9978, 0.0000, 0.0000, 0.0000],
            [0.0568, 0.0044, 0.9030, 0.0358, 0.0000],
            [0.3571, 0.0278, 0.0200, 0.5950, 0.0000],
            [0.1428, 0.0000, 0.0000, 0.0000, 0.8572],
        ],
        loss: [0.0000, 0.0222, 0.2242, 1.0000, 0.9857],
    },
    Fit {
        rate: 0.03,
        moves: [
            [0.9928, 0.0012, 0.0022, 0.0016, 0.0022],
            [0.0035, 0.9961, 0.0004, 0.0000, 0.0000],
            [0.0006, 0.0186, 0.8728, 0.1080, 0.0000],
            [0.1490, 0.0005, 0.3058, 0.5446, 0.0000],
            [0.1163, 0.0000, 0.0000, 0.0000, 0.8837],
        ],
        loss: [0.0011, 0.0329, 0.0631, 0.9361, 0.9998],
    },
    Fit {
        rate: 0.05,
        moves: [
            [0.9881, 0.0016, 0.0008, 0.0086, 0.0009],
            [0.0027, 0.9965, 0.0008, 0.0000, 0.0000],
            [0.0000, 0.0126, 0.9274, 0.0600, 0.0000],
            [0.2377, 0.0000, 0.0841, 0.6781, 0.0000],
            [0.0725, 0.0000, 0.0000, 0.0000, 0.9275],
        ],
        loss: [0.0002, 0.0539, 0.1660, 0.9775, 1.0000],
    },
    Fit {
        rate: 0.08,
        moves: [
            [0.9819, 0.0019, 0.0021, 0.0134, 0.0007],
            [0.0026, 0.9955, 0.0020, 0.0000, 0.0000],
            [0.0134, 0.0183, 0.9501, 0.0182, 0.0000],
            [0.2319, 0.0000, 0.0252, 0.7429, 0.0000],
            [0.0438, 0.0000, 0.0000, 0.0000, 0.9562],
        ],
        loss: [0.0005, 0.0777, 0.2716, 0.9843, 1.0000],
    },
    Fit {
        rate: 0.10,
        moves: [
            [0.9821, 0.0025, 0.0021, 0.0125, 0.0007],
            [0.0027, 0.9946, 0.0020, 0.0006, 0.0000],
            [0.0170, 0.0232, 0.9350, 0.0248, 0.0000],
            [0.1743, 0.0076, 0.0360, 0.7821, 0.0000],
            [0.0479, 0.0000, 0.0000, 0.0000, 0.9521],
        ],
        loss: [0.0020, 0.1004, 0.2900, 0.9805, 1.0000],
    },
    Fit {
        rate: 0.15,
        moves: [
            [0.9732, 0.0032, 0.0019, 0.0200, 0.0017],
            [0.0025, 0.9953, 0.0017, 0.0006, 0.0000],
            [0.0158, 0.0190, 0.9585, 0.0067, 0.0000],
            [0.1850, 0.0041, 0.0092, 0.8017, 0.0000],
            [0.0550, 0.0000, 0.0000, 0.0000, 0.9450],
        ],
        loss: [0.0013, 0.1480, 0.4256, 1.0000, 0.9539],
    },
    Fit {
        rate: 0.20,
        moves: [
            [0.9682, 0.0048, 0.0023, 0.0226, 0.0021],
            [0.0024, 0.9917, 0.0045, 0.0015, 0.0000],
            [0.0070, 0.0432, 0.9456, 0.0042, 0.0000],
            [0.1508, 0.0120, 0.0108, 0.8265, 0.0000],
            [0.0486, 0.0000, 0.0000, 0.0000, 0.9514],
        ],
        loss: [0.0026, 0.1844, 0.4727, 0.9987, 0.9130],
    },
];

/// The chain at one mean rate.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    /// By state, the chances that the next one is at most the first, the second, and so on.
    moves: [[Probability; STATES - 1]; STATES],
    /// The same for a chain that nothing is known of.
    begins: [Probability; STATES - 1],
    loss: [Probability; STATES],
    /// The slot that was looked at last, and its state.
    known: Option<(u64, usize)>,
}

impl Chain {
    /// The chain whose mean loss rate is `rate`, clamped to [`RATES`].
    pub(crate) fn new(rate: f64) -> Self {
        let rate = rate.clamp(*RATES.start(), *RATES.end());
        let fit = Fit::at(rate);
        let shares = fit.shares();
        let mut loss = fit.loss;
        let others: f64 = (0..STATES).filter(|&s| s != STEADY).map(|s| shares[s] * loss[s]).sum();
        loss[STEADY] = (rate - others) / shares[STEADY];
        Self {
            moves: fit.moves.map(cumulated),
            begins: cumulated(shares),
            loss: loss.map(Probability::clamped),
            known: None,
        }
    }

    /// The loss rate in this slot. The same for a seed whichever slots were looked at before.
    #[inline]
    pub(crate) fn rate(&mut self, states: Stream, slot: u64) -> Probability {
        let (mut at, mut state) = match self.known {
            Some((known, state)) if known <= slot && known / BLOCK == slot / BLOCK => {
                (known, state)
            }
            _ => {
                let first = slot - slot % BLOCK;
                (first, next(&self.begins, states.at(first)))
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

/// The state that a draw leads to.
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
    /// Between the two fits around `rate`, in equal parts of its logarithm.
    fn at(rate: f64) -> Self {
        let above = FITS.iter().position(|fit| fit.rate >= rate).unwrap_or(FITS.len() - 1).max(1);
        let (a, b) = (&FITS[above - 1], &FITS[above]);
        let part = (rate / a.rate).ln() / (b.rate / a.rate).ln();
        let mix = |a: f64, b: f64| a + (b - a) * part;
        Self {
            rate,
            moves: core::array::from_fn(|from| {
                core::array::from_fn(|to| mix(a.moves[from][to], b.moves[from][to]))
            }),
            loss: core::array::from_fn(|state| mix(a.loss[state], b.loss[state])),
        }
    }

    /// The share of time that the chain is in each state: what 10,000 steps leave of any beginning.
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
            (Stream::new(seed, "calls", "loss"), Stream::new(seed, "calls", "loss state"));
        let mut chain = Chain::new(rate);
        (0..packets).map(|slot| chain.rate(states, slot).hit(fates.at(slot))).collect()
    }

    /// The share of packets that are lost this many slots behind a lost one.
    fn after(fates: &[bool], lag: usize) -> f64 {
        let pairs = fates.iter().zip(&fates[lag..]).filter(|(lost, _)| **lost);
        let (both, lost) =
            pairs.fold((0, 0), |(both, lost), (_, then)| (both + u32::from(*then), lost + 1));
        f64::from(both) / f64::from(lost)
    }

    fn runs(fates: &[bool]) -> Vec<usize> {
        fates.split(|lost| !lost).map(<[bool]>::len).filter(|length| *length > 0).collect()
    }

    /// Measured of the generator, two thirds of it not fitted to: rate, shares lost 20, 40, 60, 100, 200, 500 ms, 1 and
    /// 2 s after a loss, the share of runs that are one packet long, and the 99th percentile of their lengths.
    const MEASURED: &str = include_str!("calls-measured.csv");

    fn measured() -> impl Iterator<Item = [f64; 11]> {
        let lines = MEASURED.lines().filter(|line| line.starts_with("0."));
        lines.map(|line| {
            let numbers: Vec<f64> =
                line.split(',').map(|number| number.parse().expect("a number")).collect();
            numbers.try_into().expect("eleven columns")
        })
    }

    #[test]
    fn losses_come_together_as_in_calls() {
        const LAGS: [usize; 8] = [1, 2, 3, 5, 10, 25, 50, 100];
        for [rate, shares @ .., single, longest] in measured() {
            let fates = fates(rate, 7, 3_000_000);
            let lost = fates.iter().filter(|lost| **lost).count() as f64 / fates.len() as f64;
            assert!((lost / rate - 1.0).abs() < 0.05, "{rate}: {lost}");
            let errors: Vec<f64> =
                LAGS.iter().zip(shares).map(|(&lag, share)| after(&fates, lag) - share).collect();
            println!("{rate}: errors {errors:.3?}");
            assert!(errors.iter().all(|error| error.abs() < 0.09), "{rate}: {errors:.3?}");
            let mut runs = runs(&fates);
            runs.sort_unstable();
            let ones = runs.iter().filter(|run| **run == 1).count() as f64 / runs.len() as f64;
            let p99 = runs[runs.len() * 99 / 100];
            println!("{rate}: {ones:.3} of {single} alone, 99 % of runs up to {p99} of {longest}");
            // Of the fates that 1 % was fitted to, one run in a hundred is 13 packets long.
            assert!(
                (ones - single).abs() < 0.06 && p99.abs_diff(longest as usize) <= 5,
                "{ones} {p99}"
            );
        }
    }

    #[test]
    fn between_the_fits_the_rate_is_what_is_asked_for() {
        for rate in [0.013, 0.04, 0.067, 0.12, 0.17] {
            let fates = fates(rate, 3, 3_000_000);
            let lost = fates.iter().filter(|lost| **lost).count() as f64 / fates.len() as f64;
            assert!((lost / rate - 1.0).abs() < 0.05, "{rate}: {lost}");
        }
    }

    #[test]
    fn a_slot_has_its_rate_whichever_were_looked_at_before() {
        let states = Stream::new(1, "calls", "loss state");
        let (mut all, mut some) = (Chain::new(0.05), Chain::new(0.05));
        let each: Vec<_> = (0..20_000).map(|slot| all.rate(states, slot)).collect();
        for slot in (0..20_000).step_by(37) {
            assert_eq!(some.rate(states, slot), each[slot as usize]);
        }
    }
}
