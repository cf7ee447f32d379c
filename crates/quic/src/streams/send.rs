//! The sending part of a stream (RFC 9000, section 3.1): written chunks, their sent and
//! acknowledged parts, and the end of the stream. Bytes stay in the application's shared chunks
//! until a packet is written.

use core::cell::Cell;
use core::ops::Range;
use std::collections::VecDeque;

use bytes::Bytes;
use units::{Mark, release_capacity, reserve_first};

use super::interface::SendProgress;
use crate::ranges::RangeSet;

/// A chunk as the application wrote it, or a part of one, and its place in the stream.
#[derive(Debug)]
struct Chunk {
    start: u64,
    end: u64,
    /// `None` once fully acknowledged.
    data: Option<Bytes>,
    /// The application's mark.
    mark: Option<Mark>,
}

impl Chunk {
    fn new(start: u64, data: Bytes, mark: Option<Mark>) -> Self {
        Self { start, end: start + data.len() as u64, data: Some(data), mark }
    }
}

/// Entries of freed chunks that may stand between others before they are removed.
const MAX_FREED: usize = 16;

/// Progress of the end of the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fin {
    /// The application may write more.
    #[default]
    Open,
    /// The application finished; no FIN was sent yet.
    Due,
    /// A FIN was sent.
    Sent,
    /// A FIN was acknowledged.
    Acked,
}

/// RESET_STREAM of ours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reset {
    /// Application error code.
    pub(super) code: u64,
    /// The peer has acknowledged it.
    pub(super) acked: bool,
}

/// Data that a stream could send within its own flow control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sendable {
    /// New bytes, which the connection's flow control must let go too.
    Data,
    /// A FIN after the last byte: no flow control holds it.
    Fin,
}

/// The sending part of one stream. Offsets in bytes from the start of the stream.
#[derive(Debug, Default)]
pub(super) struct SendStream {
    /// Retained data: chunks in order, each kept until fully acknowledged.
    chunks: VecDeque<Chunk>,
    /// Entries of `chunks` without data.
    freed: usize,
    /// Index of the chunk that was last copied from: packets mostly go on where the last one ended.
    hint: Cell<usize>,
    /// End of the written data.
    written: u64,
    /// First byte never sent.
    sent: u64,
    /// Everything before this is acknowledged.
    acked_to: u64,
    /// Acknowledged ranges behind `acked_to`, not touching it.
    acked: RangeSet,
    fin: Fin,
    /// The peer's MAX_STREAM_DATA.
    pub(super) max_data: u64,
    /// The limit that was last reported in STREAM_DATA_BLOCKED.
    pub(super) blocked_at: Option<u64>,
    /// Set once the stream was reset, by the application or because the peer stopped it.
    pub(super) reset: Option<Reset>,
    /// Code of the peer's STOP_SENDING.
    pub(super) stopped: Option<u64>,
    /// The unsent bytes reached the high-water mark and have not been reported to be low since.
    pub(super) was_high: bool,
}

impl SendStream {
    pub(super) fn new(max_data: u64) -> Self {
        Self { max_data, ..Self::default() }
    }

    /// Bytes written and not yet sent once.
    pub(super) fn unsent(&self) -> u64 {
        self.written - self.sent
    }

    /// Progress of the data.
    pub(super) fn progress(&self) -> SendProgress {
        SendProgress { written: self.written, sent: self.sent, acked: self.acked_to }
    }

    /// Number of sent bytes: the final size if the stream is reset now (RFC 9000, section 4.5).
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns true while the application may write.
    pub(super) fn is_writable(&self) -> bool {
        self.fin == Fin::Open && self.reset.is_none()
    }

    /// Returns true if all data and the FIN were acknowledged ("Data Recvd").
    pub(super) fn is_complete(&self) -> bool {
        self.fin == Fin::Acked && self.acked_to == self.written
    }

    /// Returns true in a final state ("Data Recvd" or "Reset Recvd").
    pub(super) fn is_done(&self) -> bool {
        match self.reset {
            Some(reset) => reset.acked,
            None => self.is_complete(),
        }
    }

    /// Returns true if data waits and the stream's flow control blocks all of it.
    pub(super) fn is_blocked(&self) -> bool {
        self.unsent() > 0 && self.sent >= self.max_data
    }

    /// Returns the data that the stream could send now.
    pub(super) fn sendable(&self) -> Option<Sendable> {
        if self.unsent() > 0 {
            (self.sent < self.max_data).then_some(Sendable::Data)
        } else {
            (self.fin == Fin::Due && self.reset.is_none()).then_some(Sendable::Fin)
        }
    }

    /// Appends a chunk. The caller has checked [`is_writable`](Self::is_writable).
    pub(super) fn push(&mut self, data: Bytes, mark: Option<Mark>) {
        let chunk = Chunk::new(self.written, data, mark);
        self.written = chunk.end;
        reserve_first(&mut self.chunks);
        self.chunks.push_back(chunk);
    }

    /// The application writes no more.
    pub(super) fn finish(&mut self) {
        self.fin = Fin::Due;
    }

    /// Takes up to `max` bytes of new data, and the FIN if it ends the stream.
    pub(super) fn take(&mut self, max: u64) -> (Range<u64>, bool) {
        let end = self.written.min(self.max_data.max(self.sent)).min(self.sent + max);
        let range = self.sent..end;
        self.sent = end;
        let fin = self.fin == Fin::Due && end == self.written;
        if fin {
            self.fin = Fin::Sent;
        }
        (range, fin)
    }

    /// Fills `out` with the bytes from `offset` on; false if they are no longer (or not yet) here.
    pub(super) fn copy(&self, offset: u64, out: &mut [u8]) -> bool {
        if out.is_empty() {
            return self.reset.is_none();
        }
        let kept = self.chunks.front().is_some_and(|first| first.start <= offset);
        if !kept || offset + out.len() as u64 > self.written {
            return false;
        }
        let mut index = self.index_of(offset);
        let mut at = offset;
        let mut out = out;
        loop {
            // What lies between chunks is acknowledged.
            let chunk = self.chunks.get(index).filter(|chunk| chunk.start <= at && at < chunk.end);
            let Some((chunk, data)) = chunk.and_then(|c| Some((c, c.data.as_ref()?))) else {
                return false;
            };
            let data = &data[(at - chunk.start) as usize..];
            let n = data.len().min(out.len());
            let (now, later) = out.split_at_mut(n);
            now.copy_from_slice(&data[..n]);
            if later.is_empty() {
                self.hint.set(index);
                return true;
            }
            out = later;
            at = chunk.end;
            index += 1;
        }
    }

    /// The mark of the chunk that holds the byte at `offset`, while it is kept.
    pub(super) fn mark(&self, offset: u64) -> Option<Mark> {
        let first = self.chunks.front().filter(|first| first.start <= offset)?;
        let chunk = if offset < first.end { first } else { &self.chunks[self.index_of(offset)] };
        if offset < chunk.end { chunk.mark } else { None }
    }

    /// Index of the chunk that holds the byte at `offset`, if one does; else of the one before.
    fn index_of(&self, offset: u64) -> usize {
        let hint = self.hint.get();
        let holds = |index: usize| {
            self.chunks.get(index).is_some_and(|c| c.start <= offset && offset < c.end)
        };
        if holds(hint) {
            hint
        } else if holds(hint + 1) {
            hint + 1
        } else {
            self.chunks.partition_point(|chunk| chunk.start <= offset) - 1
        }
    }

    /// The peer has the bytes of `range` and, if `fin`, the end of the stream.
    pub(super) fn on_acked(&mut self, range: Range<u64>, fin: bool) {
        if self.reset.is_some() {
            return;
        }
        if fin {
            self.fin = Fin::Acked;
        }
        if range.start > self.acked_to {
            self.acked.insert(range.clone());
            self.free_acked(range);
            return;
        }
        if range.end <= self.acked_to {
            return;
        }
        self.acked_to = range.end;
        while let Some(first) = self.acked.first().filter(|first| first.start <= self.acked_to) {
            self.acked_to = self.acked_to.max(first.end);
            self.acked.pop_first();
        }
        while let Some(chunk) = self.chunks.front().filter(|chunk| chunk.end <= self.acked_to) {
            self.freed -= usize::from(chunk.data.is_none());
            self.chunks.pop_front();
            self.hint.set(self.hint.get().saturating_sub(1));
        }
        release_capacity(&mut self.chunks);
    }

    /// Frees fully acknowledged chunks after a gap, so that one withheld acknowledgement does not
    /// keep all later data in memory.
    fn free_acked(&mut self, range: Range<u64>) {
        let first = self.chunks.partition_point(|chunk| chunk.end <= range.start);
        for chunk in self.chunks.range_mut(first..) {
            if chunk.start >= range.end {
                break;
            }
            if chunk.data.is_some() && self.acked.covers(chunk.start.max(self.acked_to)..chunk.end)
            {
                chunk.data = None;
                self.freed += 1;
            }
        }
        if self.freed > MAX_FREED && 2 * self.freed > self.chunks.len() {
            self.chunks.retain(|chunk| chunk.data.is_some());
            self.freed = 0;
            self.hint.set(0);
        }
    }

    /// Copies the bytes of `range`, which may stay missing for long, so that the chunks around them
    /// can be freed.
    pub(super) fn detach(&mut self, range: Range<u64>) {
        let range = range.start.max(self.acked_to)..range.end;
        if range.is_empty() || self.reset.is_some() || self.chunks.is_empty() {
            return;
        }
        let index = self.index_of(range.start);
        let chunk = &self.chunks[index];
        let (Some(data), mark) = (&chunk.data, chunk.mark) else { return };
        let (start, end) = (chunk.start, range.end.min(chunk.end));
        if range.start < start || range.start >= end || (range.start == start && end == chunk.end) {
            return;
        }
        let (from, to) = ((range.start - start) as usize, (end - start) as usize);
        let parts = [
            Chunk::new(start, data.slice(..from), mark),
            Chunk::new(range.start, Bytes::copy_from_slice(&data[from..to]), mark),
            Chunk::new(end, data.slice(to..), mark),
        ];
        let around = start..chunk.end;
        self.chunks.remove(index);
        for part in parts.into_iter().filter(|part| part.start < part.end).rev() {
            self.chunks.insert(index, part);
        }
        self.free_acked(around);
    }

    /// The parts of `range` that are not acknowledged, ascending.
    pub(super) fn unacked(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        self.acked.gaps_in(range.start.max(self.acked_to)..range.end)
    }

    /// Returns true if the end of the stream is sent but unacknowledged.
    pub(super) fn is_fin_unacked(&self) -> bool {
        self.fin == Fin::Sent
    }

    /// The first run of sent, unacknowledged bytes, at most `max`, and whether the FIN goes with
    /// it; an empty run for a FIN alone.
    pub(super) fn oldest_unacked(&self, max: u64) -> Option<(Range<u64>, bool)> {
        if self.reset.is_some() {
            return None;
        }
        let gap = self.unacked(self.acked_to..self.sent).next().unwrap_or(self.sent..self.sent);
        let range = gap.start..gap.end.min(gap.start + max);
        let fin = self.is_fin_unacked() && range.end == self.written;
        (fin || !range.is_empty()).then_some((range, fin))
    }

    /// Ends the stream early: all data is dropped (RFC 9000, section 3.1). Returns how many bytes
    /// will now never be sent.
    pub(super) fn reset(&mut self, code: u64) -> u64 {
        let dropped = self.unsent();
        self.written = self.sent;
        self.chunks = VecDeque::new();
        self.acked = RangeSet::new();
        self.reset = Some(Reset { code, acked: false });
        dropped
    }
}
