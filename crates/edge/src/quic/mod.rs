//! QUIC in the edge: one event loop per core (`event_loop`), what a connection's requests are
//! answered with (`session`, `response`; `http09` for tests), the log of closed connections (`log`)
//! and the files of sampled ones (`qlog`).

pub(crate) mod event_loop;
mod http09;
pub(crate) mod log;
pub(crate) mod mailbox;
mod qlog;
mod response;
mod session;
pub(crate) mod settings;
mod timers;
mod watch;

pub use settings::QuicState;
