//! Overdue data: stream data unacknowledged past the expected time. Loss recovery may send a probe
//! copy before a later acknowledgement can tell whether the data was lost.
//!
//! An outage hides its losses until a later packet is acknowledged: after its end, the gap to the
//! next frame, and a round trip. Data lost at its beginning is overdue long before. If the round
//! trip is longer than the outage, a copy sent then arrives. The probe time-out (RFC 9002, section
//! 6.2) misses such losses, since each frame restarts it. Overdue data is not declared lost
//! (section 6.1).

use super::Connection;
use super::spaces::SpaceId;
use units::Timestamp;

impl Connection {
    /// Returns when the next packet in flight becomes overdue. `None` if that carries no
    /// information.
    pub(super) fn next_overdue(&self) -> Option<Timestamp> {
        if !self.recovery.takes_overdue() || self.handshake.is_some() {
            return None;
        }
        if self.probe_timer.is_backed_off() {
            return None;
        }
        // RFC 9000, section 13.2.2: the peer should acknowledge every second packet at once.
        // Browsers do not.
        let answered = self.data.ledger.first_expected()? + self.peer.max_ack_delay;
        let due = answered + self.path.rtt.overdue();
        self.probe_timer.is_lossy(due).then_some(due)
    }

    /// Reports overdue packets to loss recovery.
    pub(super) fn find_overdue(&mut self, now: Timestamp) {
        // Each pass consumes a packet.
        while self.next_overdue().is_some_and(|due| due <= now) {
            let Some((ledger, _, mut owners)) = self.split(SpaceId::Data) else { return };
            ledger.pass_expected(|number, record, frames| {
                owners.packet_overdue(now, number, record, frames)
            });
        }
    }
}
