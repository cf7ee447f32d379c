//! Application interface of streams (RFC 9000, section 2.4): opening, writing, reading, ending and
//! events.

use bytes::Bytes;
use units::{Direction, Mark, Side, StreamId};

use super::flags::{event, of_connection, of_stream};
use super::interface::{Priority, SendProgress, StreamEvent, UnknownStream, WriteError};
use super::recv::{ReadOutcome, ReceiveEnd};
use super::send::SendStream;
use super::{Streams, lane};

impl Streams {
    /// Opens a stream. `None` when the peer's limit of streams is reached: STREAMS_BLOCKED becomes
    /// due.
    pub fn open(&mut self, direction: Direction) -> Option<StreamId> {
        let local = &mut self.local[lane(direction)];
        if local.opened >= local.limit {
            if !local.is_blocked {
                local.is_blocked = true;
                self.due |= of_connection::STREAMS_BLOCKED[lane(direction)];
            }
            return None;
        }
        let id = StreamId::new(Side::Server, direction, local.opened);
        local.opened += 1;
        self.create(id);
        Some(id)
    }

    /// Number of streams of this direction that the peer has been allowed to open.
    pub fn peer_limit(&self, direction: Direction) -> u64 {
        self.remote[lane(direction)].advertised
    }

    /// The next event. Each event is told once until it happens again, and a stream waits in the
    /// queue at most once.
    pub fn poll_event(&mut self) -> Option<StreamEvent> {
        let Some(slot) = self.events.pop_front() else {
            return self.closed.pop_front().map(StreamEvent::Closed);
        };
        let stream = self.table.at(slot);
        let id = stream.id;
        let bit = stream.events & stream.events.wrapping_neg();
        stream.events &= !bit;
        let told = match bit {
            event::OPENED => StreamEvent::Opened(id),
            event::READABLE => StreamEvent::Readable(id),
            event::WRITABLE => StreamEvent::Writable(id),
            event::FINISHED => StreamEvent::Finished(id),
            event::STOPPED => {
                let code = stream.send.as_ref().and_then(|send| send.stopped).unwrap_or(0);
                StreamEvent::Stopped { id, code }
            }
            _ => {
                let end = stream.recv.as_ref().map(|recv| recv.end);
                let code = if let Some(ReceiveEnd::Reset(code)) = end { code } else { 0 };
                StreamEvent::Reset { id, code }
            }
        };
        if stream.events == 0 {
            self.retire(slot);
        } else {
            self.events.push_front(slot);
        }
        Some(told)
    }

    /// The slot and the sending part of stream `id`.
    fn sending(&mut self, id: StreamId) -> Result<(u32, &mut SendStream), WriteError> {
        let slot = self.table.find(id).ok_or(WriteError::UnknownStream)?;
        let send = self.table.at(slot).send.as_mut().ok_or(WriteError::UnknownStream)?;
        Ok((slot, send))
    }

    /// The slot and the sending part of stream `id`, if it takes data.
    fn writable(&mut self, id: StreamId) -> Result<(u32, &mut SendStream), WriteError> {
        let (slot, send) = self.sending(id)?;
        match send.stopped {
            Some(code) => Err(WriteError::Stopped(code)),
            None if send.is_writable() => Ok((slot, send)),
            None => Err(WriteError::Finished),
        }
    }

    /// Appends `data` to stream `id`, without copying. The caller limits its [unsent](Self::unsent)
    /// data.
    pub fn write(&mut self, id: StreamId, data: Bytes) -> Result<(), WriteError> {
        self.write_marked(id, data, None)
    }

    /// [`write`](Self::write) with a mark, which loss recovery receives if any of the chunk is
    /// lost.
    pub fn write_marked(
        &mut self,
        id: StreamId,
        data: Bytes,
        mark: Option<Mark>,
    ) -> Result<(), WriteError> {
        let high = self.limits.send_high_water;
        let (slot, send) = self.writable(id)?;
        if data.is_empty() {
            return Ok(());
        }
        let len = data.len() as u64;
        send.push(data, mark);
        send.was_high |= send.unsent() >= high;
        self.unsent += len;
        self.reschedule(slot);
        Ok(())
    }

    /// Ends stream `id` after the data written before.
    pub fn finish(&mut self, id: StreamId) -> Result<(), WriteError> {
        let (slot, send) = self.writable(id)?;
        send.finish();
        self.reschedule(slot);
        Ok(())
    }

    /// Ends our part of stream `id` at once and drops its data; `code` is the application's error
    /// code, at most 2^62 − 1. Does nothing if the part was reset or is complete already.
    pub fn reset(&mut self, id: StreamId, code: u64) -> Result<(), WriteError> {
        let (slot, _) = self.sending(id)?;
        self.reset_slot(slot, code);
        Ok(())
    }

    /// Resets the sending part; whether there was still something to reset.
    pub(super) fn reset_slot(&mut self, slot: u32, code: u64) -> bool {
        let Some(send) = self.table.at(slot).send.as_mut() else { return false };
        if send.reset.is_some() || send.is_complete() {
            return false;
        }
        self.unsent -= send.reset(code);
        self.untell(slot, event::WRITABLE);
        self.reschedule(slot);
        self.require(slot, of_stream::RESET_STREAM);
        true
    }

    /// Asks the peer to stop sending on stream `id`, with application error code `code`, at most
    /// 2^62 − 1. Received and future data is dropped.
    pub fn stop_sending(&mut self, id: StreamId, code: u64) -> Result<(), UnknownStream> {
        let slot = self.table.find(id).ok_or(UnknownStream)?;
        let recv = self.table.at(slot).recv.as_mut().ok_or(UnknownStream)?;
        if recv.end != ReceiveEnd::Open {
            return Ok(());
        }
        // RFC 9000, section 3.5: of little use once the final size is known.
        let asks = recv.wants_data();
        self.fragments -= recv.assembler.fragments();
        let freed = recv.stop(code);
        self.untell(slot, event::READABLE);
        self.cancel(slot, of_stream::MAX_STREAM_DATA);
        if asks {
            self.require(slot, of_stream::STOP_SENDING);
        }
        self.consume(freed);
        self.retire(slot);
        Ok(())
    }

    /// Bytes written to stream `id` and not yet sent once; `None` if there is no such stream.
    pub fn unsent(&self, id: StreamId) -> Option<u64> {
        let stream = self.table.get(self.table.find(id)?, id)?;
        Some(stream.send.as_ref()?.unsent())
    }

    /// Progress of the data written to stream `id`. `None` for an unknown stream.
    pub fn send_progress(&self, id: StreamId) -> Option<SendProgress> {
        let stream = self.table.get(self.table.find(id)?, id)?;
        Some(stream.send.as_ref()?.progress())
    }

    /// Reads the next bytes of stream `id`, at most `max` (at least 1); gives the peer credit for
    /// more. A stream that the application stopped is unknown to it.
    pub fn read(&mut self, id: StreamId, max: usize) -> Result<ReadOutcome, UnknownStream> {
        let slot = self.table.find(id).ok_or(UnknownStream)?;
        let recv = self.table.at(slot).recv.as_mut().ok_or(UnknownStream)?;
        let fragments = recv.assembler.fragments();
        let outcome = recv.read(max).ok_or(UnknownStream)?;
        self.fragments -= fragments - recv.assembler.fragments();
        match &outcome {
            ReadOutcome::Data(data) => {
                let len = data.len() as u64;
                if recv.window.consume(len) && recv.wants_data() {
                    self.require(slot, of_stream::MAX_STREAM_DATA);
                }
                self.consume(len);
            }
            ReadOutcome::Blocked => self.untell(slot, event::READABLE),
            ReadOutcome::Finished => {
                self.untell(slot, event::READABLE);
                self.retire(slot);
            }
            ReadOutcome::Reset(_) => {}
        }
        Ok(outcome)
    }

    /// Changes when stream `id` is served relative to others; nothing if there is no such stream.
    pub fn set_priority(&mut self, id: StreamId, priority: Priority) {
        let Some(slot) = self.table.find(id) else { return };
        let stream = self.table.at(slot);
        let priority = Priority { urgency: priority.urgency.min(7), ..priority };
        if stream.scheduled.is_some() && stream.priority != priority {
            self.schedule.remove(stream.priority, id);
            self.schedule.insert(priority, id, slot);
        }
        stream.priority = priority;
    }
}
