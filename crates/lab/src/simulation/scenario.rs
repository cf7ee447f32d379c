//! Scenario of a run: path, ends and traffic.

use core::time::Duration;
use std::sync::Arc;

use congestion::Algorithm;
use delivery::Capping;
use groups::Parameters;
use links::{LinkConfig, PathConfig, RareAcks};
use qoe::Policy;
use quic::detection::Detection;
use quic::{ControllerFactory, TransportConfig};
use recovery::{Arq, Guard, Scheme};

use super::oracle::Oracle;
use crate::client::ClientKind;
use crate::ends::Cipher;
use crate::recovered::Diary;
use crate::start_options::StartOptions;
use crate::traffic::Traffic;

/// Creates a recovery scheme for a new connection from the run's seed. Schemes from outside this
/// project work too.
pub type SchemeMaker = Arc<dyn Fn(u64) -> Scheme + Send + Sync>;

/// Cap of a connection and the parameters of its user group.
pub type Held = (Capping, Parameters);

/// Scenario of a run.
#[derive(Clone)]
pub struct Scenario {
    /// Both directions.
    pub path: PathConfig,
    /// The viewer's library.
    pub client: ClientKind,
    /// Protection of 1-RTT packets at both ends.
    pub cipher: Cipher,
    /// Congestion controller of the server. Controllers from [`delivery::controller`] support
    /// startup modes.
    pub congestion: ControllerFactory,
    /// Settings of the server's transport that the other fields do not set.
    pub transport: TransportConfig,
    /// Startup of the server's connection, with its initial knowledge.
    pub start_options: StartOptions,
    /// Cap of the server's connection during a live stream.
    pub capping: Option<Held>,
    /// Loss detection rules of the server.
    pub detection: Detection,
    /// Recovery scheme of the server.
    pub scheme: SchemeMaker,
    /// Limit on its replicas.
    pub guard: Option<Guard>,
    /// Content of the client's request.
    pub traffic: Traffic,
    /// Reduced acknowledgement frequency of the client; `None` for the library's own, every second
    /// packet.
    pub acks: Option<RareAcks>,
    /// The player of a live stream, if it reports its buffer level to the server.
    pub reports: Option<Policy>,
    /// Virtual time of the client's first packet.
    pub begins: Duration,
    /// Number of consecutive requests on the same connection: from 1; more than 1 only for
    /// downloads.
    pub times: u32,
    /// A second server and client on the same path.
    pub rival: Option<Rival>,
    /// Flow-control window of the client in bytes.
    pub window: u64,
    /// Random seed.
    pub seed: u64,
    /// Period at which a NAT changes the client's port and forgets the old one, from the first byte
    /// on. Addresses are stable during the handshake: "The design of QUIC relies on endpoints
    /// retaining a stable address for the duration of the handshake" (RFC 9000, section 9).
    pub rebind_every: Option<Duration>,
    /// Period at which the client alternates between two valid addresses, from the first byte on
    /// (bonding, a NAT with two exits).
    pub flap_every: Option<Duration>,
    /// Granularity of both ends' timers, to study the effect of sockets on short timers.
    pub timer_granularity: Duration,
    /// Virtual time at which the run is aborted, or ends if its traffic is endless.
    pub limit: Duration,
    /// Start of the goodput measurement, after slow start.
    pub measure_from: Duration,
    /// Servers' knowledge of packet fates.
    pub oracle: Oracle,
    /// Whether to record the event log. Otherwise
    /// [`RunOutcome::event_log`](crate::RunOutcome::event_log) is the digest of an empty log.
    pub log_events: bool,
    /// Whether to measure time in the client's code, at the cost of reading clocks.
    pub time_client: bool,
    /// Records the first server's units and decisions.
    pub diary: Option<Diary>,
    /// Interval of [`SenderSample`](crate::SenderSample)s.
    pub sample_every: Option<Duration>,
}

/// The sender that shares the path. Other properties equal the first sender's.
#[derive(Clone)]
pub struct Rival {
    /// Its congestion controller.
    pub congestion: ControllerFactory,
    /// Its recovery scheme.
    pub scheme: SchemeMaker,
    /// Startup of its connection.
    pub start_options: StartOptions,
    /// Cap of its connection.
    pub capping: Option<Held>,
    /// Content of its client's request.
    pub traffic: Traffic,
    /// Virtual time of its client's first packet.
    pub begins: Duration,
}

impl Default for Scenario {
    /// 1 MB over an ideal path.
    fn default() -> Self {
        Self {
            path: PathConfig::default(),
            client: ClientKind::Quinn,
            cipher: Cipher::Real,
            congestion: delivery::controller(Algorithm::Cubic),
            transport: TransportConfig::default(),
            start_options: StartOptions::default(),
            capping: None,
            detection: Detection::default(),
            scheme: Arc::new(|_| Arq::scheme()),
            guard: None,
            traffic: Traffic::Download { bytes: 1_000_000 },
            acks: None,
            reports: None,
            begins: Duration::ZERO,
            times: 1,
            rival: None,
            window: 16 << 20,
            seed: 1,
            rebind_every: None,
            flap_every: None,
            timer_granularity: Duration::ZERO,
            limit: Duration::from_secs(3_600),
            measure_from: Duration::ZERO,
            oracle: Oracle::None,
            log_events: true,
            time_client: false,
            diary: None,
            sample_every: None,
        }
    }
}

impl Scenario {
    /// Returns the scenario of the rival's server and client.
    pub(super) fn of_rival(&self) -> Option<Self> {
        let Rival { congestion, scheme, start_options, capping, traffic, begins } =
            self.rival.clone()?;
        Some(Self {
            congestion,
            scheme,
            start_options,
            capping,
            traffic,
            begins,
            seed: self.seed.wrapping_add(1 << 32),
            diary: None,
            transport: TransportConfig { observer: None, ..self.transport.clone() },
            rival: None,
            ..self.clone()
        })
    }

    /// Round-trip time of the path without queues.
    pub(super) fn round_trip(&self) -> Duration {
        let delay = |link: &LinkConfig| link.delay.unwrap_or_default();
        delay(&self.path.down) + delay(&self.path.up)
    }
}
