//! Variants of the paper's policy: reading of goodput, deployment, and rules of the decision.

use core::time::Duration;

use groups::Arm;
use groups::Shares;
use groups::decide::Rules;
use groups::select::Policy;
use records::Record;

use crate::platform::session::Session;

/// Minimum packets of a session for `mendcast autoplex decide`.
pub(super) const MIN_PACKETS: i64 = 500;
/// Lifetime of a decision.
pub(super) const LIFETIME: Duration = Duration::from_secs(7_200);
/// Share of VIP users. The paper states none.
const VIP_SHARE: f64 = 0.5;

/// Meaning of the paper's word "goodput", which it does not define.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum GoodputReading {
    /// Stream bytes over the duration of the session.
    Session,
    /// Stream bytes over the time with data to send.
    Sending,
}

impl GoodputReading {
    /// Returns the goodput of a session in Mbps; `None` if it sent nothing.
    pub(super) fn of(self, record: &Record) -> Option<f64> {
        let goodput = record.delivery.goodput_mbps?;
        match self {
            Self::Session => Some(goodput),
            Self::Sending => {
                let idle = record.recovery.off_mode_ms_per_s? * 1e-3;
                Some(goodput / (1.0 - idle)).filter(|rate| rate.is_finite() && *rate >= goodput)
            }
        }
    }
}

/// Sessions that are capped. The paper's partial deployment (section 4.3) caps VIP users, and
/// low-priority sessions explore.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Deployment {
    /// All sessions.
    All,
    /// VIP users. Caps follow from low-priority sessions.
    Vip,
    /// Low-priority sessions. Caps follow from VIP users.
    LowPriority,
}

/// A variant of the paper's policy.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct PaperPolicy {
    /// Name of the selection of better sessions.
    name: &'static str,
    pub reading: GoodputReading,
    pub deployment: Deployment,
    /// Applies the rules of `mendcast autoplex decide` instead of the paper's.
    pub is_shipped: bool,
}

impl PaperPolicy {
    /// Parses `retransmission` or `goodput` and its variants, such as `goodput-sending-vip`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split('-');
        let name = match words.next()? {
            "retransmission" => Policy::LOWER_RETRANSMISSION.name,
            "goodput" => Policy::GOODPUT_PER_RTT.name,
            _ => return None,
        };
        let (reading, deployment) = (GoodputReading::Session, Deployment::All);
        let mut policy = Self { name, reading, deployment, is_shipped: false };
        for word in words {
            let is_all = policy.deployment == Deployment::All;
            match word {
                "sending" => policy.reading = GoodputReading::Sending,
                "vip" if is_all => policy.deployment = Deployment::Vip,
                "low" if is_all => policy.deployment = Deployment::LowPriority,
                "decide" => policy.is_shipped = true,
                _ => return None,
            }
        }
        Some(policy)
    }

    pub(super) fn selection(self) -> Option<Policy> {
        Policy::ALL.into_iter().find(|policy| policy.name == self.name)
    }

    /// Returns the session's arm: treated if capped.
    pub(super) fn arm(self, session: &Session) -> Arm {
        let shares = Shares { explorers: 1.0 - VIP_SHARE, holdout: 0.0, control: 0.0 };
        let is_vip = shares.arm("priority", session.viewer.unit, "", 0) == Arm::Treated;
        let is_capped = match self.deployment {
            Deployment::All => true,
            Deployment::Vip => is_vip,
            Deployment::LowPriority => !is_vip,
        };
        if is_capped { Arm::Treated } else { Arm::Explorer }
    }

    /// Returns whether sessions of this arm determine the next caps.
    pub(super) fn learns_from(self, arm: Arm) -> bool {
        self.deployment == Deployment::All || arm == Arm::Explorer
    }

    /// Returns the rules of a decision, and the number of periods that it covers.
    pub(super) fn rules(self, shipped: &Rules) -> (Rules, usize) {
        if self.is_shipped {
            return (shipped.clone(), 2);
        }
        // Each group's own sessions, however few, independent of the last decision.
        let rules =
            Rules { min_sessions: 1, parent_weight: 0.0, share: 1.0, steps: 0.0..=f64::INFINITY };
        (rules, 1)
    }

    /// Minimum packets of a session.
    pub(super) fn min_packets(self) -> i64 {
        if self.is_shipped { MIN_PACKETS } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::population::Population;
    use crate::platform::specification::Specification;

    fn sessions() -> Vec<Session> {
        let groups = include_str!("../../../../../experiments/populations/groups.toml");
        Population::new(Specification::parse(groups).expect("valid"), None).sessions(3, 400)
    }

    fn policy(text: &str) -> PaperPolicy {
        PaperPolicy::parse(text).expect("known")
    }

    #[test]
    fn variants_are_parsed() {
        let all = policy("goodput-sending-vip");
        assert_eq!((all.reading, all.deployment), (GoodputReading::Sending, Deployment::Vip));
        assert!(policy("retransmission-decide").is_shipped);
        for text in ["", "goodput-", "goodput-vip-low", "goodputs", "retransmission-other"] {
            assert_eq!(PaperPolicy::parse(text), None, "{text}");
        }
    }

    #[test]
    fn vip_and_low_priority_sessions_are_complements() {
        let [vip, low] = ["retransmission-vip", "retransmission-low"].map(policy);
        let sessions = sessions();
        let is_vip = |session: &&Session| vip.arm(session) == Arm::Treated;
        let count = sessions.iter().filter(is_vip).count();
        assert!((150..250).contains(&count), "{count}");
        assert!(sessions.iter().all(|session| vip.arm(session) != low.arm(session)));
        let learns =
            |policy: PaperPolicy| [Arm::Treated, Arm::Explorer].map(|arm| policy.learns_from(arm));
        assert_eq!(learns(vip), [false, true]);
        assert_eq!(learns(policy("goodput")), [true, true]);
    }

    #[test]
    fn goodput_while_sending_leaves_out_idle_time() {
        let mut record = Record::default();
        record.delivery.goodput_mbps = Some(2.0);
        record.recovery.off_mode_ms_per_s = Some(750.0);
        assert_eq!(GoodputReading::Session.of(&record), Some(2.0));
        assert_eq!(GoodputReading::Sending.of(&record), Some(8.0));
        record.recovery.off_mode_ms_per_s = Some(1_000.0);
        assert_eq!(GoodputReading::Sending.of(&record), None);
    }
}
