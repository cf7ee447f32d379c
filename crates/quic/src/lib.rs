//! Server-side QUIC v1 transport, sans-IO: wire codecs, TLS glue, streams, the ledger of sent
//! packets, loss detection, paths and tokens (RFC 8999, 9000, 9001, 9002, 9287).
//!
//! No socket, no clock, no thread, no global randomness: time comes in as
//! [`units::Timestamp`], datagrams as byte slices, randomness from a seeded generator.

#![forbid(unsafe_code)]

pub mod crypto;
pub mod ranges;
pub mod streams;
pub mod wire;
