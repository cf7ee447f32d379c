//! QUIC in the edge: one event loop per core (`event_loop`), the requests of a connection and their answers
//! (`requests`; bodies are the `delivery` crate's) over an application protocol (`application`: `h3`, and `http09` for tests), the
//! log of closed connections (`log`) and the files of sampled ones (`qlog`), and what happens when a loop
//! dies or hangs (`supervisor`).

mod application;
mod beginning;
pub(crate) mod event_loop;
mod h3;
mod handshakes;
mod http09;
pub(crate) mod log;
pub(crate) mod mailbox;
pub(crate) mod pulse;
mod qlog;
pub(crate) mod report;
mod requests;
pub(crate) mod settings;
pub(crate) mod supervisor;
mod timers;
mod watch;

pub use settings::QuicState;
