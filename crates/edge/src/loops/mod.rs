//! QUIC in the edge: one event loop per core (`event_loop`), which serves requests (`requests`,
//! with a `path_policy` per connection) over an application protocol (`application`: `h3`, and
//! `http09` for tests); the log of closed connections (`log`), qlog files (`qlog`), TLS secrets
//! (`key_log`), and supervision of the loops (`supervisor`).

mod application;
mod connection_start;
pub(crate) mod event_loop;
mod h3;
mod handshakes;
mod http09;
mod key_log;
pub(crate) mod log;
pub(crate) mod mailbox;
mod path_policy;
pub(crate) mod pulse;
mod qlog;
pub(crate) mod report;
mod requests;
pub(crate) mod settings;
pub(crate) mod supervisor;
mod timers;
mod watch;

pub use settings::QuicState;
