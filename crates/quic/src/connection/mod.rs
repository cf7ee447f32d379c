//! One connection: its state, its interface to the application (`api`), and how its parts interact.
//! Receiving is in `opening` and `receive`, acknowledgements and timers in `acks` and `timers`,
//! sending in `transmit`, address changes in `migration`. `lifecycle`, `control`, `probe_timer`,
//! `idle` and `header` own the state of closing, control frames, time-outs and headers.

mod acks;
mod api;
mod arrival;
mod control;
mod ecn;
mod event;
mod handshake;
mod header;
mod idle;
mod lifecycle;
mod losses;
mod migration;
mod new_tokens;
mod off_path;
mod opening;
mod overdue;
mod owners;
mod peer;
mod probe_timer;
mod receive;
mod spaces;
mod stats;
mod timers;
mod transmit;

pub use event::{CloseReason, Event, HandshakeInfo};
pub use stats::{Stats, TokenUse};
pub use transmit::Transmit;

use crate::config::TransportConfig;
use crate::crypto::{CidPlain, KeyRing, OneRtt, PendingTicket, TlsConfig};
use crate::ecn::{EcnMonitor, Networks, PathEcn};
use crate::ids::{LocalIds, RemoteIds};
use crate::ledger::SentFrame;
use crate::observer::{self, Observer};
use crate::path::{Addresses, Path, Standing};
use crate::presence::Throughput;
use crate::streams::Streams;
use crate::wire::{ConnectionId, TransportError, TransportErrorCode as Code, TransportParameters};
use congestion::Cap;
use control::ControlFrames;
use header::HeaderRandomness;
use idle::IdleTimer;
use lifecycle::Lifecycle;
use off_path::{KnownAddresses, OffPath};
use peer::Peer;
use probe_timer::ProbeTimer;
use rand_chacha::ChaCha12Rng;
use recovery::Recovery;
use spaces::{Handshake, Space, SpaceId};
use std::collections::VecDeque;
use std::sync::Arc;
use units::Timestamp;

/// Maximum number of queued path validation frames. Bounds floods of challenges (RFC 9000, section
/// 21.8).
const MAX_OFF_PATH: usize = 8;

/// Resources of the endpoint that a connection uses.
pub(crate) struct Context<'a> {
    pub rng: &'a mut ChaCha12Rng,
    pub keys: &'a KeyRing,
    /// Networks with a costly ECN fault.
    pub ecn: &'a Networks,
    /// Memory for the frames of the packet under construction.
    pub frames: &'a mut Vec<SentFrame>,
}

/// A QUIC connection on the server's side.
pub struct Connection {
    config: Arc<TransportConfig>,
    life: Lifecycle,
    handshake: Option<Box<Handshake>>,
    keys: Option<Box<OneRtt>>,
    data: Space,
    streams: Streams,
    recovery: Recovery<Streams>,
    /// Time at which the scheme was last asked for replicas.
    replicas_asked: Timestamp,
    path: Path,
    /// Caps of every path's congestion controller.
    cap: Cap,
    /// Addresses that the client left within the last minute.
    known: KnownAddresses,
    /// Delivery rate of all paths combined, measured while other addresses are known.
    throughput: Throughput,
    ecn: EcnMonitor,
    /// Queued path validation frames, with their destinations.
    off_path: VecDeque<OffPath>,
    peer: Peer,
    events: VecDeque<Event>,
    control: ControlFrames,
    ticket: Option<Box<PendingTicket>>,
    probe_timer: ProbeTimer,
    /// Release time of the next packet, if the pacer holds one.
    paced_until: Option<Timestamp>,
    idle: IdleTimer,
    header: HeaderRandomness,
    /// A requested key update has not started yet.
    update_keys: bool,
    info: Option<Box<HandshakeInfo>>,
    stats: Stats,
    observer: Option<Box<dyn Observer + Send>>,
}

/// Input of the endpoint for a new connection.
pub(crate) struct Accepted<'a> {
    pub config: &'a Arc<TransportConfig>,
    pub tls: &'a TlsConfig,
    pub addresses: Addresses,
    /// Destination Connection ID of the client's first Initial, from which the Initial keys derive.
    pub dcid: ConnectionId,
    /// The client's Source Connection ID.
    pub scid: ConnectionId,
    pub proof: Proof,
    pub local_ids: LocalIds,
    pub seed: u64,
}

/// Content of a first Initial's token.
#[derive(Default)]
pub(crate) struct Proof {
    pub token_use: TokenUse,
    /// From a Retry token: the original Destination Connection ID.
    pub original_dcid: Option<ConnectionId>,
    /// Our own bytes of the NEW_TOKEN token.
    pub own: Option<Vec<u8>>,
}

impl Proof {
    /// Returns true if the token proves the client's address: a Retry token, or an unused NEW_TOKEN
    /// token.
    pub(crate) fn is_valid(&self) -> bool {
        matches!(self.token_use, TokenUse::Retry | TokenUse::NewToken)
    }
}

impl Connection {
    pub(crate) fn accept(now: Timestamp, accepted: Accepted<'_>, ctx: &mut Context<'_>) -> Self {
        let Accepted { config, tls, addresses, dcid, scid, proof, local_ids, seed } = accepted;
        let scid_of_ours = local_ids.get(0, ctx.keys.cids());
        let limits = &config.limits;
        let parameters = TransportParameters {
            original_destination_connection_id: Some(proof.original_dcid.unwrap_or(dcid)),
            retry_source_connection_id: proof.original_dcid.map(|_| dcid),
            initial_source_connection_id: Some(scid_of_ours),
            stateless_reset_token: Some(ctx.keys.cids().reset_token(scid_of_ours.as_slice())),
            max_idle_timeout: config.idle_timeout,
            max_ack_delay: config.max_ack_delay,
            active_connection_id_limit: crate::ids::REMOTE_LIMIT as u64,
            grease_quic_bit: true,
            initial_max_data: limits.max_data,
            initial_max_stream_data_bidi_local: limits.max_stream_data_bidi_local,
            initial_max_stream_data_bidi_remote: limits.max_stream_data_bidi_remote,
            initial_max_stream_data_uni: limits.max_stream_data_uni,
            initial_max_streams_bidi: limits.max_streams_bidi,
            initial_max_streams_uni: limits.max_streams_uni,
            ..TransportParameters::default()
        };
        let mut encoded = Vec::with_capacity(160);
        parameters.encode_server(&mut encoded, seed % 64 * 31 + 27);

        let cap = Cap { in_flight: Some(config.max_in_flight), rate: None, ..Cap::default() };
        let standing = Standing { validated: proof.is_valid(), ..Standing::new(addresses) };
        let mut path = Path::new(config, cap, standing, 0, seed);
        if ctx.ecn.has_failed(now, addresses.remote.ip()) {
            path.ecn = PathEcn::failed(config.ecn);
        }
        let observer =
            config.observer.as_ref().and_then(|make| make(now, addresses.remote, dcid.as_slice()));
        let info = HandshakeInfo { returned_token: proof.own, ..HandshakeInfo::default() };
        Self {
            config: config.clone(),
            life: Lifecycle::open(),
            handshake: Some(Box::new(Handshake::new(tls, encoded, dcid, scid, now))),
            keys: None,
            data: Space::default(),
            streams: Streams::new(&config.limits),
            replicas_asked: now,
            recovery: Recovery::new((config.scheme)(), config.guard.clone(), now),
            path,
            cap,
            known: KnownAddresses::default(),
            throughput: Throughput::default(),
            ecn: EcnMonitor::default(),
            off_path: VecDeque::new(),
            peer: Peer::unknown(),
            events: VecDeque::new(),
            control: ControlFrames::new(local_ids, RemoteIds::new(scid)),
            ticket: None,
            probe_timer: ProbeTimer::default(),
            paced_until: None,
            idle: IdleTimer::new(now),
            header: HeaderRandomness::new(seed),
            update_keys: false,
            info: Some(Box::new(info)),
            stats: Stats { token: proof.token_use, ..Stats::default() },
            observer,
        }
    }

    fn space_mut(&mut self, id: SpaceId) -> Option<&mut Space> {
        match id {
            SpaceId::Data => Some(&mut self.data),
            _ => Some(&mut self.handshake.as_mut()?.early_mut(id)?.space),
        }
    }

    fn space(&self, id: SpaceId) -> Option<&Space> {
        match id {
            SpaceId::Data => Some(&self.data),
            _ => Some(&self.handshake.as_ref()?.early(id)?.space),
        }
    }

    /// Enters the span that labels trace events with the connection's address. Costs a comparison
    /// while traces are off.
    fn span(&self) -> tracing::span::EnteredSpan {
        tracing::debug_span!("quic", remote = %self.path.standing.addresses.remote).entered()
    }

    /// Notifies the observer, if there is one.
    fn observe(&mut self, now: Timestamp, event: &observer::Event<'_>) {
        if let Some(observer) = &mut self.observer {
            observer.on_event(now, event);
        }
    }

    /// Closes the connection with an error: sends CONNECTION_CLOSE (RFC 9000, section 10.2).
    fn fail(&mut self, now: Timestamp, error: TransportError) {
        self.enter_closing(now, CloseReason::Transport(error));
    }

    fn enter_closing(&mut self, now: Timestamp, reason: CloseReason) {
        let until = now + self.linger();
        if self.life.enter_closing(until) {
            self.conclude(now, reason);
        }
    }

    fn enter_draining(&mut self, now: Timestamp, reason: CloseReason) {
        let until = now + self.linger();
        if self.life.enter_draining(until) {
            self.conclude(now, reason);
        }
    }

    /// Closes the connection silently, for example after an idle time-out.
    fn enter_drained(&mut self, now: Timestamp, reason: CloseReason) {
        if self.life.enter_drained() {
            self.conclude(now, reason);
        }
    }

    fn conclude(&mut self, now: Timestamp, reason: CloseReason) {
        if !self.life.conclude(&reason) {
            return;
        }
        let (code, text) = reason.code_and_text();
        tracing::debug!(code, ?reason, "connection closed");
        let text = text.to_owned();
        self.observe(now, &observer::Event::Closed { code, reason: &text });
        self.events.push_back(Event::Closed(reason));
        // Only the keys and the reason are needed from now on.
        self.streams = Streams::new(&self.config.limits);
        self.recovery.close();
        self.off_path = VecDeque::new();
        self.known = KnownAddresses::default();
        self.data.ledger.forget();
    }

    /// Returns the full sequence number of a decrypted connection ID, if it belongs to this
    /// connection.
    pub(crate) fn accepts(&self, plain: &CidPlain) -> Option<u64> {
        self.control.local_ids.accept(plain)
    }

    /// Returns whether `plain` is the first ID that we chose for this connection.
    pub(crate) fn is_named(&self, plain: &CidPlain) -> bool {
        self.control.local_ids.begins_with(plain)
    }

    /// Returns true while the application may use the connection.
    fn is_open(&self) -> bool {
        self.life.is_open()
    }
}

fn violation(frame_type: u64, reason: &'static str) -> TransportError {
    TransportError::new(Code::PROTOCOL_VIOLATION, frame_type, reason)
}
