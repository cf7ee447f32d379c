//! Client of all in-memory servers: an unmodified `quinn-proto`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::quinn_proto as quinn;
use bytes::BytesMut;

use crate::identity::{Identity, NAME, client_tls};

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 443);
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
/// The client's window of stream and connection in bytes.
pub(super) const WINDOW: u32 = 1 << 20;
/// Duration of a turn of the loop.
pub(super) const TURN: Duration = Duration::from_millis(1);

/// The viewer.
pub(super) struct MemoryClient {
    pub address: SocketAddr,
    endpoint: quinn::Endpoint,
    handle: quinn::ConnectionHandle,
    pub connection: quinn::Connection,
    stream: Option<quinn::StreamId>,
    pub wants: bool,
    pub received: u64,
    pub packets: u64,
}

impl MemoryClient {
    pub(super) fn new(identity: &Identity, epoch: Instant, port: u16, window: u32) -> Self {
        Self::with(Self::config(identity, window), epoch, port)
    }

    pub(super) fn config(identity: &Identity, window: u32) -> quinn::ClientConfig {
        let tls =
            quinn::crypto::rustls::QuicClientConfig::try_from(client_tls(&identity.certificate))
                .expect("the provider has an initial cipher suite");
        let mut transport = quinn::TransportConfig::default();
        transport
            .stream_receive_window(window.into())
            .receive_window(window.into())
            .max_idle_timeout(None)
            .mtu_discovery_config(None);
        let mut config = quinn::ClientConfig::new(Arc::new(tls));
        config.transport_config(Arc::new(transport));
        config
    }

    pub(super) fn with(config: quinn::ClientConfig, epoch: Instant, port: u16) -> Self {
        let mut endpoint = quinn::Endpoint::new(Arc::default(), None, false, None);
        let (handle, connection) =
            endpoint.connect(epoch, config, SERVER, NAME).expect("name and address are valid");
        Self {
            address: SocketAddr::new(CLIENT, port),
            endpoint,
            handle,
            connection,
            stream: None,
            wants: false,
            received: 0,
            packets: 0,
        }
    }

    pub(super) fn on_datagram(&mut self, now: Instant, data: &[u8]) {
        let mut reply = Vec::new();
        let event = self.endpoint.handle(now, SERVER, None, None, BytesMut::from(data), &mut reply);
        if let Some(quinn::DatagramEvent::ConnectionEvent(_, event)) = event {
            self.connection.handle_event(event);
        }
    }

    pub(super) fn drive(&mut self, now: Instant, mut send: impl FnMut(Vec<u8>)) {
        if self.connection.poll_timeout().is_some_and(|at| at <= now) {
            self.connection.handle_timeout(now);
        }
        while let Some(event) = self.connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                self.connection.handle_event(event);
            }
        }
        while self.connection.poll().is_some() {}
        if self.wants && self.stream.is_none() && !self.connection.is_handshaking() {
            let stream = self.connection.streams().open(quinn::Dir::Bi);
            if let Some(stream) = stream {
                let mut send = self.connection.send_stream(stream);
                send.write(b"GET /\r\n").expect("an open stream has room");
                send.finish().expect("the stream is open");
            }
            self.stream = stream;
        }
        if let Some(stream) = self.stream
            && let Ok(mut chunks) = self.connection.recv_stream(stream).read(true)
        {
            while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
                self.received += chunk.bytes.len() as u64;
            }
            // The next transmission carries the window update in any case.
            let _ = chunks.finalize();
        }
        loop {
            let mut buffer = Vec::new();
            let transmit = self.connection.poll_transmit(now, 1, &mut buffer);
            let Some(transmit) = transmit else { break };
            buffer.truncate(transmit.size);
            self.packets += 1;
            send(buffer);
        }
    }
}
