//! The server process: configuration, certificates, sockets, the HTTP fronts and the signals that
//! reload or drain it.
//!
//! One [`State`] is made from one configuration file and swapped as a whole on
//! reload: a new connection takes the state of the moment and keeps it, so a running one never
//! sees half of an old and half of a new configuration. What a request is answered with is
//! decided in one place (`routes`) for HTTP/1.1, HTTP/2 and HTTP/3.

#![forbid(unsafe_code)]

mod admin;
mod autoplex;
mod bans;
mod check;
mod client;
mod clock;
mod cohorts;
pub mod config;
mod disk;
mod entropy;
mod files;
mod finding;
mod fronts;
mod gzip;
mod hex;
mod hooks;
mod http;
mod identity;
mod ingest;
mod invitation;
mod io;
pub mod keyfile;
mod limits;
mod live;
pub mod logging;
mod loops;
mod names;
pub mod passes;
mod path_cookie;
mod plan;
mod play;
mod redacted;
mod reload;
mod routes;
mod saved_paths;
mod server;
mod service;
pub mod sessions;
pub mod signing;
mod state;
mod sync;
mod viewer;

pub use check::{Checked, check};
pub use finding::Finding;
pub use names::matches;
pub use plan::Plan;
pub use records::Error;
pub use server::{Edge, run};
pub use state::{Shared, State};
pub use viewer::Unit;
