//! `quinn` as a server, on one thread like ours.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

use crate::Failure;
use crate::client::MTU;
use crate::identity::server_tls;

/// Answers each request with `answer`.
pub(super) fn run(dir: &Path, answer: Bytes) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(dir, answer))
}

async fn serve(dir: &Path, answer: Bytes) -> Result<(), Failure> {
    let certificate = CertificateDer::from_pem_file(dir.join("chain.pem"))?;
    let key = PrivatePkcs8KeyDer::from_pem_file(dir.join("key.pem"))?;
    let tls = quinn::crypto::rustls::QuicServerConfig::try_from(server_tls(certificate, key))?;
    let mut transport = quinn::TransportConfig::default();
    transport.initial_mtu(MTU).mtu_discovery_config(None);
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(tls));
    config.transport_config(Arc::new(transport));
    let endpoint = quinn::Endpoint::server(config, SocketAddr::from(([127, 0, 0, 1], 0)))?;
    println!("listening {}", endpoint.local_addr()?);
    while let Some(incoming) = endpoint.accept().await {
        let answer = answer.clone();
        tokio::spawn(async move {
            let Ok(connection) = incoming.await else { return };
            while let Ok((mut send, mut receive)) = connection.accept_bi().await {
                let answer = answer.clone();
                tokio::spawn(async move {
                    // The client counts bytes and detects failures.
                    let _ = receive.read_to_end(1_000).await;
                    let _ = send.write_chunk(answer).await;
                    let _ = send.finish();
                });
            }
        });
    }
    Ok(())
}
