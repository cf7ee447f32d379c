//! Transport settings from the configuration.

use std::sync::Arc;

use ::quic::crypto::{Cipher, KeyRing, OneRttProtection, SingleUseLog, TlsConfig, TlsSettings};
use ::quic::detection::Detection;
use ::quic::streams::StreamLimits;
use ::quic::{EndpointConfig, RetryPolicy, TransportConfig};
use recovery::{Guard, SharedBudget};

use super::{key_log, qlog};
use crate::Error;
use crate::certificates::Certificates;
use crate::clock::TicketClock;
use crate::config::{self, Config};
use crate::entropy::random;
use crate::identity::{Identity, TICKET_LIFETIME};

/// Unfinished handshakes of a loop above which `retry = "auto"` sends Retry.
const RETRY_THRESHOLD: u32 = 256;
/// Maximum number of remembered session ticket uses.
const TICKET_LOG: usize = 65_536;
/// Minimum burst of redundant copies across all connections, in bytes; larger if one second's
/// budget is larger.
const MIN_BURST: u64 = 256 << 10;

/// Settings that the event loops derive from a configuration.
#[derive(Clone)]
pub struct QuicState {
    tls: Arc<TlsConfig>,
    keys: Arc<KeyRing>,
    transport: Arc<TransportConfig>,
    single_use: Arc<SingleUseLog>,
    clock: Arc<TicketClock>,
    /// Budget of redundant copies across all connections.
    budget: Arc<SharedBudget>,
}

impl core::fmt::Debug for QuicState {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("QuicState").field("transport", &self.transport).finish_non_exhaustive()
    }
}

impl QuicState {
    /// Creates the settings. Without `keys`, those of `previous` are kept, or new ones are
    /// generated for the lifetime of the process. qlog files are not written yet.
    ///
    /// # Errors
    /// Certificate and key are unsuitable for TLS 1.3.
    pub fn new(
        config: &Config,
        certificates: &Arc<Certificates>,
        keys: Option<Arc<KeyRing>>,
        previous: Option<&Self>,
    ) -> Result<Self, Error> {
        let clock = previous
            .map_or_else(|| Arc::new(TicketClock::new()), |previous| previous.clock.clone());
        let keys = match (keys, previous) {
            (Some(keys), _) => keys,
            (None, Some(previous)) => previous.keys.clone(),
            (None, None) => {
                Arc::new(KeyRing::new(&random()?, &[(clock.now().saturating_sub(1), random()?)]))
            }
        };
        let single_use = match previous {
            Some(previous) => previous.single_use.clone(),
            None => {
                let window = SingleUseLog::REPLAY_WINDOW;
                Arc::new(SingleUseLog::new(clock.now(), window, TICKET_LOG))
            }
        };
        // Open connections keep drawing on their budget, so it is kept unless the share changes.
        let share = config.recovery.max_redundancy_of_all;
        let known = previous.map(|previous| &previous.budget).filter(|b| b.share() == share);
        let budget =
            known.cloned().unwrap_or_else(|| Arc::new(SharedBudget::new(share, MIN_BURST)));
        let identity = certificates.current().default().identity.clone();
        let tls = TlsConfig::new(tls(&config.quic, &identity, &keys, &single_use, &clock));
        let mut tls = tls.map_err(|e| Error::new(e.to_string()))?;
        tls.resolve_certificates(certificates.clone());
        Ok(Self {
            tls: Arc::new(tls),
            transport: Arc::new(transport(config, &budget)),
            keys,
            single_use,
            clock,
            budget,
        })
    }

    /// Enables qlog files and the key log for new connections, if configured.
    ///
    /// # Errors
    /// The directory or file cannot be created, or a writer thread cannot be started.
    pub(crate) fn log(&mut self, quic: &config::Quic) -> Result<(), Error> {
        if let Some(dir) = quic.qlog_dir.as_ref().filter(|_| quic.qlog_sample > 0.0) {
            let observer = qlog::observers(dir.clone(), quic.qlog_sample)?;
            Arc::make_mut(&mut self.transport).observer = Some(observer);
        }
        if let Some(path) = &quic.key_log {
            Arc::make_mut(&mut self.tls).log_keys(key_log::open(path)?);
        }
        Ok(())
    }

    /// Returns the keys of tickets, tokens and passes.
    pub(crate) fn keys(&self) -> Arc<KeyRing> {
        self.keys.clone()
    }

    /// Returns the clock of tickets and tokens.
    pub(super) fn clock(&self) -> &TicketClock {
        &self.clock
    }

    /// Returns the settings of the loop on `core`, one of `loops`. Its clock started at
    /// `unix_origin` (Unix time in seconds).
    pub(super) fn endpoint(
        &self,
        config: &Config,
        core: u8,
        loops: usize,
        unix_origin: u64,
    ) -> EndpointConfig {
        EndpointConfig {
            transport: self.transport.clone(),
            tls: self.tls.clone(),
            keys: self.keys.clone(),
            retry: match config.quic.retry {
                config::Retry::Never => RetryPolicy::Never,
                config::Retry::Always => RetryPolicy::Always,
                config::Retry::Auto => RetryPolicy::Above(RETRY_THRESHOLD),
            },
            token_lifetime: config.quic.token_lifetime,
            max_connections: (config.quic.max_connections as usize).div_ceil(loops),
            server_id: config.server.server_id,
            core,
            cores: loops,
            unix_origin,
        }
    }
}

fn limits(quic: &config::Quic) -> StreamLimits {
    StreamLimits {
        max_data: quic.connection_window.0,
        max_stream_data_bidi_local: quic.stream_window.0,
        max_stream_data_bidi_remote: quic.stream_window.0,
        max_stream_data_uni: quic.stream_window.0,
        max_streams_bidi: quic.max_streams.into(),
        ..StreamLimits::default()
    }
}

fn tls(
    quic: &config::Quic,
    identity: &Identity,
    keys: &Arc<KeyRing>,
    single_use: &Arc<SingleUseLog>,
    clock: &Arc<TicketClock>,
) -> TlsSettings {
    let mut alpn = vec![b"h3".to_vec()];
    if quic.hq_interop {
        alpn.push(b"hq-interop".to_vec());
    }
    let cipher = |cipher: &config::Cipher| match cipher {
        config::Cipher::Aes128 => Cipher::Aes128Gcm,
        config::Cipher::Aes256 => Cipher::Aes256Gcm,
        config::Cipher::ChaCha20 => Cipher::ChaCha20Poly1305,
    };
    TlsSettings {
        certificate_chain: identity.chain.iter().map(|c| c.to_vec()).collect(),
        private_key: identity.key.secret_der().to_vec(),
        alpn,
        keys: keys.clone(),
        single_use: single_use.clone(),
        time: clock.clone(),
        early_data: quic.early_data,
        early_data_context: remembered(&limits(quic)),
        tickets: 1,
        ticket_lifetime: TICKET_LIFETIME,
        ciphers: quic.ciphers.iter().map(cipher).collect(),
        one_rtt: OneRttProtection::Real,
    }
}

fn transport(config: &Config, budget: &Arc<SharedBudget>) -> TransportConfig {
    let quic = &config.quic;
    TransportConfig {
        idle_timeout: quic.idle_timeout,
        max_in_flight: quic.max_in_flight.as_usize() as u64,
        keep_alive: Some(quic.keep_alive).filter(|interval| !interval.is_zero()),
        max_ack_delay: quic.max_ack_delay,
        initial_mtu: quic.initial_mtu,
        max_mtu: quic.max_mtu,
        congestion: delivery::controller(quic.congestion),
        detection: Detection { longest_probe: Some(quic.longest_probe), ..Detection::LIVE },
        limits: limits(quic),
        early_data: quic.early_data,
        key_update_after: quic.key_update_after,
        guard: Some(Guard::new(config.recovery.max_redundancy, Some(budget.clone()))),
        ..TransportConfig::default()
    }
}

/// Returns a hash of the limits that clients remember for 0-RTT (RFC 9000, section 7.4.1).
fn remembered(limits: &StreamLimits) -> u64 {
    let values = [
        limits.max_data,
        limits.max_stream_data_bidi_remote,
        limits.max_stream_data_uni,
        limits.max_streams_bidi,
        limits.max_streams_uni,
    ];
    values.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, value| {
        (hash ^ value).wrapping_mul(0x0100_0000_01b3)
    })
}
