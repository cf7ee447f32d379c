//! What the connection does with a path's ECN validation: it brings the peer's counts and the packets'
//! fates to it (`crate::ecn`), counts faults, and tells the observer and the endpoint.

use super::Connection;
use super::spaces::SpaceId;
use crate::ecn::{EcnFault, Fate};
use crate::ledger::{PacketKind, SentPacket};
use crate::observer;
use crate::wire::EcnCounts;
use std::net::IpAddr;
use units::{Ecn, Timestamp};

/// A packet as ECN validation sees it. Only 1-RTT packets are marked, since counts are per packet number
/// space, and losses of datagram-size probes are about their size.
#[inline]
pub(super) fn fate(id: SpaceId, number: u64, record: &SentPacket, lost: bool) -> Option<Fate> {
    let counts = id == SpaceId::Data && record.ack_eliciting && record.kind != PacketKind::MtuProbe;
    let original = record.kind == PacketKind::Original;
    counts.then_some(Fate { number, marked: record.ect, original, lost })
}

impl Connection {
    /// Whether the next batch is marked, which begins with a first transmission if `original`.
    pub(super) fn marks_next(&mut self, now: Timestamp, original: bool) -> bool {
        let pto = self.pto();
        self.path.ecn.marks_next(now, pto, original)
    }

    /// Whether a datagram of path validation or discovery is marked.
    pub(super) fn marks(&self, now: Timestamp) -> bool {
        self.path.ecn.marks(now, self.pto())
    }

    /// Takes the counts of an ACK frame of 1-RTT packets that raises the largest acknowledged number and
    /// newly acknowledges `marked` marked packets of the present path. Returns packets newly reported as
    /// CE.
    pub(super) fn on_ecn_counts(&mut self, marked: u64, counts: Option<EcnCounts>) -> u64 {
        let report = self.ecn.take(counts);
        self.path.ecn.on_report(marked, report)
    }

    /// The fates of packets are booked: a trial of marked packets may begin or end.
    pub(super) fn judge_ecn(&mut self, now: Timestamp) {
        let next = self.data.ledger.next_number();
        self.path.ecn.judge(now, next);
        self.note_ecn(now);
    }

    /// Tells of a fault of the present path and of a change of its state.
    pub(super) fn note_ecn(&mut self, now: Timestamp) {
        if let Some(fault) = self.path.ecn.take_fault() {
            self.stats.ecn_failed.count(fault);
            if fault == EcnFault::Dropped {
                // The losses were the marks' doing.
                self.path.controller.on_spurious_congestion(now);
            }
            if fault.is_costly() && self.path.standing.validated {
                self.ecn_failed = Some(self.path.standing.addresses.remote.ip());
            }
        }
        let (old, new) = (self.ecn_told, self.path.ecn.state());
        if let Some(new) = new.filter(|_| old != new) {
            self.ecn_told = Some(new);
            self.observe(now, &observer::Event::EcnState { old, new });
        }
    }

    /// An address in whose network ECN failed at a cost, once.
    pub(crate) fn take_ecn_failure(&mut self) -> Option<IpAddr> {
        self.ecn_failed.take()
    }
}

/// The codepoint of a datagram.
pub(super) fn codepoint(marked: bool) -> Ecn {
    if marked { Ecn::Ect0 } else { Ecn::NotEct }
}
