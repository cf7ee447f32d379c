//! `noq-proto` as a viewer: a fork of `quinn-proto` with its own acknowledgements, paths and
//! congestion control.

use core::num::NonZeroUsize;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use noq_proto as noq;
use units::{Ecn, Timestamp};

use super::download::Download;
use super::viewer::{ClientRequest, VirtualClient, tls_config};
use crate::ends::IDLE_TIMEOUT;
use crate::identity::SERVER_NAME;

super::proto::viewer!(noq);

fn crypto(request: &ClientRequest) -> Arc<dyn noq::crypto::ClientConfig> {
    let tls = noq::crypto::rustls::QuicClientConfig::try_from(tls_config(request));
    Arc::new(tls.expect("the provider has an initial cipher suite"))
}

fn new_endpoint(config: noq::EndpointConfig, _: &ClientRequest) -> noq::Endpoint {
    noq::Endpoint::new(Arc::new(config), None, true)
}

fn receive(
    endpoint: &mut noq::Endpoint,
    now: Instant,
    server: SocketAddr,
    ecn: Option<noq::EcnCodepoint>,
    data: BytesMut,
    reply: &mut Vec<u8>,
) -> Option<noq::DatagramEvent> {
    endpoint.handle(now, server.into(), ecn, data, reply)
}

fn transmit(
    connection: &mut noq::Connection,
    now: Instant,
    buffer: &mut Vec<u8>,
) -> Option<noq::Transmit> {
    connection.poll_transmit(now, NonZeroUsize::MIN, buffer)
}
