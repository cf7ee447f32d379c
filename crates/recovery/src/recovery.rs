//! The engine: the life of lost units from the loss of a packet to the acknowledgement of the last
//! missing byte. The crate's documentation lists the calls of [`Recovery`] and their order.
//! `sending` handles transmit opportunities.

mod lost_units;
mod sending;

use crate::contents::Content;
use crate::correlation::LossCorrelation;
use crate::guard::Guard;
use crate::interval::DecisionInterval;
use crate::on_demand::OnDemand;
use crate::overdue::{Fates, Overdue};
use crate::packet::{Acked, Loss, Packet, UnitArrival};
use crate::recent::RecentLoss;
use crate::scheme::{
    Expected, IntervalMetrics, LossSignal, PathState, RecoveryEvent, Scheme, View,
};
use crate::statistics::Statistics;
use crate::table::{CopyKind, LostUnit, UnitKey, UnitTable};
use lost_units::{Finished, LostUnits};
use units::Timestamp;

/// Recovery state of a connection: lost units, their contents, and the scheme.
#[derive(Debug)]
pub struct Recovery<C: Content> {
    units: OnDemand<LostUnits<C::Piece>>,
    scheme: Scheme,
    guard: Option<Guard>,
    path: PathState,
    statistics: Statistics,
    interval: DecisionInterval,
    /// Start of the current path. Packets sent earlier say nothing about it.
    path_began: Timestamp,
    recent: RecentLoss,
    overdue: Fates,
}

fn view<'a>(
    now: Timestamp,
    path: PathState,
    units: &'a UnitTable,
    statistics: &'a Statistics,
    fates: &Fates,
    recent: &RecentLoss,
) -> View<'a> {
    View {
        path,
        units,
        longest_burst: statistics.losses.bursts.recent(now, path.smoothed_rtt),
        correlation: statistics.correlation.as_ref(),
        overdue_lost: fates.lost(),
        loss_rate: recent.rate(now),
    }
}

impl<C: Content> Recovery<C> {
    /// Creates the state of a new connection. `guard` limits the replicas of `scheme`; without it,
    /// a hostile peer can provoke any number.
    pub fn new(scheme: Scheme, guard: Option<Guard>, now: Timestamp) -> Self {
        let correlation = scheme.correlation.then(LossCorrelation::default);
        Self {
            units: OnDemand::default(),
            scheme,
            guard,
            path: PathState::default(),
            statistics: Statistics { correlation, ..Statistics::default() },
            interval: DecisionInterval::new(now),
            path_began: now,
            recent: RecentLoss::new(now),
            overdue: Fates::default(),
        }
    }

    /// Replaces the scheme. Unfinished units continue under the new one, without the old one's
    /// plans.
    pub fn set_scheme(&mut self, scheme: Scheme) {
        if scheme.correlation != self.statistics.correlation.is_some() {
            self.statistics.correlation = scheme.correlation.then(LossCorrelation::default);
        }
        tracing::debug!(from = self.scheme.name, to = scheme.name, "scheme");
        self.scheme = scheme;
    }

    /// Sets expectations from an earlier connection. Must follow [`Recovery::set_scheme`].
    pub fn expect(&mut self, expected: &Expected) {
        if let (Some(correlation), Some(chances)) =
            (&mut self.statistics.correlation, expected.chances)
        {
            correlation.expect(chances);
        }
        self.scheme.adapter.on_expected(expected);
        self.scheme.scheduler.on_expected(self.scheme.adapter.ceiling());
    }

    /// Returns the name of the current scheme.
    pub fn scheme(&self) -> &'static str {
        self.scheme.name
    }

    /// Returns the statistics of the connection.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Returns the limit on replicas, if any.
    pub fn guard(&self) -> Option<&Guard> {
        self.guard.as_ref()
    }

    /// Passes the names and values that determined the scheme's decisions to `tell`.
    pub fn explain(&self, tell: &mut dyn FnMut(&'static str, f64)) {
        self.scheme.adapter.explain(tell);
        self.scheme.scheduler.explain(tell);
        if let Some(guard) = &self.guard {
            tell("guard_budget_bytes", guard.budget() as f64);
            tell("guard_refusals", guard.refusals() as f64);
        }
    }

    /// Returns the unit while it is unfinished.
    pub fn unit(&self, key: UnitKey) -> Option<&LostUnit> {
        self.units.table.get(key)
    }

    /// Returns the number of unfinished units.
    pub fn len(&self) -> usize {
        self.units.table.len()
    }

    /// Returns whether there is no unfinished unit.
    pub fn is_empty(&self) -> bool {
        self.units.table.is_empty()
    }

    /// Handles the loss of a packet that carried `pieces`. Their missing parts become a unit. If
    /// the packet was a copy, its unit may lose its round instead.
    pub fn lost(
        &mut self,
        now: Timestamp,
        packet: &Packet,
        pieces: impl IntoIterator<Item = C::Piece>,
        content: &mut C,
    ) -> Loss {
        self.count_loss(now, packet);
        let Some(kind) = packet.copy else {
            if let Some(key) = packet.unit {
                self.overdue_lost(key);
                return Loss { opened: None, round_lost: None, signals: true };
            }
            let opened = self.open(now, packet.sent, false, pieces, content);
            return Loss { opened, round_lost: None, signals: true };
        };
        // A probe without a unit repeated data, and the data's own packet is still tracked.
        let round_lost = packet.unit.filter(|&key| {
            self.settle(now, key, None, &*content);
            self.copy_lost(now, key, kind)
        });
        if let Some(key) = round_lost
            && self.units.table.get(key).is_some_and(|unit| unit.round == 2)
        {
            for piece in self.units.contents.get(key) {
                content.detach(piece);
            }
        }
        // A lost round is one signal.
        let signals = match self.scheme.signal {
            LossSignal::Every => true,
            LossSignal::WhollyLost => round_lost.is_some(),
            LossSignal::WhollyLostUnlessHeavy => round_lost.is_some() || self.recent.is_heavy(),
        };
        Loss { opened: None, round_lost, signals }
    }

    /// Returns whether [`Recovery::overdue`] should be called.
    #[inline]
    pub fn takes_overdue(&self) -> bool {
        self.scheme.overdue
    }

    /// Handles a packet in flight with an overdue acknowledgement; all `pieces` must be first
    /// transmissions. Their missing parts become a unit if the scheme wants a copy. Until the
    /// packet is declared lost, this copy is a replica, sent by [`Recovery::next_replica`].
    pub fn overdue(
        &mut self,
        now: Timestamp,
        packet: &Packet,
        pieces: impl IntoIterator<Item = C::Piece>,
        content: &mut C,
    ) -> Option<UnitKey> {
        let mut pieces = pieces.into_iter().peekable();
        let data = Overdue {
            first_sent: packet.sent,
            mark: pieces.peek().and_then(|piece| content.mark(piece)),
        };
        self.overdue.on_overdue(packet.number);
        let view =
            view(now, self.path, &self.units.table, &self.statistics, &self.overdue, &self.recent);
        if !self.scheme.scheduler.wants_overdue(now, &data, &view) {
            return None;
        }
        self.open(now, packet.sent, true, pieces, content)
    }

    /// Handles the loss of an overdue unit's packet. A copy that has left was the retransmission.
    fn overdue_lost(&mut self, key: UnitKey) {
        let units = self.units.change();
        units.table.on_overdue_lost(key);
        let Some(bytes) = units.overdue_copies.take(key) else { return };
        let totals = &mut self.statistics.totals;
        totals.replica_bytes = totals.replica_bytes.saturating_sub(bytes.into());
        totals.replicas = totals.replicas.saturating_sub(1);
        totals.retransmissions += 1;
        if let Some(guard) = &mut self.guard {
            guard.give_back(bytes.into());
        }
    }

    pub(crate) fn count_loss(&mut self, now: Timestamp, packet: &Packet) {
        let statistics = &mut self.statistics;
        statistics.totals.lost += 1;
        statistics.losses.change().bursts.on_lost(now, self.path.smoothed_rtt, packet.number);
        if packet.sent < self.path_began {
            return;
        }
        if let Some(correlation) = &mut statistics.correlation {
            correlation.on_settled(packet.sent, true);
        }
        if packet.copy.is_none() {
            self.overdue.on_settled(packet.number, true);
        }
        self.recent.count(now, packet.copy, true);
    }

    fn open(
        &mut self,
        now: Timestamp,
        first_sent: Timestamp,
        overdue: bool,
        pieces: impl IntoIterator<Item = C::Piece>,
        content: &C,
    ) -> Option<UnitKey> {
        let units = self.units.change();
        let missing = units.contents.missing_of(content, pieces);
        let mark = content.mark(missing.first()?);
        let bytes = missing.iter().map(C::len).sum();
        let unit = if overdue { LostUnit::overdue } else { LostUnit::new };
        let key = units.table.insert(unit(first_sent, now, bytes, mark));
        units.contents.open(key);
        self.statistics.totals.units += 1;
        tracing::trace!(unit = ?key, bytes, overdue, "lost unit opened");
        self.scheme.adapter.on_event(&RecoveryEvent::Opened { now, unit: key });
        Some(key)
    }

    /// Handles the loss of a copy; its unit may be finished. Returns whether the round is lost: the
    /// unit then waits for the first copy of the next round.
    pub(crate) fn copy_lost(&mut self, now: Timestamp, key: UnitKey, kind: CopyKind) -> bool {
        self.statistics.totals.replicas_lost += u64::from(kind == CopyKind::Replica);
        let event = RecoveryEvent::CopySettled { now, unit: key, kind, acked: false };
        self.scheme.adapter.on_event(&event);
        let answers_each = self.scheme.answers_each;
        let Some((round, is_lost)) = self.units.change().table.on_copy_lost(key, answers_each)
        else {
            return false;
        };
        if is_lost {
            tracing::trace!(unit = ?key, round, "round lost");
            self.scheme.scheduler.on_finished(key);
            let event = RecoveryEvent::RoundLost { now, unit: key, round };
            self.scheme.adapter.on_event(&event);
        }
        is_lost
    }

    /// Handles the acknowledgement of a packet. `content` must already reflect it.
    #[inline]
    pub fn acked(&mut self, now: Timestamp, packet: &Packet, acked: Acked, content: &C) {
        let statistics = &mut self.statistics;
        statistics.totals.acked += u64::from(acked != Acked::Superseded);
        if packet.copy.is_none() {
            statistics.totals.goodput_bytes += u64::from(packet.bytes);
        }
        let is_here = packet.sent >= self.path_began;
        match acked {
            Acked::AfterLoss => {
                statistics.totals.lost = statistics.totals.lost.saturating_sub(1);
                statistics.totals.spurious += 1;
                if is_here {
                    self.recent.take_back(now, packet.copy);
                }
            }
            Acked::InTime if is_here => {
                if let Some(correlation) = &mut statistics.correlation {
                    correlation.on_settled(packet.sent, false);
                }
                if packet.copy.is_none() {
                    self.overdue.on_settled(packet.number, false);
                }
                self.recent.count(now, packet.copy, false);
            }
            Acked::InTime | Acked::Superseded => {}
        }
        if let Some(key) = packet.unit {
            self.unit_acked(now, key, packet, acked, content);
        }
    }

    fn unit_acked(
        &mut self,
        now: Timestamp,
        key: UnitKey,
        packet: &Packet,
        acked: Acked,
        content: &C,
    ) {
        let arrival = UnitArrival { sent: packet.sent, copy: packet.copy };
        match (packet.copy, acked) {
            (Some(kind), Acked::InTime) => self.copy_acked(now, key, kind, packet.sent),
            (Some(kind), Acked::Superseded) => self.copy_arrived(key, kind, packet.sent),
            _ => {}
        }
        if !self.settle(now, key, Some(arrival), content) && acked == Acked::InTime {
            // The copy carried only a part of the missing data.
            self.units.change().table.on_partly_acked(key);
        }
    }

    pub(crate) fn copy_acked(
        &mut self,
        now: Timestamp,
        key: UnitKey,
        kind: CopyKind,
        sent: Timestamp,
    ) {
        self.copy_arrived(key, kind, sent);
        let event = RecoveryEvent::CopySettled { now, unit: key, kind, acked: true };
        self.scheme.adapter.on_event(&event);
    }

    fn copy_arrived(&mut self, key: UnitKey, kind: CopyKind, sent: Timestamp) {
        let arrival = UnitArrival { sent, copy: Some(kind) };
        self.statistics.totals.replicas_acked += u64::from(kind == CopyKind::Replica);
        // One ACK may acknowledge several copies, in any order.
        if let Some(Finished { unit, by, .. }) =
            self.units.change().finished.iter_mut().find(|f| f.key == key)
            && by.is_some_and(|by| arrival.sent < by.sent || arrival.is_first(unit))
        {
            *by = Some(arrival);
        }
    }

    /// Returns the units that the acknowledgement being processed has finished.
    pub fn just_finished(&self) -> impl Iterator<Item = UnitKey> {
        self.units.finished.iter().map(|finished| finished.key)
    }

    /// Finishes the unit if nothing is missing. Returns whether it is finished.
    fn settle(
        &mut self,
        now: Timestamp,
        key: UnitKey,
        by: Option<UnitArrival>,
        content: &C,
    ) -> bool {
        if self.units.table.get(key).is_none() {
            return true;
        }
        let contents = &mut self.units.change().contents;
        let missing = contents.take_missing(content, key);
        let is_over = missing.is_empty();
        contents.give_back(missing);
        if is_over {
            self.finish(now, key, by);
        }
        is_over
    }

    pub(crate) fn finish(&mut self, now: Timestamp, key: UnitKey, by: Option<UnitArrival>) {
        let units = self.units.change();
        units.contents.slot(key).clear();
        if let Some(unit) = units.table.remove(key) {
            self.scheme.scheduler.on_finished(key);
            let (rounds, copies) = (unit.round, unit.copies);
            tracing::trace!(unit = ?key, rounds, copies, "lost unit recovered");
            let state = unit.clone();
            self.scheme.adapter.on_event(&RecoveryEvent::Finished { now, unit: key, state });
            units.finished.push(Finished { key, unit, at: now, by });
        }
    }

    /// Completes an ACK after its packets were reported with [`Recovery::acked`] and
    /// [`Recovery::lost`]. Passes finished units and their times to `each`. If the decision
    /// interval has lasted for [`RedundancyAdapter::interval_rtts`] smoothed round-trip times, the
    /// scheme decides again, and the interval's metrics are returned.
    ///
    /// [`RedundancyAdapter::interval_rtts`]: crate::RedundancyAdapter::interval_rtts
    pub fn ack_done(
        &mut self,
        now: Timestamp,
        path: PathState,
        mut each: impl FnMut(Timestamp, &LostUnit),
    ) -> Option<IntervalMetrics> {
        self.count_finished(&mut each);
        if let Some(correlation) = &mut self.statistics.correlation {
            correlation.on_all_settled();
        }
        self.decide(now, path)
    }

    /// Ends the decision interval if it has lasted long enough.
    fn decide(&mut self, now: Timestamp, path: PathState) -> Option<IntervalMetrics> {
        self.path = path;
        let length = path.smoothed_rtt * self.scheme.adapter.interval_rtts();
        let metrics = self.interval.close(now, length, &self.statistics)?;
        let view =
            view(now, path, &self.units.table, &self.statistics, &self.overdue, &self.recent);
        self.scheme.adapter.on_interval(&metrics, &view);
        self.scheme.scheduler.on_interval(&metrics, self.scheme.adapter.ceiling());
        Some(metrics)
    }

    fn count_finished(&mut self, each: &mut impl FnMut(Timestamp, &LostUnit)) {
        if self.units.finished.is_empty() {
            return;
        }
        let mut all = core::mem::take(&mut self.units.change().finished);
        for finished in all.drain(..) {
            each(finished.at, &finished.unit);
            self.count(&finished.unit, finished.by);
        }
        self.units.change().finished = all;
    }

    fn count(&mut self, unit: &LostUnit, by: Option<UnitArrival>) {
        let statistics = &mut self.statistics;
        if let Some((round, copies)) = self.units.change().table.complete(unit) {
            let totals = &mut statistics.totals;
            totals.finished += 1;
            totals.finished_late += u64::from(round > 1);
            totals.rounds += u64::from(round);
            totals.copies += u64::from(copies);
            totals.rounds_max = totals.rounds_max.max(round);
            self.interval.on_finished(round);
        }
        match by {
            // The packet declared lost has arrived: the loss was spurious.
            Some(UnitArrival { copy: None, .. }) => {
                if let Some(first) = unit.first_copy {
                    statistics.losses.change().unit_times.remove(first.since(unit.first_sent));
                }
                return;
            }
            Some(by) if !by.is_first(unit) => {
                statistics.losses.change().latencies.add(by.sent.since(unit.detected));
            }
            _ => {}
        }
        statistics.totals.goodput_bytes += u64::from(unit.bytes);
    }

    /// Resets estimates after a migration to a new path. Unfinished units remain.
    pub fn on_new_path(&mut self, now: Timestamp) {
        self.interval.restart(now, &self.statistics);
        if let Some(correlation) = &mut self.statistics.correlation {
            *correlation = LossCorrelation::default();
        }
        tracing::debug!("estimates reset: new path");
        self.path_began = now;
        self.recent = RecentLoss::new(now);
        self.overdue = Fates::default();
        self.scheme.adapter.on_new_path();
        self.scheme.scheduler.on_new_path();
    }

    /// Drops all units because the connection is closed. Statistics remain.
    pub fn close(&mut self) {
        self.units = OnDemand::default();
    }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
pub(crate) use testing::arrival;
#[cfg(test)]
mod tests;
