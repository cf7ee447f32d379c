//! `noq-proto` as a viewer: a fork of `quinn-proto` that has gone its own way in acknowledgements,
//! paths and congestion control.

use core::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use noq_proto as noq;
use units::{Ecn, Timestamp};

use super::download::Download;
use super::viewer::{Request, Viewer, tls_config};
use crate::ends::IDLE_TIMEOUT;
use crate::identity::SERVER_NAME;

pub(super) struct Client {
    epoch: Instant,
    endpoint: noq::Endpoint,
    handle: noq::ConnectionHandle,
    connection: noq::Connection,
    request: Request,
    stream: Option<noq::StreamId>,
    download: Download,
    buffer: Vec<u8>,
}

impl Client {
    pub(super) fn new(request: Request) -> Self {
        let tls = noq::crypto::rustls::QuicClientConfig::try_from(tls_config())
            .expect("the provider has an initial cipher suite");
        let mut transport = noq::TransportConfig::default();
        let window = noq::VarInt::from_u64(request.window).unwrap_or(noq::VarInt::MAX);
        transport.stream_receive_window(window).receive_window(window);
        transport.max_idle_timeout(Some(
            IDLE_TIMEOUT.try_into().expect("ten minutes are a valid time-out"),
        ));
        transport.keep_alive_interval(request.keep_alive);
        let mut config = noq::ClientConfig::new(Arc::new(tls));
        config.transport_config(Arc::new(transport));
        let mut endpoint = noq::EndpointConfig::default();
        endpoint.rng_seed(Some(request.rng_seed()));
        let mut endpoint = noq::Endpoint::new(Arc::new(endpoint), None, true);
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
        let Some(stream) = self.connection.streams().open(noq::Dir::Bi) else {
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
        let mut receive = self.connection.recv_stream(stream);
        let Ok(mut chunks) = receive.read(true) else { return };
        loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => self.download.take(now, &chunk.bytes),
                Ok(None) => {
                    self.download.complete(now, 1);
                    break;
                }
                Err(noq::ReadError::Blocked) => break,
                Err(error) => {
                    self.download.failed = Some(error.to_string());
                    break;
                }
            }
        }
        // The window update goes out with the next transmission in any case.
        let _ = chunks.finalize();
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
            Ecn::Ect0 => Some(noq::EcnCodepoint::Ect0),
            Ecn::Ect1 => Some(noq::EcnCodepoint::Ect1),
            Ecn::Ce => Some(noq::EcnCodepoint::Ce),
        };
        let (now, path) = (self.instant(now), self.request.server.into());
        self.buffer.clear();
        let data = BytesMut::from(data);
        let event = self.endpoint.handle(now, path, ecn, data, &mut self.buffer);
        if let Some(noq::DatagramEvent::ConnectionEvent(_, event)) = event {
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
                noq::Event::Connected => self.ask(),
                noq::Event::ConnectionLost { reason } => {
                    self.download.failed = Some(reason.to_string());
                }
                _ => {}
            }
        }
        self.read(now);
        loop {
            self.buffer.clear();
            let transmit =
                self.connection.poll_transmit(instant, NonZeroUsize::MIN, &mut self.buffer);
            let Some(transmit) = transmit else { break };
            let ecn = match transmit.ecn {
                None => Ecn::NotEct,
                Some(noq::EcnCodepoint::Ect0) => Ecn::Ect0,
                Some(noq::EcnCodepoint::Ect1) => Ecn::Ect1,
                Some(noq::EcnCodepoint::Ce) => Ecn::Ce,
            };
            send(ecn, &self.buffer[..transmit.size]);
        }
    }
}
