//! Counters of a loop for operators.

use ::quic::EndpointStats;

use crate::io::socket::SendStats;

/// Counters of a loop, in addition to those of its endpoint and sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoopCounters {
    /// Datagrams dropped because of source port 0.
    pub from_port_0: u64,
    /// Unanswered datagrams from ports of reflecting services.
    pub from_reflectors: u64,
    /// Datagrams forwarded to the loop that owns the connection.
    pub forwarded: u64,
    /// Datagrams dropped because the queue of that loop was full.
    pub forwards_dropped: u64,
    /// Handshake datagrams dropped because the queue was full.
    pub handshakes_dropped: u64,
    /// Timers postponed because datagrams were unread.
    pub timers_postponed: u64,
}

impl LoopCounters {
    fn add(&mut self, other: &Self) {
        self.from_port_0 += other.from_port_0;
        self.from_reflectors += other.from_reflectors;
        self.forwarded += other.forwarded;
        self.forwards_dropped += other.forwards_dropped;
        self.handshakes_dropped += other.handshakes_dropped;
        self.timers_postponed += other.timers_postponed;
    }
}

/// A snapshot of a loop's counters.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LoopReport {
    pub endpoint: EndpointStats,
    pub connections: usize,
    pub sends: SendStats,
    pub counters: LoopCounters,
}

impl LoopReport {
    /// Adds another loop's report.
    pub(crate) fn add(&mut self, other: &Self) {
        self.endpoint.add(&other.endpoint);
        self.connections += other.connections;
        self.sends.add(&other.sends);
        self.counters.add(&other.counters);
    }
}
