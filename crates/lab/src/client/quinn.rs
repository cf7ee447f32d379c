//! `quinn-proto` as a viewer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use quinn_proto as quinn;
use units::{Ecn, Timestamp};

use super::download::Download;
use super::null;
use super::viewer::{ClientRequest, VirtualClient, tls_config};
use crate::ends::{Cipher, IDLE_TIMEOUT};
use crate::identity::SERVER_NAME;

super::proto::viewer!(quinn);

fn crypto(request: &ClientRequest) -> Arc<dyn quinn::crypto::ClientConfig> {
    let tls = quinn::crypto::rustls::QuicClientConfig::try_from(tls_config(request))
        .expect("the provider has an initial cipher suite");
    match request.cipher {
        Cipher::Real => Arc::new(tls),
        Cipher::Null => Arc::new(null::ClientConfig(Arc::new(tls))),
    }
}

fn new_endpoint(config: quinn::EndpointConfig, request: &ClientRequest) -> quinn::Endpoint {
    quinn::Endpoint::new(Arc::new(config), None, true, Some(request.rng_seed()))
}

fn receive(
    endpoint: &mut quinn::Endpoint,
    now: Instant,
    server: SocketAddr,
    ecn: Option<quinn::EcnCodepoint>,
    data: BytesMut,
    reply: &mut Vec<u8>,
) -> Option<quinn::DatagramEvent> {
    endpoint.handle(now, server, None, ecn, data, reply)
}

fn transmit(
    connection: &mut quinn::Connection,
    now: Instant,
    buffer: &mut Vec<u8>,
) -> Option<quinn::Transmit> {
    connection.poll_transmit(now, 1, buffer)
}
