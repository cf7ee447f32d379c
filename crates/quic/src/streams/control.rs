//! Control frames of streams and flow control (RFC 9000, sections 19.4, 19.5 and 19.9 to 19.14).
//! Only the fact that a frame is due is stored: each copy is written with the current value (RFC
//! 9000, section 13.3), and obsolete frames are not repeated.

use units::{Direction, StreamId};

use crate::wire::{
    Writer, max_len, put_data_blocked, put_max_data, put_max_stream_data, put_max_streams,
    put_reset_stream, put_stop_sending, put_stream_data_blocked, put_streams_blocked,
};

use super::flags::{of_connection, of_stream};
use super::recv::ReceiveEnd;
use super::table::Stream;
use super::{Streams, lane};

/// A control frame that a packet carried: enough to send it again, or to know that it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlFrame {
    /// MAX_DATA.
    MaxData,
    /// MAX_STREAM_DATA.
    MaxStreamData(StreamId),
    /// MAX_STREAMS.
    MaxStreams(Direction),
    /// RESET_STREAM.
    ResetStream(StreamId),
    /// STOP_SENDING.
    StopSending(StreamId),
    /// DATA_BLOCKED.
    DataBlocked,
    /// STREAM_DATA_BLOCKED.
    StreamDataBlocked(StreamId),
    /// STREAMS_BLOCKED.
    StreamsBlocked(Direction),
}

impl Streams {
    /// Makes frames of a stream due.
    pub(super) fn require(&mut self, slot: u32, frames: u8) {
        let stream = self.table.at(slot);
        if stream.control == 0 {
            self.due_streams.push_back(slot);
        }
        stream.control |= frames;
    }

    /// Frames of a stream are no longer due.
    pub(super) fn cancel(&mut self, slot: u32, frames: u8) {
        let stream = self.table.at(slot);
        if stream.control & frames != 0 {
            stream.control &= !frames;
            if stream.control == 0 {
                self.due_streams.retain(|other| *other != slot);
            }
        }
    }

    /// Returns true if control frames are due.
    pub fn has_control(&self) -> bool {
        self.due != 0 || !self.due_streams.is_empty()
    }

    /// Writes the due control frames that fit, and passes each to `sent`.
    pub fn write_control(&mut self, w: &mut Writer<'_>, sent: &mut impl FnMut(ControlFrame)) {
        while self.due != 0 {
            // Each frame of the connection has one number in it.
            if w.remaining() < max_len::MAX_DATA {
                return;
            }
            let bit = self.due & self.due.wrapping_neg();
            self.due &= !bit;
            sent(self.put_connection_frame(w, bit));
        }
        while let Some(&slot) = self.due_streams.front() {
            let (now, srtt) = (self.now, self.srtt);
            let stream = self.table.at(slot);
            while stream.control != 0 {
                if w.remaining() < max_len::RESET_STREAM {
                    return;
                }
                let bit = stream.control & stream.control.wrapping_neg();
                stream.control &= !bit;
                let id = stream.id;
                match (bit, &mut stream.send, &mut stream.recv) {
                    (of_stream::RESET_STREAM, Some(send), _) => {
                        let Some(reset) = send.reset else { continue };
                        put_reset_stream(w, id, reset.code, send.sent());
                        sent(ControlFrame::ResetStream(id));
                    }
                    (of_stream::STREAM_DATA_BLOCKED, Some(send), _) => {
                        put_stream_data_blocked(w, id, send.max_data);
                        sent(ControlFrame::StreamDataBlocked(id));
                    }
                    (of_stream::STOP_SENDING, _, Some(recv)) => {
                        let ReceiveEnd::Stopped(code) = recv.end else { continue };
                        put_stop_sending(w, id, code);
                        sent(ControlFrame::StopSending(id));
                    }
                    (of_stream::MAX_STREAM_DATA, _, Some(recv)) => {
                        put_max_stream_data(w, id, recv.window.advertise(now, srtt));
                        sent(ControlFrame::MaxStreamData(id));
                    }
                    _ => {}
                }
            }
            self.due_streams.pop_front();
        }
    }

    /// Writes the frame of the connection that `bit` stands for.
    fn put_connection_frame(&mut self, w: &mut Writer<'_>, bit: u8) -> ControlFrame {
        match bit {
            of_connection::MAX_DATA => {
                put_max_data(w, self.window.advertise(self.now, self.srtt));
                return ControlFrame::MaxData;
            }
            of_connection::DATA_BLOCKED => {
                put_data_blocked(w, self.max_data);
                return ControlFrame::DataBlocked;
            }
            _ => {}
        }
        let of = |bits: [u8; 2]| {
            let bidirectional = bits[lane(Direction::Bidirectional)] == bit;
            if bidirectional { Direction::Bidirectional } else { Direction::Unidirectional }
        };
        if of_connection::MAX_STREAMS.contains(&bit) {
            let direction = of(of_connection::MAX_STREAMS);
            let remote = &mut self.remote[lane(direction)];
            remote.advertised = remote.limit();
            put_max_streams(w, direction, remote.advertised);
            ControlFrame::MaxStreams(direction)
        } else {
            let direction = of(of_connection::STREAMS_BLOCKED);
            put_streams_blocked(w, direction, self.local[lane(direction)].limit);
            ControlFrame::StreamsBlocked(direction)
        }
    }

    /// The slot of stream `id`, if the stream exists and `matters`.
    fn relevant(&self, id: StreamId, matters: impl Fn(&Stream) -> bool) -> Option<u32> {
        let slot = self.table.find(id)?;
        self.table.get(slot, id).filter(|stream| matters(stream)).map(|_| slot)
    }

    /// Handles a lost frame. It is due with the current value, unless obsolete (RFC 9000, section
    /// 13.3).
    pub fn on_control_lost(&mut self, frame: ControlFrame) {
        let (slot, bit) = match frame {
            ControlFrame::MaxData => {
                self.due |= of_connection::MAX_DATA;
                return;
            }
            ControlFrame::MaxStreams(direction) => {
                self.due |= of_connection::MAX_STREAMS[lane(direction)];
                return;
            }
            ControlFrame::DataBlocked => {
                if self.is_connection_blocked() {
                    self.due |= of_connection::DATA_BLOCKED;
                }
                return;
            }
            ControlFrame::StreamsBlocked(direction) => {
                if self.local[lane(direction)].is_blocked {
                    self.due |= of_connection::STREAMS_BLOCKED[lane(direction)];
                }
                return;
            }
            ControlFrame::MaxStreamData(id) => {
                let slot = self.relevant(id, |s| s.recv.as_ref().is_some_and(|r| r.wants_data()));
                (slot, of_stream::MAX_STREAM_DATA)
            }
            ControlFrame::ResetStream(id) => {
                let unacked = |s: &Stream| s.send.as_ref()?.reset.map(|reset| !reset.acked);
                let slot = self.relevant(id, |s| unacked(s).unwrap_or(false));
                (slot, of_stream::RESET_STREAM)
            }
            ControlFrame::StopSending(id) => {
                let slot = self.relevant(id, |s| s.recv.as_ref().is_some_and(|r| !r.is_done()));
                (slot, of_stream::STOP_SENDING)
            }
            ControlFrame::StreamDataBlocked(id) => {
                let slot = self.relevant(id, |s| s.send.as_ref().is_some_and(|s| s.is_blocked()));
                (slot, of_stream::STREAM_DATA_BLOCKED)
            }
        };
        if let Some(slot) = slot {
            self.require(slot, bit);
        }
    }

    /// A packet with this frame was acknowledged.
    pub fn on_control_acked(&mut self, frame: ControlFrame) {
        // Only the end of a stream waits for an acknowledgement ("Reset Recvd").
        let ControlFrame::ResetStream(id) = frame else { return };
        let Some(slot) = self.table.find(id) else { return };
        let send = self.table.at(slot).send.as_mut();
        if let Some(reset) = send.and_then(|send| send.reset.as_mut()) {
            reset.acked = true;
            self.cancel(slot, of_stream::RESET_STREAM);
            self.retire(slot);
        }
    }
}
