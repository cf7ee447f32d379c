//! The server under test: the product's endpoint. Live streams and videos are served over HTTP/3 by
//! the product's `http3` and `delivery`. For other traffic, a small application answers `GET BYTES`
//! with that many bytes of a pattern.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use delivery::TransportStats;
use http3::OverQuic;
use links::Passage;
use quic::crypto::{KeyRing, OneRttProtection, SingleUseLog, TlsConfig, TlsSettings};
use quic::observer::{self, Observer};
use quic::streams::{ReadOutcome, StreamEvent};
use quic::{
    Addresses, Connection, Datagram, Endpoint, EndpointConfig, Event, Handle, ObserverFactory,
    Outcome, RetryPolicy, Stats, TransportConfig,
};
use recovery::Scheme;
use startup::Cookie;
use units::{Ecn, StreamId, Timestamp};

use crate::dash::Origin;
use crate::ends::{Cipher, IDLE_TIMEOUT, PATTERN, pattern};
use crate::event_log::EventLog;
use crate::identity::{UNIX_ORIGIN, certificate, wall_clock};
use crate::live::Broadcast;
use crate::recovered::{Diary, Recovered};
use crate::simulation::{Foresight, Held, Scenario};
use crate::start_options::Opening;
use crate::traffic::{FrameTraffic, Traffic};

/// Unsent bytes that the application keeps in the transport.
const HIGH_WATER: u64 = 128 << 10;
/// Datagrams per transmission.
const BATCH: usize = 10;

/// An answer in progress.
struct PendingAnswer {
    id: StreamId,
    /// Size of the answer in bytes.
    total: u64,
    /// Bytes written to the transport.
    sent: u64,
}

/// A datagram sent by the server.
pub(crate) struct Sent<'a> {
    pub ecn: Ecn,
    pub data: &'a [u8],
    /// Effect of losses on it.
    pub passage: Passage,
}

pub(crate) struct LabServer {
    endpoint: Endpoint,
    handle: Option<Handle>,
    request: Vec<u8>,
    answer: Option<PendingAnswer>,
    /// Arrival time of each request.
    pub asked: Vec<Timestamp>,
    /// Source of the answer, if it consists of frames.
    frames: Option<FrameTraffic>,
    /// The live stream, and the HTTP/3 server that serves it.
    pub live: Option<(Broadcast, http3::Server)>,
    /// The server of a video.
    dash: Option<Origin>,
    /// Startup of the connection of a live view or a video.
    pub opening: Opening,
    /// Cap of a live view's connection.
    pub held: Option<Held>,
    pattern: Bytes,
    reply: Vec<u8>,
    batch: Vec<u8>,
    /// Knowledge of packet fates.
    foresight: Option<Foresight>,
}

impl LabServer {
    pub(crate) fn new(scenario: &Scenario, log: &EventLog) -> Self {
        let keys = Arc::new(KeyRing::new(&[1; 32], &[(0, [2; 32])]));
        let foresight = Foresight::new(scenario.oracle);
        let watchers = Watchers {
            log: scenario.log_events.then(|| log.clone()),
            diary: scenario.diary.clone(),
            foresight: foresight.clone(),
            own: scenario.transport.observer.clone(),
        };
        let config = EndpointConfig {
            transport: Arc::new(transport(scenario, watchers)),
            tls: Arc::new(tls(scenario, keys.clone())),
            keys,
            retry: RetryPolicy::Never,
            token_lifetime: Duration::from_secs(3_600),
            max_connections: 16,
            server_id: 0,
            core: 0,
            cores: 1,
            unix_origin: UNIX_ORIGIN,
        };
        let mut secret = [0xa5; 32];
        secret[..8].copy_from_slice(&scenario.seed.to_le_bytes());
        Self {
            endpoint: Endpoint::new(config, secret),
            handle: None,
            request: Vec::new(),
            answer: None,
            asked: Vec::new(),
            frames: match scenario.traffic {
                Traffic::Frames { rate, fps, cached } => Some(FrameTraffic::new(rate, fps, cached)),
                _ => None,
            },
            live: match &scenario.traffic {
                Traffic::Live(live) => {
                    let config = http3::Config {
                        request_timeout: IDLE_TIMEOUT,
                        unused_timeout: IDLE_TIMEOUT,
                        ..http3::Config::default()
                    };
                    Some((Broadcast::new(live.clone()), http3::Server::new(config)))
                }
                _ => None,
            },
            dash: match &scenario.traffic {
                Traffic::Dash(dash) => Some(Origin::new(dash.video.clone())),
                _ => None,
            },
            opening: Opening::new(scenario.start_options),
            held: scenario.capping.clone(),
            pattern: pattern(),
            reply: Vec::new(),
            batch: vec![0; 65_507],
            foresight,
        }
    }

    /// The connection, once it exists.
    pub(crate) fn connection(&mut self) -> Option<&mut Connection> {
        self.endpoint.connection(self.handle?)
    }

    pub(crate) fn deadline(&mut self) -> Option<Timestamp> {
        let connection = self.connection()?.deadline();
        let source = self.live.as_ref().and_then(|(source, _)| source.deadline());
        let frame = self.frames.as_ref().and_then(FrameTraffic::deadline);
        connection.into_iter().chain(source).chain(frame).min()
    }

    /// Loss recovery statistics until `now`.
    pub(crate) fn recovered(&mut self, now: Timestamp) -> Recovered {
        self.connection().map(|connection| Recovered::of(connection, now)).unwrap_or_default()
    }

    /// Path state that the connection would save.
    pub(crate) fn learned(&mut self) -> Option<Cookie> {
        self.connection().map(|connection| delivery::path_state(connection, None, UNIX_ORIGIN, 0))
    }

    /// Counters of the connection.
    pub(crate) fn stats(&mut self) -> Stats {
        self.connection().map(|connection| *connection.stats()).unwrap_or_default()
    }

    /// Transport statistics as in session records.
    pub(crate) fn transport(&mut self, now: Timestamp) -> TransportStats {
        self.connection().map(|connection| TransportStats::of(now, connection)).unwrap_or_default()
    }

    pub(crate) fn smoothed_rtt(&mut self) -> Duration {
        self.connection().map(|connection| connection.rtt().smoothed()).unwrap_or_default()
    }

    pub(crate) fn on_timeout(&mut self, now: Timestamp) {
        if let Some(handle) = self.handle {
            self.endpoint.handle_timeout(handle, now);
        }
    }

    /// Handles a datagram. Returns a stateless response, if any.
    pub(crate) fn on_datagram(
        &mut self,
        now: Timestamp,
        addresses: Addresses,
        ecn: Ecn,
        data: &mut [u8],
    ) -> Option<&[u8]> {
        let datagram = Datagram { addresses, ecn, payload: data };
        match self.endpoint.handle_datagram(now, datagram, &mut self.reply) {
            Outcome::Accepted(handle) => self.handle = Some(handle),
            Outcome::Reply(len) => return Some(&self.reply[..len]),
            _ => {}
        }
        None
    }

    /// Lets the server act and passes each datagram to `send`.
    pub(crate) fn drive(&mut self, now: Timestamp, mut send: impl FnMut(SocketAddr, &Sent<'_>)) {
        let Some(handle) = self.handle else { return };
        if let Some((source, _)) = &mut self.live {
            source.publish(now);
        }
        if let Some(frames) = &mut self.frames {
            frames.publish(now);
        }
        while let Some(event) = self.endpoint.poll_event(handle) {
            self.on_event(now, handle, event);
        }
        loop {
            self.fill(now, handle);
            let transmit = self.endpoint.poll_transmit(handle, now, &mut self.batch, BATCH);
            let Some(transmit) = transmit else { break };
            for datagram in self.batch[..transmit.len].chunks(transmit.segment) {
                let passage = self.foresight.as_ref().map(|known| known.next(datagram.len()));
                let passage = passage.unwrap_or_default();
                let sent = Sent { ecn: transmit.ecn, data: datagram, passage };
                send(transmit.addresses.remote, &sent);
            }
        }
    }

    fn on_event(&mut self, now: Timestamp, handle: Handle, event: Event) {
        if let (Some(origin), Some(connection)) = (&mut self.dash, self.endpoint.connection(handle))
        {
            let requests = origin.on_event(now, connection, event);
            self.asked.extend((0..requests).map(|_| now));
            return;
        }
        let Some((source, http)) = &mut self.live else {
            if let Event::Stream(StreamEvent::Readable(id)) = event {
                self.read(now, handle, id);
            }
            return;
        };
        let Some(connection) = self.endpoint.connection(handle) else { return };
        let t = &mut OverQuic::new(connection, now);
        match event {
            Event::Ready => http.start(t),
            Event::Stream(event) => http.on_stream_event(t, event),
            _ => {}
        }
        while let Some(event) = http.poll_event() {
            if let http3::Event::Request { id, .. } = event
                && http.respond(t, id, 200, &[("content-type", "video/x-flv")], false).is_ok()
            {
                source.join(now, id);
                self.asked.push(now);
            }
        }
    }

    fn read(&mut self, now: Timestamp, handle: Handle, id: StreamId) {
        let Some(connection) = self.endpoint.connection(handle) else { return };
        while let Ok(ReadOutcome::Data(data)) = connection.read(id, 4_096) {
            self.request.extend_from_slice(&data);
        }
        if self.request.ends_with(b"\n") && self.answer.is_none() {
            let line = String::from_utf8_lossy(&self.request);
            let bytes = line.trim().strip_prefix("GET ").and_then(|n| n.parse().ok());
            self.answer = Some(PendingAnswer { id, total: bytes.unwrap_or(0), sent: 0 });
            self.asked.push(now);
            self.request.clear();
            if let Some(frames) = &mut self.frames {
                frames.begin(now);
            }
        }
    }

    fn fill(&mut self, now: Timestamp, handle: Handle) {
        let Some(connection) = self.endpoint.connection(handle) else { return };
        if let Some((source, http)) = &mut self.live {
            if let Some(first_frame) = source.first_frame_ahead() {
                self.opening.look(connection, first_frame);
            }
            if let Some((capping, parameters)) = &mut self.held
                && capping.is_due(now)
                && let Some(playing) = source.playing()
            {
                capping.update(now, connection, Some(*parameters), playing);
            }
            return source.fill(http, now, connection);
        }
        if let Some(origin) = &mut self.dash {
            if let Some(length) = origin.first_size() {
                self.opening.look_at_file(connection, length);
            }
            return origin.fill(now, connection);
        }
        let Some(PendingAnswer { id, total, sent }) = &mut self.answer else { return };
        let (id, total) = (*id, *total);
        let there = self.frames.as_ref().map_or(total, |frames| frames.bytes().min(total));
        while *sent < there && connection.unsent(id).is_some_and(|unsent| unsent < HIGH_WATER) {
            let at = (*sent % PATTERN as u64) as usize;
            let len = ((PATTERN - at) as u64).min(there - *sent);
            if connection.write(id, self.pattern.slice(at..at + len as usize)).is_err() {
                self.answer = None;
                return;
            }
            *sent += len;
            if *sent == total {
                // A stream that the client stopped needs no FIN.
                let _ = connection.finish(id);
                self.answer = None;
                return;
            }
        }
    }
}

fn tls(scenario: &Scenario, keys: Arc<KeyRing>) -> TlsConfig {
    let (certificate, private_key) = certificate();
    TlsConfig::new(TlsSettings {
        certificate_chain: vec![certificate.to_vec()],
        private_key,
        alpn: vec![scenario.traffic.alpn().to_vec()],
        keys,
        single_use: Arc::new(SingleUseLog::new(UNIX_ORIGIN, 120, 1_024)),
        time: wall_clock(),
        early_data: false,
        early_data_context: 0,
        tickets: 1,
        ticket_lifetime: 3_600,
        ciphers: Vec::new(),
        one_rtt: match scenario.cipher {
            Cipher::Real => OneRttProtection::Real,
            Cipher::Null => OneRttProtection::Null,
        },
    })
    .expect("the testbed's certificate is valid")
}

fn transport(scenario: &Scenario, watchers: Watchers) -> TransportConfig {
    let (maker, seed) = (scenario.scheme.clone(), scenario.seed);
    TransportConfig {
        congestion: scenario.congestion.clone(),
        detection: scenario.detection,
        guard: scenario.guard.clone(),
        // Loss correlation is a metric of every experiment.
        scheme: Arc::new(move || Scheme { correlation: true, ..maker(seed) }),
        idle_timeout: IDLE_TIMEOUT,
        handshake_timeout: IDLE_TIMEOUT,
        observer: watchers.factory(),
        ..scenario.transport.clone()
    }
}

/// Observers of a connection.
#[derive(Clone)]
struct Watchers {
    log: Option<EventLog>,
    diary: Option<Diary>,
    foresight: Option<Foresight>,
    /// Observers of the scenario's own, such as a qlog.
    own: Option<ObserverFactory>,
}

/// Two observers of one connection.
struct Both(Watchers, Option<Box<dyn Observer + Send>>);

impl Observer for Both {
    fn on_event(&mut self, now: Timestamp, event: &observer::Event<'_>) {
        self.0.on_event(now, event);
        if let Some(own) = &mut self.1 {
            own.on_event(now, event);
        }
    }
}

impl Watchers {
    /// Returns the factory of each connection's observers; `None` without any.
    fn factory(self) -> Option<ObserverFactory> {
        let is_watched = self.log.is_some() || self.diary.is_some() || self.foresight.is_some();
        (is_watched || self.own.is_some()).then(|| {
            let observe = move |now: Timestamp,
                                remote: SocketAddr,
                                odcid: &[u8]|
                  -> Option<Box<dyn Observer + Send>> {
                let own = self.own.as_ref().and_then(|own| own(now, remote, odcid));
                Some(Box::new(Both(self.clone(), own)))
            };
            Arc::new(observe) as ObserverFactory
        })
    }
}

impl Observer for Watchers {
    fn on_event(&mut self, now: Timestamp, event: &observer::Event<'_>) {
        if let Some(log) = &mut self.log {
            log.on_event(now, event);
        }
        if let Some(diary) = &mut self.diary {
            diary.on_event(now, event);
        }
        if let Some(foresight) = &self.foresight {
            foresight.on_event(event);
        }
    }
}
