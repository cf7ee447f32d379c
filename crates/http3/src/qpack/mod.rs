//! QPACK (RFC 9204) with a dynamic table of capacity 0: field sections only use the static table
//! and literals, so decoding never blocks on another stream.

mod decode;
mod encode;
mod huffman;
mod static_table;
#[cfg(test)]
mod tests;

use bytes::Bytes;

pub(crate) use decode::{DecodeError, DecoderStream, check_encoder_stream, decode};
pub(crate) use encode::encode;

/// Overhead of a field line in addition to its name and value, in bytes (RFC 9114, section 4.2.2).
const FIELD_OVERHEAD: u64 = 32;

/// A field line: name and value, uninterpreted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Field {
    /// The name, in lower case.
    pub name: Bytes,
    /// The value.
    pub value: Bytes,
}

/// Returns the size of a field line for the limits of field sections (RFC 9114, section 4.2.2).
pub(crate) fn field_size(name: &[u8], value: &[u8]) -> u64 {
    name.len() as u64 + value.len() as u64 + FIELD_OVERHEAD
}
