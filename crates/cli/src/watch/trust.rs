//! Trust anchors of the viewer: the authorities of the system, of a file, or none.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::error::Error;

/// Accepted certificates.
#[derive(Clone, Debug)]
pub(crate) enum Trust {
    /// From the system's authorities.
    System,
    /// From the authorities in this file (PEM).
    File(PathBuf),
    /// All.
    Anyone,
}

/// Whether a certificate was looked at: a resumed session has none (RFC 8446, section 2.2).
#[derive(Clone, Debug, Default)]
pub(super) struct Checked(Arc<AtomicBool>);

impl Checked {
    /// Whether one was looked at since the last call.
    pub(super) fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// TLS for HTTP/3, with a session store for 0-RTT requests.
///
/// # Errors
/// One line: the file cannot be read, or the system has no authorities.
pub(super) fn client(trust: &Trust, checked: Checked) -> Result<rustls::ClientConfig, Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let authorities = match trust {
        Trust::Anyone => None,
        Trust::File(path) => Some(file(path)?),
        Trust::System => Some(system()?),
    };
    let authorities = match authorities {
        Some(roots) => {
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone());
            Some(verifier.build().map_err(Error::new)?)
        }
        None => None,
    };
    let verifier = Arc::new(Verifier { authorities, provider: provider.clone(), checked });
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(Error::new)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    tls.enable_early_data = true;
    Ok(tls)
}

fn file(path: &Path) -> Result<Arc<RootCertStore>, Error> {
    let mut roots = RootCertStore::empty();
    let file = path.display();
    for certificate in CertificateDer::pem_file_iter(path).map_err(Error::at(&file))? {
        let certificate = certificate.map_err(Error::at(&file))?;
        roots.add(certificate).map_err(Error::at(&file))?;
    }
    if roots.is_empty() {
        return Err(Error::at(&file)("no certificate in PEM"));
    }
    Ok(Arc::new(roots))
}

fn system() -> Result<Arc<RootCertStore>, Error> {
    let mut roots = RootCertStore::empty();
    // A few of a system's certificates may be of a kind that is not understood.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err("this system has no certificate authorities: use --ca FILE".into());
    }
    Ok(Arc::new(roots))
}

/// Records that it was called. Without authorities it accepts any certificate, but still verifies
/// signatures.
#[derive(Debug)]
struct Verifier {
    authorities: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
    checked: Checked,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.checked.0.store(true, Ordering::Relaxed);
        match &self.authorities {
            Some(authorities) => authorities.verify_server_cert(
                end_entity,
                intermediates,
                server_name,
                ocsp_response,
                now,
            ),
            None => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
