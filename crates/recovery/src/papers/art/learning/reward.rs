//! Rewards (ART, appendix A): 1/(N·R) for round N with R copies if one of them arrived, and a
//! penalty otherwise.

use crate::by_unit::ByUnit;
use crate::{RecoveryEvent, UnitKey};

/// η, the factor of the bandits' penalty (ART, section 8.1).
pub const ETA: f64 = 1.01;
/// γ, the factor of the DQN's penalty that performed best (ART, section 8.1).
pub const GAMMA: f64 = 1.05;

/// The penalty of a lost round.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Penalty {
    /// −factor / (N·R), as in the paper: *smaller* for more lost copies.
    Quotient(f64),
    /// −factor · N · R, as in its code.
    Product(f64),
}

impl Penalty {
    /// Returns the reward of `round`, from 1, with `r` copies, from 1.
    pub fn reward(self, round: u32, r: u32, arrived: bool) -> f64 {
        let cost = f64::from(round.max(1)) * f64::from(r.max(1));
        match self {
            _ if arrived => 1.0 / cost,
            Self::Quotient(factor) => -factor / cost,
            Self::Product(factor) => -factor * cost,
        }
    }
}

/// Choices for rounds in progress.
///
/// The paper rewards all rounds of a unit once it is acknowledged. Here each round is rewarded when
/// its own fate is known, with the same result earlier.
#[derive(Clone, Debug)]
pub(crate) struct Choices<T>(ByUnit<(u32, T)>);

impl<T> Default for Choices<T> {
    fn default() -> Self {
        Self(ByUnit::default())
    }
}

impl<T> Choices<T> {
    /// Notes the choice for the unit's round.
    pub(crate) fn made(&mut self, unit: UnitKey, round: u32, choice: T) {
        self.0.set(unit, (round, choice));
    }

    /// Returns the round and choice that the event settles, and whether the round arrived.
    pub(crate) fn settled(&mut self, event: &RecoveryEvent) -> Option<(u32, T, bool)> {
        let (unit, arrived) = match *event {
            RecoveryEvent::RoundLost { unit, .. } => (unit, false),
            RecoveryEvent::Finished { unit, .. } => (unit, true),
            RecoveryEvent::Abandoned { unit, .. } => {
                self.0.take(unit);
                return None;
            }
            _ => return None,
        };
        self.0.take(unit).map(|(round, choice)| (round, choice, arrived))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_penalty_falls_with_cost_in_the_paper_and_rises_in_its_code() {
        let (paper, code) = (Penalty::Quotient(1.01), Penalty::Product(1.01));
        assert_eq!(paper.reward(2, 4, true), 0.125);
        assert_eq!(code.reward(2, 4, true), 0.125);
        assert_eq!(paper.reward(1, 1, false), -1.01);
        assert_eq!(paper.reward(2, 4, false), -1.01 / 8.0);
        assert_eq!(code.reward(2, 4, false), -8.08);
    }
}
