//! A trial of a path: sends marked and unmarked packets and compares their loss.
//!
//! Packets leave in pairs, one of each kind, in random order. Bursts, outages and full queues
//! therefore hit both kinds alike, and periodic loss does not hit one kind only.

/// Share of lost packets, in percent, above which a path is lossy.
pub(super) const MAX_LOST_PERCENT: u32 = 8;
/// Number of packets of each kind at the first look. Each later look is at twice as many.
const FIRST_LOOK: u32 = 8;
/// Number of packets of each kind from which a trial may end because of little loss.
const FEW_LOST_FROM: u32 = 32;
/// Number of packets of each kind that ends a trial.
const MAX_PACKETS: u32 = 256;
/// Number of datagrams that leave one by one, of both kinds. Longer trials, on fast paths,
/// alternate between batches.
const ONE_BY_ONE: u64 = 2 * MAX_PACKETS as u64;
/// Square of the least z of the two-proportion test. At 4 standard deviations equal loss rates fail
/// one look in 30,000.
const MIN_SQUARED_Z: u64 = 16;

/// Fate of a sent packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fate {
    /// 1-RTT packet number.
    pub number: u64,
    pub marked: bool,
    /// A first transmission. Trials compare only these.
    pub original: bool,
    pub lost: bool,
}

/// Packets of one kind with a known fate.
#[derive(Clone, Copy, Debug, Default)]
struct TrialSample {
    settled: u32,
    lost: u32,
}

/// Result of a look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TrialVerdict {
    /// Not enough packets.
    Open,
    /// The path drops marked packets.
    Drops,
    /// Both kinds fare alike.
    Same,
}

/// A comparison under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct EcnTrial {
    /// Number of its first packet. It also seeds the order in the pairs.
    first: u64,
    /// Batches sent.
    sent: u64,
    marked: TrialSample,
    unmarked: TrialSample,
    look: u32,
}

impl EcnTrial {
    pub(super) fn new(first: u64) -> Self {
        let (marked, unmarked) = Default::default();
        Self { first, sent: 0, marked, unmarked, look: FIRST_LOOK }
    }

    /// Returns true while each datagram leaves alone.
    pub(super) fn is_one_by_one(&self) -> bool {
        self.sent < ONE_BY_ONE
    }

    /// Returns whether to mark the next batch.
    pub(super) fn marks_next(&mut self) -> bool {
        let (pair, second) = (self.sent / 2, self.sent % 2 == 1);
        self.sent += 1;
        (mix(self.first + pair) & 1 == 1) != second
    }

    fn sample(&mut self, fate: Fate) -> Option<&mut TrialSample> {
        let counts = fate.original && fate.number >= self.first;
        counts.then_some(if fate.marked { &mut self.marked } else { &mut self.unmarked })
    }

    pub(super) fn on_fate(&mut self, fate: Fate) {
        if let Some(sample) = self.sample(fate) {
            sample.settled += 1;
            sample.lost += u32::from(fate.lost);
        }
    }

    /// Takes back a loss.
    pub(super) fn on_late(&mut self, fate: Fate) {
        if let Some(sample) = self.sample(fate) {
            sample.lost = sample.lost.saturating_sub(1);
        }
    }

    /// Compares the samples each time that their size has doubled.
    pub(super) fn verdict(&mut self) -> TrialVerdict {
        let (marked, unmarked) = (self.marked, self.unmarked);
        let size = marked.settled.min(unmarked.settled);
        if size < self.look {
            return TrialVerdict::Open;
        }
        while self.look <= size {
            self.look *= 2;
        }
        let few_lost = marked.lost * 100 <= MAX_LOST_PERCENT * marked.settled;
        if differ(marked, unmarked) {
            TrialVerdict::Drops
        } else if size >= MAX_PACKETS || size >= FEW_LOST_FROM && few_lost {
            TrialVerdict::Same
        } else {
            TrialVerdict::Open
        }
    }
}

/// Returns true if the first sample loses significantly more than the second.
fn differ(more: TrialSample, less: TrialSample) -> bool {
    let [m, l] = [more, less].map(|sample| (u64::from(sample.settled), u64::from(sample.lost)));
    let (settled, lost) = (m.0 + l.0, m.1 + l.1);
    let difference = (m.1 * l.0).saturating_sub(l.1 * m.0);
    // z² = (p₁ − p₂)² / (p (1 − p) (1/n₁ + 1/n₂)), in whole numbers.
    let spread = u128::from(m.0 * l.0) * u128::from(lost * (settled - lost));
    difference > 0
        && u128::from(difference).pow(2) * u128::from(settled) >= u128::from(MIN_SQUARED_Z) * spread
}

/// Mixes the bits of consecutive numbers (splitmix64).
fn mix(n: u64) -> u64 {
    units::mix64(n.wrapping_mul(units::GOLDEN_GAMMA))
}
