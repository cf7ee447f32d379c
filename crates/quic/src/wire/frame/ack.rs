//! ACK frames (RFC 9000, section 19.3): checked completely while they are read, so that walking
//! their ranges cannot fail, and written from a [`RangeSet`], newest ranges first.

use super::super::cursor::{Reader, Writer, varint_len};
use super::{FrameErrorKind, check, types};
use crate::ranges::RangeSet;
use core::ops::RangeInclusive;

/// Packets received with each ECN codepoint in one packet number space (RFC 9000, section
/// 19.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EcnCounts {
    /// Packets marked ECT(0).
    pub ect0: u64,
    /// Packets marked ECT(1).
    pub ect1: u64,
    /// Packets marked CE.
    pub ce: u64,
}

/// An ACK frame with well-formed ranges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AckFrame<'a> {
    /// Largest Acknowledged.
    pub largest: u64,
    /// ACK Delay as it stands in the frame: microseconds shifted right by the sender's
    /// `ack_delay_exponent`.
    pub delay: u64,
    /// ECN counts, if the frame is of type 0x03.
    pub ecn: Option<EcnCounts>,
    smallest_of_first: u64,
    /// The (Gap, ACK Range Length) pairs.
    pairs: &'a [u8],
}

impl<'a> AckFrame<'a> {
    /// Parses the frame after its type.
    pub(super) fn parse(r: &mut Reader<'a>, has_ecn: bool) -> Result<Self, FrameErrorKind> {
        let largest = r.varint()?;
        let delay = r.varint()?;
        let count = r.varint()?;
        // RFC 9000, section 19.3.1: a negative packet number is a FRAME_ENCODING_ERROR.
        let smallest_of_first = largest.checked_sub(r.varint()?).ok_or(FrameErrorKind::Invalid)?;
        let before = r.clone();
        let mut smallest = smallest_of_first;
        // Each round takes at least two bytes from the payload, so `count` alone cannot spin.
        for _ in 0..count {
            (smallest, _) = next_range(r, smallest)?;
        }
        let pairs = before.clone().bytes(r.position() - before.position())?;
        let ecn = if has_ecn {
            let (ect0, ect1, ce) = (r.varint()?, r.varint()?, r.varint()?);
            Some(EcnCounts { ect0, ect1, ce })
        } else {
            None
        };
        Ok(Self { largest, delay, ecn, smallest_of_first, pairs })
    }

    /// The acknowledged packet numbers, descending, as ranges that neither overlap nor touch.
    #[inline]
    pub fn ranges(&self) -> AckRanges<'a> {
        AckRanges {
            next: Some((self.smallest_of_first, self.largest)),
            pairs: Reader::new(self.pairs),
        }
    }
}

/// Reads one pair; `smallest` is the smallest packet number of the range before it. Returns the
/// smallest and the largest of this one.
#[inline]
fn next_range(r: &mut Reader<'_>, smallest: u64) -> Result<(u64, u64), FrameErrorKind> {
    let gap = r.varint()?;
    let len = r.varint()?;
    // Neither sum overflows: both parts are below 2^62.
    check(smallest >= gap + 2 + len)?;
    let largest = smallest - gap - 2;
    Ok((largest - len, largest))
}

/// Iterator over the ranges of an ACK frame, from [`AckFrame::ranges`].
#[derive(Clone, Debug)]
pub struct AckRanges<'a> {
    next: Option<(u64, u64)>,
    pairs: Reader<'a>,
}

impl Iterator for AckRanges<'_> {
    type Item = RangeInclusive<u64>;

    #[inline]
    fn next(&mut self) -> Option<RangeInclusive<u64>> {
        let (smallest, largest) = self.next?;
        // An error means that all pairs are read: they were checked when the frame was.
        self.next = next_range(&mut self.pairs, smallest).ok();
        Some(smallest..=largest)
    }
}

impl core::iter::FusedIterator for AckRanges<'_> {}

/// Writes an ACK frame with as many of the newest `ranges` as fit into `limit` bytes and the
/// remaining room. `delay` is already shifted by our `ack_delay_exponent`.
///
/// Returns the number of written ranges: 0, with nothing written, if there are none or not even the
/// newest fits.
///
/// # Panics
/// If a packet number in `ranges`, `delay` or a count is above 2^62 − 1.
pub fn put_ack(
    w: &mut Writer<'_>,
    ranges: &RangeSet,
    delay: u64,
    ecn: Option<EcnCounts>,
    limit: usize,
) -> usize {
    let limit = limit.min(w.remaining());
    let Some(newest) = ranges.last() else { return 0 };
    let (largest, first_len) = (newest.end - 1, newest.end - newest.start - 1);
    let ecn_fields = ecn.map(|ecn| [ecn.ect0, ecn.ect1, ecn.ce]);
    let mut size = 1
        + varint_len(largest)
        + varint_len(delay)
        + varint_len(first_len)
        + ecn_fields.iter().flatten().map(|&v| varint_len(v)).sum::<usize>();
    if size + varint_len(0) > limit {
        return 0;
    }
    let pairs = || {
        ranges.iter().rev().skip(1).scan(newest.start, |smallest, range| {
            let pair = (*smallest - range.end - 1, range.end - range.start - 1);
            *smallest = range.start;
            Some(pair)
        })
    };
    let fitting = (1u64..).zip(pairs()).take_while(|&(count, (gap, len))| {
        size += varint_len(gap) + varint_len(len);
        size + varint_len(count) <= limit
    });
    let count = fitting.count();
    w.varint(if ecn.is_some() { types::ACK_ECN } else { types::ACK });
    w.varint(largest);
    w.varint(delay);
    w.varint(count as u64);
    w.varint(first_len);
    for (gap, len) in pairs().take(count) {
        w.varint(gap);
        w.varint(len);
    }
    ecn_fields.iter().flatten().for_each(|&v| w.varint(v));
    count + 1
}
