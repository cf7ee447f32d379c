//! Packet-number spaces (RFC 9000, section 12.3), and state that exists only until the handshake is
//! confirmed.
//!
//! **State of an unvalidated client.** A handshake holds the TLS session with a message of at most
//! 64 KiB (the limit of `rustls`), the server's flight, 16 KiB of CRYPTO data beyond a gap
//! (`crypto_stream`) and 6,000 bytes of 1-RTT packets. A client with a valid ticket may add 0-RTT
//! data within the initial flow-control windows. Once many handshakes are unfinished, clients must
//! prove their addresses with Retry, which needs no state (`endpoint::admission`).
//!
//! **Early 1-RTT packets.** A 1-RTT packet that overtakes the client's Finished is kept and handled
//! once the handshake completes. Otherwise a network that reorders two datagrams would cost the
//! viewer a retransmission of the request. Packets beyond 6,000 bytes are dropped
//! ([`PacketDropReason::NoKeys`]); the client retransmits them.

use super::arrival::{Arrival, EarlyPacket};
use crate::crypto::{DirectionKeys, Keys, Tls};
use crate::crypto_stream::{CryptoReceive, CryptoSend};
use crate::drops::PacketDropReason;
use crate::ledger::Ledger;
use crate::received::ReceivedNumbers;
use crate::wire::{ConnectionId, PacketType};
use units::Timestamp;

/// Maximum bytes of 1-RTT packets kept until the handshake ends: a request or two.
const MAX_EARLY: usize = 6_000;

/// A packet-number space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SpaceId {
    Initial,
    Handshake,
    Data,
}

impl SpaceId {
    pub(crate) const ALL: [Self; 3] = [Self::Initial, Self::Handshake, Self::Data];

    /// Returns the packet-number space of a packet type.
    #[inline]
    pub(crate) fn of(ty: PacketType) -> Self {
        match ty {
            PacketType::Initial => Self::Initial,
            PacketType::Handshake => Self::Handshake,
            PacketType::ZeroRtt | PacketType::OneRtt => Self::Data,
        }
    }

    pub(crate) fn packet_type(self) -> PacketType {
        match self {
            Self::Initial => PacketType::Initial,
            Self::Handshake => PacketType::Handshake,
            Self::Data => PacketType::OneRtt,
        }
    }
}

/// State common to all spaces.
#[derive(Debug, Default)]
pub(crate) struct Space {
    pub ledger: Ledger,
    pub received: ReceivedNumbers,
    pub crypto_send: CryptoSend,
    pub crypto_receive: CryptoReceive,
    /// Ack-eliciting packets to send because of a probe time-out.
    pub probes: u8,
}

/// State of the Initial or Handshake space.
pub(crate) struct EarlySpace {
    pub space: Space,
    pub keys: Keys,
}

impl EarlySpace {
    pub(crate) fn new(keys: Keys) -> Self {
        Self { space: Space::default(), keys }
    }
}

/// State freed once the handshake is confirmed.
pub(crate) struct Handshake {
    pub tls: Tls,
    /// The Initial and Handshake spaces, while they have keys.
    pub early: [Option<EarlySpace>; 2],
    pub zero_rtt: Option<DirectionKeys>,
    /// The client's first Source Connection ID.
    pub client_scid: ConnectionId,
    pub started: Timestamp,
    /// 1-RTT packets that overtook the client's last handshake message.
    pub early_packets: Vec<EarlyPacket>,
}

impl Handshake {
    /// Returns the Initial or Handshake space, if it has keys.
    pub(super) fn early(&self, id: SpaceId) -> Option<&EarlySpace> {
        self.early.get(id as usize)?.as_ref()
    }

    pub(super) fn early_mut(&mut self, id: SpaceId) -> Option<&mut EarlySpace> {
        self.early.get_mut(id as usize)?.as_mut()
    }

    /// Keeps a 1-RTT packet until the handshake is complete.
    pub(super) fn keep(
        &mut self,
        arrival: &Arrival,
        pn_offset: usize,
        packet: &[u8],
    ) -> Result<(), PacketDropReason> {
        let kept: usize = self.early_packets.iter().map(|early| early.packet.len()).sum();
        if kept + packet.len() > MAX_EARLY {
            return Err(PacketDropReason::NoKeys);
        }
        let early = EarlyPacket { arrival: *arrival, pn_offset, packet: packet.to_vec() };
        self.early_packets.push(early);
        Ok(())
    }
}
