//! The sending side of the engine: selects units and writes their copies.

use super::{Recovery, view};
use crate::contents::{Content, Fit};
use crate::packet::Written;
use crate::scheme::{RecoveryEvent, SendOpportunity, WindowExcess};
use crate::table::{CopyKind, LostUnit, UnitKey};
use units::Timestamp;

/// Minimum ratio of path rate to stream rate at which replicas may leave before new data.
const MIN_PATH_RATIO: f64 = 1.5;

/// Fraction of recent overdue data that must be lost for its copies to precede new data. The
/// estimate starts at 0.5, so reaching it takes at least 66 packets.
const URGENT_LOSS: f64 = 0.7;

impl<C: Content> Recovery<C> {
    /// Returns the state of a transmit opportunity. `fresh` is set if new data may leave, `blocked`
    /// if flow control holds it back. Without first copies or new data, the sender is in off-mode.
    #[inline]
    pub fn opportunity(&mut self, now: Timestamp, fresh: bool, blocked: bool) -> SendOpportunity {
        let off_mode = !fresh && self.next_waiting().is_none();
        self.statistics.off_mode.set(now, off_mode, off_mode && blocked);
        SendOpportunity { off_mode }
    }

    /// Returns the waiting unit that was first sent earliest.
    #[inline]
    pub fn next_waiting(&mut self) -> Option<UnitKey> {
        if self.is_empty() { None } else { self.units.change().table.next_waiting() }
    }

    /// Returns the unfinished unit with the earliest detected loss, for a probe.
    pub fn oldest(&self) -> Option<UnitKey> {
        self.units.table.oldest()
    }

    /// Returns the unit that should get a replica now, if the guard allows it. May be
    /// called repeatedly.
    #[inline]
    pub fn next_replica(&mut self, now: Timestamp, at: &SendOpportunity) -> Option<UnitKey> {
        if self.is_empty() {
            return None;
        }
        let key = self.due_replica(now, at)?;
        let packet = self.path.packet;
        self.guard.as_mut().is_none_or(|guard| guard.allows(packet)).then_some(key)
    }

    /// Returns overdue data first, as it is older than the scheme's replicas.
    fn due_replica(&mut self, now: Timestamp, at: &SendOpportunity) -> Option<UnitKey> {
        let is_free = !self.scheme.when_idle || at.off_mode;
        let is_urgent = is_free || self.overdue.lost() > URGENT_LOSS;
        let overdue = self.units.change().table.next_overdue();
        if let Some(key) = overdue.filter(|&key| is_urgent || self.may_precede_data(key)) {
            return Some(key);
        }
        let key = self.scheme.scheduler.poll(now, at, &self.units.table)?;
        (is_free || self.may_precede_data(key)).then_some(key)
    }

    /// Returns whether a replica of this unit may leave before waiting data: if the viewer is
    /// catching up on a wide path. Seconds of media then wait, and a second loss would stop them
    /// for a round trip. Otherwise replicas add delay for as long as data waits, which is long on
    /// paths hardly wider than the stream; after an outage, the waiting data leaves soon or the
    /// path is full.
    fn may_precede_data(&self, key: UnitKey) -> bool {
        let mark = self.units.table.get(key).and_then(|unit| unit.mark);
        let stream = mark.and_then(|mark| mark.catching_up);
        stream.is_some_and(|rate| self.path.delivery_rate >= rate.scale(MIN_PATH_RATIO))
    }

    /// Returns when [`Recovery::next_replica`] must be called next, at the latest.
    pub fn next_timeout(&self) -> Option<Timestamp> {
        if self.is_empty() { None } else { self.scheme.scheduler.next_timeout() }
    }

    /// Returns which replicas may leave although the congestion window is full; none without a
    /// lost unit.
    pub fn excess(&self) -> WindowExcess {
        if self.is_empty() { WindowExcess::Never } else { self.scheme.excess }
    }

    /// Writes a copy of the unit's missing data into a packet. `write` gets one piece after
    /// another, until one does not fit. The rest of a retransmission becomes a unit of its own; the
    /// rest of other copies stays in the unit, which may have more copies outstanding.
    pub fn copy(
        &mut self,
        now: Timestamp,
        key: UnitKey,
        kind: CopyKind,
        content: &C,
        mut write: impl FnMut(&C::Piece) -> Fit<C::Piece>,
    ) -> Written {
        let units = self.units.change();
        let mut missing = units.contents.take_missing(content, key);
        if missing.is_empty() {
            units.contents.give_back(missing);
            self.end_unwritten(now, key, content);
            return Written::Over;
        }
        let kept = units.contents.slot(key);
        kept.clear();
        let mut rest = Vec::new();
        let mut written = 0;
        for piece in missing.drain(..) {
            match if rest.is_empty() { write(&piece) } else { Fit::None } {
                Fit::Whole => {
                    written += C::len(&piece);
                    kept.push(piece);
                }
                Fit::Part(head, tail) => {
                    written += C::len(&head);
                    kept.push(head);
                    rest.push(tail);
                }
                Fit::None => rest.push(piece),
            }
        }
        let is_written = !kept.is_empty();
        if !is_written || kind != CopyKind::Retransmission {
            kept.append(&mut rest);
        } else if !rest.is_empty() {
            let bytes = rest.iter().map(C::len).sum();
            if let Some(other) = units.table.split(key, bytes) {
                *units.contents.slot(other) = rest;
            }
        }
        units.contents.give_back(missing);
        if !is_written {
            return Written::NoRoom;
        }
        let unit = units.table.get(key);
        if kind == CopyKind::Replica && unit.is_some_and(LostUnit::is_first_of_overdue) {
            units.overdue_copies.set(key, written);
        }
        self.copy_sent(now, key, kind);
        Written::Copy
    }

    /// Ends a unit that has nothing missing when its turn comes.
    fn end_unwritten(&mut self, now: Timestamp, key: UnitKey, content: &C) {
        if self.units.contents.get(key).iter().any(|piece| content.is_abandoned(piece)) {
            self.drop_unit(now, key);
        } else {
            self.finish(now, key, None);
        }
    }

    /// Abandons a unit after its stream was reset.
    pub(super) fn drop_unit(&mut self, now: Timestamp, key: UnitKey) {
        let units = self.units.change();
        units.contents.slot(key).clear();
        if let Some(unit) = units.table.remove(key) {
            units.table.complete(&unit);
            self.statistics.totals.abandoned += 1;
            tracing::trace!(unit = ?key, "lost unit abandoned");
            self.scheme.scheduler.on_finished(key);
            self.scheme.adapter.on_event(&RecoveryEvent::Abandoned { now, unit: key });
        }
    }

    pub(crate) fn copy_sent(&mut self, now: Timestamp, key: UnitKey, kind: CopyKind) {
        let Some(unit) = self.units.change().table.on_copy_sent(now, key, kind) else { return };
        let (round, is_first) = (unit.round, unit.copies == 1);
        let totals = &mut self.statistics.totals;
        if is_first {
            self.statistics.losses.change().unit_times.add(now.since(unit.first_sent));
        }
        match kind {
            CopyKind::Retransmission => {
                totals.retransmissions += 1;
                totals.repeated += u64::from(round > 1);
                self.plan_replicas(now, key, round);
            }
            CopyKind::Replica => {
                totals.replicas += 1;
                if is_first {
                    self.plan_replicas(now, key, round);
                } else {
                    self.scheme.scheduler.on_replica_sent(now, key, unit);
                }
            }
            CopyKind::Probe => {
                totals.probes += 1;
                self.scheme.scheduler.on_probe_sent(now, key, unit);
            }
        }
        tracing::trace!(unit = ?key, ?kind, round, "copy sent");
        self.scheme.adapter.on_event(&RecoveryEvent::CopySent { now, unit: key, kind, round });
    }

    /// Handles a new copy of a unit taking the place of the one before it. The transport no longer
    /// declares the older copy lost, so the newest one alone decides whether the round is lost.
    pub fn superseded(&mut self, now: Timestamp, key: UnitKey) {
        self.units.change().table.on_superseded(key);
        let event = RecoveryEvent::CopySuperseded { now, unit: key };
        self.scheme.adapter.on_event(&event);
    }

    /// Asks the scheme for replicas after the first copy of a round or of overdue data.
    fn plan_replicas(&mut self, now: Timestamp, key: UnitKey, round: u32) {
        let view =
            view(now, self.path, &self.units.table, &self.statistics, &self.overdue, &self.recent);
        let level = self.scheme.adapter.level(key, round, &view);
        tracing::trace!(unit = ?key, round, level, "copies planned");
        if let Some(unit) = self.units.table.get(key) {
            self.scheme.scheduler.on_retransmitted(now, key, unit, level, &view);
        }
    }

    /// Notes that a probe repeated data of no unit, first sent at `first_sent`.
    pub fn probed(&mut self, now: Timestamp, first_sent: Timestamp) {
        self.statistics.losses.change().unit_times.add(now.since(first_sent));
    }

    /// Notes that a packet of `bytes` left; `copy` is its role if it was a copy.
    #[inline]
    pub fn sent(&mut self, now: Timestamp, bytes: u16, copy: Option<CopyKind>) {
        let (size, totals) = (u64::from(bytes), &mut self.statistics.totals);
        match copy {
            None => {
                totals.first_transmissions += 1;
                totals.first_bytes += size;
                if let Some(guard) = &mut self.guard {
                    guard.on_first_transmission(now, size, self.path.packet);
                }
            }
            Some(kind) => {
                totals.copy_bytes += size;
                if kind == CopyKind::Replica {
                    totals.replica_bytes += size;
                    if let Some(guard) = &mut self.guard {
                        guard.on_replica(size);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Acked, Packet};
    use crate::{Arq, PathState};

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// A unit with a retransmission sent at 100 ms and a replica sent at 120 ms in its place.
    fn replaced() -> (Recovery<()>, UnitKey, [Packet; 2]) {
        let mut r = Recovery::<()>::new(Arq::scheme(), None, at(0));
        let key = r.opened(at(100), at(40), 1_200);
        let copies = [(100, CopyKind::Retransmission), (120, CopyKind::Replica)];
        let copies = copies.map(|(sent, kind)| {
            r.copy_sent(at(sent), key, kind);
            let (unit, copy) = (Some(key), Some(kind));
            Packet { number: sent, sent: at(sent), bytes: 1_200, copy, unit }
        });
        r.superseded(at(120), key);
        (r, key, copies)
    }

    #[test]
    fn the_loss_of_the_newest_copy_loses_the_round() {
        let (mut r, key, [_, newest]) = replaced();
        assert_eq!(r.unit(key).map(|unit| unit.outstanding), Some(1));
        assert_eq!(r.lost(at(200), &newest, [], &mut ()).round_lost, Some(key));
        assert_eq!(r.next_waiting(), Some(key));
    }

    #[test]
    fn a_superseded_copy_that_arrives_is_no_spurious_loss_and_no_part_of_the_loss_rate() {
        let (mut r, key, [superseded, _]) = replaced();
        r.acked(at(170), &superseded, Acked::Superseded, &());
        let totals = r.statistics().totals;
        assert_eq!((totals.acked, totals.lost, totals.spurious), (0, 0, 0));
        // The data of this content is never complete, and the newest copy is still in flight.
        assert_eq!(r.unit(key).map(|unit| unit.outstanding), Some(1));
        assert_eq!(r.next_waiting(), None);
    }

    #[test]
    fn the_copy_that_arrives_first_counts_even_if_superseded() {
        let (mut r, key, [superseded, newest]) = replaced();
        // One ACK acknowledges both, the newer one first.
        let arrival = crate::recovery::arrival(newest.sent, CopyKind::Replica);
        r.finish(at(180), key, arrival);
        assert_eq!(r.just_finished().collect::<Vec<_>>(), [key]);
        r.acked(at(180), &superseded, Acked::Superseded, &());
        let _ = r.ack_done(at(180), PathState::default(), |_, _| {});
        assert_eq!(r.statistics().losses.latencies.count(), 0, "the retransmission arrived");
        assert_eq!(r.just_finished().count(), 0);
    }
}
