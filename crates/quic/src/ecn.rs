//! ECN validation of one path (RFC 9000, section 13.4.2): marks are trusted while the peer's
//! counts add up.

use crate::wire::EcnCounts;
use units::Ecn;

/// Marked packets that may go unreported before ECN is given up (RFC 9000, appendix A.4).
const TESTING: u32 = 10;

/// Whether packets are marked, and what the peer has reported so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EcnState {
    enabled: bool,
    reported: EcnCounts,
    sent: u64,
    unreported: u32,
}

impl EcnState {
    pub(crate) fn new(enabled: bool) -> Self {
        Self { enabled, reported: EcnCounts::default(), sent: 0, unreported: 0 }
    }

    /// On a new path, which is tried afresh; the peer counts for the connection, not for the path.
    pub(crate) fn count_on_from(&mut self, other: &Self) {
        (self.reported, self.sent) = (other.reported, other.sent);
    }

    /// The codepoint for the next packet.
    #[inline]
    pub(crate) fn codepoint(&self) -> Ecn {
        if self.enabled { Ecn::Ect0 } else { Ecn::NotEct }
    }

    #[inline]
    pub(crate) fn on_sent(&mut self) {
        self.sent += u64::from(self.enabled);
    }

    /// Takes the counts of an acknowledgement that newly acknowledges `marked` packets sent with
    /// ECT(0) and moves the largest acknowledged number. Returns packets newly reported as CE.
    pub(crate) fn on_ack(&mut self, marked: u32, counts: Option<EcnCounts>) -> u64 {
        if !self.enabled {
            return 0;
        }
        let Some(counts) = counts else {
            // Section 13.4.2.1: without counts for newly acknowledged marked packets validation
            // fails. A few may have passed a node that erases marks while testing.
            self.unreported += marked;
            self.enabled = self.unreported < TESTING;
            return 0;
        };
        let old = self.reported;
        let grown =
            (counts.ect0.wrapping_sub(old.ect0)).wrapping_add(counts.ce.wrapping_sub(old.ce));
        let sane = counts.ect0 >= old.ect0
            && counts.ce >= old.ce
            && counts.ect1 == old.ect1
            && counts.ect0.saturating_add(counts.ce) <= self.sent
            && grown >= u64::from(marked);
        if !sane {
            self.enabled = false;
            return 0;
        }
        self.reported = counts;
        counts.ce - old.ce
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(ect0: u64, ect1: u64, ce: u64) -> Option<EcnCounts> {
        Some(EcnCounts { ect0, ect1, ce })
    }

    fn sent(n: u32) -> EcnState {
        let mut state = EcnState::new(true);
        (0..n).for_each(|_| state.on_sent());
        state
    }

    #[test]
    fn new_ce_marks_are_reported_once() {
        let mut ecn = sent(10);
        assert_eq!(ecn.on_ack(3, counts(2, 0, 1)), 1);
        assert_eq!(ecn.on_ack(3, counts(5, 0, 1)), 0);
        assert_eq!(ecn.codepoint(), Ecn::Ect0);
    }

    #[test]
    fn counts_that_do_not_add_up_switch_ecn_off() {
        let cases: [(&str, Option<EcnCounts>); 5] = [
            ("fewer than acknowledged", counts(2, 0, 0)),
            ("more than sent", counts(11, 0, 0)),
            ("remarked to ECT(1)", counts(2, 1, 0)),
            ("huge", counts(u64::MAX, 0, u64::MAX)),
            ("one short with CE", counts(1, 0, 1)),
        ];
        for (name, reported) in cases {
            let mut ecn = sent(10);
            assert_eq!(ecn.on_ack(3, reported), 0, "{name}");
            assert_eq!(ecn.codepoint(), Ecn::NotEct, "{name}");
        }
        let mut ecn = sent(10);
        ecn.on_ack(3, counts(3, 0, 0));
        assert_eq!(ecn.on_ack(1, counts(2, 0, 2)), 0, "a count went down");
        assert_eq!(ecn.codepoint(), Ecn::NotEct);
    }

    #[test]
    fn a_path_that_erases_marks_is_noticed() {
        let mut ecn = sent(100);
        (0..9).for_each(|_| assert_eq!(ecn.on_ack(1, None), 0));
        assert_eq!(ecn.codepoint(), Ecn::Ect0);
        ecn.on_ack(1, None);
        assert_eq!(ecn.codepoint(), Ecn::NotEct);
    }
}
