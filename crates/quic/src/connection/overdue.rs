//! Overdue data: stream data whose acknowledgement has not come in time. Loss recovery may send a
//! copy, as a replica, before a later acknowledgement can tell whether the data was lost.
//!
//! An outage hides the losses in it until a packet behind it is acknowledged: that is its end, the gap to the next frame,
//! and a round trip later. What was lost at its beginning is overdue long before, and where the round trip is longer than
//! the outage a copy that leaves then arrives. The probe time-out (RFC 9002, section 6.2) does not see it, since each
//! frame starts it anew. Nothing is declared lost by this (section 6.1).

use super::Connection;
use super::spaces::SpaceId;
use crate::detection::LOSSY;
use crate::rtt::GRANULARITY;
use units::Timestamp;

/// What is late by so many variances of the round-trip time is overdue. The probe time-out waits for four: what that does
/// is dearer.
const VARIANCES: u32 = 3;

impl Connection {
    /// When the first packet in flight is overdue of which that was not told yet; `None` where it would say nothing.
    pub(super) fn next_overdue(&self) -> Option<Timestamp> {
        if !self.recovery.takes_overdue() || self.handshake.is_some() || self.pto_count > 0 {
            return None;
        }
        let rtt = &self.path.rtt;
        // The peer is to answer every second packet at once (RFC 9000, section 13.2.2), and browsers do not.
        let answered = self.data.ledger.first_expected()? + self.peer.max_ack_delay;
        let due = answered + rtt.smoothed() + (rtt.variance() * VARIANCES).max(GRANULARITY);
        self.last_loss.is_some_and(|at| due.since(at) < LOSSY).then_some(due)
    }

    /// Tells loss recovery what is overdue by now.
    pub(super) fn find_overdue(&mut self, now: Timestamp) {
        // Each pass leaves a packet behind.
        while self.next_overdue().is_some_and(|due| due <= now) {
            let Some((ledger, _, mut owners)) = self.split(SpaceId::Data) else { return };
            ledger.pass_expected(|number, record, frames| {
                owners.packet_overdue(now, number, record, frames)
            });
        }
    }
}
