//! What a loop tells operators of itself.

use ::quic::EndpointStats;

use crate::io::socket::SendStats;

/// Counters of a loop, beside those of its endpoint and its sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Datagrams dropped because their source port was 0.
    pub from_port_0: u64,
    /// Datagrams from ports of services that answer anything, to which there was no answer.
    pub from_reflectors: u64,
    /// Datagrams handed to the loops that they belong to.
    pub forwarded: u64,
    /// Datagrams dropped because those loops had too many waiting.
    pub forwards_dropped: u64,
}

/// A loop's state of the moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Report {
    pub endpoint: EndpointStats,
    pub connections: usize,
    pub sends: SendStats,
    pub counters: Counters,
}

impl Report {
    /// Adds another loop's.
    pub(crate) fn add(&mut self, other: &Self) {
        self.endpoint.add(&other.endpoint);
        self.connections += other.connections;
        self.sends.add(&other.sends);
        let Counters { from_port_0, from_reflectors, forwarded, forwards_dropped } =
            &mut self.counters;
        *from_port_0 += other.counters.from_port_0;
        *from_reflectors += other.counters.from_reflectors;
        *forwarded += other.counters.forwarded;
        *forwards_dropped += other.counters.forwards_dropped;
    }
}
