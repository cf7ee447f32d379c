//! What frames of the peer do to the streams (RFC 9000, sections 3, 4 and 19.4 to 19.14). Each
//! frame is checked before it changes anything. Errors name no frame type: the caller knows it.

use core::time::Duration;

use units::{Direction, Side, StreamId, Timestamp};

use crate::wire::{MAX_STREAMS_LIMIT, TransportError, TransportErrorCode as Code};

use super::flags::{event, of_connection, of_stream};
use super::recv::ReceiveEnd;
use super::{Streams, lane};

impl Streams {
    /// The stream that a frame is about, opened if need be; `None` if it is over. `sends` says
    /// whether the frame is about our sending part or about our receiving part.
    fn target(&mut self, id: StreamId, sends: bool) -> Result<Option<u32>, TransportError> {
        let state = |reason| TransportError::new(Code::STREAM_STATE_ERROR, 0, reason);
        let ours = id.initiator() == Side::Server;
        let direction = id.direction();
        // RFC 9000, sections 19.4, 19.5, 19.8, 19.10 and 19.13: STREAM_STATE_ERROR.
        if direction == Direction::Unidirectional && ours != sends {
            return Err(state("the stream has no such part"));
        }
        if let Some(slot) = self.table.find(id) {
            return Ok(Some(slot));
        }
        let index = id.index();
        if ours {
            let opened = index < self.local[lane(direction)].opened;
            return if opened { Ok(None) } else { Err(state("the stream was not opened yet")) };
        }
        let remote = &mut self.remote[lane(direction)];
        // RFC 9000, section 4.6: "An endpoint that receives a frame with a stream ID exceeding the
        // limit it has sent MUST treat this as a connection error of type STREAM_LIMIT_ERROR".
        if index >= remote.advertised {
            return Err(TransportError::new(Code::STREAM_LIMIT_ERROR, 0, "too many streams"));
        }
        if index >= remote.opened {
            // RFC 9000, section 3.2: streams with lower numbers are opened too.
            remote.dormant.insert(remote.opened..index);
            remote.opened = index + 1;
        } else if remote.dormant.contains(index) {
            remote.dormant.remove(index..index + 1);
        } else {
            return Ok(None);
        }
        let slot = self.create(id);
        self.tell(slot, event::OPENED);
        Ok(Some(slot))
    }

    /// Checks data up to `end` against all limits and takes it into account.
    fn receive(&mut self, slot: u32, end: u64, is_final: bool) -> Result<(), TransportError> {
        let limit = self.window.limit();
        let Some(recv) = self.table.at(slot).recv.as_mut() else { return Ok(()) };
        let new = recv.check(end, is_final)?;
        if new > limit - self.data_received {
            let reason = "beyond the connection's limit";
            return Err(TransportError::new(Code::FLOW_CONTROL_ERROR, 0, reason));
        }
        self.data_received += new;
        Ok(())
    }

    /// A STREAM frame. `now` and the smoothed RTT `srtt` drive the auto-tuning of the windows.
    ///
    /// # Errors
    ///
    /// STREAM_STATE_ERROR, STREAM_LIMIT_ERROR, FINAL_SIZE_ERROR, FLOW_CONTROL_ERROR; INTERNAL_ERROR
    /// if the data received is scattered more than this endpoint is willing to keep track of.
    pub fn on_stream(
        &mut self,
        id: StreamId,
        offset: u64,
        data: &[u8],
        fin: bool,
        now: Timestamp,
        srtt: Duration,
    ) -> Result<(), TransportError> {
        (self.now, self.srtt) = (now, srtt);
        let Some(slot) = self.target(id, false)? else { return Ok(()) };
        let end = offset.saturating_add(data.len() as u64);
        self.receive(slot, end, fin)?;
        self.window.on_data(self.now);
        let Some(recv) = self.table.at(slot).recv.as_mut() else { return Ok(()) };
        recv.window.on_data(self.now);
        let was_final = !recv.wants_data();
        let freed = recv.accept(end, fin);
        let ends = fin && !was_final;
        if recv.end == ReceiveEnd::Open {
            let fragments = recv.assembler.fragments();
            let brings = recv.assembler.insert(offset, data) || ends;
            self.fragments = self.fragments - fragments + recv.assembler.fragments();
            if brings && recv.is_readable() {
                self.tell(slot, event::READABLE);
            }
            self.check_fragments()?;
        }
        if ends {
            self.cancel(slot, of_stream::MAX_STREAM_DATA);
        }
        self.consume(freed);
        self.retire(slot);
        Ok(())
    }

    /// RFC 9000, section 21.7: bounds what an adversary can make us track by leaving gaps. A sender
    /// that loses every second packet of a full window stays below.
    fn check_fragments(&self) -> Result<(), TransportError> {
        if self.fragments as u64 > 256 + self.window.size() / 1024 {
            return Err(TransportError::new(Code::INTERNAL_ERROR, 0, "stream data too scattered"));
        }
        Ok(())
    }

    /// A RESET_STREAM frame.
    ///
    /// # Errors
    ///
    /// STREAM_STATE_ERROR, STREAM_LIMIT_ERROR, FINAL_SIZE_ERROR, FLOW_CONTROL_ERROR.
    pub fn on_reset_stream(
        &mut self,
        id: StreamId,
        code: u64,
        final_size: u64,
    ) -> Result<(), TransportError> {
        let Some(slot) = self.target(id, false)? else { return Ok(()) };
        self.receive(slot, final_size, true)?;
        let Some(recv) = self.table.at(slot).recv.as_mut() else { return Ok(()) };
        let fragments = recv.assembler.fragments();
        let (tells, freed) = recv.on_reset(code, final_size);
        self.fragments -= fragments - recv.assembler.fragments();
        if tells {
            self.untell(slot, event::READABLE);
            self.tell(slot, event::RESET);
        }
        self.cancel(slot, of_stream::MAX_STREAM_DATA | of_stream::STOP_SENDING);
        self.consume(freed);
        self.retire(slot);
        Ok(())
    }

    /// A STOP_SENDING frame: our part of the stream is reset with the same code.
    ///
    /// # Errors
    ///
    /// STREAM_STATE_ERROR, STREAM_LIMIT_ERROR.
    pub fn on_stop_sending(&mut self, id: StreamId, code: u64) -> Result<(), TransportError> {
        let Some(slot) = self.target(id, true)? else { return Ok(()) };
        // RFC 9000, section 3.5: "An endpoint that receives a STOP_SENDING frame MUST send a
        // RESET_STREAM frame if the stream is in the 'Ready' or 'Send' state."
        if self.reset_slot(slot, code) {
            if let Some(send) = self.table.at(slot).send.as_mut() {
                send.stopped = Some(code);
            }
            self.tell(slot, event::STOPPED);
        }
        Ok(())
    }

    /// A MAX_DATA frame. A lower value than before changes nothing.
    pub fn on_max_data(&mut self, max: u64) {
        self.max_data = self.max_data.max(max);
        self.report_connection_blocked();
    }

    /// A MAX_STREAM_DATA frame. A lower value than before changes nothing.
    ///
    /// # Errors
    ///
    /// STREAM_STATE_ERROR, STREAM_LIMIT_ERROR.
    pub fn on_max_stream_data(&mut self, id: StreamId, max: u64) -> Result<(), TransportError> {
        if let Some(slot) = self.target(id, true)? {
            self.raise_stream_limit(slot, max);
        }
        Ok(())
    }

    /// The peer lets us send up to `max` on the stream.
    pub(super) fn raise_stream_limit(&mut self, slot: u32, max: u64) {
        let Some(send) = self.table.at(slot).send.as_mut() else { return };
        if max > send.max_data {
            send.max_data = max;
            self.reschedule(slot);
        }
    }

    /// A MAX_STREAMS frame. A lower value than before changes nothing.
    pub fn on_max_streams(&mut self, direction: Direction, max: u64) {
        let local = &mut self.local[lane(direction)];
        if max > local.limit {
            local.limit = max.min(MAX_STREAMS_LIMIT);
            local.is_blocked = false;
            self.due &= !of_connection::STREAMS_BLOCKED[lane(direction)];
        }
    }

    /// A STREAM_DATA_BLOCKED frame: opens the stream if need be, and changes nothing else; the
    /// limit that the peer has not seen is on its way, or is sent again when it is lost.
    ///
    /// # Errors
    ///
    /// STREAM_STATE_ERROR, STREAM_LIMIT_ERROR.
    pub fn on_stream_data_blocked(&mut self, id: StreamId) -> Result<(), TransportError> {
        self.target(id, false).map(drop)
    }
}
