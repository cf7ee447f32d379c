//! Assignment of sessions to experiment arms. Uncapped sessions are needed to observe the
//! capacity of paths, and to measure the effect of the caps.

use core::fmt;

/// Experiment arm of a session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Arm {
    /// Uncapped, and the only source of estimates: capped sessions would only reproduce the last
    /// decision.
    Explorer,
    /// Never capped: the baseline for the effect of all caps.
    Holdout,
    /// Uncapped because the group is in a control period (switchback). Caps also affect uncapped
    /// sessions on the same bottleneck, so each group is compared with itself over time, too.
    Control,
    /// Capped at the parameters of its group.
    Treated,
}

impl Arm {
    /// All arms.
    pub const ALL: [Self; 4] = [Self::Explorer, Self::Holdout, Self::Control, Self::Treated];

    /// Name in records and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Explorer => "explorer",
            Self::Holdout => "holdout",
            Self::Control => "control",
            Self::Treated => "treated",
        }
    }
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Fractions of uncapped sessions.
///
/// ```
/// use mendcast_groups::{Arm, Shares};
///
/// let shares = Shares { explorers: 1.0, ..Shares::default() };
/// assert_eq!(shares.arm("2026-11", 7, "as64500", 0), Arm::Explorer);
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shares {
    /// Fraction of viewers that explore. More explorers learn faster but do not benefit.
    pub explorers: f64,
    /// Fraction of viewers in the hold-out.
    pub holdout: f64,
    /// Fraction of a group's periods that are control periods.
    pub control: f64,
}

impl Default for Shares {
    /// Explorers 0.1, hold-out 0.05, control periods 0.1.
    fn default() -> Self {
        Self { explorers: 0.1, holdout: 0.05, control: 0.1 }
    }
}

impl Shares {
    /// Returns the arm of a viewer's session. Explorer and hold-out are permanent per viewer.
    ///
    /// `unit` identifies the viewer and must not be under its control. The operator changes `salt`
    /// to draw new arms. `period` numbers the decision periods.
    pub fn arm(&self, salt: &str, unit: u64, group: &str, period: u64) -> Arm {
        let viewer = fraction(&[salt.as_bytes(), b"viewer", &unit.to_le_bytes()]);
        if viewer < self.explorers {
            return Arm::Explorer;
        }
        if viewer < self.explorers + self.holdout {
            return Arm::Holdout;
        }
        let turn = fraction(&[salt.as_bytes(), b"turn", group.as_bytes(), &period.to_le_bytes()]);
        if turn < self.control { Arm::Control } else { Arm::Treated }
    }
}

/// Returns a hash in 0..1: FNV-1a, finished with the last step of SplitMix64 to mix the bits.
fn fraction(parts: &[&[u8]]) -> f64 {
    let bytes = parts.iter().flat_map(|part| part.iter().copied().chain([0xff]));
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    units::mix64(hash) as f64 / 2_f64.powi(64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_met_and_viewers_keep_their_arm() {
        let shares = Shares::default();
        let mut counts = [0; 4];
        for unit in 0..20_000 {
            let arm = shares.arm("salt", unit, "BR/AS1", unit % 50);
            counts[arm as usize] += 1;
            let later = shares.arm("salt", unit, "BR/AS1", unit % 50 + 1);
            let is_sticky = |arm| matches!(arm, Arm::Explorer | Arm::Holdout);
            assert!(!is_sticky(arm) || arm == later, "{unit}");
        }
        let shares = counts.map(|count| f64::from(count) / 20_000.0);
        // Only 50 distinct periods: the share of control periods varies by a few percent.
        for (share, (wanted, error)) in
            shares.into_iter().zip([(0.1, 0.01), (0.05, 0.01), (0.085, 0.1), (0.765, 0.1)])
        {
            assert!((share - wanted).abs() < error, "{shares:?}");
        }
    }

    #[test]
    fn groups_switch_as_a_whole_and_the_salt_changes_explorers() {
        let shares = Shares { explorers: 0.0, holdout: 0.0, control: 0.5 };
        let mut turns = 0;
        for period in 0..400 {
            let arms = [1, 2, 3].map(|unit| shares.arm("", unit, "BR", period));
            assert!(arms.iter().all(|arm| *arm == arms[0]));
            turns += u32::from(arms[0] == Arm::Control);
        }
        assert!((150..250).contains(&turns), "{turns}");
        let explorers = |salt| {
            let is_one = |unit: &u64| Shares::default().arm(salt, *unit, "", 0) == Arm::Explorer;
            (0..1_000).filter(is_one).collect::<Vec<_>>()
        };
        assert_ne!(explorers("a"), explorers("b"));
    }
}
