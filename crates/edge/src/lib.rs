//! The server process: configuration, certificates, sockets, HTTP and RTMP, reload and drain.
//!
//! A [`State`] is derived from a configuration file, and a reload replaces it as a whole. A
//! connection keeps the state it started with, so it never sees parts of two configurations.
//! `routes` answers requests of HTTP/1.1, HTTP/2 and HTTP/3.

#![forbid(unsafe_code)]

mod acme;
mod admin;
mod autoplex;
mod bans;
mod certificates;
mod check;
mod client;
mod clock;
mod cohorts;
mod disk;
mod entropy;
mod files;
mod finding;
mod fronts;
mod gzip;
mod hex;
mod hooks;
mod hosts;
mod http;
mod identity;
mod ingest;
mod invitation;
mod io;
pub mod keyfile;
mod ladder;
mod limits;
mod live;
pub mod logging;
mod loops;
mod names;
pub mod passes;
mod path_cookie;
mod plan;
mod play;
mod push;
mod record;
mod reload;
mod routes;
mod saved_paths;
mod server;
mod service;
pub mod sessions;
pub mod signing;
mod state;
mod sync;
pub mod tokens;
mod upload;
mod viewer;

use config::redacted;

pub use ::config;
pub use admin::openapi;
pub use check::{Checked, check};
pub use finding::Finding;
pub use names::matches;
pub use plan::Plan;
pub use records::Error;
pub use server::{Edge, run};
pub use state::{Shared, State};
pub use viewer::Unit;
