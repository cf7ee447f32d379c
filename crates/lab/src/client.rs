//! The viewer: an unmodified `quinn-proto` client that asks for a number of bytes on one stream.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{Context, SHA256};
use bytes::BytesMut;
use quinn_proto as quinn;
use units::{Ecn, Timestamp};

use crate::identity::{SERVER_NAME, certificate, wall_clock};

/// What the client must be given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub bytes: u64,
    /// Flow-control window of stream and connection, in bytes.
    pub window: u64,
    pub seed: u64,
}

pub(crate) struct Client {
    epoch: Instant,
    endpoint: quinn::Endpoint,
    handle: quinn::ConnectionHandle,
    connection: quinn::Connection,
    server: SocketAddr,
    request: Request,
    stream: Option<quinn::StreamId>,
    hash: Context,
    pub received: u64,
    pub finished: bool,
    pub failed: Option<String>,
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) fn new(server: SocketAddr, request: Request) -> Self {
        let mut seed = [0x5a; 32];
        seed[..8].copy_from_slice(&request.seed.to_le_bytes());
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate().0).expect("a certificate is a root");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut tls = rustls::ClientConfig::builder_with_details(provider, wall_clock())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("the provider has TLS 1.3")
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"hq-interop".to_vec()];
        let tls = quinn::crypto::rustls::QuicClientConfig::try_from(tls)
            .expect("the provider has an initial cipher suite");
        let mut config = quinn::ClientConfig::new(Arc::new(tls));
        let mut transport = quinn::TransportConfig::default();
        let window = quinn::VarInt::from_u64(request.window).unwrap_or(quinn::VarInt::MAX);
        transport.stream_receive_window(window).receive_window(window);
        transport.max_idle_timeout(Some(
            Duration::from_secs(120).try_into().expect("two minutes are a valid time-out"),
        ));
        config.transport_config(Arc::new(transport));
        let mut endpoint_config = quinn::EndpointConfig::default();
        endpoint_config.rng_seed(Some(seed));
        let mut endpoint = quinn::Endpoint::new(Arc::new(endpoint_config), None, true, Some(seed));
        let epoch = Instant::now();
        let (handle, connection) = endpoint
            .connect(epoch, config, server, SERVER_NAME)
            .expect("name and address are valid");
        Self {
            epoch,
            endpoint,
            handle,
            connection,
            server,
            request,
            stream: None,
            hash: Context::new(&SHA256),
            received: 0,
            finished: false,
            failed: None,
            buffer: Vec::new(),
        }
    }

    fn instant(&self, now: Timestamp) -> Instant {
        self.epoch + now.since(Timestamp::ZERO)
    }

    /// SHA-256 of what was received.
    pub(crate) fn digest(&self) -> Vec<u8> {
        self.hash.clone().finish().as_ref().to_vec()
    }

    pub(crate) fn deadline(&mut self) -> Option<Timestamp> {
        let at = self.connection.poll_timeout()?;
        Some(Timestamp::ZERO + at.saturating_duration_since(self.epoch))
    }

    pub(crate) fn on_timeout(&mut self, now: Timestamp) {
        self.connection.handle_timeout(self.instant(now));
    }

    pub(crate) fn on_datagram(&mut self, now: Timestamp, ecn: Ecn, data: &[u8]) {
        let ecn = match ecn {
            Ecn::NotEct => None,
            Ecn::Ect0 => Some(quinn::EcnCodepoint::Ect0),
            Ecn::Ect1 => Some(quinn::EcnCodepoint::Ect1),
            Ecn::Ce => Some(quinn::EcnCodepoint::Ce),
        };
        let now = self.instant(now);
        let data = BytesMut::from(data);
        self.buffer.clear();
        let event = self.endpoint.handle(now, self.server, None, ecn, data, &mut self.buffer);
        if let Some(quinn::DatagramEvent::ConnectionEvent(_, event)) = event {
            self.connection.handle_event(event);
        }
    }

    /// Lets the client act; `send` gets each datagram.
    pub(crate) fn drive(&mut self, now: Timestamp, mut send: impl FnMut(Ecn, &[u8])) {
        let instant = self.instant(now);
        while let Some(event) = self.connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                self.connection.handle_event(event);
            }
        }
        while let Some(event) = self.connection.poll() {
            match event {
                quinn::Event::Connected => self.ask(),
                quinn::Event::ConnectionLost { reason } => self.failed = Some(reason.to_string()),
                _ => {}
            }
        }
        self.read();
        loop {
            self.buffer.clear();
            let transmit = self.connection.poll_transmit(instant, 1, &mut self.buffer);
            let Some(transmit) = transmit else { break };
            let ecn = match transmit.ecn {
                None => Ecn::NotEct,
                Some(quinn::EcnCodepoint::Ect0) => Ecn::Ect0,
                Some(quinn::EcnCodepoint::Ect1) => Ecn::Ect1,
                Some(quinn::EcnCodepoint::Ce) => Ecn::Ce,
            };
            send(ecn, &self.buffer[..transmit.size]);
        }
    }

    fn ask(&mut self) {
        let stream = self.connection.streams().open(quinn::Dir::Bi);
        let Some(stream) = stream else {
            self.failed = Some("the server allows no stream".to_owned());
            return;
        };
        let line = format!("GET {}\n", self.request.bytes);
        let mut send = self.connection.send_stream(stream);
        if send.write(line.as_bytes()).is_err() || send.finish().is_err() {
            self.failed = Some("the request could not be written".to_owned());
        }
        self.stream = Some(stream);
    }

    fn read(&mut self) {
        let Some(stream) = self.stream.filter(|_| !self.finished) else { return };
        let mut receive = self.connection.recv_stream(stream);
        let Ok(mut chunks) = receive.read(true) else { return };
        loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => {
                    self.hash.update(&chunk.bytes);
                    self.received += chunk.bytes.len() as u64;
                }
                Ok(None) => {
                    self.finished = true;
                    break;
                }
                Err(quinn::ReadError::Blocked) => break,
                Err(error) => {
                    self.failed = Some(error.to_string());
                    break;
                }
            }
        }
        // The window update goes out with the next transmission in any case.
        let _ = chunks.finalize();
    }
}
