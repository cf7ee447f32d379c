//! Packet-number spaces (RFC 9000, section 12.3) and what exists only until the handshake is
//! confirmed.

use super::receive::EarlyPacket;
use crate::crypto::{DirectionKeys, Keys, Tls};
use crate::crypto_stream::{CryptoReceive, CryptoSend};
use crate::ledger::Ledger;
use crate::received::Received;
use crate::wire::{ConnectionId, LongType, PacketType};
use units::Timestamp;

/// Which packet-number space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SpaceId {
    Initial,
    Handshake,
    Data,
}

impl SpaceId {
    pub(crate) const ALL: [Self; 3] = [Self::Initial, Self::Handshake, Self::Data];

    pub(crate) fn packet_type(self) -> PacketType {
        match self {
            Self::Initial => PacketType::Initial,
            Self::Handshake => PacketType::Handshake,
            Self::Data => PacketType::OneRtt,
        }
    }
}

/// What every space has.
#[derive(Debug, Default)]
pub(crate) struct Space {
    pub ledger: Ledger,
    pub received: Received,
    pub crypto_send: CryptoSend,
    pub crypto_receive: CryptoReceive,
    /// Ack-eliciting packets owed because of a probe time-out.
    pub probes: u8,
}

/// The Initial or Handshake space.
pub(crate) struct EarlySpace {
    pub space: Space,
    pub keys: Keys,
    pub ty: LongType,
}

impl EarlySpace {
    pub(crate) fn new(ty: LongType, keys: Keys) -> Self {
        Self { space: Space::default(), keys, ty }
    }
}

/// State that the confirmation of the handshake frees.
pub(crate) struct Handshake {
    pub tls: Tls,
    pub initial: Option<EarlySpace>,
    pub handshake: Option<EarlySpace>,
    pub zero_rtt: Option<DirectionKeys>,
    /// The client's first source ID, as its packets' headers carry it.
    pub client_scid: ConnectionId,
    pub started: Timestamp,
    /// The client's transport parameters were read.
    pub has_parameters: bool,
    /// 1-RTT packets that overtook the client's last handshake message.
    pub early_packets: Vec<EarlyPacket>,
}
