//! The contract between `interop/run` and a client program: one [`Task`] as JSON in the first argument, one [`Report`] as a
//! JSON line on stdout. `interop/mendinterop/task.py` is the same contract on the runner's side.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::error::Error;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Error type of all clients, for printing.
pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Connections to open one after the other, and the requests of each.
#[derive(Debug, Clone, Deserialize)]
pub struct Task {
    /// Server name for SNI, certificate check and `:authority`.
    pub host: String,
    /// Address of the server, or of the link in front of it.
    pub address: IpAddr,
    /// UDP port.
    pub port: u16,
    /// PEM file with the only trusted certificate authority.
    pub ca: PathBuf,
    /// Paths per connection, requested in parallel.
    pub rounds: Vec<Vec<String>>,
    /// Send the requests of the second and later rounds in 0-RTT.
    pub early_data: bool,
    /// Offer TLS_CHACHA20_POLY1305_SHA256 only.
    pub chacha20: bool,
    /// Update keys after the first path of a round, before the others.
    pub key_update: bool,
    /// Offer a version first that the server does not support.
    pub unknown_version: bool,
    /// Milliseconds to stay connected after the last response, so that tickets and tokens arrive.
    pub linger_ms: u64,
}

impl Task {
    /// Reads the task from the first argument.
    pub fn from_args() -> Result<Self> {
        let text = std::env::args().nth(1).ok_or("usage: CLIENT TASK-AS-JSON")?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Returns the server's address.
    pub fn remote(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }

    /// Returns an unspecified local address of the server's family.
    pub fn local(&self) -> SocketAddr {
        match self.address {
            IpAddr::V4(_) => ([127, 0, 0, 1], 0).into(),
            IpAddr::V6(_) => ([0u16, 0, 0, 0, 0, 0, 0, 1], 0).into(),
        }
    }

    /// Splits a round's paths into batches of parallel requests, with a key update between two batches.
    pub fn batches<'a>(&self, paths: &'a [String]) -> Vec<&'a [String]> {
        if self.key_update && paths.len() > 1 {
            vec![&paths[..1], &paths[1..]]
        } else {
            vec![paths]
        }
    }

    /// Returns the time to stay connected after the last response.
    pub fn linger(&self) -> Duration {
        Duration::from_millis(self.linger_ms)
    }

    /// Returns whether this round's requests are sent in 0-RTT packets.
    pub fn early(&self, round: usize) -> bool {
        self.early_data && round > 0
    }
}

/// A body in progress, counted and hashed but not stored.
#[derive(Default)]
pub struct Body {
    bytes: u64,
    hash: Sha256,
}

impl Body {
    /// Adds the next bytes.
    pub fn push(&mut self, data: &[u8]) {
        self.bytes += data.len() as u64;
        self.hash.update(data);
    }

    /// Returns the complete response.
    pub fn finish(self, path: &str, status: u16) -> Response {
        let mut sha256 = String::with_capacity(64);
        for byte in self.hash.finalize() {
            write!(sha256, "{byte:02x}").expect("writing to a String cannot fail");
        }
        Response { path: path.to_owned(), status, bytes: self.bytes, sha256 }
    }
}

/// One response.
#[derive(Debug, Clone, Serialize)]
pub struct Response {
    /// Requested path.
    pub path: String,
    /// HTTP status; 200 for a complete HTTP/0.9 response, which has none.
    pub status: u16,
    /// Length of the body.
    pub bytes: u64,
    /// Hash of the body, lower-case hexadecimal.
    pub sha256: String,
}

/// One connection. `None` if the stack does not expose the value.
#[derive(Debug, Default, Clone, Serialize)]
pub struct Round {
    /// Negotiated application protocol.
    pub alpn: Option<String>,
    /// Whether the TLS session was resumed.
    pub resumed: Option<bool>,
    /// Whether 0-RTT was accepted.
    pub early_data: Option<bool>,
    /// Responses, in any order.
    pub responses: Vec<Response>,
}

/// Output of a client.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// One entry per finished connection.
    pub rounds: Vec<Round>,
    /// Error that ended the task early.
    pub error: Option<String>,
}

/// Prints the report of all rounds up to the first error.
pub fn print_report(rounds: Vec<Round>, outcome: Result<()>) {
    let error = outcome.err().map(|error| {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            write!(text, ": {cause}").expect("writing to a String cannot fail");
            source = cause.source();
        }
        text
    });
    let report = Report { rounds, error };
    println!("{}", serde_json::to_string(&report).expect("a report has only strings and numbers"));
}
