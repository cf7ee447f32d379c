//! Events that a connection reports to its application.

use crate::streams::StreamEvent;
use crate::wire::TransportError;
use core::time::Duration;
use std::net::SocketAddr;

/// An event of a connection.
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

/// Results of the handshake, until the application takes them.
#[derive(Clone, Debug, Default)]
pub struct HandshakeInfo {
    /// The negotiated application protocol.
    pub alpn: Vec<u8>,
    /// The server name that the client requested.
    pub server_name: Option<String>,
    /// Our own bytes of the session ticket that the client resumed with.
    pub returned_ticket: Option<Vec<u8>>,
    /// Our own bytes of the client's NEW_TOKEN token.
    pub returned_token: Option<Vec<u8>>,
    /// The round-trip time that the client suggests (Chromium's parameter 0x3127). Unverified.
    pub rtt_hint: Option<Duration>,
}

/// Reason why a connection closed, and which side closed it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CloseReason {
    /// We detected an error.
    Transport(TransportError),
    /// Our application closed the connection.
    Application {
        /// Application error code.
        code: u64,
        /// Reason phrase.
        reason: &'static str,
    },
    /// The peer closed the connection with a transport error.
    PeerTransport {
        /// Error code (RFC 9000, section 20.1).
        code: u64,
        /// The peer's reason phrase, at most 128 bytes.
        reason: String,
    },
    /// The peer's application closed it.
    PeerApplication {
        /// Application error code.
        code: u64,
        /// The peer's reason phrase, at most 128 bytes.
        reason: String,
    },
    /// No packet was received during the idle time-out.
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
