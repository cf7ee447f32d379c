//! The connection's side of ECN validation (`crate::ecn`): passes on counts and fates of packets,
//! counts faults, and informs the observer and the endpoint.

use super::Connection;
use super::spaces::SpaceId;
use crate::ecn::{EcnFault, Fate};
use crate::ledger::{PacketKind, SentPacket};
use crate::observer;
use crate::wire::EcnCounts;
use std::net::IpAddr;
use units::{Ecn, Timestamp};

/// Returns the fate of a packet for ECN validation. Only 1-RTT packets count, since the peer's
/// counts are per packet number space. Losses of datagram-size probes are due to their size.
#[inline]
pub(super) fn fate(id: SpaceId, number: u64, record: &SentPacket, lost: bool) -> Option<Fate> {
    let counts = id == SpaceId::Data && record.ack_eliciting && record.kind != PacketKind::MtuProbe;
    let original = record.kind == PacketKind::Original;
    counts.then_some(Fate { number, marked: record.ect, original, lost })
}

impl Connection {
    /// Returns whether to mark the next batch, which begins with a first transmission if
    /// `original`.
    pub(super) fn marks_next(&mut self, now: Timestamp, original: bool) -> bool {
        let pto = self.pto();
        self.path.ecn.marks_next(now, pto, original)
    }

    /// Returns whether to mark a datagram of path validation or datagram-size discovery.
    pub(super) fn marks(&self, now: Timestamp) -> bool {
        self.path.ecn.marks(now, self.pto())
    }

    /// Takes the counts of an ACK frame of 1-RTT packets that raises the largest acknowledged
    /// number and newly acknowledges `marked` marked packets of the present path. Returns packets
    /// newly reported as CE.
    pub(super) fn on_ecn_counts(&mut self, marked: u64, counts: Option<EcnCounts>) -> u64 {
        let report = self.ecn.take_counts(counts);
        self.path.ecn.on_report(marked, report)
    }

    /// Lets a trial of marked packets begin or end, after the fates of packets were booked.
    pub(super) fn judge_ecn(&mut self, now: Timestamp) {
        let next = self.data.ledger.next_number();
        self.path.ecn.judge(now, next);
        self.note_ecn(now);
    }

    /// Reports a new fault of the present path and a change of its state.
    pub(super) fn note_ecn(&mut self, now: Timestamp) {
        if let Some(fault) = self.path.ecn.take_fault() {
            self.stats.ecn_failed.count(fault);
            if fault == EcnFault::Dropped {
                // The marks caused these losses, not congestion.
                self.path.controller.on_spurious_congestion(now);
            }
            if fault.is_costly() && self.path.standing.validated {
                self.ecn.on_costly_fault(self.path.standing.addresses.remote.ip());
            }
        }
        if let Some((old, new)) = self.ecn.change(self.path.ecn.state()) {
            tracing::debug!(?old, ?new, "ECN state");
            self.observe(now, &observer::Event::EcnState { old, new });
        }
    }

    /// Returns the address of a network with a new costly ECN fault, once.
    pub(crate) fn take_ecn_failure(&mut self) -> Option<IpAddr> {
        self.ecn.take_failure()
    }
}

/// Returns the codepoint of a datagram.
pub(super) fn codepoint(marked: bool) -> Ecn {
    if marked { Ecn::Ect0 } else { Ecn::NotEct }
}
