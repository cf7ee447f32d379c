//! Packet counters of a link, and the check that they balance.

use core::fmt;

use serde::Serialize;
use units::Ecn;

use crate::packet::Packet;

/// A number of packets and their bytes on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Packets.
    pub packets: u64,
    /// Bytes on the wire, including IP and UDP headers.
    pub bytes: u64,
}

impl Tally {
    #[inline]
    pub(crate) fn add(&mut self, size: u32) {
        self.packets += 1;
        self.bytes += u64::from(size);
    }

    fn plus(self, other: Self) -> Self {
        Self { packets: self.packets + other.packets, bytes: self.bytes + other.bytes }
    }
}

/// Running totals of one link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Offered by the sender.
    pub sent: Tally,
    /// Copies made by the link.
    pub duplicated: Tally,
    /// Delivered at the far end, including copies.
    pub delivered: Tally,
    /// Dropped by a full queue or by CoDel.
    pub queue_dropped: Tally,
    /// Lost by the loss model.
    pub lost: Tally,
    /// Offered during a blackhole window.
    pub blackholed: Tally,
    /// Larger than the MTU.
    pub mtu_dropped: Tally,
    /// Dropped by the policer.
    pub policed: Tally,
    /// Dropped because of their ECN field.
    pub ecn_dropped: Tally,
    /// Delivered after a packet that was sent later.
    pub reordered: Tally,
    /// Marked Congestion Experienced by the queue or the ECN policy.
    pub ecn_marked: Tally,
    /// Set to Not-ECT by the ECN policy.
    pub ecn_bleached: Tally,
    /// Changed from ECT(0) to ECT(1) by the ECN policy.
    pub ecn_remarked: Tally,
    /// Delivered with damage.
    pub corrupted: Tally,
}

impl Counters {
    /// Marks an ECN-capable packet CE. Returns false if it is not ECN-capable.
    pub(crate) fn mark<T>(&mut self, packet: &mut Packet<T>) -> bool {
        match packet.ecn {
            Ecn::NotEct => return false,
            Ecn::Ce => {}
            Ecn::Ect0 | Ecn::Ect1 => {
                packet.ecn = Ecn::Ce;
                self.ecn_marked.add(packet.size);
            }
        }
        true
    }

    /// Checks that `inside` = sent + duplicated − delivered − discarded.
    pub(crate) fn check(&self, inside: Tally) -> Result<(), Imbalance> {
        let entered = self.sent.plus(self.duplicated);
        let accounted = [
            self.delivered,
            self.queue_dropped,
            self.lost,
            self.blackholed,
            self.mtu_dropped,
            self.policed,
            self.ecn_dropped,
            inside,
        ]
        .into_iter()
        .fold(Tally::default(), Tally::plus);
        if entered == accounted { Ok(()) } else { Err(Imbalance { entered, accounted }) }
    }
}

/// Unbalanced counters of a link: a defect of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Imbalance {
    /// Sent and duplicated.
    pub entered: Tally,
    /// Delivered, discarded, or still inside.
    pub accounted: Tally,
}

impl fmt::Display for Imbalance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} packets ({} bytes) entered the link, but {} ({} bytes) are accounted for",
            self.entered.packets, self.entered.bytes, self.accounted.packets, self.accounted.bytes
        )
    }
}

impl core::error::Error for Imbalance {}
