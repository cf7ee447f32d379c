//! Who is held to the parameters, who is not, and why: without a share of sessions that are free, nobody would find
//! out what paths carry, nor what the parameters did.

use core::fmt;

/// A session's part.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Arm {
    /// Free, and the only ones that teach: whoever is bounded by the last decision would only repeat it.
    Explorer,
    /// Free at all times: what the whole does is measured against them.
    Holdout,
    /// Free because it is its group's turn to be (a switchback): sessions that share a bottleneck with bounded ones have
    /// something of their bounds, so that a group is compared with itself too.
    Control,
    /// Held to its group's parameters.
    Treated,
}

impl Arm {
    /// All parts.
    pub const ALL: [Self; 4] = [Self::Explorer, Self::Holdout, Self::Control, Self::Treated];

    /// As records and metrics name it.
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

/// How many are free.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shares {
    /// Of viewers: explorers. More learn faster, and have nothing of what is learned.
    pub explorers: f64,
    /// Of viewers: the hold-out.
    pub holdout: f64,
    /// Of a group's periods: those in which all of it is free.
    pub control: f64,
}

impl Default for Shares {
    /// A tenth explores; a twentieth of viewers, and one period in ten, are there to compare with.
    fn default() -> Self {
        Self { explorers: 0.1, holdout: 0.05, control: 0.1 }
    }
}

impl Shares {
    /// The part of a viewer's session. A viewer stays an explorer or in the hold-out: `unit` is what the viewer cannot
    /// choose, and `salt` an operator's word that makes others of them. `period` counts the periods of decisions.
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

/// A number from 0 to 1 that looks like chance: FNV-1a, and the last step of SplitMix64, which spreads its bits.
fn fraction(parts: &[&[u8]]) -> f64 {
    let bytes = parts.iter().flat_map(|part| part.iter().copied().chain([0xff]));
    let mut x = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ (x >> 31)) as f64 / 2_f64.powi(64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_come_out_and_viewers_stay_what_they_are() {
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
        // 85 % of viewers are neither, and a tenth of periods is free; of 50 periods that may be a few more or fewer.
        for (share, (wanted, error)) in
            shares.into_iter().zip([(0.1, 0.01), (0.05, 0.01), (0.085, 0.1), (0.765, 0.1)])
        {
            assert!((share - wanted).abs() < error, "{shares:?}");
        }
    }

    #[test]
    fn a_group_has_its_turn_as_a_whole_and_another_salt_makes_other_explorers() {
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
