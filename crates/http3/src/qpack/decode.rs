//! Decoding of field sections (RFC 9204, section 4.5) and of the two instruction streams (sections
//! 4.3 and 4.4), which are nearly empty with a table capacity of 0.

use bytes::{BufMut, Bytes, BytesMut};
use quic::wire::VARINT_MAX;

use super::static_table::STATIC_TABLE;
use super::{Field, field_size, huffman};
use crate::error::{ConnectionError, code};

/// Error of decoding a field section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DecodeError {
    /// The section is invalid: QPACK_DECOMPRESSION_FAILED, a connection error.
    Failed(&'static str),
    /// The decoded fields exceed the limit.
    TooLarge,
}

impl DecodeError {
    pub(super) const TRUNCATED: Self = Self::Failed("truncated field section");
    const DYNAMIC: Self = Self::Failed("reference to the dynamic table (capacity 0)");
}

/// Decodes a field section. Its decoded size may be at most `limit` bytes (RFC 9114, section
/// 4.2.2).
///
/// All literals share one allocation of at most 8/5 of the section's length, so that a stored
/// request does not keep the transport's receive buffers allocated.
pub(crate) fn decode(section: &[u8], limit: u64) -> Result<Vec<Field>, DecodeError> {
    let mut input = section;
    // RFC 9204, section 4.5.1.1: with a capacity of 0, a conformant encoder always encodes a
    // Required Insert Count of 0.
    let (_, required_insert_count) = take_integer(&mut input, 8)?;
    if required_insert_count != 0 {
        return Err(DecodeError::DYNAMIC);
    }
    // RFC 9204, section 4.5.1.2: a Sign bit of 1 is invalid if the Required Insert Count is not
    // above Delta Base. A positive Base has no effect.
    let (sign, _) = take_integer(&mut input, 7)?;
    if sign & 0x80 != 0 {
        return Err(DecodeError::Failed("negative Base"));
    }

    let mut scratch = BytesMut::new();
    let mut fields = Vec::new();
    let mut size = 0;
    while let Some(&first) = input.first() {
        let field = match first {
            // Indexed Field Line (section 4.5.2); bit 0x40: static.
            0x80.. => {
                let (flags, index) = take_integer(&mut input, 6)?;
                let (name, value) = static_entry(flags & 0x40 != 0, index)?;
                Field { name, value: Bytes::from_static(value.as_bytes()) }
            }
            // Literal Field Line with Name Reference (section 4.5.4); bit 0x10: static.
            0x40..0x80 => {
                let (flags, index) = take_integer(&mut input, 4)?;
                let (name, _) = static_entry(flags & 0x10 != 0, index)?;
                Field { name, value: take_string(&mut input, 7, &mut scratch)? }
            }
            // Literal Field Line with Literal Name (section 4.5.6).
            0x20..0x40 => Field {
                name: take_string(&mut input, 3, &mut scratch)?,
                value: take_string(&mut input, 7, &mut scratch)?,
            },
            // The two forms with a post-Base index (sections 4.5.3 and 4.5.5).
            0x00..0x20 => return Err(DecodeError::DYNAMIC),
        };
        size += field_size(&field.name, &field.value);
        if size > limit {
            return Err(DecodeError::TooLarge);
        }
        fields.push(field);
    }
    Ok(fields)
}

fn static_entry(is_static: bool, index: u64) -> Result<(Bytes, &'static str), DecodeError> {
    if !is_static {
        return Err(DecodeError::DYNAMIC);
    }
    // RFC 9204, section 3.1: an invalid static table index in a field line representation "MUST"
    // be "a connection error of type QPACK_DECOMPRESSION_FAILED".
    let entry = usize::try_from(index).ok().and_then(|index| STATIC_TABLE.get(index));
    let (name, value) = entry.ok_or(DecodeError::Failed("invalid static table index"))?;
    Ok((Bytes::from_static(name.as_bytes()), value))
}

/// Reads a prefixed integer (RFC 7541, section 5.1; RFC 9204, section 4.1.1) of at most 62 bits.
/// Returns its first byte, for the flags above the prefix, and its value.
fn take_integer(input: &mut &[u8], prefix: u32) -> Result<(u8, u64), DecodeError> {
    let first = take_byte(input)?;
    let mask = 0xff >> (8 - prefix);
    let mut value = u64::from(first & mask);
    if first & mask < mask {
        return Ok((first, value));
    }
    for shift in (0..=56).step_by(7) {
        let byte = take_byte(input)?;
        value += u64::from(byte & 0x7f) << shift;
        if value > VARINT_MAX {
            break;
        }
        if byte & 0x80 == 0 {
            return Ok((first, value));
        }
    }
    Err(DecodeError::Failed("integer of more than 62 bits"))
}

fn take_byte(input: &mut &[u8]) -> Result<u8, DecodeError> {
    let (&byte, rest) = input.split_first().ok_or(DecodeError::TRUNCATED)?;
    *input = rest;
    Ok(byte)
}

/// Reads a string literal (RFC 9204, section 4.1.2). Its length has a prefix of `prefix` bits,
/// preceded by the Huffman flag.
fn take_string(
    input: &mut &[u8],
    prefix: u32,
    scratch: &mut BytesMut,
) -> Result<Bytes, DecodeError> {
    let (flags, length) = take_integer(input, prefix)?;
    if scratch.capacity() == 0 {
        // The shortest Huffman code has 5 bits.
        scratch.reserve(input.len() * 8 / 5);
    }
    let length = usize::try_from(length).map_err(|_| DecodeError::TRUNCATED)?;
    let (literal, rest) = input.split_at_checked(length).ok_or(DecodeError::TRUNCATED)?;
    *input = rest;
    if flags >> prefix & 1 == 0 {
        scratch.put_slice(literal);
    } else {
        huffman::decode(literal, scratch).ok_or(DecodeError::Failed("invalid Huffman code"))?;
    }
    Ok(scratch.split().freeze())
}

/// Checks bytes of the peer's encoder stream (RFC 9204, section 4.3).
///
/// With a capacity of 0, nothing can be inserted or duplicated, and the only valid instruction sets
/// the capacity to 0: the byte 0x20.
pub(crate) fn check_encoder_stream(data: &[u8]) -> Result<(), ConnectionError> {
    // RFC 9204, section 4.3.1: a new capacity above the limit "MUST" be "a connection error of
    // type QPACK_ENCODER_STREAM_ERROR".
    if data.iter().all(|&byte| byte == 0x20) {
        Ok(())
    } else {
        Err(ConnectionError::new(
            code::QPACK_ENCODER_STREAM_ERROR,
            "encoder instruction for a dynamic table of capacity 0",
        ))
    }
}

/// State of the peer's decoder stream (RFC 9204, section 4.4): the number of continuation bytes
/// read in an incomplete Stream Cancellation.
#[derive(Debug, Default)]
pub(crate) struct DecoderStream {
    continuation: Option<u8>,
}

impl DecoderStream {
    /// Checks the next bytes.
    ///
    /// RFC 9204, section 4.4: the encoder never refers to the dynamic table, so acknowledgements
    /// and increments are always invalid. Stream Cancellation is always allowed, and has no effect.
    pub(crate) fn check(&mut self, data: &[u8]) -> Result<(), ConnectionError> {
        let error = |reason| Err(ConnectionError::new(code::QPACK_DECODER_STREAM_ERROR, reason));
        for &byte in data {
            self.continuation = match (self.continuation, byte) {
                (None, 0x80..) => return error("acknowledgement of a section without references"),
                (None, 0x00..0x40) => return error("Insert Count Increment without inserts"),
                (None, 0x7f) => Some(0),
                (None, 0x40..0x7f) | (Some(_), 0x00..0x80) => None,
                // 9 bytes of 7 bits hold any integer of 62 bits.
                (Some(8..), 0x80..) => return error("integer of more than 62 bits"),
                (Some(read), 0x80..) => Some(read + 1),
            };
        }
        Ok(())
    }
}
