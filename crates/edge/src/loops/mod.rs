//! QUIC in the edge: one event loop per core (`event_loop`), what a connection's requests are
//! answered with (`session`, `response`; `http09` for tests), the log of closed connections (`log`)
//! and the files of sampled ones (`qlog`), and what happens when a loop dies or hangs (`supervisor`).

pub(crate) mod event_loop;
mod handshakes;
mod http09;
pub(crate) mod log;
pub(crate) mod mailbox;
pub(crate) mod pulse;
mod qlog;
pub(crate) mod report;
mod response;
mod session;
pub(crate) mod settings;
pub(crate) mod supervisor;
mod timers;
mod watch;

pub use settings::QuicState;
