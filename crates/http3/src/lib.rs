//! http3
