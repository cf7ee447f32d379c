//! Encoding of field sections (RFC 9204, section 4.5). Fields and names in the static table are
//! encoded as references, others as literals, Huffman-coded if that is shorter.

use bytes::Bytes;

use super::huffman;
use super::static_table::{Match, find};

/// Encodes field lines in this order.
pub(crate) fn encode<'a>(fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> Bytes {
    // RFC 9204, section 4.5.1: Required Insert Count 0, and Base 0.
    let mut out = vec![0, 0];
    for (name, value) in fields {
        match find(name, value) {
            Match::Line(index) => put_integer(&mut out, 0xc0, 6, index),
            Match::Name(index) => {
                put_integer(&mut out, 0x50, 4, index);
                put_string(&mut out, 0, 7, value);
            }
            Match::None => {
                put_string(&mut out, 0x20, 3, name);
                put_string(&mut out, 0, 7, value);
            }
        }
    }
    out.into()
}

/// Appends a prefixed integer (RFC 7541, section 5.1) with `flags` above its prefix.
fn put_integer(out: &mut Vec<u8>, flags: u8, prefix: u32, value: usize) {
    let mask = 0xff >> (8 - prefix);
    if value < usize::from(mask) {
        out.push(flags | value as u8);
        return;
    }
    out.push(flags | mask);
    let mut rest = value - usize::from(mask);
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Appends a string literal (RFC 9204, section 4.1.2). The Huffman flag is the bit above the
/// prefix.
fn put_string(out: &mut Vec<u8>, flags: u8, prefix: u32, text: &str) {
    let coded = huffman::encoded_length(text.as_bytes());
    if coded < text.len() {
        put_integer(out, flags | 1 << prefix, prefix, coded);
        huffman::encode(text.as_bytes(), out);
    } else {
        put_integer(out, flags, prefix, text.len());
        out.extend_from_slice(text.as_bytes());
    }
}
