//! Search for the packets of a transport stream, including resynchronisation.
//!
//! The distance between packets is 188 bytes, 192 in recordings with a timestamp before each packet
//! (M2TS), and 204 with an error correction code after each packet. Packets with a wrong sync byte
//! are skipped. After stray bytes, a sync byte counts only if two more packets follow it.

use super::{PACKET_LEN, SYNC_BYTE};
use crate::deviation::{Deviation, Deviations};

/// Possible distances between packets, in bytes.
const STRIDES: [usize; 3] = [PACKET_LEN, 192, 204];
/// Number of bytes searched for the first packet.
const MAX_START: usize = 64 << 10;
/// Number of following packets that confirm a sync byte, at the start and later.
const CONFIRM_START: usize = 4;
const CONFIRM: usize = 2;

/// Iterator over the packets of a segment.
#[derive(Clone, Debug)]
pub(super) struct Packets<'a> {
    segment: &'a [u8],
    at: usize,
    stride: usize,
}

impl<'a> Packets<'a> {
    /// Finds the first packet.
    pub(super) fn find(segment: &'a [u8], deviations: &mut Deviations) -> Option<Self> {
        let last = segment.len().checked_sub(PACKET_LEN)?.min(MAX_START);
        let mut starts =
            (0..=last).flat_map(|at| STRIDES.map(|stride| Self { segment, at, stride }));
        // One of the confirming packets may be damaged.
        let is_start =
            |start: &Self| start.missing(start.at, CONFIRM_START).is_some_and(|n| n <= 1);
        let found = starts.find(is_start)?;
        if found.stride != PACKET_LEN {
            deviations.note(Deviation::TsPacketSize);
        }
        Some(found)
    }

    /// Returns the next packet, and records skipped bytes as a deviation.
    pub(super) fn next(&mut self, deviations: &mut Deviations) -> Option<&'a [u8]> {
        let mut packet = self.segment.get(self.at..self.at + PACKET_LEN)?;
        if packet[0] != SYNC_BYTE {
            deviations.note(Deviation::TsSync);
            let next = self.at + self.stride;
            self.at = match self.missing(next, CONFIRM) {
                Some(0) => next,
                _ => (self.at + 1..self.segment.len())
                    .find(|at| self.missing(*at, CONFIRM) == Some(0))?,
            };
            packet = self.segment.get(self.at..self.at + PACKET_LEN)?;
        }
        self.at += self.stride;
        Some(packet)
    }

    /// Counts the missing packets after a packet at `at`; `None` if there is no packet at `at`.
    /// Positions past the end of the segment count as present.
    fn missing(&self, at: usize, following: usize) -> Option<usize> {
        let is_sync = |at: usize| self.segment.get(at).is_none_or(|byte| *byte == SYNC_BYTE);
        self.segment.get(at).filter(|byte| **byte == SYNC_BYTE)?;
        Some((1..=following).filter(|number| !is_sync(at + number * self.stride)).count())
    }
}
