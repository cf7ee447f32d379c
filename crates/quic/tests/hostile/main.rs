//! Clients that break the rules: each ends with the error code that the RFC prescribes, or is
//! ignored where the RFC says so, and costs the server a bounded amount of work and memory.
//! `errors` are the transport and TLS cases that h3spec checks, and their neighbours; the others
//! are floods and forgeries: `handshakes` before a connection exists and while it begins, `paths`
//! with addresses, connection IDs and resets, `acknowledgements` with packet numbers and keys,
//! `attacks` the rest, and `fuzz` random clients.

mod acknowledgements;
mod attacks;
mod errors;
mod fuzz;
mod handshakes;
mod paths;
mod raw;

use std::sync::Arc;
use std::time::Duration;

use mendcast_quic as quic;
use quic::crypto::{KeyRing, OneRttProtection, SingleUseLog, SystemTime, TlsConfig, TlsSettings};
use quic::{Endpoint, EndpointConfig, RetryPolicy, TransportConfig};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};

use raw::{Parameters, Raw, honest};

/// Default settings, and an identity of its own.
pub fn config() -> EndpointConfig {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
    let params = rcgen::CertificateParams::new(vec!["server".to_owned()]).expect("a name");
    let cert = params.self_signed(&key).expect("a certificate");
    let keys = Arc::new(KeyRing::new(&[7; 32], &[(0, [9; 32])]));
    let tls = TlsConfig::new(TlsSettings {
        certificate_chain: vec![cert.der().to_vec()],
        private_key: PrivatePkcs8KeyDer::from(key.serialize_der()).secret_pkcs8_der().to_vec(),
        alpn: vec![b"test".to_vec()],
        keys: keys.clone(),
        single_use: Arc::new(SingleUseLog::new(0, 120, 1_000)),
        time: Arc::new(SystemTime),
        early_data: true,
        early_data_context: 0,
        tickets: 1,
        ticket_lifetime: 86_400,
        ciphers: vec![quic::crypto::Cipher::Aes128Gcm],
        one_rtt: OneRttProtection::Real,
    })
    .expect("certificate and key belong together");
    let transport = TransportConfig { early_data: true, ..TransportConfig::default() };
    EndpointConfig {
        transport: Arc::new(transport),
        tls: Arc::new(tls),
        keys,
        retry: RetryPolicy::Never,
        token_lifetime: Duration::from_secs(86_400),
        max_connections: 1_000,
        server_id: 1,
        core: 0,
        unix_origin: 1_800_000_000,
    }
}

/// A server with default settings.
pub fn endpoint() -> Endpoint {
    Endpoint::new(config(), [3; 32])
}

/// A client's TLS that trusts any certificate and offers one suite.
pub fn client_tls(alpn: &[u8]) -> Arc<rustls::ClientConfig> {
    client_tls_with(rustls::crypto::aws_lc_rs::default_provider(), alpn)
}

/// The same on another provider.
pub fn client_tls_with(mut provider: CryptoProvider, alpn: &[u8]) -> Arc<rustls::ClientConfig> {
    provider
        .cipher_suites
        .retain(|suite| suite.suite() == rustls::CipherSuite::TLS13_AES_128_GCM_SHA256);
    let mut tls = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone))
        .with_no_client_auth();
    tls.alpn_protocols = vec![alpn.to_vec()];
    tls.enable_early_data = true;
    Arc::new(tls)
}

#[derive(Debug)]
struct Anyone;

impl ServerCertVerifier for Anyone {
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
        _: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        vec![rustls::SignatureScheme::ED25519]
    }
}

/// A client with these parameters that has not begun.
pub fn client(parameters: &Parameters) -> Raw {
    Raw::new(endpoint(), client_tls(b"test"), parameters)
}

/// A client after an honest handshake.
pub fn connected() -> Raw {
    let mut raw = client(&honest());
    raw.connect();
    raw
}
