//! The ledger of sent packets of one packet-number space: which content each packet carries and
//! its fate (RFC 9002, appendix A.1), with the loss rules of RFC 9002, section 6.1.
//!
//! Every copy of lost data is an ordinary record with a fate of its own. Records stand in a deque
//! indexed by packet number; a record that was declared lost stays known for a while after the
//! deque has moved on, so that its late acknowledgement is recognised as spurious.
//!
//! If only the newest copy of a unit is watched ([`CopyAccounting`](crate::CopyAccounting)), each
//! copy supersedes the one before it ([`Ledger::supersede`]). A superseded packet is out of flight.
//! Loss detection, early retransmit, probes and persistent congestion pass over it. It is
//! remembered as long as a lost packet, and its late acknowledgement counts as a delivery.

mod lists;
mod lost;
mod record;
mod verdict;

use crate::detection::LossTrigger;
use congestion::RateStamp;
use core::ops::RangeInclusive;
use core::time::Duration;
use lists::Lists;
use lost::Lost;
pub(crate) use record::{Carried, Fate, PacketContent, PacketKind, SentFrame, SentPacket};
use recovery::{Acked, UnitKey};
use std::collections::VecDeque;
use units::Timestamp;
use verdict::{Evidence, LossRun, PacketVerdict};
pub(crate) use verdict::{Thresholds, TimeThreshold};

/// Maximum losses per pass of loss detection; the rest is due at once. A peer that lets the server
/// fill a window and acknowledges only its end must not stall other connections.
const MAX_LOSSES: u32 = 64;
/// Packets that the ledger has room for when it stops being empty: most pictures have no more.
const FIRST_CAPACITY: usize = 8;

/// Effects of an acknowledgement on the ledger.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AckOutcome {
    /// The largest number in the acknowledgement, if that packet is newly acknowledged.
    pub newly_largest: Option<SentPacketTime>,
    /// A newly acknowledged packet was ack-eliciting.
    pub any_eliciting: bool,
    /// Raises the largest acknowledged number.
    pub raises_largest: bool,
    /// Newly acknowledged packets, including ones declared lost before.
    pub newly_acked: u32,
    /// Newly acknowledged ack-eliciting packets that were in flight.
    eliciting: u32,
}

impl AckOutcome {
    #[inline]
    fn count(&mut self, is_largest: bool, record: &SentPacket, acked: Acked) {
        if is_largest {
            self.newly_largest = Some(SentPacketTime { time: record.time_sent, path: record.path });
        }
        self.newly_acked += 1;
        self.any_eliciting |= record.ack_eliciting;
        self.eliciting += u32::from(record.ack_eliciting && acked == Acked::InTime);
    }
}

/// Send time of the largest newly acknowledged packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentPacketTime {
    pub time: Timestamp,
    pub path: u8,
}

/// Protocol violation in an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadAck {
    /// Acknowledges a number beyond the largest sent.
    Unsent,
    /// Acknowledges a deliberately skipped number.
    Skipped,
}

/// Sent packets of one packet-number space.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Number of the front record.
    base: u64,
    records: VecDeque<SentPacket>,
    /// Records below this number are settled: loss detection starts here.
    settled: u64,
    /// Records below this number are overdue, or their acknowledgement would say nothing about new
    /// content.
    expected: u64,
    /// Lost and superseded packets that the deque has moved on from.
    lost: Lost,
    lists: Lists,
    pub largest_acked: Option<u64>,
    /// Send time and path of the largest acknowledged packet.
    largest_acked_sent: Timestamp,
    largest_acked_path: u8,
    /// Send time of the first packet in the run of losses at which the last pass stopped.
    run: Option<Timestamp>,
    /// Send time of the newest ack-eliciting packet.
    pub last_eliciting: Option<Timestamp>,
    /// Ack-eliciting packets in flight.
    pub eliciting_in_flight: u32,
    /// Packets since the last ack-eliciting one.
    pub plain_run: u32,
    /// Such packets since the peer last acknowledged anything.
    pub unanswered: u32,
    /// Time at which the time threshold declares the next packet lost.
    pub loss_time: Option<Timestamp>,
}

impl Ledger {
    /// The number that the next packet gets.
    #[inline]
    pub(crate) fn next_number(&self) -> u64 {
        self.base + self.records.len() as u64
    }

    /// Leaves out one packet number (RFC 9000, section 21.4).
    pub(crate) fn skip_number(&mut self) {
        self.records.push_back(SentPacket {
            time_sent: Timestamp::ZERO,
            stamp: RateStamp::default(),
            content: PacketContent::NOTHING,
            unit: None,
            kind: PacketKind::Original,
            size: 0,
            path: 0,
            ack_eliciting: false,
            ect: false,
            fate: Fate::Skipped,
        });
    }

    /// Books the packet with number [`Ledger::next_number`].
    #[inline]
    pub(crate) fn push(&mut self, record: SentPacket) {
        if record.ack_eliciting {
            self.last_eliciting = Some(record.time_sent);
            self.eliciting_in_flight += 1;
            self.plain_run = 0;
        } else {
            self.plain_run += 1;
            self.unanswered += 1;
        }
        if self.records.capacity() == 0 {
            self.records.reserve_exact(FIRST_CAPACITY);
        }
        self.records.push_back(record);
    }

    /// Keeps a list of frames.
    pub(crate) fn keep(&mut self, frames: &[SentFrame]) -> PacketContent {
        self.lists.keep(frames)
    }

    /// The oldest packet that is in flight and asks for an acknowledgement.
    pub(crate) fn oldest_eliciting(&self) -> Option<&SentPacket> {
        self.records.iter().find(|r| r.fate == Fate::Outstanding && r.ack_eliciting)
    }

    /// Returns the send time of the next expected packet: in flight, with first-transmitted stream
    /// data, and not consumed by [`Ledger::pass_expected`].
    pub(crate) fn first_expected(&self) -> Option<Timestamp> {
        let place = self.place_expected();
        // Acknowledgements move the place to an expected packet, if there is one.
        let first = self.records.get(place)?;
        if first.is_expected() {
            return Some(first.time_sent);
        }
        let mut later = self.records.range(place + 1..);
        Some(later.find(|record| record.is_expected())?.time_sent)
    }

    /// Consumes that packet. `overdue` returns the unit of its data.
    pub(crate) fn pass_expected(
        &mut self,
        overdue: impl FnOnce(u64, &SentPacket, &[SentFrame]) -> Option<UnitKey>,
    ) {
        self.skip_unexpected();
        let place = self.place_expected();
        let Some(record) = self.records.get_mut(place) else { return };
        record.unit = overdue(self.expected, record, self.lists.get(record.content));
        self.expected += 1;
    }

    fn place_expected(&self) -> usize {
        self.expected.saturating_sub(self.base) as usize
    }

    /// Skips unexpected records, which stay unexpected.
    fn skip_unexpected(&mut self) {
        let first = self.place_expected();
        let mut rest = self.records.iter().skip(first);
        let place = rest.position(|record| record.is_expected());
        let skipped = place.unwrap_or_else(|| self.records.len().saturating_sub(first));
        self.expected = self.base + (first + skipped) as u64;
    }

    /// Returns true if an ack-eliciting packet is in flight.
    #[inline]
    pub(crate) fn has_eliciting(&self) -> bool {
        self.eliciting_in_flight > 0
    }

    /// Takes an acknowledgement, ranges in descending order. `acked` is called for each newly
    /// acknowledged packet with its number, record, frames, and its state before.
    pub(crate) fn on_ack(
        &mut self,
        largest: u64,
        ranges: impl Iterator<Item = RangeInclusive<u64>>,
        mut acked: impl FnMut(u64, &SentPacket, &[SentFrame], Acked),
    ) -> Result<AckOutcome, BadAck> {
        // RFC 9000, section 13.1: acknowledging a packet that was not sent is a
        // PROTOCOL_VIOLATION.
        if largest >= self.next_number() {
            return Err(BadAck::Unsent);
        }
        let mut outcome = AckOutcome::default();
        let mut take = |number, record: &SentPacket, as_what, lists: &mut Lists| {
            outcome.count(number == largest, record, as_what);
            acked(number, record, lists.get(record.content), as_what);
            lists.release(record.content);
        };
        let mut place = self.lost.len();
        for range in ranges {
            let (start, end) = (*range.start(), *range.end());
            let oldest_known = self.oldest_number();
            if end < oldest_known {
                break;
            }
            if end >= self.base {
                let first = start.max(self.base);
                let places = (first - self.base) as usize..=(end - self.base) as usize;
                for (number, record) in (first..).zip(self.records.range_mut(places)) {
                    let Some(as_what) = record.fate.acked() else {
                        if record.fate == Fate::Skipped {
                            return Err(BadAck::Skipped);
                        }
                        continue;
                    };
                    record.fate = Fate::Acked;
                    take(number, record, as_what, &mut self.lists);
                }
                // Nearly always the oldest packets. They are removed at once, so that loss
                // detection and `trim` need not read them again.
                if first == self.base {
                    self.records.drain(..(end + 1 - self.base) as usize);
                    self.base = end + 1;
                    self.run = None;
                }
            }
            place = self.lost.place(start, place);
            while let Some((number, record)) = self.lost.take(place, end) {
                let as_what = record.fate.acked().unwrap_or(Acked::AfterLoss);
                take(number, &record, as_what, &mut self.lists);
            }
        }
        self.eliciting_in_flight -= outcome.eliciting;
        self.skip_unexpected();
        if outcome.newly_acked > 0 {
            self.unanswered = 0;
        }
        if self.largest_acked.is_none_or(|known| known < largest) {
            self.largest_acked = Some(largest);
            outcome.raises_largest = true;
            if let Some(newest) = outcome.newly_largest {
                self.largest_acked_sent = newest.time;
                self.largest_acked_path = newest.path;
            }
        }
        Ok(outcome)
    }

    /// Declares packets lost by the packet and time thresholds (RFC 9002, section 6.1), sets
    /// [`Ledger::loss_time`], and returns the span of persistent congestion (section 7.6) in this
    /// pass. If the pass stops after [`MAX_LOSSES`], the next one is due now.
    pub(crate) fn detect_lost(
        &mut self,
        now: Timestamp,
        thresholds: &Thresholds,
        mut lost: impl FnMut(u64, &SentPacket, &[SentFrame], LossTrigger) -> Option<UnitKey>,
    ) -> Option<Duration> {
        self.loss_time = None;
        let evidence = self.evidence(thresholds)?;
        let mut run = LossRun::resumed(self.run.take());
        let mut declared = 0;
        let first = self.settled.max(self.base);
        let mut end = evidence.largest.min(self.next_number()).max(first);
        let mut unsettled = None;
        for number in first..end {
            let record = &self.records[(number - self.base) as usize];
            match record.fate {
                Fate::Acked => run.on_acked(),
                Fate::Skipped | Fate::Lost | Fate::Superseded => {}
                Fate::Outstanding => match evidence.verdict(now, number, record, thresholds) {
                    PacketVerdict::NotLostYet(due) => {
                        unsettled = unsettled.or(Some(number));
                        self.loss_time = self.loss_time.into_iter().chain(due).min();
                    }
                    PacketVerdict::Lost(_) if declared == MAX_LOSSES => {
                        self.loss_time = Some(now);
                        self.run = run.start;
                        end = number;
                        break;
                    }
                    PacketVerdict::Lost(trigger) => {
                        declared += 1;
                        run.on_lost(record, thresholds.first_rtt_sample);
                        self.declare_lost(number, trigger, &mut lost);
                    }
                },
            }
        }
        self.settled = unsettled.unwrap_or(end);
        run.longest
    }

    /// Returns the evidence for a pass of loss detection.
    fn evidence(&self, thresholds: &Thresholds) -> Option<Evidence> {
        let largest = self.largest_acked?;
        let (sent, path) = (self.largest_acked_sent, self.largest_acked_path);
        let is_between = matches!(thresholds.time, TimeThreshold::Between(_));
        Some(Evidence { largest, sent, path, is_tail: is_between && self.is_tail(largest) })
    }

    fn declare_lost(
        &mut self,
        number: u64,
        trigger: LossTrigger,
        lost: &mut impl FnMut(u64, &SentPacket, &[SentFrame], LossTrigger) -> Option<UnitKey>,
    ) {
        let record = &mut self.records[(number - self.base) as usize];
        record.fate = Fate::Lost;
        let copy = *record;
        self.eliciting_in_flight -= u32::from(copy.ack_eliciting);
        let opened = lost(number, &copy, self.lists.get(copy.content), trigger);
        // A late acknowledgement of this packet finishes the unit made of its data.
        record.unit = opened.or(copy.unit);
    }

    /// Returns true if no ack-eliciting packet after `largest` is in flight.
    fn is_tail(&self, largest: u64) -> bool {
        let after = (largest + 1).saturating_sub(self.base) as usize;
        let mut later = self.records.iter().skip(after);
        !later.any(|record| record.ack_eliciting && record.fate == Fate::Outstanding)
    }

    /// Takes the copy of a unit that was sent before packet `before` out of flight, because a newer
    /// copy or the end of the unit makes its loss meaningless. Returns the copy; `None` without one
    /// in flight. Costs a scan of the packets sent since.
    pub(crate) fn supersede(&mut self, unit: UnitKey, before: u64) -> Option<SentPacket> {
        let end = (before.saturating_sub(self.base) as usize).min(self.records.len());
        let mut newest_first = self.records.range_mut(..end).rev();
        let copy = newest_first
            .find(|record| record.unit == Some(unit) && record.fate == Fate::Outstanding)?;
        copy.fate = Fate::Superseded;
        self.eliciting_in_flight -= u32::from(copy.ack_eliciting);
        Some(*copy)
    }

    /// Drops settled records from the front. Lost and superseded packets are remembered for `keep`.
    pub(crate) fn trim(&mut self, now: Timestamp, keep: Duration) {
        while let Some(front) = self.records.front() {
            match front.fate {
                Fate::Outstanding => break,
                // A skipped number guards until the packet after it is settled.
                Fate::Skipped => match self.records.get(1) {
                    Some(next) if next.fate != Fate::Outstanding => {}
                    _ => break,
                },
                Fate::Acked => {}
                Fate::Lost | Fate::Superseded => {
                    let record = *front;
                    self.lost.push(self.base, now + keep, record);
                }
            }
            self.records.pop_front();
            self.base += 1;
        }
        while let Some(forgotten) = self.lost.expire(now) {
            if let Some(record) = forgotten {
                self.lists.release(record.content);
            }
        }
        // An empty ledger takes no memory.
        if self.records.is_empty() {
            self.records = VecDeque::new();
            self.lists.shrink();
        }
    }

    /// Returns the lowest number in the ledger, or the next number if it is empty.
    pub(crate) fn oldest_number(&self) -> u64 {
        self.lost.oldest().unwrap_or(self.base)
    }

    /// Bytes in flight that were sent on this path.
    pub(crate) fn in_flight(&self, path: u8) -> u64 {
        self.records
            .iter()
            .filter(|r| r.fate == Fate::Outstanding && r.ack_eliciting && r.path == path)
            .map(|r| u64::from(r.size))
            .sum()
    }

    /// Forgets every packet, but not the numbers.
    pub(crate) fn forget(&mut self) {
        *self =
            Self { base: self.next_number(), largest_acked: self.largest_acked, ..Self::default() };
    }
}

#[cfg(test)]
mod tests;
