//! Stream data on its way out: which range the next packet carries, the bytes of a range, and what
//! becomes of the ranges that were sent (RFC 9000, sections 2.2, 4.1 and 13.3).

use units::StreamId;

use crate::wire::stream_header_len;

use super::Streams;
use super::flags::{event, of_connection, of_stream};
use super::range::StreamRange;
use super::send::Sendable;

/// Returns how many bytes of data fit into `room` bytes after a STREAM header with a Length field.
fn data_room(id: StreamId, offset: u64, room: usize) -> Option<u64> {
    let room = room.checked_sub(stream_header_len(id, offset, None))?.min(usize::from(u16::MAX));
    // The Length field takes 1, 2 or 4 bytes.
    let len = match room {
        0 => return None,
        1..=64 => room - 1,
        65..=16_385 => (room - 2).max(63),
        _ => (room - 4).max(16_383),
    };
    Some(len as u64)
}

impl Streams {
    /// Bytes that the connection's flow control still lets go.
    fn credit(&self) -> u64 {
        self.max_data - self.data_sent
    }

    /// Returns true if bytes wait and the connection's flow control blocks all of them.
    pub(super) fn is_connection_blocked(&self) -> bool {
        self.unsent > 0 && self.credit() == 0
    }

    /// Brings a stream's place in the schedule, and the frames that report blocking, up to date.
    pub(super) fn reschedule(&mut self, slot: u32) {
        let stream = self.table.at(slot);
        let Some(send) = stream.send.as_mut() else { return };
        let sendable = send.sendable();
        let (priority, id) = (stream.priority, stream.id);
        let scheduled = core::mem::replace(&mut stream.scheduled, sendable);
        let blocked = send.is_blocked();
        let first_report = blocked && send.blocked_at.replace(send.max_data) != Some(send.max_data);
        if scheduled.is_none() && sendable.is_some() {
            self.schedule.insert(priority, id, slot);
        } else if scheduled.is_some() && sendable.is_none() {
            self.schedule.remove(priority, id);
        }
        self.scheduled_fins += usize::from(sendable == Some(Sendable::Fin));
        self.scheduled_fins -= usize::from(scheduled == Some(Sendable::Fin));
        if first_report {
            self.require(slot, of_stream::STREAM_DATA_BLOCKED);
        } else if !blocked {
            self.cancel(slot, of_stream::STREAM_DATA_BLOCKED);
        }
        self.report_connection_blocked();
    }

    /// RFC 9000, section 4.1: a sender "SHOULD send a STREAM_DATA_BLOCKED or DATA_BLOCKED frame"
    /// when a limit holds its data; once per limit.
    pub(super) fn report_connection_blocked(&mut self) {
        if !self.is_connection_blocked() {
            self.due &= !of_connection::DATA_BLOCKED;
        } else if self.blocked_at.replace(self.max_data) != Some(self.max_data) {
            self.due |= of_connection::DATA_BLOCKED;
        }
    }

    /// Returns true if flow control permits new bytes, or a FIN after the last byte, of some
    /// stream.
    #[inline]
    pub fn has_sendable(&self) -> bool {
        self.scheduled_fins > 0 || (self.credit() > 0 && !self.schedule.is_empty())
    }

    /// Returns true if bytes wait and flow control blocks all of them.
    #[inline]
    pub fn is_flow_blocked(&self) -> bool {
        self.unsent > 0 && !self.has_sendable()
    }

    /// The next stream in turn that flow control lets send.
    fn next_slot(&self) -> Option<u32> {
        if self.credit() > 0 {
            return self.schedule.front();
        }
        if self.scheduled_fins == 0 {
            return None;
        }
        self.schedule.iter().find_map(|(id, slot)| {
            let stream = self.table.get(slot, id)?;
            (stream.scheduled == Some(Sendable::Fin)).then_some(slot)
        })
    }

    /// Takes new data, or a FIN, for a STREAM frame with a Length field. `room` is the packet's
    /// remaining payload in bytes, frame header included. Returns `None` if nothing may be sent or
    /// the frame would not fit.
    #[inline]
    pub fn next_range(&mut self, room: usize) -> Option<StreamRange> {
        let credit = self.credit();
        let slot = self.next_slot()?;
        let low = self.limits.send_high_water / 2;
        let stream = self.table.at(slot);
        let id = stream.id;
        let send = stream.send.as_mut()?;
        let room = data_room(id, send.sent(), room)?;
        if room == 0 && send.unsent() > 0 {
            return None;
        }
        let (bytes, fin) = send.take(room.min(credit));
        let len = bytes.end - bytes.start;
        let drained = send.was_high && send.unsent() < low;
        send.was_high &= !drained;
        if drained {
            self.tell(slot, event::WRITABLE);
        }
        self.unsent -= len;
        self.data_sent += len;
        if credit > 0 {
            self.schedule.advance();
        }
        self.reschedule(slot);
        Some(StreamRange { slot, id, offset: bytes.start, len: len as u16, fin })
    }

    /// Copies the bytes of `range` into `out`, of the same length. Returns false, with `out`
    /// unspecified, if the bytes are gone: acknowledged, reset, or the stream removed.
    pub fn copy(&self, range: &StreamRange, out: &mut [u8]) -> bool {
        debug_assert_eq!(out.len(), usize::from(range.len));
        let stream = self.table.get(range.slot, range.id);
        stream.and_then(|s| s.send.as_ref()).is_some_and(|send| send.copy(range.offset, out))
    }

    /// A packet that carried `range` was acknowledged. Repeated and late calls change nothing.
    pub fn on_acked(&mut self, range: &StreamRange) {
        let Some(stream) = self.table.get_mut(range.slot, range.id) else { return };
        let Some(send) = stream.send.as_mut() else { return };
        if send.reset.is_some() || send.is_complete() {
            return;
        }
        send.on_acked(range.bytes(), range.fin);
        if send.is_complete() {
            self.untell(range.slot, event::WRITABLE);
            self.tell(range.slot, event::FINISHED);
        }
    }

    /// The oldest data, at most `max_len` bytes, that was sent and not acknowledged: of the first
    /// stream by urgency and identifier the run with the lowest offset. For probes. Looks at each
    /// stream.
    pub fn oldest_unacked(&self, max_len: usize) -> Option<StreamRange> {
        let max = max_len.min(usize::from(u16::MAX)) as u64;
        let candidates = self.table.iter().filter_map(|(slot, stream)| {
            let (bytes, fin) = stream.send.as_ref()?.oldest_unacked(max)?;
            let len = (bytes.end - bytes.start) as u16;
            let range = StreamRange { slot, id: stream.id, offset: bytes.start, len, fin };
            Some(((stream.priority.urgency, stream.id), range))
        });
        candidates.min_by_key(|(order, _)| *order).map(|(_, range)| range)
    }
}
