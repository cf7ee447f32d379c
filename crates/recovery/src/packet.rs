//! Packet reports between transport and recovery.

use crate::table::{CopyKind, LostUnit, UnitKey};
use units::Timestamp;

/// A settled ack-eliciting 1-RTT packet: acknowledged or lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Packet number.
    pub number: u64,
    /// Time of transmission.
    pub sent: Timestamp,
    /// Size in bytes.
    pub bytes: u16,
    /// Role in the unit's round, if the packet was a copy.
    pub copy: Option<CopyKind>,
    /// Unit that the packet copied; or the unit that its data became when it was overdue or
    /// declared lost.
    pub unit: Option<UnitKey>,
}

/// State of a packet when it was acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acked {
    /// In flight.
    InTime,
    /// Declared lost: the loss was spurious.
    AfterLoss,
    /// Superseded by a newer copy ([`Recovery::superseded`]). It does not enter loss rates, since
    /// the loss of such a packet is never declared.
    ///
    /// [`Recovery::superseded`]: crate::Recovery::superseded
    Superseded,
}

/// Consequences of a packet loss for the transport.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Loss {
    /// Unit that the packet's data became.
    pub opened: Option<UnitKey>,
    /// Unit that lost its round with this packet.
    pub round_lost: Option<UnitKey>,
    /// Whether the loss signals congestion.
    pub signals: bool,
}

/// Result of writing a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    /// The packet carries a copy of the unit or of a part of it.
    Copy,
    /// The packet had no room, and nothing changed.
    NoRoom,
    /// Nothing is missing from the unit: it is finished.
    Over,
}

/// Arrival of a packet with content of a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UnitArrival {
    pub(crate) sent: Timestamp,
    /// `None` if it is the packet that was declared lost.
    pub(crate) copy: Option<CopyKind>,
}

impl UnitArrival {
    /// Returns whether this is the unit's first copy. A replica sent at the same time is not,
    /// unless the unit was opened as overdue data.
    pub(crate) fn is_first(self, unit: &LostUnit) -> bool {
        let is_first_kind = match self.copy {
            Some(CopyKind::Retransmission | CopyKind::Probe) => true,
            Some(CopyKind::Replica) => unit.overdue,
            None => false,
        };
        is_first_kind && unit.first_copy == Some(self.sent)
    }
}
