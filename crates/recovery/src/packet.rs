//! What transport and recovery tell each other about packets.

use crate::table::{CopyKind, LostUnit, UnitKey};
use units::Timestamp;

/// A 1-RTT packet that asked for an acknowledgement and whose fate is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Its number.
    pub number: u64,
    /// When it was sent.
    pub sent: Timestamp,
    /// Its size in bytes.
    pub bytes: u16,
    /// What it was to its unit's round, if it was a copy.
    pub copy: Option<CopyKind>,
    /// The unit that it is a copy of; or, once it was overdue or declared lost, the one that its data
    /// became.
    pub unit: Option<UnitKey>,
}

/// When an acknowledgement came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acked {
    /// Before the packet was declared lost.
    InTime,
    /// After that: the loss was spurious.
    AfterLoss,
}

/// What the loss of a packet means to the transport.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Loss {
    /// The unit that the packet's data became.
    pub opened: Option<UnitKey>,
    /// The unit whose whole round was lost with this packet.
    pub round_lost: Option<UnitKey>,
    /// Whether the congestion controller is told of the loss.
    pub signals: bool,
}

/// Whether a copy was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    /// A copy of the unit, or of a part of it, is in the packet.
    Copy,
    /// The packet had no room for any of it; nothing changed.
    NoRoom,
    /// Nothing of the unit is missing any more: it is finished.
    Over,
}

/// A packet that arrived with content of a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Arrival {
    pub(crate) sent: Timestamp,
    /// `None` for the packet that had been declared lost.
    pub(crate) copy: Option<CopyKind>,
}

impl Arrival {
    /// Whether it is the unit's first copy. A replica of the same moment is not, unless the unit
    /// began as overdue data.
    pub(crate) fn is_first(self, unit: &LostUnit) -> bool {
        let is_first_kind = match self.copy {
            Some(CopyKind::Retransmission | CopyKind::Probe) => true,
            Some(CopyKind::Replica) => unit.overdue,
            None => false,
        };
        is_first_kind && unit.first_copy == Some(self.sent)
    }
}
