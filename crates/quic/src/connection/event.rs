//! What a connection tells its application.

use crate::streams::StreamEvent;
use crate::wire::TransportError;
use core::time::Duration;
use std::net::SocketAddr;

/// What happened on a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// 1-RTT packets can be sent: the protocol is agreed, and early requests may be answered. The
    /// peer's identity and liveness are not proven yet.
    Ready,
    /// The handshake is confirmed.
    Connected,
    /// Something happened on a stream.
    Stream(StreamEvent),
    /// The peer's new address was validated.
    Migrated(SocketAddr),
    /// The connection is over; nothing follows.
    Closed(CloseReason),
}

/// What the handshake told, until the application takes it.
#[derive(Clone, Debug, Default)]
pub struct HandshakeInfo {
    /// The protocol agreed on.
    pub alpn: Vec<u8>,
    /// The name that the client asked for.
    pub server_name: Option<String>,
    /// Our own bytes of the session ticket that the client resumed with.
    pub returned_ticket: Option<Vec<u8>>,
    /// Our own bytes of the NEW_TOKEN token that the client brought.
    pub returned_token: Option<Vec<u8>>,
    /// The round-trip time that the client suggests (Chromium's parameter 0x3127); an unproven
    /// claim.
    pub rtt_hint: Option<Duration>,
}

/// Why and by whom a connection was closed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CloseReason {
    /// We found an error.
    Transport(TransportError),
    /// The application on our side closed it.
    Application {
        /// Application error code.
        code: u64,
        /// Why.
        reason: &'static str,
    },
    /// The peer closed it with a transport error.
    PeerTransport {
        /// RFC 9000, section 20.1.
        code: u64,
        /// What the peer said, at most 128 bytes of it.
        reason: String,
    },
    /// The peer's application closed it.
    PeerApplication {
        /// Application error code.
        code: u64,
        /// What the peer said, at most 128 bytes of it.
        reason: String,
    },
    /// Nothing was received for the idle time-out.
    IdleTimeout,
    /// The handshake took too long.
    HandshakeTimeout,
    /// The peer has lost the connection's state.
    StatelessReset,
}

impl CloseReason {
    /// Error code and text, for logs.
    pub fn code_and_text(&self) -> (u64, &str) {
        match self {
            Self::Transport(error) => (error.code.0, error.reason),
            Self::Application { code, reason } => (*code, reason),
            Self::PeerTransport { code, reason } | Self::PeerApplication { code, reason } => {
                (*code, reason)
            }
            Self::IdleTimeout => (0, "idle time-out"),
            Self::HandshakeTimeout => (0, "the handshake took too long"),
            Self::StatelessReset => (0, "stateless reset"),
        }
    }
}
