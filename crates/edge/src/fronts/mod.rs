//! TCP fronts: HTTP/1.1 and HTTP/2, and RTMP. QUIC is served by the event loops.

mod accept;
mod proxy;
pub(crate) mod rtmp;
mod tcp;
pub(crate) mod threads;
