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

/// What a link's losses may do to a packet. All but the first are for senders that know the fates of their
/// packets, which there are only in a testbed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Passage {
    /// It is lost where the loss model or a blackhole takes it.
    #[default]
    Ordinary,
    /// The loss model lets it pass; a blackhole takes it.
    Spared,
    /// Where the loss model or a blackhole would take it, it sets out as soon as both let a packet pass:
    /// the first of many copies that arrives.
    ///
    /// It is tried again every millisecond, with the fate of a packet that is sent then: that of the time slot
    /// where the model has slots, and that of the place as many behind its own where fates go by packets. After
    /// a minute it is lost. Nobody else's fate changes. What is idealised: the copies that do not arrive
    /// take nothing of the bottleneck, which the packet itself has passed before it waits; and it
    /// comes out of order, so that its sender may take it for lost meanwhile.
    Insistent,
}

/// A packet inside the link: `at` is when it entered the node that it is in, or on its way to the
/// far end, when it will arrive.
#[derive(Clone, Debug)]
pub(crate) struct Item<T> {
    pub(crate) at: Timestamp,
    pub(crate) place: u64,
    pub(crate) packet: Packet<T>,
    pub(crate) passage: Passage,
    /// When it may set out at the earliest.
    pub(crate) not_before: Timestamp,
}
