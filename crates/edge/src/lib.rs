//! The server process: configuration, certificates, sockets, the HTTP fronts and the signals that
//! reload or drain it.
//!
//! One [`State`](server::State) is made from one configuration file and swapped as a whole on
//! reload: a new connection takes the state of the moment and keeps it, so a running one never
//! sees half of an old and half of a new configuration. What a request is answered with is
//! decided in one place ([`front::respond`]) for HTTP/1.1, HTTP/2 and HTTP/3.

#![forbid(unsafe_code)]

pub mod ab;
mod admin;
mod client;
pub mod cohorts;
pub mod config;
mod disk;
mod error;
pub mod files;
pub mod front;
pub mod hooks;
pub mod identity;
pub mod ingest;
pub mod io;
pub mod live;
pub mod pages;
pub mod quic;
pub mod server;
pub mod sessions;
pub mod signing;
mod sync;

pub use error::Error;
