//! The fronts on TCP: HTTP/1.1 and HTTP/2, and RTMP. QUIC has its event loops.

pub(crate) mod rtmp;
pub(crate) mod tcp;
