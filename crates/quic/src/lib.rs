//! Server-side QUIC v1 transport, sans-IO: wire codecs, TLS glue, streams, the ledger of sent
//! packets, loss detection, paths and tokens (RFC 8999, 9000, 9001, 9002, 9287).
//!
//! No socket, no clock, no thread, no global randomness: time comes in as
//! [`units::Timestamp`], datagrams as byte slices, randomness from a seeded generator. An
//! [`Endpoint`] owns the [`Connection`]s of one socket loop; the loop feeds it datagrams and
//! time-outs, serves [`Event`]s, and sends what [`Endpoint::poll_transmit`] writes.

#![forbid(unsafe_code)]

pub mod config;
mod connection;
pub mod crypto;
mod crypto_stream;
mod datagram;
pub mod detection;
mod drops;
mod ecn;
mod endpoint;
mod ids;
mod ledger;
mod mtud;
pub mod observer;
mod path;
mod presence;
pub mod qlog;
pub mod ranges;
mod received;
mod reordering;
mod rtt;
pub mod streams;
pub mod wire;

pub use config::{
    ControllerFactory, CopyAccounting, EndpointConfig, ObserverFactory, RetryPolicy, SchemeFactory,
    TransportConfig, controller,
};
pub use connection::{CloseReason, Connection, Event, HandshakeInfo, Stats, TokenUse, Transmit};
pub use datagram::Datagram;
pub use drops::{Counts, DropReason, PacketDropReason};
pub use ecn::{EcnFault, EcnState};
pub use endpoint::{Endpoint, EndpointStats, Handle, Outcome};
pub use path::Addresses;
pub use rtt::Rtt;
