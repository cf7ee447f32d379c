//! Verdict on one sent packet: lost or not yet (RFC 9002, section 6.1). Pure: the ledger provides
//! the evidence and books the outcome.

use super::record::SentPacket;
use crate::detection::LossTrigger;
use crate::rtt::GRANULARITY;
use core::time::Duration;
use units::Timestamp;

/// Time threshold of loss detection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TimeThreshold {
    /// Time since sending. `other_path` is a lower bound for packets of a path other than the
    /// largest acknowledged packet's.
    Since { delay: Duration, other_path: Duration },
    /// Minimum distance between the send times of the packet and of the largest acknowledged one.
    /// If nothing later is in flight, the packet is lost at once.
    Between(Duration),
}

/// Loss thresholds (RFC 9002, section 6.1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thresholds {
    /// Packets acknowledged beyond it.
    pub packets: u32,
    /// Or this time passes.
    pub time: TimeThreshold,
    /// Packets sent before this do not count for persistent congestion.
    pub first_rtt_sample: Option<Timestamp>,
}

/// The largest acknowledged packet, the evidence against earlier ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evidence {
    pub largest: u64,
    pub sent: Timestamp,
    pub path: u8,
    /// Nothing later is in flight, and the rules have early retransmit.
    pub is_tail: bool,
}

/// Verdict on a packet in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PacketVerdict {
    Lost(LossTrigger),
    /// Lost at this time if its acknowledgement does not arrive; `None` without a time threshold.
    NotLostYet(Option<Timestamp>),
}

impl Evidence {
    /// Judges the packet with this number, which is lower than the largest acknowledged one.
    #[inline]
    pub(super) fn verdict(
        &self,
        now: Timestamp,
        number: u64,
        packet: &SentPacket,
        thresholds: &Thresholds,
    ) -> PacketVerdict {
        let is_same_path = packet.path == self.path;
        // The packet threshold assumes one path: different paths reorder each other's packets.
        if is_same_path && self.largest - number >= u64::from(thresholds.packets) {
            return PacketVerdict::Lost(LossTrigger::PacketThreshold);
        }
        match thresholds.time {
            TimeThreshold::Since { delay, other_path } => {
                let delay = if is_same_path { delay } else { delay.max(other_path) };
                let due = packet.time_sent + delay.max(GRANULARITY);
                if due <= now {
                    PacketVerdict::Lost(LossTrigger::TimeThreshold)
                } else {
                    PacketVerdict::NotLostYet(Some(due))
                }
            }
            TimeThreshold::Between(_) if self.is_tail => {
                PacketVerdict::Lost(LossTrigger::EarlyRetransmit)
            }
            TimeThreshold::Between(rtt) if self.sent.since(packet.time_sent) > rtt => {
                PacketVerdict::Lost(LossTrigger::TimeThreshold)
            }
            TimeThreshold::Between(_) => PacketVerdict::NotLostYet(None),
        }
    }
}

/// A run of losses without an acknowledgement inside (persistent congestion, RFC 9002, section
/// 7.6).
#[derive(Clone, Copy, Debug)]
pub(super) struct LossRun {
    /// Send time of the run's first packet.
    pub start: Option<Timestamp>,
    /// Longest time between the first and the last packet of a run in this pass.
    pub longest: Option<Duration>,
}

impl LossRun {
    /// Continues the run of the last pass, if that stopped inside one. `start` is its first send
    /// time.
    pub(super) fn resumed(start: Option<Timestamp>) -> Self {
        Self { start, longest: None }
    }

    pub(super) fn on_acked(&mut self) {
        self.start = None;
    }

    /// Counts a loss. Packets that ask for no acknowledgement and packets from before the first
    /// round-trip sample do not count (section 7.6.2).
    pub(super) fn on_lost(&mut self, packet: &SentPacket, first_rtt_sample: Option<Timestamp>) {
        let counts = first_rtt_sample.is_some_and(|first| packet.time_sent > first);
        if packet.ack_eliciting && counts {
            let start = *self.start.get_or_insert(packet.time_sent);
            self.longest = self.longest.max(Some(packet.time_sent - start));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::packet;
    use super::*;
    use LossTrigger::{EarlyRetransmit, PacketThreshold, TimeThreshold as Time};
    use PacketVerdict::{Lost, NotLostYet};

    const DELAY: Duration = Duration::from_millis(90);

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn rules(time: TimeThreshold) -> Thresholds {
        Thresholds { packets: 3, time, first_rtt_sample: None }
    }

    fn rfc() -> Thresholds {
        rules(TimeThreshold::Since { delay: DELAY, other_path: 2 * DELAY })
    }

    /// Packet 10, sent at 100 ms, is the largest acknowledged one.
    fn evidence() -> Evidence {
        Evidence { largest: 10, sent: at(100), path: 0, is_tail: false }
    }

    #[test]
    fn three_later_packets_are_the_packet_threshold() {
        let verdict = |number| evidence().verdict(at(101), number, &packet(99), &rfc());
        assert_eq!(verdict(7), Lost(PacketThreshold));
        assert_eq!(verdict(8), NotLostYet(Some(at(99) + DELAY)));
    }

    #[test]
    fn the_time_threshold_is_reached_exactly_after_the_delay() {
        let verdict = |now| evidence().verdict(now, 9, &packet(50), &rfc());
        let due = at(50) + DELAY;
        assert_eq!(verdict(due - Duration::from_nanos(1)), NotLostYet(Some(due)));
        assert_eq!(verdict(due), Lost(Time));
    }

    #[test]
    fn the_time_threshold_is_at_least_the_timer_granularity() {
        let none = TimeThreshold::Since { delay: Duration::ZERO, other_path: Duration::ZERO };
        let verdict = evidence().verdict(at(50), 9, &packet(50), &rules(none));
        assert_eq!(verdict, NotLostYet(Some(at(51))));
    }

    #[test]
    fn a_packet_past_both_thresholds_names_the_packet_threshold() {
        assert_eq!(evidence().verdict(at(999), 1, &packet(1), &rfc()), Lost(PacketThreshold));
    }

    #[test]
    fn packets_of_another_path_are_lost_by_time_alone_and_later() {
        let mut other = packet(50);
        other.path = 1;
        let due = at(50) + 2 * DELAY;
        assert_eq!(evidence().verdict(at(140), 1, &other, &rfc()), NotLostYet(Some(due)));
        assert_eq!(evidence().verdict(due, 1, &other, &rfc()), Lost(Time));
    }

    #[test]
    fn lsquic_compares_sendings_and_retransmits_early() {
        let lsquic = rules(TimeThreshold::Between(Duration::from_millis(40)));
        let tail = Evidence { is_tail: true, ..evidence() };
        assert_eq!(evidence().verdict(at(500), 9, &packet(59), &lsquic), Lost(Time));
        assert_eq!(evidence().verdict(at(500), 9, &packet(60), &lsquic), NotLostYet(None));
        assert_eq!(tail.verdict(at(101), 9, &packet(60), &lsquic), Lost(EarlyRetransmit));
    }
}
