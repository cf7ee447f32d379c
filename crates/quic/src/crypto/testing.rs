//! Shared test fixtures: fixed seeds and keys, a manual clock, and in-memory handshakes between
//! [`Tls`] and the TLS library's own QUIC client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::SeedableRng;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::quic::{self, ClientConnection};

use super::*;

pub fn rng(seed: u64) -> ChaCha12Rng {
    ChaCha12Rng::seed_from_u64(seed)
}

pub fn key_ring() -> KeyRing {
    KeyRing::new(&[1; 32], &[(0, [2; 32])])
}

pub fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).expect("a hexadecimal digit") as u8)
        .collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// The wall clock of both sides, in seconds.
#[derive(Debug)]
pub struct Clock(AtomicU64);

impl Clock {
    pub fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn advance(&self, seconds: u64) {
        self.0.fetch_add(seconds, Ordering::Relaxed);
    }
}

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(self.now())))
    }
}

/// A server and a client that remembers its tickets.
pub struct World {
    pub clock: Arc<Clock>,
    pub server: TlsConfig,
    pub client: Arc<rustls::ClientConfig>,
    pub certificate: rcgen::CertifiedKey<rcgen::KeyPair>,
}

impl World {
    pub fn new(change: impl FnOnce(&mut TlsSettings)) -> Self {
        let clock = Arc::new(Clock(AtomicU64::new(1_790_000_000)));
        let signing_key =
            rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("key generation");
        let cert = rcgen::CertificateParams::new(vec!["localhost".to_owned()])
            .and_then(|params| params.self_signed(&signing_key))
            .expect("a certificate");
        let certificate = rcgen::CertifiedKey { cert, signing_key };
        let mut world = settings(&clock, &certificate);
        change(&mut world);
        let server = TlsConfig::new(world).expect("a valid configuration");
        let client = client_config(&clock, certificate.cert.der(), b"h3");
        Self { clock, server, client, certificate }
    }

    /// Settings for another server with the same clock and certificate.
    pub fn settings(&self) -> TlsSettings {
        settings(&self.clock, &self.certificate)
    }

    pub fn other_client(&self, alpn: &[u8]) -> Arc<rustls::ClientConfig> {
        client_config(&self.clock, self.certificate.cert.der(), alpn)
    }

    /// A handshake to its end; tickets are withheld in the server.
    pub fn connect(&self) -> Handshake {
        let mut handshake = Handshake::new(&self.server, self.client.clone());
        handshake.run().expect("the handshake completes");
        handshake
    }

    /// A handshake after which the client holds a ticket with `own`.
    pub fn connect_for_ticket(&self, own: &[u8]) -> Handshake {
        let mut handshake = self.connect();
        let ticket = handshake.server.take_ticket().expect("a ticket");
        let message = ticket.release(&key_ring(), own, self.clock.now(), &mut rng(7));
        handshake.client.read_hs(&message).expect("the client takes the ticket");
        handshake
    }
}

fn settings(clock: &Arc<Clock>, certificate: &rcgen::CertifiedKey<rcgen::KeyPair>) -> TlsSettings {
    TlsSettings {
        certificate_chain: vec![certificate.cert.der().to_vec()],
        private_key: certificate.signing_key.serialize_der(),
        alpn: vec![b"h3".to_vec()],
        keys: Arc::new(key_ring()),
        single_use: Arc::new(SingleUseLog::new(clock.now(), SingleUseLog::REPLAY_WINDOW, 100)),
        time: clock.clone(),
        early_data: true,
        early_data_context: 1,
        tickets: 1,
        ticket_lifetime: 86_400,
        ciphers: Vec::new(),
        one_rtt: OneRttProtection::Real,
    }
}

fn client_config(
    clock: &Arc<Clock>,
    certificate: &CertificateDer<'static>,
    alpn: &[u8],
) -> Arc<rustls::ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).expect("a trust anchor");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_details(provider, clock.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![alpn.to_vec()];
    config.enable_early_data = true;
    Arc::new(config)
}

/// A handshake: both ends and their outputs.
pub struct Handshake {
    pub client: ClientConnection,
    pub server: Tls,
    pub client_one_rtt: Option<OneRtt>,
    pub server_one_rtt: Option<OneRtt>,
    client_level: Level,
    server_level: Level,
    from_client: Vec<(Level, Vec<u8>)>,
}

pub const CLIENT_PARAMETERS: &[u8] = b"client parameters";
pub const SERVER_PARAMETERS: &[u8] = b"server parameters";

impl Handshake {
    pub fn new(server: &TlsConfig, client: Arc<rustls::ClientConfig>) -> Self {
        let name = "localhost".try_into().expect("a server name");
        Self {
            client: ClientConnection::new(
                client,
                quic::Version::V1,
                name,
                CLIENT_PARAMETERS.to_vec(),
            )
            .expect("a client"),
            server: Tls::new(server, SERVER_PARAMETERS.to_vec()),
            client_one_rtt: None,
            server_one_rtt: None,
            client_level: Level::Initial,
            server_level: Level::Initial,
            from_client: Vec::new(),
        }
    }

    /// Returns the client's pending output, with levels.
    pub fn client_output(&mut self) -> Vec<(Level, Vec<u8>)> {
        self.pump_client();
        core::mem::take(&mut self.from_client)
    }

    /// Hands a flight of the server to the client. The client's output is collected at once: it
    /// would change its level if more was read first.
    pub fn client_read(&mut self, flight: &[u8]) {
        self.client.read_hs(flight).expect("the client accepts the server's messages");
        self.pump_client();
    }

    fn pump_client(&mut self) {
        loop {
            let mut flight = Vec::new();
            let level = self.client_level;
            let change = self.client.write_hs(&mut flight);
            let done = change.is_none();
            match change {
                Some(quic::KeyChange::Handshake { .. }) => self.client_level = Level::Handshake,
                Some(quic::KeyChange::OneRtt { keys, next }) => {
                    self.client_level = Level::OneRtt;
                    self.client_one_rtt = Some(OneRtt::real(keys, next));
                }
                None => {}
            }
            if !flight.is_empty() {
                self.from_client.push((level, flight));
            }
            if done {
                return;
            }
        }
    }

    /// Returns the server's pending output, with levels.
    pub fn server_output(&mut self) -> Vec<(Level, Vec<u8>)> {
        let mut flights = Vec::new();
        loop {
            let mut flight = Vec::new();
            let level = self.server_level;
            let change = self.server.write(&mut flight);
            let done = change.is_none();
            match change {
                Some(KeyChange::Handshake(_)) => self.server_level = Level::Handshake,
                Some(KeyChange::OneRtt(keys)) => {
                    self.server_level = Level::OneRtt;
                    self.server_one_rtt = Some(*keys);
                }
                None => {}
            }
            if !flight.is_empty() {
                flights.push((level, flight));
            }
            if done {
                return flights;
            }
        }
    }

    /// Exchanges messages until neither side has any; the server's first error ends it.
    pub fn run(&mut self) -> Result<(), TlsError> {
        loop {
            let from_client = self.client_output();
            let quiet = from_client.is_empty();
            for (level, flight) in from_client {
                self.server.read(level, &flight)?;
            }
            let from_server = self.server_output();
            if quiet && from_server.is_empty() {
                return Ok(());
            }
            for (_, flight) in from_server {
                self.client_read(&flight);
            }
        }
    }
}
