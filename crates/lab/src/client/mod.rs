//! Viewers: unmodified third-party clients that ask for a number of bytes on one stream. Their
//! configuration belongs to the experiment, their code does not.

mod noq;
mod null;
mod quinn;

use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use units::{Ecn, Timestamp};

use crate::identity::{certificate, wall_clock};
use crate::live::{Arrival, Live, Reception};
use crate::server::pattern;
use crate::simulation::Cipher;
use crate::traffic::Traffic;

/// Idle time-out of both ends: probes that back off through the worst of random paths stay below.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// A third-party client library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientKind {
    /// `quinn-proto`.
    Quinn,
    /// `noq-proto`; with [`Cipher::Real`] only.
    Noq,
}

impl ClientKind {
    /// The name in specifications and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quinn => "quinn",
            Self::Noq => "noq",
        }
    }

    /// The largest flow-control window in bytes that the client's code bears. `noq-proto` 1.4
    /// closes the connection ("too many gaps in stream buffer") when more than 2,048 packets wait
    /// behind a gap, contiguous or not; quinn-rs/quinn#2814 describes the fault and mends it in
    /// `quinn-proto`.
    pub fn largest_window(self) -> u64 {
        match self {
            Self::Quinn => u64::MAX,
            Self::Noq => 2_000_000,
        }
    }
}

impl FromStr for ClientKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "quinn" => Ok(Self::Quinn),
            "noq" => Ok(Self::Noq),
            _ => Err(format!("no client `{text}`; there are `quinn` and `noq`")),
        }
    }
}

impl fmt::Display for ClientKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a client is to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub kind: ClientKind,
    pub cipher: Cipher,
    pub server: SocketAddr,
    pub traffic: Traffic,
    /// How often the same is asked for, one after the other on the same connection.
    pub times: u32,
    /// Flow-control window of stream and connection, in bytes.
    pub window: u64,
    pub seed: u64,
    /// How often the client speaks when it has nothing to say.
    pub keep_alive: Option<Duration>,
}

impl Request {
    /// The generator's seed of the client's library.
    fn rng_seed(&self) -> [u8; 32] {
        let mut seed = [0x5a; 32];
        seed[..8].copy_from_slice(&self.seed.to_le_bytes());
        seed
    }

    fn line(&self) -> String {
        match self.traffic {
            Traffic::Live(_) => "LIVE\n".to_owned(),
            _ => format!("GET {}\n", self.traffic.bytes()),
        }
    }

    fn live(&self) -> Option<Live> {
        match self.traffic {
            Traffic::Live(live) => Some(live),
            _ => None,
        }
    }
}

/// What a client expects.
enum Expected {
    Pattern(Bytes),
    Live(Box<Reception>),
}

/// What a client has received.
pub(crate) struct Download {
    expected: Expected,
    /// All of it was what was expected.
    pub intact: bool,
    pub received: u64,
    /// When each answer was complete.
    pub completed: Vec<Timestamp>,
    /// Bytes received before the present answer.
    before: u64,
    pub finished: bool,
    pub failed: Option<String>,
}

impl Download {
    /// Of a live stream, or of the pattern.
    pub(crate) fn of(live: Option<Live>) -> Self {
        let expected = match live {
            Some(live) => Expected::Live(Box::new(Reception::new(live))),
            None => Expected::Pattern(pattern()),
        };
        Self {
            expected,
            intact: true,
            received: 0,
            completed: Vec::new(),
            before: 0,
            finished: false,
            failed: None,
        }
    }

    /// An answer of `times` is complete. Returns whether there is more to ask for.
    pub(crate) fn complete(&mut self, now: Timestamp, times: u32) -> bool {
        self.completed.push(now);
        self.before = self.received;
        self.finished = self.completed.len() >= times as usize;
        !self.finished
    }

    /// Compares what came with what was asked for, byte by byte.
    pub(crate) fn take(&mut self, now: Timestamp, mut data: &[u8]) {
        let pattern = match &mut self.expected {
            Expected::Pattern(pattern) => pattern,
            Expected::Live(reception) => {
                self.intact &= reception.take(now, data);
                self.received += data.len() as u64;
                return;
            }
        };
        while !data.is_empty() {
            let at = ((self.received - self.before) % pattern.len() as u64) as usize;
            let length = data.len().min(pattern.len() - at);
            let (head, rest) = data.split_at(length);
            self.intact &= head == &pattern[at..at + length];
            self.received += length as u64;
            data = rest;
        }
    }

    /// The frames of a live stream that arrived.
    pub(crate) fn arrivals(&self) -> &[Arrival] {
        match &self.expected {
            Expected::Pattern(_) => &[],
            Expected::Live(reception) => &reception.arrivals,
        }
    }
}

/// A client in virtual time.
pub(crate) trait Viewer {
    fn download(&self) -> &Download;
    fn deadline(&mut self) -> Option<Timestamp>;
    fn on_timeout(&mut self, now: Timestamp);
    fn on_datagram(&mut self, now: Timestamp, ecn: Ecn, data: &[u8]);
    /// Lets the client act; `send` gets each datagram.
    fn drive(&mut self, now: Timestamp, send: &mut dyn FnMut(Ecn, &[u8]));
}

/// Starts the client that `request` names.
///
/// # Errors
/// The client cannot do what is asked.
pub(crate) fn start(request: Request) -> Result<Box<dyn Viewer>, String> {
    match (request.kind, request.cipher) {
        (ClientKind::Noq, _) if request.times != 1 => {
            Err("several requests on one connection are there for the client `quinn` only"
                .to_owned())
        }
        (ClientKind::Quinn, _) => Ok(Box::new(quinn::Client::new(request))),
        (ClientKind::Noq, Cipher::Real) => Ok(Box::new(noq::Client::new(request))),
        (ClientKind::Noq, Cipher::Null) => {
            Err("the null cipher is there for the client `quinn` only".to_owned())
        }
    }
}

/// TLS that trusts the testbed's certificate and lives at its wall clock.
fn tls_config() -> rustls::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate().0).expect("a certificate is a root");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_details(provider, wall_clock())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"hq-interop".to_vec()];
    tls
}
