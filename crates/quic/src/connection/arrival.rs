//! Metadata of received packets, and packets that wait for the end of the handshake.

use crate::path::Addresses;
use units::{Ecn, Timestamp};

/// Metadata of a received packet.
#[derive(Clone, Copy)]
pub(super) struct Arrival {
    pub(super) now: Timestamp,
    pub(super) addresses: Addresses,
    pub(super) ecn: Ecn,
    /// Size of the whole datagram, in bytes.
    pub(super) datagram: usize,
    /// Sequence number of our connection ID that the packet was addressed to.
    pub(super) local_id: u64,
}

/// A 1-RTT packet that waits for the end of the handshake.
pub(crate) struct EarlyPacket {
    pub(super) arrival: Arrival,
    pub(super) pn_offset: usize,
    pub(super) packet: Vec<u8>,
}
