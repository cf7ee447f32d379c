//! Packet protection and the TLS glue (RFC 9001).
