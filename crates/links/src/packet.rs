//! A packet on a link.

use units::{Ecn, Timestamp};

/// Bytes of an IPv4 header without options and a UDP header.
pub const UDP_IPV4_HEADERS: u32 = 28;

/// A packet on a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet<T> {
    /// Bytes on the wire, IP and UDP headers included: what rate, queue, MTU and counters count.
    pub size: u32,
    /// The ECN field of its IP header.
    pub ecn: Ecn,
    /// Whatever the caller wants back at the far end. Cloned only to duplicate the packet.
    pub payload: T,
}

impl<T> Packet<T> {
    /// A UDP datagram with `length` bytes of data, over IPv4.
    pub const fn datagram(length: u32, ecn: Ecn, payload: T) -> Self {
        Self { size: length.saturating_add(UDP_IPV4_HEADERS), ecn, payload }
    }
}

/// A packet inside the link: `at` is when it entered the node that it is in, or on its way to the
/// far end, when it will arrive.
#[derive(Clone, Debug)]
pub(crate) struct Item<T> {
    pub(crate) at: Timestamp,
    pub(crate) place: u64,
    pub(crate) packet: Packet<T>,
    /// The loss model lets it pass.
    pub(crate) spared: bool,
}
