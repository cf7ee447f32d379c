//! What is asked of the kernel about a connection.

use std::time::Duration;

/// How a connection does, as the kernel says.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counts {
    pub rtt: Duration,
    pub rtt_min: Duration,
    /// In packets and bytes, sent again ones included.
    pub sent: u64,
    pub sent_bytes: u64,
    pub retransmitted: u64,
    pub retransmitted_bytes: u64,
    /// Retransmissions of what had arrived (RFC 2883).
    pub in_vain: u64,
    pub delivered: u64,
    /// The largest delivery rate seen, in bits per second.
    pub delivery_rate: u64,
}
