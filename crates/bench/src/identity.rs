//! Certificate and cipher shared by all contestants.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

use crate::Failure;

/// Name in the certificate.
pub(crate) const NAME: &str = "server.bench";

/// A self-signed certificate and its key.
pub(crate) struct Identity {
    pub certificate: CertificateDer<'static>,
    pub key: PrivatePkcs8KeyDer<'static>,
    /// Both in PEM, for servers that read files.
    pub pem: (String, String),
}

impl Identity {
    pub(crate) fn new() -> Self {
        let key = rcgen::KeyPair::generate().expect("the generator works");
        let certificate = rcgen::CertificateParams::new(vec![NAME.to_owned()])
            .and_then(|params| params.self_signed(&key))
            .expect("the name is valid");
        Self {
            pem: (certificate.pem(), key.serialize_pem()),
            certificate: certificate.der().clone(),
            key: PrivatePkcs8KeyDer::from(key.serialize_der()),
        }
    }
}

/// TLS_AES_128_GCM_SHA256 only: a client that offers a single cipher forces it on all servers.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider
        .cipher_suites
        .retain(|suite| suite.suite() == rustls::CipherSuite::TLS13_AES_128_GCM_SHA256);
    Arc::new(provider)
}

/// Returns a client configuration that trusts `certificate`.
pub(crate) fn client_tls(certificate: &CertificateDer<'static>) -> rustls::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone()).expect("a certificate is a root");
    let mut tls = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"hq-interop".to_vec()];
    tls
}

/// Returns a server configuration with `certificate`, for stacks on rustls.
pub(crate) fn server_tls(
    certificate: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
) -> rustls::ServerConfig {
    let mut tls = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key.into())
        .expect("certificate and key belong together");
    tls.alpn_protocols = vec![b"hq-interop".to_vec()];
    tls.max_early_data_size = u32::MAX;
    tls
}

/// Writes a certificate and its key for servers and viewers.
pub(crate) fn write(dir: &Path) -> Result<(), Failure> {
    let identity = Identity::new();
    for (name, text) in [("chain.pem", &identity.pem.0), ("key.pem", &identity.pem.1)] {
        std::fs::write(dir.join(name), text)?;
    }
    Ok(())
}
