//! Transport settings: limits, timers, the congestion controller and the recovery scheme.

use crate::crypto::{KeyRing, TlsConfig};
use crate::detection::Detection;
use crate::observer::Observer;
use crate::streams::StreamLimits;
use congestion::{Algorithm, Controller};
use core::fmt;
use core::time::Duration;
use recovery::{Arq, Guard, Scheme};
use std::net::SocketAddr;
use std::sync::Arc;
use units::Timestamp;

/// When a client must prove its address before the server keeps state (RFC 9000, section 8.1.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RetryPolicy {
    /// Never.
    Never,
    /// Always, unless the client brings a valid token.
    Always,
    /// While more than this many handshakes per second start without proof of an address, or eight
    /// times as many are unfinished. A flood from forged addresses then costs no state.
    Above(u32),
}

/// Creates a congestion controller for a new path, from its first datagram size in bytes and a
/// random seed. [`controller`] returns the factory of a known algorithm.
pub type ControllerFactory = Arc<dyn Fn(u16, u64) -> Box<dyn Controller> + Send + Sync>;

/// The factory of a known algorithm.
pub fn controller(algorithm: Algorithm) -> ControllerFactory {
    Arc::new(move |mtu, seed| algorithm.build(mtu, seed))
}

/// Makes a recovery scheme for a new connection.
pub type SchemeFactory = Arc<dyn Fn() -> Scheme + Send + Sync>;

/// Creates an observer for a new connection, given the time, the peer's address and the client's
/// first destination connection ID. `None` leaves the connection unobserved (sampling).
pub type ObserverFactory =
    Arc<dyn Fn(Timestamp, SocketAddr, &[u8]) -> Option<Box<dyn Observer + Send>> + Send + Sync>;

/// Copies of lost data that count as in flight.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum CopyAccounting {
    /// Every copy, like any packet (RFC 9002). Each lost copy signals congestion, as the recovery
    /// scheme permits.
    #[default]
    Every,
    /// The newest copy of each unit. It takes its predecessor's place in the flight, also in a full
    /// window. The loss of a predecessor is never declared and signals nothing; its late
    /// acknowledgement counts as a delivery. The acknowledgement of any copy also takes the newest
    /// one out of flight. Copies thus leave no trace in congestion control, and more data is in the
    /// network than the window says: for the figures of AutoRec's paper, whose transport counts so
    /// (journal version, section VIII-C). Costs a scan of the flight per copy and per finished
    /// unit.
    Newest,
}

/// Settings of connections.
#[derive(Clone)]
pub struct TransportConfig {
    /// Idle time-out (RFC 9000, section 10.1). Default 30 s. The peer's value applies if shorter,
    /// and at least 3 probe time-outs are granted. Long values keep memory for departed viewers;
    /// short ones drop viewers whose network pauses.
    pub idle_timeout: Duration,
    /// Silence after which a PING is sent; default none. Keeps NAT bindings open (every 30 s
    /// suffices for most, RFC 9000, section 10.1.2) and prevents the idle time-out, but wakes
    /// phones' radios.
    pub keep_alive: Option<Duration>,
    /// Maximum duration of a handshake. Default 10 s. Each unfinished handshake holds TLS state.
    pub handshake_timeout: Duration,
    /// Round-trip time assumed before the first sample. Default 333 ms (RFC 9002, section 6.2.2).
    /// The first flight is repeated after three times this value: less repairs its loss earlier,
    /// but repeats it needlessly on long paths.
    pub initial_rtt: Duration,
    /// Maximum delay of our acknowledgements (RFC 9000, section 18.2). Default 25 ms. The peer adds
    /// it to its probe time-out.
    pub max_ack_delay: Duration,
    /// Maximum number of ack-eliciting packets per acknowledgement (RFC 9000, section 13.2.2).
    pub ack_every: u32,
    /// Rules of loss detection. Default RFC 9002.
    pub detection: Detection,
    /// Copies of lost data that count as in flight. Default every copy.
    pub accounting: CopyAccounting,
    /// UDP payload of the first packets, in bytes. At least 1,200, the default. A value above the
    /// path's MTU makes the handshake fail.
    pub initial_mtu: u16,
    /// Largest UDP payload that discovery probes for (RFC 8899); 1,452 bytes by default, which fits
    /// IPv6 over Ethernet.
    pub max_mtu: u16,
    /// Marks packets ECT(0) (RFC 9000, section 13.4), until a path fails validation. Default true.
    pub ecn: bool,
    /// Maximum bytes in flight, regardless of the congestion controller. A peer that acknowledges
    /// late inflates the round-trip time, and with it the window. The ledger takes about a tenth of
    /// this on top, and an acknowledgement of all packets 12 ns for each. Packets count at least
    /// 1,200 bytes. Default 8 MiB: 670 Mbps at 100 ms.
    pub max_in_flight: u64,
    /// Congestion controller; BBR by default.
    pub congestion: ControllerFactory,
    /// Recovery scheme; plain retransmission by default. [`recovery::catalog`] has the others.
    pub scheme: SchemeFactory,
    /// Cap on each connection's replicas, whatever its scheme requests; default none. Without a
    /// guard, a hostile peer that fakes losses makes the server send as much as the scheme permits.
    pub guard: Option<Guard>,
    /// Stream and flow-control limits, which bound the memory a peer can make the server hold.
    pub limits: StreamLimits,
    /// Reads 0-RTT packets. Default true. They may be replays: the application sees which requests
    /// came early, and must not act twice on them.
    pub early_data: bool,
    /// Packets after which the send keys are updated. 0 uses the cipher's limits (RFC 9001, section
    /// 6.6).
    pub key_update_after: u64,
    /// Observer of new connections (qlog, event logs); default none. Observing costs CPU time for
    /// each packet.
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
            accounting: CopyAccounting::Every,
            initial_mtu: 1_200,
            max_mtu: 1_452,
            ecn: true,
            max_in_flight: 8 << 20,
            congestion: controller(Algorithm::Bbr),
            scheme: Arc::new(Arq::scheme),
            guard: None,
            limits: StreamLimits::default(),
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
    /// Policy for address validation before the handshake.
    pub retry: RetryPolicy,
    /// Lifetime of a NEW_TOKEN token. A client with one proves its address without a round trip.
    pub token_lifetime: Duration,
    /// Maximum number of connections. Further ones are refused.
    pub max_connections: usize,
    /// Number of this server in its fleet, encrypted in connection IDs. Packets for another server
    /// are dropped.
    pub server_id: u16,
    /// Core of the server, encrypted in connection IDs. Packets for another core are returned to
    /// the caller.
    pub core: u8,
    /// Number of the server's cores. Packets of connections on higher cores, from before a restart
    /// with fewer cores, are answered with stateless resets.
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
