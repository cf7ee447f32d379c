//! Counters of a connection.

use crate::crypto::Cipher;
use crate::drops::{Counts, PacketDropReason};
use crate::ecn::EcnFault;
use core::time::Duration;
use units::Rate;

/// Kind of the token in a client's first Initial (RFC 9000, section 8.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TokenUse {
    /// No token.
    #[default]
    None,
    /// From our Retry.
    Retry,
    /// From a NEW_TOKEN frame of an earlier connection.
    NewToken,
    /// Invalid token.
    Invalid,
}

/// Counters and facts of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// UDP payload bytes sent.
    pub bytes_sent: u64,
    /// UDP payload bytes received.
    pub bytes_received: u64,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Datagrams received.
    pub datagrams_received: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets declared lost, excluding datagram-size probes.
    pub packets_lost: u64,
    /// Packets declared lost that were acknowledged later.
    pub spurious_losses: u64,
    /// Congestion events raised.
    pub congestion_events: u64,
    /// Congestion events that were undone because all their losses were spurious.
    pub congestion_undone: u64,
    /// Largest congestion window so far, in bytes.
    pub max_window: u64,
    /// Maximum bytes in flight so far.
    pub max_in_flight: u64,
    /// Largest delivery rate of any flight so far, including application-limited flights.
    pub max_delivery_rate: Option<Rate>,
    /// The same without application-limited flights: a lower bound on the path's capacity.
    pub max_open_rate: Option<Rate>,
    /// Probe time-outs.
    pub pto_count: u64,
    /// Key updates by either side.
    pub key_updates: u32,
    /// Changes of the peer's address.
    pub migrations: u32,
    /// Paths that failed ECN validation, by reason.
    pub ecn_failed: Counts<EcnFault, { EcnFault::ALL.len() }>,
    /// Time from the first Initial to the handshake's confirmation.
    pub handshake: Duration,
    /// The session was resumed.
    pub resumed: bool,
    /// 0-RTT data was accepted.
    pub early_data: bool,
    /// Kind of the token in the client's first Initial.
    pub token: TokenUse,
    /// The cipher suite, once the handshake is confirmed.
    pub cipher: Option<Cipher>,
    /// Received packets dropped.
    pub dropped: Counts<PacketDropReason, { PacketDropReason::ALL.len() }>,
}
