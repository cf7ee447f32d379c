//! Loss as calls have it: rare single losses, times in which a part of all packets is lost, and short times in
//! which nearly all of them are.
//!
//! A chain of four states steps every 20 ms and has a loss rate in each. It was fitted by maximum likelihood
//! (Baum and Welch) to the fates that the loss generator of Opus 1.6 gives at eight nominal rates, 60,000
//! packets 20 ms apart each; that generator is a recurrent network trained on the losses of real calls. Between
//! the eight rates the fit is interpolated. What it reproduces, and how well, is in its tests: given that a packet
//! was lost, how probably one is that follows 20 ms to 2 s later, and how long runs of losses are.

use core::time::Duration;

use crate::random::{Probability, Stream};

/// The time between two steps of the chain.
pub(crate) const SLOT: Duration = Duration::from_millis(20);
/// The rates for which there is a fit.
pub(crate) const RATES: core::ops::RangeInclusive<f64> = 0.01..=0.2;

const STATES: usize = 4;
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
            [0.9933, 0.0041, 0.0015, 0.0011],
            [0.0127, 0.9784, 0.0089, 0.0000],
            [0.1438, 0.0585, 0.7976, 0.0000],
            [0.2054, 0.0192, 0.0011, 0.7742],
        ],
        loss: [0.0022, 0.0135, 0.1713, 0.9932],
    },
    Fit {
        rate: 0.02,
        moves: [
            [0.9924, 0.0014, 0.0022, 0.0040],
            [0.0022, 0.9977, 0.0002, 0.0000],
            [0.0647, 0.0214, 0.8908, 0.0231],
            [0.2737, 0.0096, 0.0127, 0.7039],
        ],
        loss: [0.0001, 0.0218, 0.2419, 0.9997],
    },
    Fit {
        rate: 0.03,
        moves: [
            [0.9923, 0.0014, 0.0024, 0.0040],
            [0.0031, 0.9952, 0.0018, 0.0000],
            [0.0227, 0.0302, 0.9310, 0.0162],
            [0.1457, 0.0046, 0.0265, 0.8233],
        ],
        loss: [0.0008, 0.0304, 0.2214, 0.9931],
    },
    Fit {
        rate: 0.05,
        moves: [
            [0.9883, 0.0015, 0.0015, 0.0086],
            [0.0026, 0.9965, 0.0008, 0.0001],
            [0.0113, 0.0128, 0.9430, 0.0329],
            [0.1924, 0.0005, 0.0366, 0.7705],
        ],
        loss: [0.0006, 0.0535, 0.2003, 0.9872],
    },
    Fit {
        rate: 0.08,
        moves: [
            [0.9827, 0.0019, 0.0026, 0.0128],
            [0.0024, 0.9954, 0.0020, 0.0001],
            [0.0187, 0.0196, 0.9509, 0.0109],
            [0.1796, 0.0002, 0.0115, 0.8088],
        ],
        loss: [0.0012, 0.0778, 0.2891, 0.9915],
    },
    Fit {
        rate: 0.10,
        moves: [
            [0.9824, 0.0025, 0.0026, 0.0125],
            [0.0026, 0.9942, 0.0026, 0.0007],
            [0.0235, 0.0290, 0.9347, 0.0128],
            [0.1504, 0.0080, 0.0147, 0.8270],
        ],
        loss: [0.0022, 0.0998, 0.3284, 0.9852],
    },
    Fit {
        rate: 0.15,
        moves: [
            [0.9738, 0.0033, 0.0020, 0.0209],
            [0.0025, 0.9953, 0.0017, 0.0005],
            [0.0158, 0.0199, 0.9571, 0.0073],
            [0.1526, 0.0022, 0.0068, 0.8384],
        ],
        loss: [0.0017, 0.1480, 0.4270, 0.9879],
    },
    Fit {
        rate: 0.20,
        moves: [
            [0.9680, 0.0050, 0.0028, 0.0242],
            [0.0025, 0.9926, 0.0037, 0.0012],
            [0.0084, 0.0382, 0.9467, 0.0067],
            [0.1294, 0.0063, 0.0106, 0.8538],
        ],
        loss: [0.0030, 0.1867, 0.4746, 0.9815],
    },
];

/// The chain at one mean rate.
#[derive(Debug)]
pub(crate) struct Chain {
    /// By state, the chances that the next one is at most the first, the second, the third.
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
        let mut shares = [0.25; STATES];
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

    /// Shares lost 20, 40, 60, 100, 200, 500 ms, 1 and 2 s after a loss, of runs that are one packet long, and the
    /// 99th percentile of their lengths: 300,000 packets of the generator each (two thirds of them not fitted to).
    const MEASURED: [(f64, [f64; 8], f64, usize); 5] = [
        (0.01, [0.30, 0.20, 0.15, 0.10, 0.05, 0.01, 0.01, 0.01], 0.82, 8),
        (0.02, [0.38, 0.29, 0.24, 0.18, 0.12, 0.05, 0.02, 0.02], 0.79, 12),
        (0.05, [0.43, 0.34, 0.29, 0.24, 0.18, 0.11, 0.06, 0.05], 0.76, 13),
        (0.10, [0.44, 0.37, 0.33, 0.29, 0.23, 0.16, 0.12, 0.10], 0.75, 13),
        (0.20, [0.48, 0.42, 0.39, 0.36, 0.31, 0.26, 0.23, 0.20], 0.67, 13),
    ];

    #[test]
    fn losses_come_together_as_in_calls() {
        const LAGS: [usize; 8] = [1, 2, 3, 5, 10, 25, 50, 100];
        for (rate, shares, single, longest) in MEASURED {
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
            assert!((ones - single).abs() < 0.06 && p99.abs_diff(longest) <= 4, "{ones} {p99}");
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
