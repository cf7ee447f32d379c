//! `quinn-proto` as a viewer.

use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use quinn_proto as quinn;
use units::{Ecn, Timestamp};

use super::download::Download;
use super::null;
use super::viewer::{Request, Viewer, tls_config};
use crate::ends::{Cipher, IDLE_TIMEOUT};
use crate::identity::SERVER_NAME;

pub(super) struct Client {
    epoch: Instant,
    endpoint: quinn::Endpoint,
    handle: quinn::ConnectionHandle,
    connection: quinn::Connection,
    request: Request,
    stream: Option<quinn::StreamId>,
    download: Download,
    buffer: Vec<u8>,
}

impl Client {
    pub(super) fn new(request: Request) -> Self {
        let tls = quinn::crypto::rustls::QuicClientConfig::try_from(tls_config())
            .expect("the provider has an initial cipher suite");
        let tls: Arc<dyn quinn::crypto::ClientConfig> = match request.cipher {
            Cipher::Real => Arc::new(tls),
            Cipher::Null => Arc::new(null::ClientConfig(Arc::new(tls))),
        };
        let mut transport = quinn::TransportConfig::default();
        let window = quinn::VarInt::from_u64(request.window).unwrap_or(quinn::VarInt::MAX);
        transport.stream_receive_window(window).receive_window(window);
        transport.max_idle_timeout(Some(
            IDLE_TIMEOUT.try_into().expect("ten minutes are a valid time-out"),
        ));
        transport.keep_alive_interval(request.keep_alive);
        let mut config = quinn::ClientConfig::new(tls);
        config.transport_config(Arc::new(transport));
        let mut endpoint = quinn::EndpointConfig::default();
        let seed = Some(request.rng_seed());
        endpoint.rng_seed(seed);
        let mut endpoint = quinn::Endpoint::new(Arc::new(endpoint), None, true, seed);
        let epoch = Instant::now();
        let (handle, connection) = endpoint
            .connect(epoch, config, request.server, SERVER_NAME)
            .expect("name and address are valid");
        Self {
            epoch,
            endpoint,
            handle,
            connection,
            download: Download::of(request.live()),
            request,
            stream: None,
            buffer: Vec::new(),
        }
    }

    fn instant(&self, now: Timestamp) -> Instant {
        self.epoch + now.since(Timestamp::ZERO)
    }

    fn ask(&mut self) {
        let Some(stream) = self.connection.streams().open(quinn::Dir::Bi) else {
            self.download.failed = Some("the server allows no stream".to_owned());
            return;
        };
        let mut send = self.connection.send_stream(stream);
        if send.write(self.request.line().as_bytes()).is_err() || send.finish().is_err() {
            self.download.failed = Some("the request could not be written".to_owned());
        }
        self.stream = Some(stream);
    }

    fn read(&mut self, now: Timestamp) {
        let Some(stream) = self.stream.filter(|_| !self.download.finished) else { return };
        let mut is_complete = false;
        let mut receive = self.connection.recv_stream(stream);
        let Ok(mut chunks) = receive.read(true) else { return };
        loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => self.download.take(now, &chunk.bytes),
                Ok(None) => {
                    is_complete = true;
                    break;
                }
                Err(quinn::ReadError::Blocked) => break,
                Err(error) => {
                    self.download.failed = Some(error.to_string());
                    break;
                }
            }
        }
        // The window update goes out with the next transmission in any case.
        let _ = chunks.finalize();
        if is_complete && self.download.complete(now, self.request.times) {
            self.ask();
        }
    }
}

impl Viewer for Client {
    fn download(&self) -> &Download {
        &self.download
    }

    fn deadline(&mut self) -> Option<Timestamp> {
        let at = self.connection.poll_timeout()?;
        Some(Timestamp::ZERO + at.saturating_duration_since(self.epoch))
    }

    fn on_timeout(&mut self, now: Timestamp) {
        self.connection.handle_timeout(self.instant(now));
    }

    fn on_datagram(&mut self, now: Timestamp, ecn: Ecn, data: &[u8]) {
        let ecn = match ecn {
            Ecn::NotEct => None,
            Ecn::Ect0 => Some(quinn::EcnCodepoint::Ect0),
            Ecn::Ect1 => Some(quinn::EcnCodepoint::Ect1),
            Ecn::Ce => Some(quinn::EcnCodepoint::Ce),
        };
        let (now, server) = (self.instant(now), self.request.server);
        self.buffer.clear();
        let data = BytesMut::from(data);
        let event = self.endpoint.handle(now, server, None, ecn, data, &mut self.buffer);
        if let Some(quinn::DatagramEvent::ConnectionEvent(_, event)) = event {
            self.connection.handle_event(event);
        }
    }

    fn drive(&mut self, now: Timestamp, send: &mut dyn FnMut(Ecn, &[u8])) {
        let instant = self.instant(now);
        while let Some(event) = self.connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                self.connection.handle_event(event);
            }
        }
        while let Some(event) = self.connection.poll() {
            match event {
                quinn::Event::Connected => self.ask(),
                quinn::Event::ConnectionLost { reason } => {
                    self.download.failed = Some(reason.to_string());
                }
                _ => {}
            }
        }
        self.read(now);
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
}
