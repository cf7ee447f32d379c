//! The peer's transport parameters that matter after the handshake. Limits on streams are in
//! `streams`, and connection IDs were checked, so a connection does not keep them.

use core::time::Duration;

use crate::wire::TransportParameters;

/// Transport parameters of the peer (RFC 9000, section 18.2); defaults until received.
#[derive(Debug)]
pub(super) struct Peer {
    /// Whether the parameters were received.
    pub known: bool,
    pub grease_quic_bit: bool,
    pub ack_delay_exponent: u8,
    pub max_ack_delay: Duration,
    /// Zero: never.
    pub max_idle_timeout: Duration,
    pub max_udp_payload_size: u64,
    pub active_connection_id_limit: u64,
}

impl Peer {
    /// Returns the defaults of a peer whose parameters are not known yet.
    pub(super) fn unknown() -> Self {
        Self { known: false, ..Self::from(&TransportParameters::default()) }
    }
}

impl From<&TransportParameters> for Peer {
    fn from(received: &TransportParameters) -> Self {
        Self {
            known: true,
            grease_quic_bit: received.grease_quic_bit,
            ack_delay_exponent: received.ack_delay_exponent,
            max_ack_delay: received.max_ack_delay,
            max_idle_timeout: received.max_idle_timeout,
            max_udp_payload_size: received.max_udp_payload_size,
            active_connection_id_limit: received.active_connection_id_limit,
        }
    }
}
