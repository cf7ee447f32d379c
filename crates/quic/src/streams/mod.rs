//! Streams and flow control (RFC 9000, sections 2 to 4).
