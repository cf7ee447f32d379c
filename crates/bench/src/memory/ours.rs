//! Our transport in memory.

use core::time::Duration;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use quic::crypto::{
    Cipher, KeyRing, OneRttProtection, SingleUseLog, SystemTime, TlsConfig, TlsSettings,
};
use quic::streams::{ReadOutcome, StreamEvent};
use quic::{
    Addresses, Connection, Datagram, Endpoint, EndpointConfig, Event, Handle, HandshakeInfo,
    RetryPolicy, TransportConfig,
};
use startup::cookie::CookieRules;
use startup::decision::{Inputs, Limits, Mode};
use startup::{Carrier, Cookie};
use units::{Ecn, Rate, StreamId, Timestamp};

use super::server::{BATCH, Batch, HIGH_WATER, MTU, MemoryServer, Pool, Setup, chunk};
use crate::identity::Identity;

/// Wall clock for returning clients: Unix seconds.
const NOW: u64 = 1_800_000_000;
const VIEWER: u64 = 7;
/// Datagrams per batch.
const SEGMENTS: usize = 10;

pub(super) struct Ours {
    endpoint: Endpoint,
    answer: u64,
    chunk: Bytes,
    reply: Vec<u8>,
    /// Answers in progress: bytes not yet written.
    answers: Vec<Answer>,
    handles: Vec<Handle>,
    /// State for returning clients; `None` without them.
    pub(super) returning: Option<Returning>,
}

/// Handling of returning clients.
pub(super) struct Returning {
    /// Whether to issue cookies and to check incoming ones.
    pub cookies: bool,
    /// Tokens received, and accepted cookies in them.
    pub tokens: usize,
    pub accepted: usize,
}

impl Returning {
    fn on_ready(&mut self, connection: &mut Connection, info: HandshakeInfo) {
        let Some(own) = info.returned_token else { return };
        self.tokens += 1;
        if !self.cookies {
            return;
        }
        let client = connection.addresses().remote.ip();
        let cookie = Cookie::decode(&own);
        let past =
            cookie.and_then(|c| c.accept(Carrier::Token, client, NOW, &CookieRules::default()));
        self.accepted += usize::from(past.is_ok());
        let known = Inputs { first_frame: Some(43_000), past: past.ok(), handshake_rtt: None };
        delivery::start(connection, Mode::Steady, &known, &Limits::default());
    }

    /// Returns the cookie for the client's next visit.
    fn own(&self, connection: &Connection) -> Vec<u8> {
        if !self.cookies {
            return Vec::new();
        }
        // Without media nothing is measured, so use the values of a connection with media.
        let learned = delivery::path_state(connection, None, NOW, VIEWER);
        let rate = Rate::from_mbps(8);
        let min_rtt = Duration::from_millis(50);
        let cookie = Cookie { min_rtt, max_rate: rate, usual_rate: rate, samples: 10, ..learned };
        cookie.encode().to_vec()
    }
}

struct Answer {
    handle: Handle,
    id: StreamId,
    left: u64,
}

impl Ours {
    pub(super) fn new(setup: &Setup, identity: &Identity, answer: u64) -> Self {
        let keys = Arc::new(KeyRing::new(&[7; 32], &[(0, [9; 32])]));
        let tls = TlsConfig::new(TlsSettings {
            certificate_chain: vec![identity.certificate.to_vec()],
            private_key: identity.key.secret_pkcs8_der().to_vec(),
            alpn: vec![b"hq-interop".to_vec()],
            keys: keys.clone(),
            single_use: Arc::new(SingleUseLog::new(0, 120, 1_024)),
            time: Arc::new(SystemTime),
            early_data: true,
            early_data_context: 0,
            tickets: 1,
            ticket_lifetime: 86_400,
            ciphers: vec![Cipher::Aes128Gcm],
            one_rtt: OneRttProtection::Real,
        })
        .expect("certificate and key belong together");
        let transport = TransportConfig {
            congestion: delivery::controller(setup.congestion),
            scheme: setup.scheme.clone(),
            guard: setup.guard.clone(),
            idle_timeout: Duration::from_secs(600),
            max_mtu: MTU,
            ..TransportConfig::default()
        };
        let config = EndpointConfig {
            transport: Arc::new(transport),
            tls: Arc::new(tls),
            keys,
            retry: RetryPolicy::Never,
            token_lifetime: Duration::from_secs(3_600),
            max_connections: 100_000,
            server_id: 0,
            core: 0,
            cores: 1,
            unix_origin: 0,
        };
        Self {
            endpoint: Endpoint::new(config, [1; 32]),
            answer,
            chunk: chunk(),
            reply: Vec::with_capacity(1_500),
            answers: Vec::new(),
            handles: Vec::new(),
            returning: None,
        }
    }

    fn serve(&mut self, handle: Handle, now: Timestamp, pool: &mut Pool, out: &mut Vec<Batch>) {
        if self.endpoint.connection(handle).and_then(|c| c.deadline()).is_some_and(|at| at <= now) {
            self.endpoint.handle_timeout(handle, now);
        }
        while let Some(event) = self.endpoint.poll_event(handle) {
            match event {
                Event::Ready => {
                    let Some(connection) = self.endpoint.connection(handle) else { return };
                    let info = connection.take_handshake_info().unwrap_or_default();
                    if let Some(returning) = &mut self.returning {
                        returning.on_ready(connection, info);
                    }
                }
                Event::Connected => {
                    let connection = self.endpoint.connection(handle);
                    let own = self.returning.as_ref().zip(connection);
                    let own = own.map(|(returning, connection)| returning.own(connection));
                    self.endpoint.release_ticket(handle, now, own.as_deref().unwrap_or_default());
                    if let Some(own) = own {
                        self.endpoint.send_new_token(handle, now, &own);
                    }
                }
                Event::Stream(StreamEvent::Readable(id)) => self.read(handle, id),
                _ => {}
            }
        }
        loop {
            self.fill(handle);
            let mut data = pool.get();
            data.resize(BATCH, 0);
            let transmit = self.endpoint.poll_transmit(handle, now, &mut data, SEGMENTS);
            let Some(transmit) = transmit else {
                pool.0.push_back(data);
                break;
            };
            let (len, segment) = (transmit.len, transmit.segment);
            out.push(Batch { data, len, segment, to: transmit.addresses.remote });
        }
    }

    fn read(&mut self, handle: Handle, id: StreamId) {
        let Some(connection) = self.endpoint.connection(handle) else { return };
        loop {
            match connection.read(id, 1_000) {
                Ok(ReadOutcome::Data(_)) => {}
                Ok(ReadOutcome::Finished) => break,
                _ => return,
            }
        }
        self.answers.push(Answer { handle, id, left: self.answer });
    }

    fn fill(&mut self, handle: Handle) {
        for answer in self.answers.iter_mut().filter(|answer| answer.handle == handle) {
            let Some(connection) = self.endpoint.connection(handle) else { return };
            while answer.left > 0
                && connection.unsent(answer.id).is_some_and(|unsent| unsent < HIGH_WATER as u64)
            {
                let length = (self.chunk.len() as u64).min(answer.left);
                let data = self.chunk.slice(..length as usize);
                if connection.write(answer.id, data).is_err() {
                    answer.left = 0;
                    return;
                }
                answer.left -= length;
                if answer.left == 0 {
                    // A stream that the client stopped needs no FIN.
                    let _ = connection.finish(answer.id);
                }
            }
        }
    }
}

// `bench/instructions` finds these functions by name.
impl MemoryServer for Ours {
    #[inline(never)]
    fn on_datagram(&mut self, now: Duration, from: SocketAddr, data: &mut [u8]) {
        let addresses = Addresses::of(from);
        let now = Timestamp::ZERO + now;
        let datagram = Datagram { addresses, ecn: Ecn::NotEct, payload: data };
        let outcome = self.endpoint.handle_datagram(now, datagram, &mut self.reply);
        if let quic::Outcome::Accepted(handle) = outcome {
            self.handles.push(handle);
        }
    }

    #[inline(never)]
    fn drive(&mut self, now: Duration, pool: &mut Pool, out: &mut Vec<Batch>) {
        for index in 0..self.handles.len() {
            self.serve(self.handles[index], Timestamp::ZERO + now, pool, out);
        }
    }
}
