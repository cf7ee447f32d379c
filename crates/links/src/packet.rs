//! A packet inside a link, and what every node reports to: the counters and the observer.

use units::{Ecn, Timestamp};

use crate::counters::Counters;

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

/// Why a packet did not come out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discard {
    /// The queue was full.
    Queue,
    /// CoDel cut a standing queue.
    Codel,
    /// The loss model.
    Lost,
    /// A blackhole window.
    Blackhole,
    /// Larger than the MTU.
    Mtu,
}

/// Told what happens inside a link, for event logs and to take back the payloads of packets that
/// never arrive. Reports carry the time of the event, which may lie before the call that brings it
/// about. `()` ignores everything and costs nothing.
pub trait Observer<T> {
    /// A packet was put into the queue, which now holds `waiting` bytes.
    fn queued(&mut self, at: Timestamp, packet: &Packet<T>, waiting: u64) {
        let _ = (at, packet, waiting);
    }

    /// A packet was dropped or lost.
    fn discarded(&mut self, at: Timestamp, reason: Discard, packet: Packet<T>) {
        let _ = (at, reason, packet);
    }
}

impl<T> Observer<T> for () {}

/// A packet inside the link: `at` is when it entered the node that it is in, or on its way to the
/// far end, when it will arrive.
#[derive(Clone, Debug)]
pub(crate) struct Item<T> {
    pub(crate) at: Timestamp,
    pub(crate) place: u64,
    pub(crate) packet: Packet<T>,
}

/// Counters and observer, which every node writes to.
#[derive(Debug, Default)]
pub(crate) struct Books<O> {
    pub(crate) counters: Counters,
    pub(crate) observer: O,
}

impl<O> Books<O> {
    #[inline]
    pub(crate) fn discard<T>(&mut self, at: Timestamp, reason: Discard, packet: Packet<T>)
    where
        O: Observer<T>,
    {
        let counters = &mut self.counters;
        let tally = match reason {
            Discard::Queue | Discard::Codel => &mut counters.queue_dropped,
            Discard::Lost => &mut counters.lost,
            Discard::Blackhole => &mut counters.blackholed,
            Discard::Mtu => &mut counters.mtu_dropped,
        };
        tally.add(packet.size);
        self.observer.discarded(at, reason, packet);
    }

    /// Marks a packet CE if its sender understands that; whether it does.
    pub(crate) fn mark<T>(&mut self, packet: &mut Packet<T>) -> bool {
        match packet.ecn {
            Ecn::NotEct => return false,
            Ecn::Ce => {}
            Ecn::Ect0 | Ecn::Ect1 => {
                packet.ecn = Ecn::Ce;
                self.counters.ecn_marked.add(packet.size);
            }
        }
        true
    }
}
