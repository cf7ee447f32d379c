//! TCP statistics of the kernel.

use std::time::Duration;

/// Statistics of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct TcpCounts {
    pub rtt: Duration,
    pub rtt_min: Duration,
    /// Packets, retransmissions included.
    pub sent: u64,
    pub sent_bytes: u64,
    pub retransmitted: u64,
    pub retransmitted_bytes: u64,
    /// Spurious retransmissions, as reported by DSACK (RFC 2883).
    pub spurious: u64,
    pub delivered: u64,
    /// Maximum delivery rate, in bit/s.
    pub delivery_rate: u64,
    /// Latest delivery rate, in bit/s.
    pub latest_rate: u64,
}
