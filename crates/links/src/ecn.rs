//! Networks that change the ECN field or drop ECN-capable packets. Senders detect them by RFC 9000,
//! section 13.4.2.

use core::str::FromStr;

use units::{Ecn, Timestamp};

use crate::counters::Counters;
use crate::packet::Packet;
use crate::random::{DrawStream, Probability};
use crate::text::{Fields, ParseError, parse_duration};

/// Treatment of packets by their ECN field.
///
/// As text: `bleach`, `drop`, `drop:50%`, `remark` or `mark:5%`, each also with `,from=5s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EcnPolicy {
    /// The treatment.
    pub rule: EcnRule,
    /// Virtual time at which it starts. Default 0.
    pub from: Timestamp,
}

/// Treatment of packets by their ECN field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EcnRule {
    /// Sets the field to Not-ECT, which removes ECT and CE.
    Bleach,
    /// Drops packets with ECT or CE, with this probability.
    Drop(Probability),
    /// Changes ECT(0) into ECT(1).
    Remark,
    /// Changes ECT into CE with this probability, like a congested router.
    Mark(Probability),
}

impl FromStr for EcnPolicy {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        const EXPECTED: &str =
            "`bleach`, `drop`, `drop:50%`, `remark` or `mark:5%`, also with `,from=5s`";
        let (rule, settings) = text.split_once(',').unwrap_or((text, ""));
        let rule = match rule.trim().split_once(':') {
            None => match rule.trim() {
                "bleach" => Some(EcnRule::Bleach),
                "drop" => Some(EcnRule::Drop(Probability::ONE)),
                "remark" => Some(EcnRule::Remark),
                _ => None,
            },
            Some(("drop", share)) => share.parse().ok().map(EcnRule::Drop),
            Some(("mark", share)) => share.parse().ok().map(EcnRule::Mark),
            Some(_) => None,
        };
        let rule = rule.ok_or_else(|| ParseError::new(text, EXPECTED))?;
        let mut fields = Fields::new(text, settings, EXPECTED)?;
        let from = fields.optional_with("from", parse_duration)?.unwrap_or_default();
        fields.finish()?;
        Ok(Self { rule, from: Timestamp::ZERO + from })
    }
}

/// The policy of one link.
#[derive(Debug)]
pub(crate) struct EcnNode {
    policy: Option<EcnPolicy>,
    draws: DrawStream,
}

impl EcnNode {
    pub(crate) fn new(policy: Option<EcnPolicy>, seed: u64, link: &str) -> Self {
        Self { policy, draws: DrawStream::new(seed, link, "ecn") }
    }

    /// Applies the policy to packet `index`. Returns false to drop it. Counts
    /// changes, but not drops.
    #[inline]
    pub(crate) fn passes<T>(
        &self,
        now: Timestamp,
        index: u64,
        packet: &mut Packet<T>,
        counters: &mut Counters,
    ) -> bool {
        let Some(policy) = self.policy.filter(|policy| now >= policy.from) else { return true };
        if packet.ecn == Ecn::NotEct {
            return true;
        }
        match policy.rule {
            EcnRule::Bleach => {
                packet.ecn = Ecn::NotEct;
                counters.ecn_bleached.add(packet.size);
            }
            EcnRule::Drop(share) => return !share.hit(self.draws.at(index)),
            EcnRule::Remark if packet.ecn == Ecn::Ect0 => {
                packet.ecn = Ecn::Ect1;
                counters.ecn_remarked.add(packet.size);
            }
            EcnRule::Mark(share) if share.hit(self.draws.at(index)) => {
                counters.mark(packet);
            }
            EcnRule::Remark | EcnRule::Mark(_) => {}
        }
        true
    }
}

#[cfg(test)]
#[path = "ecn_tests.rs"]
mod tests;
