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
    /// Datagrams of handshakes dropped because too many waited.
    pub handshakes_dropped: u64,
    /// Timers that had to wait because datagrams were still to be read.
    pub timers_postponed: u64,
}

impl Counters {
    fn add(&mut self, other: &Self) {
        self.from_port_0 += other.from_port_0;
        self.from_reflectors += other.from_reflectors;
        self.forwarded += other.forwarded;
        self.forwards_dropped += other.forwards_dropped;
        self.handshakes_dropped += other.handshakes_dropped;
        self.timers_postponed += other.timers_postponed;
    }
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
        self.counters.add(&other.counters);
    }
}
