//! Steps of a unit's life without packets, for tests of schemes.

use super::{Acked, Packet, Recovery, UnitArrival, view};
use crate::scheme::{PathState, View};
use crate::table::{CopyKind, UnitKey};
use units::Timestamp;

/// The arrival of a copy sent at this time.
pub(crate) fn arrival(sent: Timestamp, kind: CopyKind) -> Option<UnitArrival> {
    Some(UnitArrival { sent, copy: Some(kind) })
}

fn packet(number: u64, sent: Timestamp, bytes: u16, copy: Option<CopyKind>) -> Packet {
    Packet { number, sent, bytes, copy, unit: None }
}

impl Recovery<()> {
    pub(crate) fn opened(&mut self, now: Timestamp, first_sent: Timestamp, bytes: u32) -> UnitKey {
        self.open(now, first_sent, false, [bytes], &()).expect("all of it is missing")
    }

    pub(crate) fn split(&mut self, key: UnitKey, bytes: u32) -> Option<UnitKey> {
        let units = self.units.change();
        let part = units.table.split(key, bytes)?;
        *units.contents.slot(part) = vec![bytes];
        Some(part)
    }

    pub(crate) fn view(&mut self, now: Timestamp) -> View<'_> {
        view(now, self.path, &self.units.table, &self.statistics, &self.overdue, &self.recent)
    }

    pub(crate) fn packet_lost(&mut self, now: Timestamp, number: u64, sent: Timestamp) {
        self.count_loss(now, &packet(number, sent, 1_200, None));
    }

    pub(crate) fn packet_acked(
        &mut self,
        now: Timestamp,
        sent: Timestamp,
        bytes: u16,
        copy: bool,
        acked: Acked,
    ) {
        let copy = copy.then_some(CopyKind::Retransmission);
        self.acked(now, &packet(0, sent, bytes, copy), acked, &());
    }

    /// Notes that a copy arrived with a part of the missing data.
    pub(crate) fn partly_acked(&mut self, key: UnitKey) {
        self.units.change().table.on_partly_acked(key);
    }

    pub(crate) fn abandon(&mut self, now: Timestamp, key: UnitKey) {
        self.drop_unit(now, key);
    }

    pub(crate) fn counted(&mut self) {
        self.count_finished(&mut |_, _| {});
    }

    /// Returns whether a decision interval ended.
    pub(crate) fn decided(&mut self, now: Timestamp, path: PathState) -> bool {
        self.decide(now, path).is_some()
    }
}
