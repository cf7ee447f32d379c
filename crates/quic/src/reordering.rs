//! Adaptive reordering thresholds, learned from spurious losses (RFC 9002, section 6.1.1: senders
//! "MAY use algorithms that adapt"; window and decay are RACK's, RFC 8985, section 6.2), and
//! detection of spurious congestion events (RFC 9438, section 4.9).
//!
//! On a path that reorders, fixed thresholds cause spurious losses, each of which retransmits data
//! and cuts the window. A late acknowledgement shows which threshold would have sufficed. The
//! thresholds are bounded, and decay while losses are genuine. A peer that acknowledges late on
//! purpose delays the repair of its own losses by at most one round-trip time.
//!
//! LSQUIC's rules adapt the packet threshold alone, and keep it.

use crate::detection::{Detection, TimeRule};
use core::time::Duration;
use units::Timestamp;

/// Maximum packet threshold.
const MAX_PACKETS: u32 = 64;
/// Maximum time threshold: two round-trip times, in eighths.
const MAX_EIGHTHS: u32 = 16;
/// Loss-detection passes with genuine losses before the thresholds halve (RFC 8985: 16).
const PERSISTENCE: u32 = 16;

/// A congestion event that may turn out to be spurious.
#[derive(Clone, Copy, Debug)]
struct Episode {
    /// Packets sent up to here belong to it.
    until: Timestamp,
    /// Losses that raised it and were not taken back.
    open: u32,
}

/// Reordering observed on one path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reordering {
    /// Beyond the rules' own.
    packets: u32,
    eighths: u32,
    genuine: u32,
    /// The packet threshold never decays (LSQUIC).
    keeps: bool,
    episode: Option<Episode>,
}

impl Reordering {
    /// The rules with the patience that this path needs.
    pub(crate) fn adapt(&self, mut rules: Detection) -> Detection {
        rules.packets += self.packets;
        if let TimeRule::SinceSent { eighths } = &mut rules.time {
            *eighths += self.eighths;
        }
        rules
    }

    /// Handles the acknowledgement of a packet declared lost, `behind` numbers below the newest and
    /// `age` after its sending. With LSQUIC's rules, the newest is that of earlier ACKs.
    pub(crate) fn on_spurious(
        &mut self,
        rules: &Detection,
        behind: u64,
        age: Duration,
        rtt: Duration,
    ) {
        let behind = u32::try_from(behind).unwrap_or(u32::MAX).saturating_add(1);
        let wanted = behind.min(MAX_PACKETS).saturating_sub(rules.packets);
        self.packets = self.packets.max(wanted);
        let TimeRule::SinceSent { eighths } = rules.time else {
            self.keeps = true;
            return;
        };
        let share = age.as_nanos() * 8 / rtt.as_nanos().max(1) + 1;
        let wanted = u32::try_from(share).unwrap_or(u32::MAX).min(MAX_EIGHTHS);
        self.eighths = self.eighths.max(wanted.saturating_sub(eighths));
        self.genuine = 0;
    }

    /// Handles a loss-detection pass that signalled congestion, with `lost` losses, the newest of
    /// them sent at `newest`.
    pub(crate) fn on_congestion(&mut self, now: Timestamp, newest: Timestamp, lost: u32) {
        match &mut self.episode {
            Some(episode) if newest <= episode.until => episode.open += lost,
            _ => self.episode = Some(Episode { until: now, open: lost }),
        }
        self.genuine += 1;
        if self.genuine >= PERSISTENCE && !self.keeps {
            self.genuine = 0;
            self.packets /= 2;
            self.eighths /= 2;
        }
    }

    /// Handles a spurious loss that had signalled congestion. Returns true if all losses of the
    /// congestion event were spurious.
    pub(crate) fn on_taken_back(&mut self, sent: Timestamp) -> bool {
        let Some(episode) = self.episode.as_mut().filter(|e| sent <= e.until) else { return false };
        episode.open = episode.open.saturating_sub(1);
        let is_void = episode.open == 0;
        if is_void {
            self.episode = None;
        }
        is_void
    }

    /// Accepts the congestion event as genuine.
    pub(crate) fn forget_episode(&mut self) {
        self.episode = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Detection = Detection::RFC9002;
    const RTT: Duration = Duration::from_millis(80);

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn thresholds(reordering: &Reordering) -> (u32, u32) {
        let rules = reordering.adapt(RULES);
        let TimeRule::SinceSent { eighths } = rules.time else {
            unreachable!("the rules of RFC 9002")
        };
        (rules.packets, eighths)
    }

    #[test]
    fn patience_is_what_would_have_been_enough_and_bounded() {
        let mut reordering = Reordering::default();
        assert_eq!(thresholds(&reordering), (3, 9));
        reordering.on_spurious(&RULES, 9, RTT, RTT);
        assert_eq!(thresholds(&reordering), (10, 9));
        reordering.on_spurious(&RULES, 5, RTT * 3 / 2, RTT);
        assert_eq!(thresholds(&reordering), (10, 13));
        reordering.on_spurious(&RULES, u64::MAX, RTT * 1_000_000, Duration::ZERO);
        assert_eq!(thresholds(&reordering), (64, 16));
    }

    #[test]
    fn patience_goes_back_while_losses_are_genuine() {
        let mut reordering = Reordering::default();
        reordering.on_spurious(&RULES, 100, RTT * 2, RTT);
        for n in 0..10 * u64::from(PERSISTENCE) {
            reordering.on_congestion(at(n), at(n), 1);
        }
        assert_eq!(thresholds(&reordering), (3, 9));
    }

    #[test]
    fn the_packet_threshold_of_lsquic_grows_within_its_bound_and_stays() {
        let mut reordering = Reordering::default();
        let rules = |reordering: &Reordering| reordering.adapt(Detection::LSQUIC);
        reordering.on_spurious(&Detection::LSQUIC, 3, RTT * 2, RTT);
        assert_eq!(rules(&reordering), Detection::LSQUIC, "lost by another rule");
        reordering.on_spurious(&Detection::LSQUIC, 9, RTT * 2, RTT);
        for n in 0..10 * u64::from(PERSISTENCE) {
            reordering.on_congestion(at(n), at(n), 1);
        }
        assert_eq!(rules(&reordering), Detection { packets: 10, ..Detection::LSQUIC });
        reordering.on_spurious(&Detection::LSQUIC, u64::MAX, RTT * 2, RTT);
        assert_eq!(rules(&reordering).packets, MAX_PACKETS);
    }

    #[test]
    fn an_event_is_void_when_all_of_its_losses_were_none() {
        let mut reordering = Reordering::default();
        reordering.on_congestion(at(100), at(90), 2);
        assert!(!reordering.on_taken_back(at(80)));
        reordering.on_congestion(at(110), at(95), 1);
        assert!(!reordering.on_taken_back(at(90)));
        assert!(!reordering.on_taken_back(at(105)), "of no event yet");
        assert!(reordering.on_taken_back(at(95)));
        assert!(!reordering.on_taken_back(at(95)), "it is over");
    }
}
