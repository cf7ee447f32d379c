//! A viewer on `quinn-proto` or its fork: types differ, but the viewer's calls are nearly the same.

/// Defines `Client` on the library `$proto`. Calls that differ are functions next to the macro
/// call: `crypto`, `new_endpoint`, `receive` and `transmit`.
macro_rules! viewer {
    ($proto:ident) => {
        pub(super) struct ProtoClient {
            epoch: Instant,
            endpoint: $proto::Endpoint,
            handle: $proto::ConnectionHandle,
            connection: $proto::Connection,
            request: ClientRequest,
            stream: Option<$proto::StreamId>,
            download: Download,
            buffer: Vec<u8>,
        }

        impl ProtoClient {
            pub(super) fn new(request: ClientRequest) -> Self {
                let mut transport = $proto::TransportConfig::default();
                let window =
                    $proto::VarInt::from_u64(request.window).unwrap_or($proto::VarInt::MAX);
                transport.stream_receive_window(window).receive_window(window);
                transport.max_idle_timeout(Some(
                    IDLE_TIMEOUT.try_into().expect("ten minutes are a valid time-out"),
                ));
                transport.keep_alive_interval(request.keep_alive);
                let mut config = $proto::ClientConfig::new(crypto(&request));
                config.transport_config(Arc::new(transport));
                let mut endpoint = $proto::EndpointConfig::default();
                endpoint.rng_seed(Some(request.rng_seed()));
                let mut endpoint = new_endpoint(endpoint, &request);
                let epoch = Instant::now();
                let begins = epoch + request.begins.since(Timestamp::ZERO);
                let (handle, connection) = endpoint
                    .connect(begins, config, request.server, SERVER_NAME)
                    .expect("name and address are valid");
                Self {
                    epoch,
                    endpoint,
                    handle,
                    connection,
                    download: Download::of(&request.traffic, request.begins),
                    request,
                    stream: None,
                    buffer: Vec::new(),
                }
            }

            fn instant(&self, now: Timestamp) -> Instant {
                self.epoch + now.since(Timestamp::ZERO)
            }

            fn ask(&mut self, now: Timestamp) {
                if let Some(control) = self.request.control().filter(|_| self.stream.is_none()) {
                    let stream = self.connection.streams().open($proto::Dir::Uni);
                    let written =
                        stream.map(|id| self.connection.send_stream(id).write(control).is_ok());
                    if written != Some(true) {
                        self.download.failed =
                            Some("the server rejects the control stream".to_owned());
                        return;
                    }
                }
                let Some(stream) = self.connection.streams().open($proto::Dir::Bi) else {
                    self.download.failed = Some("the server allows no streams".to_owned());
                    return;
                };
                let text = self.request.text(self.download.ask(now).as_deref());
                let mut send = self.connection.send_stream(stream);
                if send.write(&text).is_err() || send.finish().is_err() {
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
                        Err($proto::ReadError::Blocked) => break,
                        Err(error) => {
                            self.download.failed = Some(error.to_string());
                            break;
                        }
                    }
                }
                // The next transmission carries the window update in any case.
                let _ = chunks.finalize();
                if is_complete && self.download.complete(now, self.request.times) {
                    self.ask(now);
                }
            }
        }

        impl VirtualClient for ProtoClient {
            fn download(&self) -> &Download {
                &self.download
            }

            fn deadline(&mut self) -> Option<Timestamp> {
                let timer = self
                    .connection
                    .poll_timeout()
                    .map(|at| Timestamp::ZERO + at.saturating_duration_since(self.epoch));
                // Before its first request, the client waits for the handshake.
                let due = self.download.due().filter(|_| self.stream.is_some());
                timer.into_iter().chain(due).min()
            }

            fn on_timeout(&mut self, now: Timestamp) {
                self.connection.handle_timeout(self.instant(now));
            }

            fn on_datagram(&mut self, now: Timestamp, ecn: Ecn, data: BytesMut) {
                let ecn = match ecn {
                    Ecn::NotEct => None,
                    Ecn::Ect0 => Some($proto::EcnCodepoint::Ect0),
                    Ecn::Ect1 => Some($proto::EcnCodepoint::Ect1),
                    Ecn::Ce => Some($proto::EcnCodepoint::Ce),
                };
                let (now, server) = (self.instant(now), self.request.server);
                self.buffer.clear();
                let event = receive(&mut self.endpoint, now, server, ecn, data, &mut self.buffer);
                if let Some($proto::DatagramEvent::ConnectionEvent(_, event)) = event {
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
                        $proto::Event::Connected => self.ask(now),
                        $proto::Event::ConnectionLost { reason } => {
                            self.download.failed = Some(reason.to_string());
                        }
                        _ => {}
                    }
                }
                self.read(now);
                if self.stream.is_some() && self.download.due().is_some_and(|due| due <= now) {
                    self.ask(now);
                }
                loop {
                    self.buffer.clear();
                    let transmit = transmit(&mut self.connection, instant, &mut self.buffer);
                    let Some(transmit) = transmit else { break };
                    let ecn = match transmit.ecn {
                        None => Ecn::NotEct,
                        Some($proto::EcnCodepoint::Ect0) => Ecn::Ect0,
                        Some($proto::EcnCodepoint::Ect1) => Ecn::Ect1,
                        Some($proto::EcnCodepoint::Ce) => Ecn::Ce,
                    };
                    send(ecn, &self.buffer[..transmit.size]);
                }
            }
        }
    };
}

pub(super) use viewer;
