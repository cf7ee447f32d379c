//! Removes the protection of received packets (RFC 9001, section 5).

use super::spaces::EarlySpace;
use crate::crypto::{DirectionKeys, HeaderKey, OneRtt, OpenError};
use crate::drops::PacketDropReason;
use crate::received::ReceivedNumbers;
use crate::wire::{
    KEY_PHASE_BIT, TransportError, TransportErrorCode as Code, expand_packet_number,
};
use core::ops::Range;
use core::time::Duration;
use units::Timestamp;

/// An authenticated packet.
pub(super) struct Opened {
    /// First byte of the header, unprotected.
    pub(super) first: u8,
    pub(super) number: u64,
    /// A packet with this number was received before.
    pub(super) duplicate: bool,
    /// Range of the frames in the packet.
    pub(super) payload: Range<usize>,
    /// First packet of a new key phase.
    pub(super) key_updated: bool,
}

/// Reason why a packet was not opened.
pub(super) enum Unopened {
    Dropped(PacketDropReason),
    /// The connection must close.
    Fatal(TransportError),
}

impl From<PacketDropReason> for Unopened {
    fn from(reason: PacketDropReason) -> Self {
        Self::Dropped(reason)
    }
}

/// Opens a 1-RTT packet; previous keys are kept for `retain`.
#[inline]
pub(super) fn open_short(
    keys: &mut OneRtt,
    received: &ReceivedNumbers,
    packet: &mut [u8],
    pn_offset: usize,
    now: Timestamp,
    retain: Duration,
) -> Result<Opened, Unopened> {
    let (first, number, at) = unprotect(keys.remote_header(), received, packet, pn_offset)?;
    let (header, payload) = packet.split_at_mut(at);
    let opened = keys.open(number, first & KEY_PHASE_BIT != 0, header, payload, now, retain);
    let opened = opened.map_err(|error| {
        let (code, reason) = match error {
            OpenError::Decrypt => return PacketDropReason::Decrypt.into(),
            OpenError::KeyUpdateError => (Code::KEY_UPDATE_ERROR, "key update out of turn"),
            // RFC 9001, section 6.6: "MUST immediately close the connection".
            OpenError::IntegrityLimit => {
                (Code::AEAD_LIMIT_REACHED, "too many packets failed to authenticate")
            }
        };
        Unopened::Fatal(TransportError::new(code, 0, reason))
    })?;
    let (duplicate, payload) = (received.is_duplicate(number), at..at + opened.len);
    Ok(Opened { first, number, duplicate, payload, key_updated: opened.key_updated })
}

/// Opens a packet of the Initial or Handshake space.
pub(super) fn open_early(
    early: Option<&EarlySpace>,
    packet: &mut [u8],
    pn_offset: usize,
) -> Result<Opened, PacketDropReason> {
    let early = early.ok_or(PacketDropReason::NoKeys)?;
    open_long(Some(&early.keys.remote), &early.space.received, packet, pn_offset)
}

/// Opens a packet with a long header.
pub(super) fn open_long(
    keys: Option<&DirectionKeys>,
    received: &ReceivedNumbers,
    packet: &mut [u8],
    pn_offset: usize,
) -> Result<Opened, PacketDropReason> {
    let keys = keys.ok_or(PacketDropReason::NoKeys)?;
    let (first, number, at) = unprotect(&keys.header, received, packet, pn_offset)?;
    let (header, payload) = packet.split_at_mut(at);
    let len = keys.packet.open(number, header, payload).map_err(|_| PacketDropReason::Decrypt)?;
    let (duplicate, payload) = (received.is_duplicate(number), at..at + len);
    Ok(Opened { first, number, duplicate, payload, key_updated: false })
}

/// Removes header protection. Returns the first byte, the packet number, and the end of the header.
#[inline]
fn unprotect(
    key: &HeaderKey,
    received: &ReceivedNumbers,
    packet: &mut [u8],
    pn_offset: usize,
) -> Result<(u8, u64, usize), PacketDropReason> {
    let unprotected = key.unprotect(packet, pn_offset);
    let (first, truncated, pn_len) = unprotected.map_err(|_| PacketDropReason::Header)?;
    let expected = received.largest().map_or(0, |largest| largest + 1);
    Ok((first, expand_packet_number(truncated, pn_len, expected), pn_offset + pn_len))
}
