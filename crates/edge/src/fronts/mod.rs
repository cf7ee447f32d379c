//! TCP fronts: HTTP/1.1 and HTTP/2, RTMP and RTMPS. QUIC is served by the event loops.

mod accept;
mod handshakes;
mod proxy;
pub(crate) mod rtmp;
mod tcp;
pub(crate) mod threads;

pub(crate) use handshakes::Turns;

/// Size in bytes from which on a player's available tags leave in a write of their own.
const BUNDLE: usize = 16 * 1024;
