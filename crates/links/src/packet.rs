//! A packet on a link.

use units::{Ecn, Timestamp};

/// Length of an IPv4 header without options and a UDP header, in bytes.
pub const UDP_IPV4_HEADERS: u32 = 28;

/// A packet on a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet<T> {
    /// Bytes on the wire, including IP and UDP headers. Used by rate, queue, MTU and counters.
    pub size: u32,
    /// ECN field of the IP header.
    pub ecn: Ecn,
    /// The caller's data, returned at the far end. Cloned only to duplicate the packet.
    pub payload: T,
}

impl<T> Packet<T> {
    /// Creates a UDP datagram over IPv4 with `length` bytes of data.
    pub const fn datagram(length: u32, ecn: Ecn, payload: T) -> Self {
        Self { size: length.saturating_add(UDP_IPV4_HEADERS), ecn, payload }
    }
}

/// Effect of losses on a packet. All but the first are for senders that know the fates of their
/// packets, which exist only in the testbed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Passage {
    /// Can be lost by the loss model or a blackhole.
    #[default]
    Ordinary,
    /// Can be lost only by a blackhole.
    Spared,
    /// Departs as soon as neither the loss model nor a blackhole would lose it, like the first of
    /// many copies that arrives.
    ///
    /// It is retried every millisecond with the fate of a packet sent at that time: the fate of
    /// the time slot, or of a later index with per-packet fates. After one minute it is lost.
    /// Fates of other packets do not change. The model is idealized: failed copies use no capacity,
    /// as the packet passes the bottleneck once, before it waits. It arrives out of order, so the
    /// sender may declare it lost meanwhile.
    Insistent,
}

/// A packet inside the link. `at` is the time when it entered its current node or, on the way to
/// the far end, its time of arrival.
#[derive(Clone, Debug)]
pub(crate) struct Item<T> {
    pub(crate) at: Timestamp,
    pub(crate) index: u64,
    pub(crate) packet: Packet<T>,
    pub(crate) passage: Passage,
    /// Earliest departure.
    pub(crate) not_before: Timestamp,
}
