//! The server of the tests, and TLS for clients that trust it.

use mendcast_quic as quic;
use quic::crypto::{KeyRing, OneRttProtection, SingleUseLog, SystemTime, TlsConfig, TlsSettings};
use quic::{EndpointConfig, RetryPolicy, TransportConfig};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// One certificate and its key for all servers of a process.
static IDENTITY: LazyLock<(CertificateDer<'static>, PrivatePkcs8KeyDer<'static>)> =
    LazyLock::new(|| {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
        let params = rcgen::CertificateParams::new(vec!["server".to_owned()]).expect("a name");
        let cert = params.self_signed(&key).expect("a certificate");
        (cert.der().clone(), PrivatePkcs8KeyDer::from(key.serialize_der()))
    });

/// Default settings with 0-RTT.
pub fn config() -> EndpointConfig {
    let (certificate, key) = &*IDENTITY;
    let keys = Arc::new(KeyRing::new(&[7; 32], &[(0, [9; 32])]));
    let tls = TlsConfig::new(TlsSettings {
        certificate_chain: vec![certificate.to_vec()],
        private_key: key.secret_pkcs8_der().to_vec(),
        alpn: vec![b"test".to_vec()],
        keys: keys.clone(),
        single_use: Arc::new(SingleUseLog::new(0, 120, 1_000)),
        time: Arc::new(SystemTime),
        early_data: true,
        early_data_context: 0,
        tickets: 1,
        ticket_lifetime: 86_400,
        ciphers: Vec::new(),
        one_rtt: OneRttProtection::Real,
    })
    .expect("certificate and key belong together");
    EndpointConfig {
        transport: Arc::new(TransportConfig::default()),
        tls: Arc::new(tls),
        keys,
        retry: RetryPolicy::Never,
        token_lifetime: Duration::from_secs(86_400),
        max_connections: 1_000,
        server_id: 1,
        core: 0,
        cores: 1,
        unix_origin: 1_800_000_000,
    }
}

/// A client's TLS on `provider`, with 0-RTT.
pub fn client_tls(provider: CryptoProvider, alpn: &[u8]) -> rustls::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(IDENTITY.0.clone()).expect("a root");
    let mut tls = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![alpn.to_vec()];
    tls.enable_early_data = true;
    tls
}
