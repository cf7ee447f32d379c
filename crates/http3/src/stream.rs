//! Receiving part of a request stream (RFC 9114, section 4.1): HEADERS, DATA and optional trailers,
//! with unknown frames in between, and errors for other sequences.

use core::time::Duration;
use std::collections::VecDeque;

use bytes::Bytes;
use quic::streams::Priority;
use units::{StreamId, Timestamp};

use crate::error::{ConnectionError, RequestError, code};
use crate::event::Event;
use crate::frame::{self, Collect, Pause, StreamInput, Varints};
use crate::qpack::{self, DecodeError, Field};
use crate::request;
use crate::transport::Transport;

/// Maximum number of bytes of declined content that are read and dropped. Most requests end within
/// them.
const MAX_DISCARDED: u64 = 16 * 1024;
/// Minimum rate of content, in bytes per second.
const MIN_RATE: u64 = 1024;

/// A request with an unfinished response.
#[derive(Debug, Default)]
pub(crate) struct RequestStream {
    input: StreamInput,
    frame: FramePart,
    phase: MessagePart,
    content_length: Option<u64>,
    /// Total length of the DATA frames that have started, in bytes.
    announced: u64,
    /// Time at which the stream started, or at which its head was complete.
    since: Timestamp,
    /// Bytes of content that the application has read.
    content_read: u64,
    /// Stream offset from which content is declined.
    unwanted_from: Option<u64>,
    /// Priority from PRIORITY_UPDATE, which overrides the header field (RFC 9218, section 7).
    pub(crate) priority_update: Option<Priority>,
    /// Whether the request has been delivered to the application.
    pub(crate) is_delivered: bool,
    /// Whether the application has been notified of content that it has not read completely.
    is_notified: bool,
    /// Whether the head of the response has been sent.
    pub(crate) head_sent: bool,
}

/// Position within a frame.
#[derive(Debug)]
enum FramePart {
    Header(Varints<2>),
    Fields(Collect),
    /// In a DATA frame with this many remaining bytes, at least 1, which the application reads.
    Data(u64),
    Skip(u64),
    /// The stream has ended.
    End,
}

impl Default for FramePart {
    fn default() -> Self {
        Self::Header(Varints::default())
    }
}

/// Position within the message.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
enum MessagePart {
    #[default]
    Head,
    Content,
    Trailers,
}

/// Reason for which [`RequestStream::advance`] stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// No data is available.
    Blocked,
    /// Content for the application.
    Content,
    /// The end of the request.
    End,
}

impl RequestStream {
    pub(crate) fn new(priority_update: Option<Priority>, now: Timestamp) -> Self {
        Self { priority_update, since: now, ..Self::default() }
    }

    /// Heap memory including this struct, in bytes.
    #[cfg(test)]
    pub(crate) fn heap(&self) -> usize {
        let payload = if let FramePart::Fields(payload) = &self.frame { payload.heap() } else { 0 };
        size_of::<Self>() + self.input.heap() + payload
    }

    /// Whether all data of the client has been read.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.frame, FramePart::End)
    }

    /// Returns the time at which the request times out; `None` if no more of it is expected.
    pub(crate) fn due(&self, timeout: Duration) -> Option<Timestamp> {
        if self.has_ended() || self.unwanted_from.is_some() {
            return None;
        }
        Some(self.since + timeout + Duration::from_secs(self.content_read / MIN_RATE))
    }

    /// Returns the number of bytes of a partially received field section.
    pub(crate) fn collected(&self) -> usize {
        if let FramePart::Fields(section) = &self.frame { section.len() } else { 0 }
    }

    /// Drops all further content.
    pub(crate) fn discard(&mut self) {
        self.unwanted_from.get_or_insert(self.input.taken());
    }

    /// Reads up to the next requested content, the end, or the end of available data. Appends the
    /// resulting events to `events`.
    pub(crate) fn advance(
        &mut self,
        t: &mut impl Transport,
        id: StreamId,
        limit: u64,
        events: &mut VecDeque<Event>,
    ) -> Result<Stop, RequestError> {
        let stop = self.read_on(t, id, limit, events)?;
        let is_enough = |from| self.input.taken() - from > MAX_DISCARDED;
        if self.unwanted_from.is_some_and(is_enough) && !self.has_ended() {
            // RFC 9114, section 4.1: "The error code H3_NO_ERROR SHOULD be used when requesting
            // that the client stop sending on the request stream."
            t.stop_sending(id, code::H3_NO_ERROR);
            self.input = StreamInput::default();
            self.frame = FramePart::End;
            return Ok(Stop::End);
        }
        Ok(stop)
    }

    fn read_on(
        &mut self,
        t: &mut impl Transport,
        id: StreamId,
        limit: u64,
        events: &mut VecDeque<Event>,
    ) -> Result<Stop, RequestError> {
        loop {
            let pause = match &mut self.frame {
                FramePart::Header(header) => match header.poll(t, id, &mut self.input) {
                    Ok([kind, length]) => {
                        self.frame = self.begin(kind, length, limit)?;
                        continue;
                    }
                    Err(Pause::Finished) if !header.has_begun() => {
                        self.end(id, events)?;
                        continue;
                    }
                    Err(pause) => pause,
                },
                FramePart::Fields(payload) => match payload.poll(t, id, &mut self.input) {
                    Ok(section) => {
                        self.on_fields(t, id, &section, limit, events)?;
                        self.frame = FramePart::default();
                        continue;
                    }
                    Err(pause) => pause,
                },
                FramePart::Data(_) if self.unwanted_from.is_none() => return Ok(Stop::Content),
                // The content is declined.
                FramePart::Data(remaining) | FramePart::Skip(remaining) => {
                    match self.input.skip(t, id, remaining) {
                        Ok(()) => {
                            self.frame = FramePart::default();
                            continue;
                        }
                        Err(pause) => pause,
                    }
                }
                FramePart::End => return Ok(Stop::End),
            };
            return paused(pause);
        }
    }

    /// Reads up to `max` bytes of the content at which [`RequestStream::advance`] stopped. `None`
    /// if it did not stop at content, or no data is available.
    pub(crate) fn read_content(
        &mut self,
        t: &mut impl Transport,
        id: StreamId,
        max: usize,
    ) -> Result<Option<Bytes>, RequestError> {
        let FramePart::Data(remaining) = &mut self.frame else { return Ok(None) };
        let max = usize::try_from(*remaining).unwrap_or(usize::MAX).min(max.max(1));
        match self.input.take(t, id, max) {
            Ok(data) => {
                *remaining -= data.len() as u64;
                self.content_read += data.len() as u64;
                if *remaining == 0 {
                    self.frame = FramePart::default();
                }
                Ok(Some(data))
            }
            Err(pause) => paused(pause).map(|_| None),
        }
    }

    /// Whether to notify the application of readable content: once, until it has read everything.
    pub(crate) fn notify(&mut self) -> bool {
        !core::mem::replace(&mut self.is_notified, true)
    }

    /// Allows the next notification, after the application has read all available content.
    pub(crate) fn rearm(&mut self) {
        self.is_notified = false;
    }

    /// Returns the code for a request that the client cancelled. RFC 9114, section 4.1.1: rejected
    /// only "if no processing was performed".
    pub(crate) fn cancel_code(&self) -> u64 {
        if self.is_delivered { code::H3_REQUEST_CANCELLED } else { code::H3_REQUEST_REJECTED }
    }

    /// Starts a frame of this type and length.
    fn begin(&mut self, kind: u64, length: u64, limit: u64) -> Result<FramePart, RequestError> {
        let unexpected = |reason| {
            // RFC 9114, section 4.1: an invalid sequence of frames is H3_FRAME_UNEXPECTED.
            Err(ConnectionError::new(code::H3_FRAME_UNEXPECTED, reason).into())
        };
        match (kind, self.phase) {
            (frame::DATA, MessagePart::Head) => unexpected("DATA before HEADERS"),
            (frame::DATA | frame::HEADERS, MessagePart::Trailers) => {
                unexpected("HEADERS or DATA after the trailers")
            }
            (frame::DATA, MessagePart::Content) => {
                self.announced = self.announced.saturating_add(length);
                if self.content_length.is_some_and(|expected| self.announced > expected) {
                    return Err(RequestError::Stream(code::H3_MESSAGE_ERROR));
                }
                Ok(if length == 0 { FramePart::default() } else { FramePart::Data(length) })
            }
            (frame::HEADERS, _) if length <= limit => {
                Ok(FramePart::Fields(Collect::new(length as usize)))
            }
            (frame::HEADERS, _) => Err(self.too_large()),
            (
                frame::CANCEL_PUSH
                | frame::SETTINGS
                | frame::PUSH_PROMISE
                | frame::GOAWAY
                | frame::MAX_PUSH_ID
                | frame::PRIORITY_UPDATE_REQUEST
                | frame::PRIORITY_UPDATE_PUSH,
                _,
            ) => unexpected("frame not allowed on a request stream"),
            _ if frame::is_reserved_by_http2(kind) => unexpected("frame type reserved by HTTP/2"),
            // RFC 9114, section 9: unknown types are ignored.
            _ => Ok(FramePart::Skip(length)),
        }
    }

    /// Returns the error for a section that is too large. RFC 9114, section 4.2.2: a header section
    /// gets status 431. Trailers may follow the start of the response, so the stream is reset.
    fn too_large(&self) -> RequestError {
        match self.phase {
            MessagePart::Head => RequestError::Answer(431),
            MessagePart::Content | MessagePart::Trailers => {
                RequestError::Stream(code::H3_EXCESSIVE_LOAD)
            }
        }
    }

    fn on_fields(
        &mut self,
        t: &mut impl Transport,
        id: StreamId,
        section: &Bytes,
        limit: u64,
        events: &mut VecDeque<Event>,
    ) -> Result<(), RequestError> {
        let fields: Vec<Field> = qpack::decode(section, limit).map_err(|error| match error {
            DecodeError::Failed(reason) => {
                ConnectionError::new(code::QPACK_DECOMPRESSION_FAILED, reason).into()
            }
            DecodeError::TooLarge => self.too_large(),
        })?;
        if self.phase == MessagePart::Head {
            let mut head = Box::new(request::parse(fields)?);
            head.early = t.is_early();
            head.priority = self.priority_update.unwrap_or(head.priority);
            t.set_priority(id, head.priority);
            self.content_length = head.content_length;
            self.phase = MessagePart::Content;
            self.since = t.now();
            events.push_back(Event::Request { id, head, end: false });
        } else {
            request::check_trailers(&fields)?;
            self.phase = MessagePart::Trailers;
            events.push_back(Event::Trailers { id, fields });
        }
        Ok(())
    }

    /// Handles the end of the stream between two frames.
    fn end(&mut self, id: StreamId, events: &mut VecDeque<Event>) -> Result<(), RequestError> {
        if self.phase == MessagePart::Head {
            // RFC 9114, section 4.1: "the server SHOULD abort its response stream with the error
            // code H3_REQUEST_INCOMPLETE".
            return Err(RequestError::Stream(code::H3_REQUEST_INCOMPLETE));
        }
        // RFC 9114, section 4.1.2: a Content-Length that is not "the sum of the DATA frame lengths
        // received" is malformed.
        if self.content_length.is_some_and(|expected| expected != self.announced) {
            return Err(RequestError::Stream(code::H3_MESSAGE_ERROR));
        }
        self.frame = FramePart::End;
        match events.back_mut() {
            Some(Event::Request { id: last, end, .. }) if *last == id => *end = true,
            _ => events.push_back(Event::RequestEnd(id)),
        }
        Ok(())
    }
}

/// Interprets a pause other than the stream's end between two frames.
fn paused(pause: Pause) -> Result<Stop, RequestError> {
    match pause {
        Pause::Blocked => Ok(Stop::Blocked),
        Pause::Finished => Err(frame::truncated().into()),
        Pause::Reset(code) => Err(RequestError::Reset(code)),
    }
}
