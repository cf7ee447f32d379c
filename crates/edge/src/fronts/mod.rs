//! The fronts on TCP: HTTP/1.1 and HTTP/2, and RTMP. QUIC has its event loops.

mod proxy;
pub(crate) mod rtmp;
mod tcp;
pub(crate) mod threads;
