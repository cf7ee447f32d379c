//! The server's TLS 1.3 handshake (RFC 9001, section 4), the only place that knows the TLS library.
//!
//! [`Tls`] turns CRYPTO data into CRYPTO data and keys; the connection does the packets. It can be
//! dropped as soon as the handshake is over and the tickets are taken: what lives on is in
//! [`OneRtt`] and [`PendingTicket`].

use std::collections::VecDeque;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::quic::{self, ServerConnection};
use rustls::{AlertDescription, HandshakeKind, ServerConfig, SupportedCipherSuite};

use super::keyring::KeyRing;
use super::keys::{DirectionKeys, Keys};
use super::one_rtt::OneRtt;
use super::single_use::SingleUseLog;
use super::ticket::{PendingTicket, SessionStore, TicketPolicy};

pub use rustls::KeyLog;
pub use rustls::pki_types::UnixTime;
pub use rustls::server::ResolvesServerCert;
pub use rustls::time_provider::{DefaultTimeProvider as SystemTime, TimeProvider};

/// An encryption level that carries CRYPTO frames (RFC 9001, section 4.1.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Initial packets.
    Initial,
    /// Handshake packets.
    Handshake,
    /// 1-RTT packets.
    OneRtt,
}

/// A cipher suite that a server may be restricted to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cipher {
    /// TLS_AES_128_GCM_SHA256.
    Aes128Gcm,
    /// TLS_AES_256_GCM_SHA384.
    Aes256Gcm,
    /// TLS_CHACHA20_POLY1305_SHA256.
    ChaCha20Poly1305,
}

/// Protection of 1-RTT packets. All other levels use real ciphers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OneRttProtection {
    /// As negotiated.
    Real,
    /// The null cipher, for the testbed. The peer must use it too.
    Null,
}

/// Settings of a [`TlsConfig`].
pub struct TlsSettings {
    /// The certificate chain in DER, the server's own certificate first.
    pub certificate_chain: Vec<Vec<u8>>,
    /// Its private key in DER (PKCS #8, SEC 1 or PKCS #1).
    pub private_key: Vec<u8>,
    /// The application protocols, most preferred first, e.g. `h3`.
    pub alpn: Vec<Vec<u8>>,
    /// What opens returned tickets.
    pub keys: Arc<KeyRing>,
    /// Log of used tickets.
    pub single_use: Arc<SingleUseLog>,
    /// The wall clock, in Unix seconds; [`SystemTime`] outside the testbed.
    pub time: Arc<dyn TimeProvider>,
    /// 0-RTT is offered and accepted.
    pub early_data: bool,
    /// A number that changes whenever a transport parameter or application setting that clients
    /// remember is lowered: tickets of another context resume without early data
    /// (RFC 9000, section 7.4.1).
    pub early_data_context: u64,
    /// Tickets per handshake: 1 is plenty, 2 serve clients that open connections in parallel.
    pub tickets: usize,
    /// Lifetime of a ticket, in seconds: at most 604 800 (RFC 8446, section 4.6.1).
    pub ticket_lifetime: u32,
    /// The cipher suites to allow; empty for all.
    pub ciphers: Vec<Cipher>,
    /// Protection of 1-RTT packets.
    pub one_rtt: OneRttProtection,
}

/// Error in the settings of a [`TlsConfig`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

/// A server's TLS configuration. Built once; a new certificate is a new configuration, and
/// connections keep the one that they began with.
#[derive(Clone)]
pub struct TlsConfig {
    server: Arc<ServerConfig>,
    tickets: Arc<TicketPolicy>,
    one_rtt: OneRttProtection,
}

impl TlsConfig {
    /// Checks and assembles `settings`.
    ///
    /// # Errors
    /// [`ConfigError`] if the certificate or its key is unusable or the key is not the
    /// certificate's, or a ticket would live for more than seven days.
    pub fn new(settings: TlsSettings) -> Result<Self, ConfigError> {
        if settings.ticket_lifetime > 604_800 {
            return Err(ConfigError("a ticket must not live longer than seven days".into()));
        }
        let mut provider = default_provider();
        if !settings.ciphers.is_empty() {
            provider.cipher_suites = settings.ciphers.iter().map(|&cipher| suite(cipher)).collect();
        }
        let chain = settings.certificate_chain.into_iter().map(CertificateDer::from).collect();
        let key = PrivateKeyDer::try_from(settings.private_key)
            .map_err(|error| ConfigError(format!("private key: {error}")))?;
        let mut server = server_config(provider, settings.time.clone(), chain, key)
            .map_err(|error| ConfigError(error.to_string()))?;
        server.alpn_protocols = settings.alpn;
        server.send_tls13_tickets = settings.tickets;
        // RFC 9001, section 4.6.1: the value that allows early data is always 2^32 - 1.
        server.max_early_data_size = if settings.early_data { u32::MAX } else { 0 };
        let tickets = TicketPolicy {
            keys: settings.keys,
            single_use: settings.single_use,
            time: settings.time,
            lifetime: settings.ticket_lifetime,
            early_data_context: settings.early_data_context,
        };
        Ok(Self { server: Arc::new(server), tickets: Arc::new(tickets), one_rtt: settings.one_rtt })
    }

    /// Asks `resolver` for the certificate of each handshake, by the client's server name, instead
    /// of using the settings' certificate. Called on the loop's thread: `resolver` must not block.
    pub fn resolve_certificates(&mut self, resolver: Arc<dyn ResolvesServerCert>) {
        Arc::make_mut(&mut self.server).cert_resolver = resolver;
    }

    /// Passes the TLS secrets of new connections to `log`, so that captures can be decrypted.
    /// Called on the loop's thread: `log` must not block.
    pub fn log_keys(&mut self, log: Arc<dyn KeyLog>) {
        Arc::make_mut(&mut self.server).key_log = log;
    }
}

fn server_config(
    provider: CryptoProvider,
    time: Arc<dyn TimeProvider>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, rustls::Error> {
    ServerConfig::builder_with_details(Arc::new(provider), time)
        // RFC 9001, section 4.2: nothing older than TLS 1.3.
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key)
}

fn suite(cipher: Cipher) -> SupportedCipherSuite {
    match cipher {
        Cipher::Aes128Gcm => cipher_suite::TLS13_AES_128_GCM_SHA256,
        Cipher::Aes256Gcm => cipher_suite::TLS13_AES_256_GCM_SHA384,
        Cipher::ChaCha20Poly1305 => cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    }
}

/// A handshake that failed: close the connection with the error 0x100 + `alert`
/// (RFC 9001, section 4.8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsError {
    /// The TLS alert (RFC 8446, section 6).
    pub alert: u8,
    /// For logs.
    pub text: String,
}

/// New keys that the handshake has produced.
pub enum KeyChange {
    /// For Handshake packets. Later output is Handshake CRYPTO data.
    Handshake(Keys),
    /// For 1-RTT packets. The server may send at once; received 1-RTT packets must wait until
    /// [`Tls::is_handshaking`] is false (RFC 9001, section 5.7).
    OneRtt(Box<OneRtt>),
}

/// The server side of one handshake.
pub struct Tls {
    connection: ServerConnection,
    store: Arc<SessionStore>,
    one_rtt: OneRttProtection,
    /// The level at which the peer's next message is due.
    reading: Level,
    /// Bytes read at the Initial level, until they are known to be a QUIC ClientHello.
    hello: Vec<u8>,
    one_rtt_written: bool,
    returned: Option<Vec<u8>>,
    tickets: VecDeque<PendingTicket>,
}

impl Tls {
    /// Creates a handshake that sends `transport_parameters` (RFC 9001, section 8.2).
    pub fn new(config: &TlsConfig, transport_parameters: Vec<u8>) -> Self {
        let store = Arc::new(SessionStore::new(config.tickets.clone()));
        // The copy shares everything but three short lists; it exists because the TLS library has
        // no other hook that knows which connection a session belongs to.
        let mut server = ServerConfig::clone(&config.server);
        server.session_storage = store.clone();
        let connection =
            ServerConnection::new(Arc::new(server), quic::Version::V1, transport_parameters)
                .expect("a TLS 1.3 configuration with a valid early data size suits QUIC");
        Self {
            connection,
            store,
            one_rtt: config.one_rtt,
            reading: Level::Initial,
            hello: Vec::new(),
            one_rtt_written: false,
            returned: None,
            tickets: VecDeque::new(),
        }
    }

    /// Takes the next CRYPTO bytes of `level`, in order and without gaps, in pieces of any size.
    /// [`Self::write`] must follow each time, until it returns `None`.
    ///
    /// # Errors
    /// [`TlsError`] ends the handshake: on whatever the library rejects, on data at a level where
    /// none is due (RFC 9001, section 4.1.3), and on a message longer than 65 535 bytes.
    pub fn read(&mut self, level: Level, data: &[u8]) -> Result<(), TlsError> {
        if level != self.reading {
            return Err(TlsError {
                alert: u8::from(AlertDescription::UnexpectedMessage),
                text: format!("{level:?} data where {:?} data is due", self.reading),
            });
        }
        self.connection.read_hs(data).map_err(|error| TlsError {
            alert: self.connection.alert().unwrap_or(AlertDescription::InternalError).into(),
            text: error.to_string(),
        })?;
        if level == Level::Initial {
            self.hello.extend_from_slice(data);
            // RFC 9001, section 8.2. The library also takes the number that drafts before 33 had.
            if self.peer_transport_parameters().is_some() {
                let hello = core::mem::take(&mut self.hello);
                if !names_parameters(&hello) {
                    return Err(TlsError {
                        alert: AlertDescription::MissingExtension.into(),
                        text: "a hello without quic_transport_parameters".into(),
                    });
                }
            }
        }
        if self.resumed()
            && let Some(own) = self.store.take_own()
        {
            self.returned = Some(own);
        }
        if !self.is_handshaking() {
            self.reading = Level::OneRtt;
        }
        Ok(())
    }

    /// Appends the CRYPTO bytes that are ready to `out`, all of one level: Initial until the
    /// Handshake keys have been returned, Handshake after that. To be called again until it returns
    /// `None`: then nothing is left. Tickets do not appear here but in [`Self::take_ticket`].
    pub fn write(&mut self, out: &mut Vec<u8>) -> Option<KeyChange> {
        if self.one_rtt_written {
            let mut output = Vec::new();
            while self.connection.write_hs(&mut output).is_some() {}
            if !output.is_empty() {
                self.tickets.extend(self.store.withhold(&output));
            }
            return None;
        }
        match self.connection.write_hs(out)? {
            quic::KeyChange::Handshake { keys } => {
                self.reading = Level::Handshake;
                Some(KeyChange::Handshake(Keys::real(keys)))
            }
            quic::KeyChange::OneRtt { keys, next } => {
                self.one_rtt_written = true;
                Some(KeyChange::OneRtt(Box::new(match self.one_rtt {
                    OneRttProtection::Real => OneRtt::real(keys, next),
                    OneRttProtection::Null => OneRtt::null(),
                })))
            }
        }
    }

    /// Returns the keys of the client's 0-RTT packets, if early data is accepted. Available once
    /// the ClientHello has been read, and derived on each call.
    pub fn zero_rtt_keys(&mut self) -> Option<DirectionKeys> {
        self.connection.zero_rtt_keys().map(DirectionKeys::real)
    }

    /// Whether the client's Finished is still to come. When false, the handshake is complete, and
    /// for a server also confirmed (RFC 9001, section 4.1.2).
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// The negotiated cipher suite.
    pub fn cipher(&self) -> Option<Cipher> {
        let agreed = self.connection.negotiated_cipher_suite()?.suite();
        [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305]
            .into_iter()
            .find(|&cipher| suite(cipher).suite() == agreed)
    }

    /// The negotiated application protocol.
    pub fn alpn(&self) -> Option<Vec<u8>> {
        self.connection.alpn_protocol().map(<[u8]>::to_vec)
    }

    /// The server name that the client asked for (RFC 6066, section 3).
    pub fn server_name(&self) -> Option<String> {
        self.connection.server_name().map(str::to_owned)
    }

    /// The client's transport parameters, as sent; not authenticated before the handshake is
    /// complete (RFC 9001, section 8.2).
    pub fn peer_transport_parameters(&self) -> Option<&[u8]> {
        self.connection.quic_transport_parameters()
    }

    /// Returns true if a ticket was resumed. Known once the ClientHello has been read.
    pub fn resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Our own bytes in the ticket that was resumed.
    pub fn returned_ticket(&self) -> Option<&[u8]> {
        self.returned.as_deref()
    }

    /// The next ticket to send. There are some once the handshake is complete and [`Self::write`]
    /// has been called.
    pub fn take_ticket(&mut self) -> Option<PendingTicket> {
        self.tickets.pop_front()
    }
}

/// Whether the last of these ClientHello messages (RFC 8446, section 4.1.2; two after a
/// HelloRetryRequest) has the extension 0x39.
fn names_parameters(mut messages: &[u8]) -> bool {
    /// Takes a field behind its length of `bytes` bytes.
    fn field<'a>(rest: &mut &'a [u8], bytes: usize) -> Option<&'a [u8]> {
        let (length, behind) = rest.split_at_checked(bytes)?;
        let length = length.iter().fold(0, |sum, &byte| sum << 8 | usize::from(byte));
        let field;
        (field, *rest) = behind.split_at_checked(length)?;
        Some(field)
    }
    fn has_it(mut hello: &[u8]) -> Option<bool> {
        // Version and random; session ID, cipher suites, compression methods.
        hello = hello.get(2 + 32..)?;
        for length in [1, 2, 1] {
            field(&mut hello, length)?;
        }
        let mut extensions = field(&mut hello, 2)?;
        while !extensions.is_empty() {
            let kind = extensions.split_off(..2)?;
            field(&mut extensions, 2)?;
            if kind == [0x00, 0x39] {
                return Some(true);
            }
        }
        Some(false)
    }
    let mut found = false;
    while let Some((_, behind)) = messages.split_first() {
        messages = behind;
        match field(&mut messages, 3) {
            Some(hello) => found = has_it(hello).unwrap_or(false),
            None => return found,
        }
    }
    found
}

#[cfg(test)]
mod tests;
