//! What the owner of the transport decides: limits, timers, the controller and the recovery
//! scheme.

use crate::crypto::{KeyRing, TlsConfig};
use crate::detection::Detection;
use crate::observer::Observer;
use crate::streams::Limits;
use congestion::{Algorithm, Controller};
use core::fmt;
use core::time::Duration;
use recovery::{Arq, Guard, Scheme};
use std::net::SocketAddr;
use std::sync::Arc;
use units::Timestamp;

/// When a client has to prove its address before the server keeps state (RFC 9000, section 8.1.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RetryPolicy {
    /// Never.
    Never,
    /// Always, unless the client brings a valid token.
    Always,
    /// While more handshakes than this begin in a second without proof of an address, or eight times as
    /// many are unfinished: a flood from forged addresses then costs no state.
    Above(u32),
}

/// Makes a congestion controller for a new path, from its first datagram size in bytes and a seed for
/// what the controller leaves to chance. [`controller`] makes one of a known algorithm.
pub type ControllerFactory = Arc<dyn Fn(u16, u64) -> Box<dyn Controller> + Send + Sync>;

/// The factory of a known algorithm.
pub fn controller(algorithm: Algorithm) -> ControllerFactory {
    Arc::new(move |mtu, seed| algorithm.build(mtu, seed))
}

/// Makes a recovery scheme for a new connection.
pub type SchemeFactory = Arc<dyn Fn() -> Scheme + Send + Sync>;

/// Makes an observer for a new connection, given the time, the peer's address and the client's first
/// destination connection ID; `None` leaves the connection unobserved (sampling).
pub type ObserverFactory =
    Arc<dyn Fn(Timestamp, SocketAddr, &[u8]) -> Option<Box<dyn Observer + Send>> + Send + Sync>;

/// Settings of connections.
#[derive(Clone)]
pub struct TransportConfig {
    /// Silence after which a connection is dropped (RFC 9000, section 10.1); 30 s by default. The
    /// peer's value counts if it is shorter, and 3 probe time-outs are always granted. Long values keep
    /// memory for viewers who are gone; short ones end those whose network pauses.
    pub idle_timeout: Duration,
    /// A PING is sent after this much silence; none by default. It keeps NAT bindings open (every 30 s
    /// does for most, RFC 9000, section 10.1.2) and the connection from its idle time-out, at the price
    /// of waking phones' radios.
    pub keep_alive: Option<Duration>,
    /// A handshake that takes longer is dropped; 10 s by default. Each unfinished handshake
    /// holds a TLS state.
    pub handshake_timeout: Duration,
    /// Round-trip time assumed before the first sample; 333 ms by default (RFC 9002, section 6.2.2).
    /// Three times as much passes before the first flight is repeated: less repairs its loss earlier,
    /// and repeats it needlessly on long paths.
    pub initial_rtt: Duration,
    /// Longest delay of our acknowledgements (RFC 9000, section 18.2); 25 ms by default. The peer adds
    /// it to its probe time-out.
    pub max_ack_delay: Duration,
    /// Acknowledge at least every this many ack-eliciting packets (RFC 9000, section 13.2.2).
    pub ack_every: u32,
    /// Rules of loss detection; those of RFC 9002 by default.
    pub detection: Detection,
    /// UDP payload bytes of the first packets, 1,200 (the default) or more. More than the path carries
    /// makes the handshake fail.
    pub initial_mtu: u16,
    /// Largest UDP payload that discovery probes for (RFC 8899); 1,452 bytes by default, which fits
    /// IPv6 over Ethernet.
    pub max_mtu: u16,
    /// Whether packets are marked ECT(0) (RFC 9000, section 13.4); they are by default, until a path
    /// proves not to carry the marks.
    pub ecn: bool,
    /// Bytes in flight at most, whatever the congestion controller would allow. A peer that acknowledges
    /// late makes the round-trip time, and with it the window, as large as it likes; the ledger of
    /// packets in flight takes about a tenth of this on top, and an acknowledgement of all of them 12 ns
    /// for each. Packets count 1,200 bytes at least. 8 MiB by default: 670 Mbps at 100 ms.
    pub max_in_flight: u64,
    /// Congestion controller; BBR by default.
    pub congestion: ControllerFactory,
    /// Recovery scheme; plain retransmission by default. [`recovery::catalog`] has the others.
    pub scheme: SchemeFactory,
    /// What bounds the replicas of each connection, whatever its scheme wants; nothing by default.
    /// Without a guard a hostile peer that fakes losses makes the server send as much as the scheme
    /// likes.
    pub guard: Option<Guard>,
    /// Stream and flow-control limits: what a peer can make the server hold.
    pub limits: Limits,
    /// Whether 0-RTT packets are read; they are by default. They can be replays: the application sees
    /// which requests came early, and must not act twice on them.
    pub early_data: bool,
    /// Packets after which the send keys are updated; 0 leaves it to the limits of the cipher (RFC
    /// 9001, section 6.6).
    pub key_update_after: u64,
    /// Observer of new connections (qlog, event logs); none by default. An observed connection decodes
    /// and writes down what it does, which costs CPU time for each packet.
    pub observer: Option<ObserverFactory>,
}

impl Default for TransportConfig {
    fn default() -> Self {
        Self {
            idle_timeout: Duration::from_secs(30),
            keep_alive: None,
            handshake_timeout: Duration::from_secs(10),
            initial_rtt: Duration::from_millis(333),
            max_ack_delay: Duration::from_millis(25),
            ack_every: 2,
            detection: Detection::RFC9002,
            initial_mtu: 1_200,
            max_mtu: 1_452,
            ecn: true,
            max_in_flight: 8 << 20,
            congestion: controller(Algorithm::Bbr),
            scheme: Arc::new(Arq::scheme),
            guard: None,
            limits: Limits::default(),
            early_data: true,
            key_update_after: 0,
            observer: None,
        }
    }
}

impl fmt::Debug for TransportConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransportConfig")
            .field("idle_timeout", &self.idle_timeout)
            .finish_non_exhaustive()
    }
}

/// Settings of an endpoint.
#[derive(Clone)]
pub struct EndpointConfig {
    /// For new connections.
    pub transport: Arc<TransportConfig>,
    /// TLS of new connections.
    pub tls: Arc<TlsConfig>,
    /// Keys of tokens, tickets, connection IDs and stateless resets.
    pub keys: Arc<KeyRing>,
    /// When clients must prove their address first.
    pub retry: RetryPolicy,
    /// How long a NEW_TOKEN token is good for. A client that brings one proves its address without a
    /// round trip.
    pub token_lifetime: Duration,
    /// Connections at most; further ones are refused.
    pub max_connections: usize,
    /// Which server of a fleet this is; stands, encrypted, in connection IDs. Packets for another
    /// server are dropped.
    pub server_id: u16,
    /// Which core of the server; stands, encrypted, in connection IDs. Packets for another core are
    /// handed back to the caller.
    pub core: u8,
    /// Number of the server's cores. Packets of connections on higher ones are answered with stateless resets: the server
    /// had more cores before it was started again.
    pub cores: usize,
    /// Unix time in seconds at the caller's [`units::Timestamp::ZERO`].
    pub unix_origin: u64,
}

impl fmt::Debug for EndpointConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointConfig")
            .field("transport", &self.transport)
            .field("retry", &self.retry)
            .field("server_id", &self.server_id)
            .field("core", &self.core)
            .finish_non_exhaustive()
    }
}
