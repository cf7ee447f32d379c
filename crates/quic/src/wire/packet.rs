//! Packet headers without their protection: the version-independent part (RFC 8999), long and
//! short headers of QUIC version 1 (RFC 9000, section 17), Version Negotiation, Retry, and the
//! truncation of packet numbers (section 17.1 and appendix A).

use super::connection_id::ConnectionId;
use super::cursor::{Reader, Truncated, Writer};

/// QUIC version 1 (RFC 9000).
pub const VERSION_1: u32 = 1;
/// Bytes of the Retry Integrity Tag at the end of a Retry packet (RFC 9001, section 5.8).
pub const RETRY_INTEGRITY_TAG_LEN: usize = 16;
/// Minimum length of a protected packet from its packet number on, in bytes. Header protection
/// samples 16 bytes after a packet number of assumed length 4 (RFC 9001, section 5.4.2).
pub const MIN_PROTECTED_LEN: usize = 20;

const LONG_FORM: u8 = 0x80;
const FIXED_BIT: u8 = 0x40;
const SPIN_BIT: u8 = 0x20;
/// The Key Phase bit of short headers (RFC 9000, section 17.3.1).
pub(crate) const KEY_PHASE_BIT: u8 = 0x04;

/// The packets of version 1 that carry frames (RFC 9000, section 12.4, table 3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum PacketType {
    /// Initial (section 17.2.2).
    Initial,
    /// 0-RTT (section 17.2.3).
    ZeroRtt,
    /// Handshake (section 17.2.4).
    Handshake,
    /// 1-RTT (section 17.3.1).
    OneRtt,
}

/// What can be read of a packet without keys. Offsets count from the start of the slice given to
/// [`parse_header`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Header<'a> {
    /// A packet of version 1 with a long header.
    Long {
        /// Packet type; not 1-RTT.
        ty: PacketType,
        /// Destination Connection ID.
        dcid: ConnectionId,
        /// Source Connection ID.
        scid: ConnectionId,
        /// The token of an Initial packet; empty in the others.
        token: &'a [u8],
        /// Offset of the protected packet number.
        pn_offset: usize,
        /// One past the packet's last byte, at least [`MIN_PROTECTED_LEN`] behind `pn_offset`;
        /// the next coalesced packet starts there (section 12.2).
        end: usize,
    },
    /// A 1-RTT packet; it extends to the end of the datagram.
    Short {
        /// Destination Connection ID, one of ours if the packet is valid.
        dcid: ConnectionId,
        /// Offset of the protected packet number; at least [`MIN_PROTECTED_LEN`] bytes follow.
        pn_offset: usize,
    },
    /// A long header of another version; only its invariants can be read (RFC 8999, section 5.1).
    UnknownVersion {
        /// The version, neither 0 nor [`VERSION_1`].
        version: u32,
        /// Destination Connection ID, 0 to 255 bytes.
        dcid: &'a [u8],
        /// Source Connection ID, 0 to 255 bytes.
        scid: &'a [u8],
    },
}

/// Reason why the rest of a datagram is dropped, for counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum HeaderError {
    /// It ends inside the header, or a 1-RTT packet is too short for header protection.
    Truncated,
    /// A connection ID of version 1 is longer than 20 bytes.
    InvalidConnectionId,
    /// Length points beyond the datagram or leaves too little for header protection.
    InvalidLength,
    /// Version Negotiation or Retry, which only servers send.
    Unexpected,
}

impl From<Truncated> for HeaderError {
    fn from(Truncated: Truncated) -> Self {
        Self::Truncated
    }
}

/// Reads the header of the first packet in `datagram`, as a server does.
///
/// Ignores the fixed bit (RFC 9000, section 17): a server that advertises `grease_quic_bit` accepts
/// both values (RFC 9287, section 3).
///
/// `local_cid_len` is the length of our connection IDs, 0 to 20 bytes.
///
/// # Errors
/// The packet and the rest of the datagram must be dropped.
#[inline]
pub fn parse_header(datagram: &[u8], local_cid_len: usize) -> Result<Header<'_>, HeaderError> {
    let mut r = Reader::new(datagram);
    let first = r.u8()?;
    if first & LONG_FORM != 0 {
        return parse_long_header(first, r, datagram.len());
    }
    let dcid = connection_id(r.bytes(local_cid_len)?)?;
    // RFC 9001, section 5.4.2: packets too short for a complete sample MUST be discarded.
    if r.remaining() < MIN_PROTECTED_LEN {
        return Err(HeaderError::Truncated);
    }
    Ok(Header::Short { dcid, pn_offset: r.position() })
}

fn parse_long_header(
    first: u8,
    mut r: Reader<'_>,
    datagram_len: usize,
) -> Result<Header<'_>, HeaderError> {
    let version = r.u32()?;
    let dcid_len = r.u8()?;
    let dcid = r.bytes(usize::from(dcid_len))?;
    let scid_len = r.u8()?;
    let scid = r.bytes(usize::from(scid_len))?;
    match version {
        0 => return Err(HeaderError::Unexpected),
        VERSION_1 => {}
        _ => return Ok(Header::UnknownVersion { version, dcid, scid }),
    }
    // RFC 9000, section 17.2: a version 1 packet with a longer connection ID MUST be dropped.
    let (dcid, scid) = (connection_id(dcid)?, connection_id(scid)?);
    let (ty, token) = match first >> 4 & 0b11 {
        0 => (PacketType::Initial, r.prefixed()?),
        1 => (PacketType::ZeroRtt, &[][..]),
        2 => (PacketType::Handshake, &[][..]),
        _ => return Err(HeaderError::Unexpected),
    };
    let len = r.varint()?;
    let pn_offset = r.position();
    let end = usize::try_from(len)
        .ok()
        .filter(|&len| len >= MIN_PROTECTED_LEN)
        .and_then(|len| pn_offset.checked_add(len))
        .filter(|&end| end <= datagram_len)
        .ok_or(HeaderError::InvalidLength)?;
    Ok(Header::Long { ty, dcid, scid, token, pn_offset, end })
}

#[inline]
fn connection_id(bytes: &[u8]) -> Result<ConnectionId, HeaderError> {
    ConnectionId::new(bytes).ok_or(HeaderError::InvalidConnectionId)
}

/// Writes a version 1 long header (except 1-RTT) up to the packet number, of length `pn_len` (1 to
/// 4 bytes). `token` is for Initial packets only. A server's must be empty (RFC 9000, section
/// 17.2.2).
///
/// Returns the offset of the two-byte Length field, set to 0. [`Writer::set_varint2`] sets it to
/// the length of packet number, payload and tag.
pub fn put_long_header(
    w: &mut Writer<'_>,
    ty: PacketType,
    dcid: &ConnectionId,
    scid: &ConnectionId,
    token: &[u8],
    pn_len: usize,
) -> usize {
    debug_assert!(ty != PacketType::OneRtt, "1-RTT packets have short headers");
    // The types stand in the order of their numbers (RFC 9000, section 17.2, table 5).
    w.u8(LONG_FORM | FIXED_BIT | (ty as u8) << 4 | pn_len_bits(pn_len));
    w.u32(VERSION_1);
    w.u8(dcid.len() as u8);
    w.bytes(dcid.as_slice());
    w.u8(scid.len() as u8);
    w.bytes(scid.as_slice());
    if ty == PacketType::Initial {
        w.varint(token.len() as u64);
        w.bytes(token);
    }
    let length_at = w.position();
    w.varint2(0);
    length_at
}

/// Writes the header of a 1-RTT packet up to the packet number: 1 byte and `dcid`.
///
/// `fixed_bit` may be false only towards a peer that sent `grease_quic_bit` (RFC 9287, section
/// 3.1); `pn_len` is 1 to 4 bytes.
#[inline]
pub fn put_short_header(
    w: &mut Writer<'_>,
    dcid: &ConnectionId,
    spin: bool,
    key_phase: bool,
    pn_len: usize,
    fixed_bit: bool,
) {
    let bit = |on: bool, mask: u8| if on { mask } else { 0 };
    w.u8(bit(fixed_bit, FIXED_BIT)
        | bit(spin, SPIN_BIT)
        | bit(key_phase, KEY_PHASE_BIT)
        | pn_len_bits(pn_len));
    w.bytes(dcid.as_slice());
}

#[inline]
fn pn_len_bits(pn_len: usize) -> u8 {
    debug_assert!((1..=4).contains(&pn_len), "a packet number has 1 to 4 bytes");
    (pn_len - 1) as u8
}

/// Bytes (1 to 4) for packet number `full` when `largest_acked` is the largest acknowledged of its
/// space (RFC 9000, section 17.1 and appendix A.2).
#[inline]
pub fn packet_number_len(full: u64, largest_acked: Option<u64>) -> usize {
    let unacked = largest_acked.map_or(full.saturating_add(1), |acked| full.saturating_sub(acked));
    // RFC 9000, section 17.1: the size "MUST" represent more than twice the range since then.
    match unacked {
        0..=0x7f => 1,
        0x80..=0x7fff => 2,
        0x8000..=0x7f_ffff => 3,
        _ => 4,
    }
}

/// Writes the low `len` (1 to 4) bytes of packet number `pn`.
#[inline]
pub fn put_packet_number(w: &mut Writer<'_>, pn: u64, len: usize) {
    w.bytes(&pn.to_be_bytes()[8 - len..]);
}

/// Restores a packet number from its low `len` (1 to 4) bytes (RFC 9000, appendix A.3).
///
/// `expected` is one more than the largest packet number processed in the space, 0 if there is
/// none. The result is at most 2^62 − 1 if `expected` is.
#[inline]
pub fn expand_packet_number(truncated: u64, len: usize, expected: u64) -> u64 {
    let window = 1u64 << (8 * len);
    let half = window / 2;
    let candidate = expected & !(window - 1) | truncated;
    if candidate + half <= expected && candidate < (1 << 62) - window {
        candidate + window
    } else if candidate > expected + half && candidate >= window {
        candidate - window
    } else {
        candidate
    }
}

/// Appends a Version Negotiation packet (RFC 9000, section 17.2.1; RFC 8999, section 6).
///
/// `dcid` and `scid` (0 to 255 bytes each) are the client's, already swapped: `dcid` is its Source
/// Connection ID. `versions` should contain a reserved version (section 15), and the low bits of
/// `random` fill unused bits.
pub fn version_negotiation(
    out: &mut Vec<u8>,
    random: u8,
    dcid: &[u8],
    scid: &[u8],
    versions: &[u32],
) {
    // Section 17.2.1: where QUIC shares a port, the next bit SHOULD be 1 as a fixed bit would be.
    out.push(LONG_FORM | FIXED_BIT | random);
    out.extend(0u32.to_be_bytes());
    for id in [dcid, scid] {
        debug_assert!(id.len() <= 255, "a connection ID has at most 255 bytes");
        out.push(id.len() as u8);
        out.extend(id);
    }
    out.extend(versions.iter().flat_map(|version| version.to_be_bytes()));
}

/// Appends a Retry packet without its integrity tag (RFC 9000, section 17.2.5).
///
/// `dcid` is the client's Source Connection ID, `scid` the one that the client shall use next,
/// `token` not empty; the low four bits of `random` fill unused bits.
pub fn put_retry(
    out: &mut Vec<u8>,
    dcid: &ConnectionId,
    scid: &ConnectionId,
    token: &[u8],
    random: u8,
) {
    out.push(LONG_FORM | FIXED_BIT | 0x30 | random & 0x0f);
    out.extend(VERSION_1.to_be_bytes());
    for id in [dcid, scid] {
        out.push(id.len() as u8);
        out.extend(id.as_slice());
    }
    out.extend(token);
}
