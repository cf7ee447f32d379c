//! Clients that break the rules. Each ends with the error code that the RFC prescribes, or is
//! ignored where the RFC says so, and costs the server bounded work and memory.
//!
//! - `h3spec`: the cases of the tester of this name; `errors`: related cases.
//! - `duties`, `clocks`: the server's duties towards any client.
//! - `handshakes`: attacks before and during connection setup.
//! - `paths`: addresses, connection IDs and resets; `budgets`: unvalidated addresses.
//! - `acknowledgements`: packet numbers and keys; `withheld`: missing acknowledgements;
//!   `superseded`: late acknowledgements of copies.
//! - `costs`: CPU time per datagram; `attacks`: other floods and forgeries; `fuzz`: random clients.

mod acknowledgements;
mod attacks;
mod budgets;
mod clocks;
mod costs;
mod duties;
mod errors;
mod fuzz;
mod h3spec;
mod handshakes;
mod paths;
mod raw;
mod returns;
mod rows;
#[path = "../common/server.rs"]
mod server;
mod superseded;
mod withheld;

use std::sync::Arc;

use bytes::Bytes;
use mendcast_quic::Endpoint;
use mendcast_quic::wire::{PacketType, put_stream_header};
use rustls::crypto::CryptoProvider;
use units::StreamId;

use raw::{Parameters, Raw, frames, honest};
use server::config;

/// A server with default settings.
pub fn endpoint() -> Endpoint {
    Endpoint::new(config(), [3; 32])
}

/// A client's TLS that offers one suite.
pub fn client_tls(alpn: &[u8]) -> Arc<rustls::ClientConfig> {
    client_tls_with(rustls::crypto::aws_lc_rs::default_provider(), alpn)
}

/// The same on another provider.
pub fn client_tls_with(mut provider: CryptoProvider, alpn: &[u8]) -> Arc<rustls::ClientConfig> {
    provider
        .cipher_suites
        .retain(|suite| suite.suite() == rustls::CipherSuite::TLS13_AES_128_GCM_SHA256);
    Arc::new(server::client_tls(provider, alpn))
}

/// A client with these parameters that has not begun.
pub fn client(parameters: &Parameters) -> Raw {
    Raw::new(endpoint(), client_tls(b"test"), parameters)
}

/// A client after an honest handshake.
pub fn connected() -> Raw {
    let mut raw = client(&honest());
    raw.connect();
    raw
}

/// A client with a request whose answer of `len` bytes is in flight.
pub fn downloading(parameters: &Parameters, len: usize) -> Raw {
    let mut raw = client(parameters);
    raw.connect();
    download(&mut raw, len);
    raw
}

/// Makes a request, which is answered with `len` bytes.
pub fn download(raw: &mut Raw, len: usize) {
    download_of(raw, Bytes::from(vec![7; len]));
}

/// Makes a request, which is answered with this.
pub fn download_of(raw: &mut Raw, body: Bytes) {
    raw.send(PacketType::OneRtt, &frames(|w| put_stream_header(w, StreamId(0), 0, Some(0), true)));
    let handle = raw.handle.expect("a connection");
    let connection = raw.server.connection(handle).expect("open");
    connection.write(StreamId(0), body).expect("an open stream");
    raw.collect();
}
