//! What is run: path, ends and traffic.

use core::time::Duration;
use std::sync::Arc;

use congestion::Algorithm;
use delivery::Capping;
use groups::Parameters;
use links::{LinkConfig, PathConfig, RareAcks};
use qoe::Policy;
use quic::ControllerFactory;
use quic::detection::Detection;
use recovery::{Arq, Guard, Scheme};

use super::oracle::Oracle;
use crate::beginning::Beginning;
use crate::client::ClientKind;
use crate::ends::Cipher;
use crate::recovered::Diary;
use crate::traffic::Traffic;

/// Makes a recovery scheme for a new connection, from the run's seed. Any will do, also one from outside
/// this project.
pub type SchemeMaker = Arc<dyn Fn(u64) -> Scheme + Send + Sync>;

/// How a connection is held, and to which parameters of its user group.
pub type Held = (Capping, Parameters);

/// What is run.
#[derive(Clone)]
pub struct Scenario {
    /// Both directions.
    pub path: PathConfig,
    /// The viewer's library.
    pub client: ClientKind,
    /// Protection of 1-RTT packets, at both ends.
    pub cipher: Cipher,
    /// The server's congestion controller: [`delivery::controller`] makes those of this project, which can be told how
    /// to start.
    pub congestion: ControllerFactory,
    /// How the server's connection starts, and what is known when it does.
    pub beginning: Beginning,
    /// What the server's connection is held to while it serves a live stream.
    pub capping: Option<Held>,
    /// The server's rules of loss detection.
    pub detection: Detection,
    /// The server's recovery scheme.
    pub scheme: SchemeMaker,
    /// What bounds its replicas.
    pub guard: Option<Guard>,
    /// What the client asks for.
    pub traffic: Traffic,
    /// How rarely the client acknowledges; `None` for each second packet, as its library does.
    pub acks: Option<RareAcks>,
    /// The player of a live stream, if it tells the server what it has buffered.
    pub reports: Option<Policy>,
    /// Virtual time at which the client's first packet leaves.
    pub begins: Duration,
    /// How often the client asks for it, one after the other on the same connection: from 1, and more
    /// only for downloads.
    pub times: u32,
    /// A second server and client on the same path.
    pub rival: Option<Rival>,
    /// The client's flow-control window in bytes.
    pub window: u64,
    /// Of everything random.
    pub seed: u64,
    /// From the first byte on, a NAT before the client gives it another port each time that this
    /// much has passed, and forgets the old one. During the handshake addresses are stable: "The
    /// design of QUIC relies on endpoints retaining a stable address for the duration of the
    /// handshake" (RFC 9000, section 9).
    pub rebind_every: Option<Duration>,
    /// From the first byte on, the client's packets come from two addresses in turn, each for this
    /// long; both stay open (bonding, a NAT with two exits).
    pub flap_every: Option<Duration>,
    /// Timers of both ends fire at multiples of this: what sockets would do to short schedules.
    pub timer_granularity: Duration,
    /// Virtual time at which the run is given up, or at which it ends if its traffic is endless.
    pub limit: Duration,
    /// Start of the span over which goodput is taken, after the slow start.
    pub measure_from: Duration,
    /// What the servers know of the fates of their packets.
    pub oracle: Oracle,
    /// Keeps the event log; without it [`Outcome::event_log`](crate::Outcome::event_log) is that of no events.
    pub log_events: bool,
    /// Takes the time that the client's code needs, at the price of reading clocks.
    pub time_client: bool,
    /// Keeps the first server's units and decisions.
    pub diary: Option<Diary>,
    /// Takes a [`Sample`](crate::Sample) this often.
    pub sample_every: Option<Duration>,
}

/// The sender that shares a path with the first, where it differs from that.
#[derive(Clone)]
pub struct Rival {
    /// Its congestion controller.
    pub congestion: ControllerFactory,
    /// Its recovery scheme.
    pub scheme: SchemeMaker,
    /// How its connection starts.
    pub beginning: Beginning,
    /// What its connection is held to.
    pub capping: Option<Held>,
    /// What its client asks for.
    pub traffic: Traffic,
    /// Virtual time at which its client's first packet leaves.
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
            beginning: Beginning::default(),
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
    /// The scenario of the rival's server and client.
    pub(super) fn of_rival(&self) -> Option<Self> {
        let Rival { congestion, scheme, beginning, capping, traffic, begins } =
            self.rival.clone()?;
        Some(Self {
            congestion,
            scheme,
            beginning,
            capping,
            traffic,
            begins,
            seed: self.seed.wrapping_add(1 << 32),
            diary: None,
            rival: None,
            ..self.clone()
        })
    }

    /// The path's round-trip time without queues.
    pub(super) fn round_trip(&self) -> Duration {
        let delay = |link: &LinkConfig| link.delay.unwrap_or_default();
        delay(&self.path.down) + delay(&self.path.up)
    }
}
