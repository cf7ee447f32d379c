//! Requests to a viewer, and the interface of each library's client.

use core::time::Duration;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::BytesMut;
use units::{Ecn, Timestamp};

use super::download::Download;
use super::http3;
use super::kind::ClientKind;
use crate::ends::{Cipher, LIVE_PATH};
use crate::identity::{SERVER_NAME, certificate, wall_clock};
use crate::traffic::Traffic;

/// Request of a client.
#[derive(Clone, Debug)]
pub(crate) struct ClientRequest {
    pub kind: ClientKind,
    pub cipher: Cipher,
    pub server: SocketAddr,
    pub traffic: Traffic,
    /// Number of consecutive requests on the same connection.
    pub times: u32,
    /// Flow-control window of stream and connection, in bytes.
    pub window: u64,
    pub seed: u64,
    /// Time of its first packet.
    pub begins: Timestamp,
    /// Keep-alive interval.
    pub keep_alive: Option<Duration>,
}

impl ClientRequest {
    /// Seed of the random generator in the client's library.
    pub(super) fn rng_seed(&self) -> [u8; 32] {
        let mut seed = [0x5a; 32];
        seed[..8].copy_from_slice(&self.seed.to_le_bytes());
        seed
    }

    /// Bytes written to the request stream. `segment` is the path of a video's segment.
    pub(super) fn text(&self, segment: Option<&str>) -> Vec<u8> {
        match (&self.traffic, segment) {
            (_, Some(path)) => http3::get(SERVER_NAME, path),
            (Traffic::Live(_), _) => http3::get(SERVER_NAME, LIVE_PATH),
            _ => format!("GET {}\n", self.traffic.bytes()).into_bytes(),
        }
    }

    /// Bytes written to a unidirectional stream before the request, if any.
    pub(super) fn control(&self) -> Option<&'static [u8]> {
        self.traffic.is_http3().then_some(http3::CONTROL)
    }
}

/// A client in virtual time.
pub(crate) trait VirtualClient {
    fn download(&self) -> &Download;
    fn deadline(&mut self) -> Option<Timestamp>;
    fn on_timeout(&mut self, now: Timestamp);
    fn on_datagram(&mut self, now: Timestamp, ecn: Ecn, data: BytesMut);
    /// Lets the client act and passes each datagram to `send`.
    fn drive(&mut self, now: Timestamp, send: &mut dyn FnMut(Ecn, &[u8]));
}

/// TLS configuration that trusts the testbed's certificate and uses its wall clock.
pub(super) fn tls_config(request: &ClientRequest) -> rustls::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate().0).expect("a certificate is a root");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_details(provider, wall_clock())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![request.traffic.alpn().to_vec()];
    tls
}
