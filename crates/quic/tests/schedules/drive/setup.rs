//! The server and the client's transport parameters, as the first bytes of a schedule choose them.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use congestion::Algorithm;
use mendcast_quic as quic;
use quic::CopyAccounting;
use quic::crypto::{KeyRing, OneRttProtection, SingleUseLog, TimeProvider, UnixTime};
use quic::crypto::{TlsConfig, TlsSettings};
use quic::detection::Detection;
use quic::streams::StreamLimits;
use quic::{EndpointConfig, RetryPolicy, TransportConfig};
use recovery::art::{self, ETA, Penalty, SharedArms, dqn::Network};
use recovery::autorec::{self, FixedLife, Tolerances};
use recovery::fixed::{self, Reading};
use recovery::{Arq, Guard, Scheme};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{DigitallySignedStruct, SignatureScheme};

use super::script::Script;

/// Unix time of the virtual clock's origin.
const ORIGIN: u64 = 1_800_000_000;

#[derive(Debug)]
struct Clock;

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(ORIGIN)))
    }
}

/// Trusts every certificate: verification is out of scope and takes time.
#[derive(Debug)]
struct Trusting;

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

/// Keys and TLS of all servers of a process: 1-RTT packets have the testbed's null cipher, so that
/// the client needs no keys for them and an execution is cheap.
struct Identity {
    keys: Arc<KeyRing>,
    tls: Arc<TlsConfig>,
    client: Arc<rustls::ClientConfig>,
}

static IDENTITY: LazyLock<Identity> = LazyLock::new(|| {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
    let params = rcgen::CertificateParams::new(vec!["server".to_owned()]).expect("a name");
    let certificate = params.self_signed(&key).expect("a certificate");
    let keys = Arc::new(KeyRing::new(&[7; 32], &[(0, [9; 32])]));
    let tls = TlsConfig::new(TlsSettings {
        certificate_chain: vec![certificate.der().to_vec()],
        private_key: key.serialize_der(),
        alpn: vec![b"test".to_vec()],
        keys: keys.clone(),
        single_use: Arc::new(SingleUseLog::new(ORIGIN, 120, 1_000)),
        time: Arc::new(Clock),
        early_data: false,
        early_data_context: 0,
        tickets: 1,
        ticket_lifetime: 86_400,
        ciphers: vec![quic::crypto::Cipher::Aes128Gcm],
        one_rtt: OneRttProtection::Null,
    });
    let tls = Arc::new(tls.expect("certificate and key belong together"));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut client = rustls::ClientConfig::builder_with_details(provider, Arc::new(Clock))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trusting))
        .with_no_client_auth();
    client.alpn_protocols = vec![b"test".to_vec()];
    client.resumption = rustls::client::Resumption::disabled();
    Identity { keys, tls, client: Arc::new(client) }
});

/// TLS of all clients.
pub fn client_tls() -> Arc<rustls::ClientConfig> {
    IDENTITY.client.clone()
}

/// The client's transport parameters, as needed by the checks (RFC 9000, section 18.2).
#[derive(Clone, Debug)]
pub struct Parameters {
    /// Length of the client's connection IDs.
    pub id_len: usize,
    pub max_udp_payload: u64,
    pub max_data: u64,
    /// The server's send limit on a stream, by the two low bits of the stream ID.
    pub max_stream_data: [u64; 4],
    /// Streams that the server may open: bidirectional and unidirectional ones.
    pub max_streams: [u64; 2],
    pub idle_ms: u64,
    pub ack_delay_exponent: u8,
    pub max_ack_delay_ms: u64,
    pub id_limit: u64,
    pub greases: bool,
}

/// A connection's settings and surroundings.
#[derive(Debug)]
pub struct Setup {
    pub transport: TransportConfig,
    pub parameters: Parameters,
    /// Which operations are likely.
    pub profile: u8,
    /// Round-trip time of the handshake.
    pub rtt: Duration,
    /// Lost datagrams at the start of the handshake, few enough for it to finish in time. The last
    /// bit makes the application send early.
    pub handshake_losses: u32,
    /// Pieces of 60,000 bytes that the client has asked for before the first step.
    pub download: u8,
    /// At the end the client does all that it can, and the server must then get everything through.
    pub heals: bool,
}

impl Setup {
    pub fn read(script: &mut Script<'_>) -> Self {
        let ms = Duration::from_millis;
        let first = script.byte();
        let mut transport = TransportConfig {
            congestion: quic::controller(script.pick(&Algorithm::ALL)),
            keep_alive: script.pick(&[None, None, Some(ms(5_000)), Some(ms(200))]),
            early_data: false,
            ..TransportConfig::default()
        };
        let flags = script.byte();
        transport.ecn = flags & 1 == 0;
        if flags & 6 == 6 {
            transport.detection = Detection::LSQUIC;
        }
        if flags & 10 == 10 {
            transport.accounting = CopyAccounting::Newest;
        }
        if flags & 0x18 == 0x18 {
            transport.guard = Some(Guard::new(0.1, None));
        }
        if flags & 0x60 == 0x60 {
            transport.key_update_after = 20;
        }
        if flags & 0x80 != 0 {
            transport.limits = StreamLimits {
                max_data: 4_000,
                max_stream_data_bidi_remote: 2_000,
                max_stream_data_uni: 1_000,
                max_streams_bidi: 3,
                connection_window_ceiling: 64_000,
                stream_window_ceiling: 16_000,
                ..StreamLimits::default()
            };
        }
        transport.idle_timeout =
            script.pick(&[ms(30_000), ms(30_000), ms(30_000), ms(2_000), ms(600_000)]);
        let which = script.byte();
        let seed = u64::from(script.byte());
        transport.scheme = Arc::new(move || scheme(which, seed));
        Self {
            profile: first & 0x0f,
            rtt: script.pick(&[ms(0), ms(1), ms(20), ms(80), ms(300), ms(900)]),
            heals: first & 0x10 == 0,
            handshake_losses: match script.byte() {
                0..=199 => 0,
                _ => {
                    let place = |script: &mut Script<'_>| 1 << script.below(12);
                    let losses = place(script) | place(script) | place(script);
                    losses | u32::from(script.byte() & 1) << 31
                }
            },
            download: script.pick(&[0, 1, 5]),
            parameters: Parameters::read(script),
            transport,
        }
    }

    /// The endpoint's settings.
    pub fn endpoint(&self) -> EndpointConfig {
        EndpointConfig {
            transport: Arc::new(self.transport.clone()),
            tls: IDENTITY.tls.clone(),
            keys: IDENTITY.keys.clone(),
            retry: RetryPolicy::Never,
            token_lifetime: Duration::from_secs(86_400),
            max_connections: 4,
            server_id: 1,
            core: 0,
            cores: 1,
            unix_origin: ORIGIN,
        }
    }
}

impl Parameters {
    fn read(script: &mut Script<'_>) -> Self {
        let window = |script: &mut Script<'_>| {
            script.pick(&[1 << 20, 1 << 24, 1 << 24, 1 << 24, (1 << 62) - 1, 30_000, 1_200, 0])
        };
        let max_data = window(script);
        let bidi = window(script);
        let uni = window(script);
        Self {
            id_len: script.pick(&[8, 8, 20, 0, 4]),
            max_udp_payload: script.pick(&[65_527, 65_527, 1_452, 1_200, 1_300]),
            max_data,
            // Of the server's view: 0 and 1 are bidirectional, 3 is the server's unidirectional.
            max_stream_data: [bidi, bidi, 0, uni],
            max_streams: [script.pick(&[3, 100, 0]), script.pick(&[3, 100, 0])],
            idle_ms: script.pick(&[0, 0, 0, 30_000, 1_000, 3_600_000]),
            ack_delay_exponent: script.pick(&[3, 0, 20]),
            max_ack_delay_ms: script.pick(&[25, 0, 16_383]),
            id_limit: script.pick(&[4, 2, 8, 1_000]),
            greases: script.below(2) == 0,
        }
    }

    /// As they stand in the client's hello, with this source connection ID.
    pub fn encoded(&self, id: &[u8]) -> Vec<u8> {
        use super::client::varint;
        let mut out = Vec::new();
        let mut put = |name: u64, value: &[u8]| {
            varint(&mut out, name);
            varint(&mut out, value.len() as u64);
            out.extend_from_slice(value);
        };
        put(0x0f, id);
        let [ours, theirs, _, uni] = self.max_stream_data;
        for (name, value) in [
            (0x01, self.idle_ms),
            (0x03, self.max_udp_payload),
            (0x04, self.max_data),
            // Streams that the client opens are local to it, the others remote.
            (0x05, ours),
            (0x06, theirs),
            (0x07, uni),
            (0x08, self.max_streams[0]),
            (0x09, self.max_streams[1]),
            (0x0a, u64::from(self.ack_delay_exponent)),
            (0x0b, self.max_ack_delay_ms),
            (0x0e, self.id_limit),
        ] {
            let mut encoded = Vec::new();
            varint(&mut encoded, value);
            put(name, &encoded);
        }
        if self.greases {
            put(0x2ab2, &[]);
        }
        out
    }
}

/// Each scheme of loss recovery that there is.
pub fn scheme(which: u8, seed: u64) -> Scheme {
    let arms = || SharedArms::default();
    let penalty = Penalty::Quotient(ETA);
    match which % 12 {
        0 => Arq::scheme(),
        1 => autorec::scheme(Tolerances::default()),
        2 => autorec::fixed(FixedLife::new(1 + seed as u32 % 3).expect("a level in range")),
        3 => autorec::scheme_mm24(autorec::Options::default(), seed),
        4 => art::paper(Reading::Extra, seed),
        5 => art::code(Reading::Copies, seed),
        6 => art::egreedy(Reading::Extra, arms(), penalty, seed),
        7 => art::ucb(Reading::Extra, arms(), penalty, seed),
        8 => art::dqn(Arc::new(Network::always(1 + seed as u32 % 10)), Reading::Extra, seed),
        9 => fixed::or3(Reading::Copies),
        10 => fixed::odd(Reading::Extra),
        _ => fixed::fixed(1 + seed as u32 % 10, Reading::Extra).expect("1 to 10"),
    }
}
