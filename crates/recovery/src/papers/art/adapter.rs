//! Redundancy adapter by test and verification (ART, section 6.1). With E = R · (1 − p_r) (equation
//! 5), R rises by one if E < 1 and falls by one if E ≥ 2, before each retransmission and separately
//! for each round (R_n).
//!
//! [`Options::paper`] and [`Options::code`] cover the other differences between the paper and its
//! code. Neither has an upper limit of R: the cap is ours. The rule itself keeps R at 1 or more,
//! since E ≥ 2 is impossible at R = 1.

use super::bitmap::Bitmap;
use crate::by_unit::ByUnit;
use crate::level::fixed::{ROUNDS, Reading};
use crate::{CopyKind, RecoveryEvent, RedundancyAdapter, UnitKey, View};

/// Rules of the paper or of its code, where they differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rules {
    /// R starts at 1 in every round, R_n is independent of other rounds, and the bitmap learns the
    /// fate of every copy that R counts.
    Paper,
    /// R starts at 2n − 1. The unit's replicas of earlier rounds are subtracted from R_n, as its
    /// replica count is not reset. The bitmap learns the fates of copies, including the
    /// retransmission, only until one is acknowledged, and never of the last copy of a lost round.
    Code,
}

/// Parameters of the adapter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Rules in use.
    pub rules: Rules,
    /// Meaning of R.
    pub reading: Reading,
    /// L_queue, at least 10.
    pub queue: usize,
    /// Maximum of R, at least 1.
    pub cap: u32,
}

impl Options {
    /// Returns the paper's parameters: L_queue = 10 and R up to 10.
    pub fn paper(reading: Reading) -> Self {
        Self { rules: Rules::Paper, reading, queue: 10, cap: 10 }
    }

    /// Returns the parameters of the paper's code: L_queue = 10 and R up to 10.
    pub fn code(reading: Reading) -> Self {
        Self { rules: Rules::Code, ..Self::paper(reading) }
    }
}

/// Returns R after a step of the rule, if `lost` of `known` copies were lost. E < 1 and E ≥ 2 equal
/// the code's p_r > 1 − 1/R and p_r ≤ 1 − 2/R. If nothing is known, p_r is 0.
pub fn step(r: u32, (lost, known): (u32, u32)) -> u32 {
    let (lost, known) = if known == 0 { (0, 1) } else { (u64::from(lost), u64::from(known)) };
    let expected = u64::from(r) * known.saturating_sub(lost);
    if expected < known {
        r.saturating_add(1)
    } else if expected >= 2 * known {
        r - 1
    } else {
        r
    }
}

/// Test and verification.
#[derive(Debug)]
pub struct TestAndVerify {
    options: Options,
    bitmap: Bitmap,
    /// R_n from n = 1; later rounds share the last.
    redundancy: [u32; ROUNDS as usize],
    /// Copies in flight of unfinished units, under the code's rules.
    in_flight: ByUnit<u32>,
}

impl TestAndVerify {
    /// Creates an adapter without history.
    pub fn new(options: Options) -> Self {
        let cap = options.cap.max(1);
        let redundancy = core::array::from_fn(|before| match options.rules {
            Rules::Paper => 1,
            Rules::Code => (2 * before as u32 + 1).min(cap),
        });
        Self {
            options: Options { cap, ..options },
            bitmap: Bitmap::new(options.queue),
            redundancy,
            in_flight: ByUnit::default(),
        }
    }

    /// Returns R_n of round n, from 1.
    pub fn redundancy(&self, round: u32) -> u32 {
        self.redundancy[round.clamp(1, ROUNDS) as usize - 1]
    }

    /// Returns whether the paper's bitmap learns the fate of this kind: whether R counts it.
    fn counts(&self, kind: CopyKind) -> bool {
        match kind {
            CopyKind::Replica => true,
            CopyKind::Retransmission => self.options.reading == Reading::Copies,
            CopyKind::Probe => false,
        }
    }

    /// Returns whether the code's bitmap learns this fate.
    fn learns(&mut self, unit: UnitKey, acked: bool) -> bool {
        let Some(in_flight) = self.in_flight.get_mut(unit) else { return false };
        *in_flight = in_flight.saturating_sub(1);
        acked || *in_flight > 0
    }
}

impl RedundancyAdapter for TestAndVerify {
    fn on_event(&mut self, event: &RecoveryEvent) {
        let is_code = self.options.rules == Rules::Code;
        match *event {
            RecoveryEvent::CopySent { unit, .. } if is_code => {
                if let Some(in_flight) = self.in_flight.get_mut(unit) {
                    *in_flight += 1;
                } else {
                    self.in_flight.set(unit, 1);
                }
            }
            RecoveryEvent::CopySettled { unit, kind, acked, .. } => {
                let holds = if is_code {
                    self.learns(unit, acked) && kind != CopyKind::Probe
                } else {
                    self.counts(kind)
                };
                if holds {
                    self.bitmap.push(!acked);
                }
            }
            RecoveryEvent::CopySuperseded { unit, .. } => {
                if let Some(in_flight) = self.in_flight.get_mut(unit) {
                    *in_flight = in_flight.saturating_sub(1);
                }
            }
            RecoveryEvent::Finished { unit, .. } | RecoveryEvent::Abandoned { unit, .. } => {
                self.in_flight.take(unit);
            }
            _ => {}
        }
    }

    fn on_new_path(&mut self) {
        // Copies in flight belong to units, not to the path.
        let in_flight = core::mem::take(&mut self.in_flight);
        *self = Self { in_flight, ..Self::new(self.options) };
    }

    fn level(&mut self, unit: UnitKey, round: u32, view: &View<'_>) -> u32 {
        let r = &mut self.redundancy[round.clamp(1, ROUNDS) as usize - 1];
        *r = step(*r, self.bitmap.counts()).min(self.options.cap);
        let level = self.options.reading.level(*r);
        match self.options.rules {
            Rules::Paper => level,
            Rules::Code => {
                level.saturating_sub(view.units.get(unit).map_or(0, |unit| unit.replicas))
            }
        }
    }

    fn explain(&self, tell: &mut dyn FnMut(&'static str, f64)) {
        let loss_rate = self.bitmap.loss_rate();
        tell("level", self.options.reading.level(self.redundancy(1)).into());
        tell("p_r", loss_rate);
        tell("expected", f64::from(self.redundancy(1)) * (1.0 - loss_rate));
        tell("r_1", self.redundancy(1).into());
        tell("r_2", self.redundancy(2).into());
        tell("r_3", self.redundancy(3).into());
    }
}

#[cfg(test)]
mod tests;
