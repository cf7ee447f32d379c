//! Redundancy that depends on the round alone: constant R (ART, figure 12 and section 7.1,
//! "QUIC (R = 1)"), R = 2n − 1 (OR3, the same section), R = 2n + 1 ("QUIC (R = 2n + 1)"), and the
//! constant 3 of OR3's published code.
//!
//! Replicas leave at once, and each loss signals congestion, as in plain QUIC.
//! [`crate::art::with_schedule`] adds ART's schedule and signal (ART, figure 18(b)).

use crate::range::OutOfRange;
use crate::schedule::{Replicas, Spread};
use crate::{RedundancyAdapter, Scheme, UnitKey, View};

/// Meaning of R. In ART's sections 5.2 and 6.2 R counts all copies of a round. In its section 7.1,
/// which distinguishes "QUIC" from "QUIC (R = 1)", and in its code R counts replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reading {
    /// R replicas: the level is R.
    Extra,
    /// R copies including the retransmission: the level is R − 1.
    Copies,
}

impl Reading {
    /// Returns the level for `r`; 0 if `r` is 0.
    pub fn level(self, r: u32) -> u32 {
        match self {
            Self::Extra => r,
            Self::Copies => r.saturating_sub(1),
        }
    }
}

/// Round after which R stays constant, as in ART's code.
pub(crate) const ROUNDS: u32 = 20;

/// R = `slope` · n + `offset` in round n, at least 0; n counts up to 20.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fixed {
    /// Increase of R per round.
    pub slope: u32,
    /// R of round 0.
    pub offset: i32,
    /// Meaning of R.
    pub reading: Reading,
}

impl Fixed {
    /// Returns R of a round, from 1.
    pub fn redundancy(&self, round: u32) -> u32 {
        let grown = self.slope.saturating_mul(round.clamp(1, ROUNDS));
        grown.saturating_add_signed(self.offset)
    }

    /// Returns a scheme of this name that sends replicas at once.
    pub fn scheme(self, name: &'static str) -> Scheme {
        Scheme::new(name, self, Replicas::new(Spread::AtOnce, 0))
    }
}

impl RedundancyAdapter for Fixed {
    fn level(&mut self, _: UnitKey, round: u32, _: &View<'_>) -> u32 {
        self.reading.level(self.redundancy(round))
    }
    fn explain(&self, tell: &mut dyn FnMut(&'static str, f64)) {
        tell("level", self.reading.level(self.redundancy(1)).into());
        tell("r_1", self.redundancy(1).into());
        tell("r_2", self.redundancy(2).into());
        tell("r_3", self.redundancy(3).into());
    }
}

/// "fixed": the same R in every round, 1 to 10.
///
/// # Errors
/// If R is out of range.
pub fn fixed(r: u32, reading: Reading) -> Result<Scheme, OutOfRange> {
    if !(1..=10).contains(&r) {
        return Err(OutOfRange { key: "level", allowed: "1 to 10, R of `fixed`" });
    }
    Ok(Fixed { slope: 0, offset: r.cast_signed(), reading }.scheme("fixed"))
}

/// "or3": R = 2n − 1.
pub fn or3(reading: Reading) -> Scheme {
    Fixed { slope: 2, offset: -1, reading }.scheme("or3")
}

/// "or3-code": R = 3, as in OR3's published code, where R counts replicas.
pub fn or3_code(reading: Reading) -> Scheme {
    Fixed { slope: 0, offset: 3, reading }.scheme("or3-code")
}

/// "2n+1": R = 2n + 1.
pub fn odd(reading: Reading) -> Scheme {
    Fixed { slope: 2, offset: 1, reading }.scheme("2n+1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CopyKind, Recovery, SendOpportunity};
    use units::Timestamp;

    /// Returns the replicas that leave at once in each of this number of lost rounds.
    fn replicas(scheme: Scheme, rounds: u32) -> Vec<u32> {
        let mut r = Recovery::<()>::new(scheme, None, Timestamp::ZERO);
        let now = Timestamp::from_millis(5);
        let key = r.opened(now, Timestamp::ZERO, 1_000);
        let mut sent = Vec::new();
        for _ in 0..rounds {
            r.copy_sent(now, key, CopyKind::Retransmission);
            let mut count = 0;
            while r.next_replica(now, &SendOpportunity { off_mode: false }) == Some(key) {
                r.copy_sent(now, key, CopyKind::Replica);
                count += 1;
            }
            for left in (0..=count).rev() {
                assert_eq!(r.copy_lost(now, key, CopyKind::Replica), left == 0);
            }
            sent.push(count);
        }
        sent
    }

    #[test]
    fn each_round_gets_the_copies_of_its_formula() {
        use Reading::{Copies, Extra};
        assert_eq!(replicas(or3(Extra), 4), [1, 3, 5, 7]);
        assert_eq!(replicas(or3(Copies), 4), [0, 2, 4, 6]);
        assert_eq!(replicas(odd(Extra), 3), [3, 5, 7]);
        assert_eq!(replicas(odd(Copies), 3), [2, 4, 6]);
        assert_eq!(replicas(or3_code(Extra), 3), [3, 3, 3]);
        assert_eq!(replicas(or3_code(Copies), 2), [2, 2]);
        for r in 1..=10 {
            let [extra, copies] = [Extra, Copies].map(|reading| fixed(r, reading).expect("known"));
            assert_eq!(replicas(extra, 2), [r, r]);
            assert_eq!(replicas(copies, 2), [r - 1, r - 1]);
        }
        assert!(fixed(0, Extra).is_err() && fixed(11, Extra).is_err());
    }

    #[test]
    fn r_stops_growing_after_round_20() {
        let adapter = Fixed { slope: 2, offset: 1, reading: Reading::Extra };
        assert_eq!(adapter.redundancy(20), 41);
        assert_eq!(adapter.redundancy(u32::MAX), 41);
        assert_eq!(Fixed { slope: 0, offset: -3, ..adapter }.redundancy(1), 0);
    }
}
