//! Record of one sent packet: content, kind and fate.

use crate::streams::{ControlFrame, StreamRange};
use congestion::RateStamp;
use recovery::{Acked, CopyKind, UnitKey};
use units::{StreamId, Timestamp};

/// A frame whose acknowledgement or loss has consequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SentFrame {
    /// Stream data.
    Stream(StreamRange),
    /// A frame of the stream layer, resent with its latest value.
    Control(ControlFrame),
    /// Handshake bytes.
    Crypto { offset: u64, len: u16 },
    /// An acknowledgement up to `largest`. Once received, older ranges can be dropped.
    Ack { largest: u64 },
    /// NEW_CONNECTION_ID with this sequence number.
    NewConnectionId(u64),
    /// RETIRE_CONNECTION_ID with this sequence number.
    RetireConnectionId(u64),
    /// HANDSHAKE_DONE.
    HandshakeDone,
    /// NEW_TOKEN with the token of this slot and generation.
    NewToken { slot: u8, generation: u32 },
}

/// Content of a packet. The common case, one STREAM frame, is stored inline.
///
/// Two impossible ranges serve instead of enum variants: the compiler writes enum payloads in
/// overlapping moves, which the processor cannot forward to subsequent reads. That cost a tenth of
/// the time per packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PacketContent(StreamRange);

/// [`PacketContent`] as an enum for matching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carried {
    /// Nothing to retransmit.
    Nothing,
    /// One STREAM frame.
    Stream(StreamRange),
    /// Several things: a key into the ledger's lists.
    List(u32),
}

impl PacketContent {
    /// Nothing to retransmit: a range without bytes or FIN.
    pub(crate) const NOTHING: Self =
        Self(StreamRange { slot: 0, id: StreamId(0), offset: 0, len: 0, fin: false });
    /// More than a datagram holds.
    const LIST: u16 = u16::MAX;

    /// One STREAM frame, which has bytes or an end.
    #[inline]
    pub(crate) fn stream(range: StreamRange) -> Self {
        debug_assert!(range.len < Self::LIST && (range.len > 0 || range.fin));
        Self(range)
    }

    /// Several things: a key into the ledger's lists.
    pub(super) fn list(key: u32) -> Self {
        Self(StreamRange { slot: key, len: Self::LIST, ..Self::NOTHING.0 })
    }

    #[inline]
    pub(crate) fn is_nothing(&self) -> bool {
        self.0.len == 0 && !self.0.fin
    }

    #[inline]
    pub(crate) fn get(&self) -> Carried {
        match self.0 {
            range if range.len == Self::LIST => Carried::List(range.slot),
            _ if self.is_nothing() => Carried::Nothing,
            range => Carried::Stream(range),
        }
    }
}

/// Kind of packet, apart from its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketKind {
    /// First transmission, or frames that have no unit.
    Original,
    /// A copy of a lost unit.
    Copy(CopyKind),
    /// A datagram-size probe (RFC 8899): its loss signals nothing.
    MtuProbe,
}

impl PacketKind {
    /// The role of a copy in its round.
    #[inline]
    pub(crate) fn copy(self) -> Option<CopyKind> {
        match self {
            Self::Copy(kind) => Some(kind),
            Self::Original | Self::MtuProbe => None,
        }
    }
}

/// Fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Outstanding,
    Acked,
    Lost,
    /// Out of flight, because a newer copy of its unit took its place. Its loss is never declared,
    /// and a late acknowledgement counts as a delivery.
    Superseded,
    /// A number never used, to catch acknowledgements of packets that were not received.
    Skipped,
}

impl Fate {
    /// Returns what an acknowledgement means for a packet with this fate; `None` if nothing.
    #[inline]
    pub(super) fn acked(self) -> Option<Acked> {
        match self {
            Self::Outstanding => Some(Acked::InTime),
            Self::Lost => Some(Acked::AfterLoss),
            Self::Superseded => Some(Acked::Superseded),
            Self::Acked | Self::Skipped => None,
        }
    }
}

/// A sent packet, until it is settled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentPacket {
    pub time_sent: Timestamp,
    pub stamp: RateStamp,
    pub content: PacketContent,
    pub unit: Option<UnitKey>,
    pub kind: PacketKind,
    /// UDP payload bytes of this packet.
    pub size: u16,
    /// Mark of the path it was sent on.
    pub path: u8,
    pub ack_eliciting: bool,
    /// Sent with an ECN-capable codepoint.
    pub ect: bool,
    pub fate: Fate,
}

impl SentPacket {
    /// Returns true if its acknowledgement is expected and would say something about new content.
    pub(super) fn is_expected(&self) -> bool {
        self.fate == Fate::Outstanding
            && self.kind == PacketKind::Original
            && !self.content.is_nothing()
    }
}
