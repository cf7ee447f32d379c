//! `quinn-proto` as the in-memory server.

use core::time::Duration;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use quinn_proto as quinn;

use super::server::{Batch, MTU, MemoryServer, Pool, chunk};
use crate::identity::{Identity, server_tls};

/// Datagrams per batch, the default of its own socket layer.
const SEGMENTS: usize = 10;

pub(super) struct Quinn {
    epoch: Instant,
    endpoint: quinn::Endpoint,
    connections: Vec<ServerConnection>,
    answer: u64,
    chunk: Bytes,
    reply: Vec<u8>,
}

struct ServerConnection {
    handle: quinn::ConnectionHandle,
    inner: quinn::Connection,
    /// The stream in progress, and the bytes left to write.
    answer: Option<(quinn::StreamId, u64)>,
}

impl Quinn {
    pub(super) fn new(identity: &Identity, epoch: Instant, answer: u64) -> Self {
        let tls = server_tls(identity.certificate.clone(), identity.key.clone_key());
        let tls = quinn::crypto::rustls::QuicServerConfig::try_from(tls)
            .expect("the provider has an initial cipher suite");
        let mut transport = quinn::TransportConfig::default();
        transport.initial_mtu(MTU).mtu_discovery_config(None).max_idle_timeout(Some(
            Duration::from_secs(600).try_into().expect("ten minutes are a valid time-out"),
        ));
        let mut config = quinn::ServerConfig::with_crypto(Arc::new(tls));
        config.transport_config(Arc::new(transport));
        Self {
            epoch,
            endpoint: quinn::Endpoint::new(Arc::default(), Some(Arc::new(config)), false, None),
            connections: Vec::new(),
            answer,
            chunk: chunk(),
            reply: Vec::with_capacity(1_500),
        }
    }
}

impl MemoryServer for Quinn {
    fn on_datagram(&mut self, now: Duration, from: SocketAddr, data: &mut [u8]) {
        let now = self.epoch + now;
        self.reply.clear();
        // It requires datagrams in its own memory.
        let data = BytesMut::from(&*data);
        match self.endpoint.handle(now, from, None, None, data, &mut self.reply) {
            Some(quinn::DatagramEvent::NewConnection(incoming)) => {
                if let Ok((handle, inner)) =
                    self.endpoint.accept(incoming, now, &mut self.reply, None)
                {
                    self.connections.push(ServerConnection { handle, inner, answer: None });
                }
            }
            Some(quinn::DatagramEvent::ConnectionEvent(handle, event)) => {
                // Connections are never removed here, so handles count from 0.
                if let Some(connection) = self.connections.get_mut(handle.0) {
                    connection.inner.handle_event(event);
                }
            }
            _ => {}
        }
    }

    fn drive(&mut self, now: Duration, pool: &mut Pool, out: &mut Vec<Batch>) {
        let now = self.epoch + now;
        for ServerConnection { handle, inner, answer } in &mut self.connections {
            if inner.poll_timeout().is_some_and(|at| at <= now) {
                inner.handle_timeout(now);
            }
            while let Some(event) = inner.poll_endpoint_events() {
                if let Some(event) = self.endpoint.handle_event(*handle, event) {
                    inner.handle_event(event);
                }
            }
            while inner.poll().is_some() {}
            if answer.is_none() {
                *answer = inner.streams().accept(quinn::Dir::Bi).map(|id| (id, self.answer));
            }
            loop {
                if let Some((id, left)) = answer {
                    while *left > 0 {
                        let length = (self.chunk.len() as u64).min(*left) as usize;
                        let mut data = [self.chunk.slice(..length)];
                        match inner.send_stream(*id).write_chunks(&mut data) {
                            Ok(written) if written.bytes > 0 => *left -= written.bytes as u64,
                            _ => break,
                        }
                        if *left == 0 {
                            // A stream that the client stopped needs no FIN.
                            let _ = inner.send_stream(*id).finish();
                        }
                    }
                }
                let mut data = pool.get();
                data.clear();
                let Some(transmit) = inner.poll_transmit(now, SEGMENTS, &mut data) else {
                    pool.0.push_back(data);
                    break;
                };
                let len = transmit.size;
                let segment = transmit.segment_size.unwrap_or(len);
                out.push(Batch { data, len, segment, to: transmit.destination });
            }
        }
    }
}
