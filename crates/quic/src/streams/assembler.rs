//! Reassembly of received stream data (RFC 9000, section 2.2), bounded in bytes by flow control and
//! in bookkeeping by the number of segments, which the caller limits (RFC 9000, section 21.7;
//! CVE-2026-25800: one-byte frames with gaps between them).

use std::collections::VecDeque;

use bytes::Bytes;
use units::reserve_first;

/// Neighbouring segments grow together up to this many bytes. It bounds both the copying that one
/// small frame can cause and, because neighbours together exceed it, the number of segments without
/// gaps between them.
const COMPACT: usize = 4096;

/// A run of received bytes.
#[derive(Debug)]
struct ReceivedRun {
    start: u64,
    data: Vec<u8>,
}

impl ReceivedRun {
    fn end(&self) -> u64 {
        self.start + self.data.len() as u64
    }
}

/// The received and not yet read bytes of one stream.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    /// Disjoint, ascending, none before `read + head.len()`.
    segments: VecDeque<ReceivedRun>,
    /// Rest of a partly read segment. Starts at `read`.
    head: Bytes,
    /// Offset of the next byte for the application.
    read: u64,
}

impl Assembler {
    /// Offset of the next byte that the application reads.
    pub(super) fn position(&self) -> u64 {
        self.read
    }

    /// Segments that exist because of gaps or of their size: those beyond the first.
    pub(super) fn fragments(&self) -> usize {
        self.segments.len().saturating_sub(1)
    }

    /// Bytes held.
    pub(super) fn buffered(&self) -> u64 {
        let rest: usize = self.segments.iter().map(|segment| segment.data.len()).sum();
        (self.head.len() + rest) as u64
    }

    /// Returns true if the next byte in order is available.
    pub(super) fn is_readable(&self) -> bool {
        !self.head.is_empty() || self.segments.front().is_some_and(|s| s.start == self.read)
    }

    /// Stores the new part of `data`, which starts at `offset`. The first copy of duplicate bytes
    /// stays (RFC 9000, section 2.2, leaves the choice open). Returns true if anything was new.
    pub(super) fn insert(&mut self, offset: u64, data: &[u8]) -> bool {
        let end = offset + data.len() as u64;
        let mut at = offset.max(self.read + self.head.len() as u64);
        if at >= end {
            return false;
        }
        let mut brings = false;
        // Index of the first segment that ends behind `at`.
        let mut next = if self.segments.back().is_none_or(|last| last.end() <= at) {
            self.segments.len()
        } else {
            self.segments.partition_point(|segment| segment.end() <= at)
        };
        while at < end {
            let limit = self.segments.get(next).map_or(end, |s| s.start.min(end));
            if at < limit {
                let piece = &data[(at - offset) as usize..(limit - offset) as usize];
                next = self.put(next, at, piece);
                brings = true;
            } else {
                next += 1;
            }
            at = self.segments[next - 1].end();
        }
        brings
    }

    /// Stores `piece`, all of it new, in front of segment `next`; returns the index after the
    /// segment that now holds it.
    fn put(&mut self, next: usize, start: u64, piece: &[u8]) -> usize {
        let joins = |left: &ReceivedRun, start: u64, len: usize| {
            left.end() == start && left.data.len() + len <= COMPACT
        };
        let mut next = next;
        if next > 0 && joins(&self.segments[next - 1], start, piece.len()) {
            self.segments[next - 1].data.extend_from_slice(piece);
        } else {
            reserve_first(&mut self.segments);
            self.segments.insert(next, ReceivedRun { start, data: piece.to_vec() });
            next += 1;
        }
        if let Some(right) = self.segments.get(next)
            && joins(&self.segments[next - 1], right.start, right.data.len())
            && let Some(right) = self.segments.remove(next)
        {
            self.segments[next - 1].data.extend_from_slice(&right.data);
        }
        next
    }

    /// Takes the next bytes in order, at most `max`; `None` when there are none.
    pub(super) fn read(&mut self, max: usize) -> Option<Bytes> {
        if self.head.is_empty() {
            if self.segments.front()?.start != self.read {
                return None;
            }
            self.head = Bytes::from(self.segments.pop_front()?.data);
            if self.segments.is_empty() {
                self.segments = VecDeque::new();
            }
        }
        let data = self.head.split_to(max.min(self.head.len()));
        if self.head.is_empty() {
            self.head = Bytes::new();
        }
        self.read += data.len() as u64;
        (!data.is_empty()).then_some(data)
    }

    /// Drops everything and counts all bytes up to `position` as read; returns how many those are.
    pub(super) fn discard(&mut self, position: u64) -> u64 {
        let skipped = position - self.read;
        *self = Self { read: position, ..Self::default() };
        skipped
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read_all(assembler: &mut Assembler) -> Vec<u8> {
        let mut out = Vec::new();
        while let Some(data) = assembler.read(7) {
            assert!(data.len() <= 7);
            out.extend_from_slice(&data);
        }
        out
    }

    #[test]
    fn bytes_come_out_in_order_whatever_the_order_of_arrival() {
        let mut assembler = Assembler::default();
        assembler.insert(6, b"world");
        assert!(!assembler.is_readable());
        assert_eq!(assembler.read(100), None);
        assembler.insert(0, b"hello ");
        assert_eq!(read_all(&mut assembler), b"hello world");
        assert_eq!(assembler.position(), 11);
    }

    #[test]
    fn of_overlapping_data_the_first_copy_stays() {
        let mut assembler = Assembler::default();
        assembler.insert(2, b"bb");
        assembler.insert(6, b"dd");
        assembler.insert(0, b"xxxxxxxxxx");
        assert_eq!(read_all(&mut assembler), b"xxbbxxddxx");
        assembler.insert(0, b"yyyyyyyyyyy");
        assert_eq!(read_all(&mut assembler), b"y");
    }

    #[test]
    fn a_short_read_keeps_what_was_already_received() {
        let mut assembler = Assembler::default();
        assembler.insert(0, b"abcdef");
        assert_eq!(assembler.read(2).as_deref(), Some(&b"ab"[..]));
        assembler.insert(0, b"ABCDEFGH");
        assert_eq!(assembler.buffered(), 6);
        assert_eq!(read_all(&mut assembler), b"cdefGH");
    }

    #[test]
    fn filled_gaps_merge_into_few_segments() {
        const BYTES: u64 = 40_000;
        for order in ["ascending", "descending", "odd then even"] {
            let mut assembler = Assembler::default();
            for i in 0..BYTES {
                let at = match order {
                    "ascending" => i,
                    "descending" => BYTES - 1 - i,
                    _ if i < BYTES / 2 => 2 * i + 1,
                    _ => 2 * (i - BYTES / 2),
                };
                assembler.insert(at, &[at as u8]);
            }
            let bound = 2 * BYTES as usize / COMPACT + 1;
            assert!(assembler.segments.len() <= bound, "{order}: {}", assembler.segments.len());
            assert_eq!(assembler.buffered(), BYTES);
            let all: Vec<u8> = (0..BYTES).map(|i| i as u8).collect();
            assert_eq!(read_all(&mut assembler), all);
        }
    }

    #[test]
    fn gaps_are_counted() {
        let mut assembler = Assembler::default();
        for i in 0..50 {
            assembler.insert(2 * i + 1, b"x");
        }
        assert_eq!(assembler.fragments(), 49);
        assert_eq!(assembler.discard(200), 200);
        assert_eq!((assembler.fragments(), assembler.buffered()), (0, 0));
    }

    #[test]
    fn data_in_order_is_copied_once() {
        let mut assembler = Assembler::default();
        let mut pointers = Vec::new();
        for i in 0..4u64 {
            assembler.insert(i * 1200, &[i as u8; 1200]);
            pointers.push(assembler.segments[0].data.as_ptr());
            assert_eq!(assembler.read(usize::MAX).map(|d| d.as_ptr()), Some(pointers[i as usize]));
        }
    }

    proptest! {
        #![proptest_config(super::super::tests::cases())]

        #[test]
        fn any_schedule_of_frames_and_reads_yields_the_bytes_in_order(
            steps in proptest::collection::vec(
                (0u64..600, 0usize..80, any::<bool>(), 0usize..50), 1..120),
        ) {
            let model: Vec<u8> = (0..700u32).map(|i| (i * 7 + i / 256) as u8).collect();
            let mut have = vec![false; model.len()];
            let mut assembler = Assembler::default();
            let mut read = 0;
            for (offset, len, reads, max) in steps {
                let range = offset as usize..offset as usize + len;
                assembler.insert(offset, &model[range.clone()]);
                have[range].fill(true);
                if reads && let Some(data) = assembler.read(max) {
                    prop_assert_eq!(&data[..], &model[read..read + data.len()]);
                    read += data.len();
                }
                prop_assert_eq!(assembler.position(), read as u64);
                let held = have[read..].iter().filter(|have| **have).count();
                prop_assert_eq!(assembler.buffered(), held as u64);
                prop_assert_eq!(assembler.is_readable(), have[read]);
                let mut floor = read as u64 + assembler.head.len() as u64;
                for segment in &assembler.segments {
                    prop_assert!(segment.start >= floor && !segment.data.is_empty());
                    floor = segment.end();
                }
            }
        }
    }
}
