//! Wire codecs: variable-length integers (RFC 9000, section 16), packet headers (RFC 8999; RFC
//! 9000, section 17), frames (section 19), error codes (section 20) and transport parameters
//! (section 18).
//!
//! Parsing borrows from the datagram and never allocates; nothing that a peer sends can panic or
//! spin in here. Writing goes into a slice that the caller has measured.

mod connection_id;
pub mod cursor;
pub mod error;
pub mod frame;
pub mod packet;
pub mod params;

pub use connection_id::{ConnectionId, MAX_CID_LEN};
pub use cursor::{Reader, Truncated, VARINT_MAX, Writer, put_varint, varint_len};
pub use error::{TransportError, TransportErrorCode};
pub use frame::*;
pub use packet::*;
pub use params::TransportParameters;

#[cfg(test)]
mod tests;
