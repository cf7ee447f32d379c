//! Client of the socket benchmarks: unmodified `quinn` with the same socket, windows and datagram
//! size for every server.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::Failure;
use crate::identity::client_tls;

/// UDP payload of full datagrams.
pub(crate) const MTU: u16 = 1_200;
/// Flow-control windows in bytes.
const WINDOW: u32 = 8 << 20;

/// Binds a socket with room for a server's largest burst.
pub(crate) fn socket() -> std::io::Result<std::net::UdpSocket> {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
    socket2::SockRef::from(&socket).set_recv_buffer_size(4 << 20)?;
    Ok(socket)
}

/// Returns a TLS configuration that trusts the certificate in `dir`.
pub(crate) fn tls(dir: &Path, protocol: &str) -> Result<rustls::ClientConfig, Failure> {
    let certificate = CertificateDer::from_pem_file(dir.join("chain.pem"))
        .map_err(|e| format!("{}: {e}", dir.display()))?;
    let mut tls = client_tls(&certificate);
    tls.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    Ok(tls)
}

/// Creates an endpoint with its own socket. Requires a runtime.
pub(crate) fn endpoint(tls: rustls::ClientConfig) -> Result<quinn::Endpoint, Failure> {
    let tls = quinn::crypto::rustls::QuicClientConfig::try_from(tls)?;
    let mut transport = quinn::TransportConfig::default();
    transport
        .stream_receive_window(WINDOW.into())
        .receive_window(WINDOW.into())
        .initial_mtu(MTU)
        .mtu_discovery_config(None);
    let mut config = quinn::ClientConfig::new(Arc::new(tls));
    config.transport_config(Arc::new(transport));
    let socket = socket()?;
    let runtime = Arc::new(quinn::TokioRuntime);
    let mut endpoint = quinn::Endpoint::new(Default::default(), None, socket, runtime)?;
    endpoint.set_default_client_config(config);
    Ok(endpoint)
}
