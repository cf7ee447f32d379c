//! Unidirectional streams of the client (RFC 9114, section 6.2): the control stream with its frames
//! (section 7.2), the two QPACK streams (RFC 9204, section 4.2), and streams of unknown types,
//! which are rejected without closing the connection.

use bytes::Bytes;
use quic::streams::Priority;
use quic::wire::Reader;
use units::{Direction, Side, StreamId};

use crate::error::{ConnectionError, code};
use crate::frame::{self, Collect, Pause, StreamInput, Varints};
use crate::priority;
use crate::qpack::{DecoderStream, check_encoder_stream};
use crate::transport::Transport;

/// Stream types (RFC 9114, section 6.2; RFC 9204, section 4.2).
pub(crate) const CONTROL_STREAM: u64 = 0x00;
const PUSH_STREAM: u64 = 0x01;
pub(crate) const ENCODER_STREAM: u64 = 0x02;
pub(crate) const DECODER_STREAM: u64 = 0x03;

/// Settings (RFC 9204, section 5; RFC 9114, section 7.2.4.1).
pub(crate) const QPACK_MAX_TABLE_CAPACITY: u64 = 0x01;
pub(crate) const MAX_FIELD_SECTION_SIZE: u64 = 0x06;
pub(crate) const QPACK_BLOCKED_STREAMS: u64 = 0x07;

/// Maximum number of concurrent unidirectional streams: the three required streams, and some that
/// exercise extensibility.
const MAX_STREAMS: usize = 32;
/// Maximum payload of SETTINGS and PRIORITY_UPDATE, in bytes.
const MAX_PAYLOAD: u64 = 1024;

/// Content of a control stream that concerns the whole connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Signal {
    /// SETTINGS_MAX_FIELD_SECTION_SIZE of the client, in bytes.
    MaxFieldSectionSize(u64),
    /// A new priority for a request.
    Priority(StreamId, Priority),
    /// The client's first GOAWAY.
    GoAway,
}

/// The client's unidirectional streams.
#[derive(Debug, Default)]
pub(crate) struct UniStreams {
    streams: Vec<UniStream>,
    control: Control,
    decoder: DecoderStream,
}

/// A unidirectional stream.
#[derive(Debug)]
struct UniStream {
    id: StreamId,
    uni: Uni,
    input: StreamInput,
}

/// Type of a unidirectional stream.
#[derive(Debug)]
enum Uni {
    /// The type has not been read yet.
    Untyped(Varints<1>),
    Control,
    Encoder,
    Decoder,
    /// A stream of unknown type, on which STOP_SENDING was sent.
    Refused,
}

impl Uni {
    /// Whether the stream must stay open (RFC 9114, section 6.2.1; RFC 9204, section 4.2).
    const fn is_critical(&self) -> bool {
        matches!(self, Self::Control | Self::Encoder | Self::Decoder)
    }
}

impl UniStreams {
    /// Reads stream `id` up to the next signal (`Some`), or until no more data is available.
    pub(crate) fn poll(
        &mut self,
        t: &mut impl Transport,
        id: StreamId,
    ) -> Result<Option<Signal>, ConnectionError> {
        let place = match self.streams.iter().position(|stream| stream.id == id) {
            Some(place) => place,
            None if self.streams.len() < MAX_STREAMS => {
                let uni = Uni::Untyped(Varints::default());
                // Clients open three, and a vector makes room for four.
                self.streams.reserve_exact(1);
                self.streams.push(UniStream { id, uni, input: StreamInput::default() });
                self.streams.len() - 1
            }
            None => {
                let reason = "too many unidirectional streams";
                return Err(ConnectionError::new(code::H3_EXCESSIVE_LOAD, reason));
            }
        };
        let UniStream { uni, input, .. } = &mut self.streams[place];
        if let Uni::Untyped(kind) = uni {
            match kind.poll(t, id, input) {
                Ok([kind]) => self.streams[place].uni = self.admit(t, id, kind)?,
                // RFC 9114, section 6.2: "A receiver MUST tolerate unidirectional streams being
                // closed or reset prior to the reception of the unidirectional stream header."
                Err(_) => return Ok(None),
            }
        }
        let UniStream { uni, input, .. } = &mut self.streams[place];
        let outcome = match uni {
            Uni::Untyped(_) => return Ok(None),
            Uni::Refused => {
                *input = StreamInput::default();
                return Ok(None);
            }
            Uni::Control => self.control.poll(t, id, input)?,
            Uni::Encoder => read_all(t, id, input, check_encoder_stream)?,
            Uni::Decoder => read_all(t, id, input, |data| self.decoder.check(data))?,
        };
        match outcome {
            PolledSignal::Signal(signal) => Ok(Some(signal)),
            PolledSignal::Pause(Pause::Blocked) => Ok(None),
            PolledSignal::Pause(Pause::Finished | Pause::Reset(_)) => Err(closed_critical()),
        }
    }

    /// Determines the use of a stream by its type.
    fn admit(
        &self,
        t: &mut impl Transport,
        id: StreamId,
        kind: u64,
    ) -> Result<Uni, ConnectionError> {
        let refuse = |reason| Err(ConnectionError::new(code::H3_STREAM_CREATION_ERROR, reason));
        let uni = match kind {
            CONTROL_STREAM => Uni::Control,
            ENCODER_STREAM => Uni::Encoder,
            DECODER_STREAM => Uni::Decoder,
            // RFC 9114, section 6.2.2: only servers can push.
            PUSH_STREAM => return refuse("push stream from a client"),
            _ => {
                // RFC 9114, section 6.2: abort reading of unknown types, with this code.
                t.stop_sending(id, code::H3_STREAM_CREATION_ERROR);
                return Ok(Uni::Refused);
            }
        };
        let same = core::mem::discriminant(&uni);
        if self.streams.iter().any(|stream| core::mem::discriminant(&stream.uni) == same) {
            return refuse("second control, encoder or decoder stream");
        }
        Ok(uni)
    }

    /// Handles a stream that the client has reset.
    pub(crate) fn on_reset(&mut self, id: StreamId) -> Result<(), ConnectionError> {
        let is_critical =
            self.streams.iter().any(|stream| stream.id == id && stream.uni.is_critical());
        if is_critical { Err(closed_critical()) } else { Ok(()) }
    }

    /// Removes a stream that the transport has closed.
    pub(crate) fn on_closed(&mut self, id: StreamId) {
        self.streams.retain(|stream| stream.id != id);
    }

    /// Heap memory, in bytes.
    #[cfg(test)]
    pub(crate) fn heap(&self) -> usize {
        self.streams.capacity() * size_of::<UniStream>()
            + self.streams.iter().map(|stream| stream.input.heap()).sum::<usize>()
    }
}

/// Returns the error for a critical stream that was closed, in either direction.
pub(crate) const fn closed_critical() -> ConnectionError {
    ConnectionError::new(code::H3_CLOSED_CRITICAL_STREAM, "critical stream closed")
}

enum PolledSignal {
    Signal(Signal),
    Pause(Pause),
}

/// Reads all available bytes of a QPACK stream.
fn read_all(
    t: &mut impl Transport,
    id: StreamId,
    input: &mut StreamInput,
    mut check: impl FnMut(&[u8]) -> Result<(), ConnectionError>,
) -> Result<PolledSignal, ConnectionError> {
    loop {
        match input.take(t, id, usize::MAX) {
            Ok(data) => check(&data)?,
            Err(pause) => return Ok(PolledSignal::Pause(pause)),
        }
    }
}

/// The client's control stream.
#[derive(Debug, Default)]
struct Control {
    frame: ControlFrame,
    has_settings: bool,
    max_push_id: Option<u64>,
    goaway: Option<u64>,
}

#[derive(Debug)]
enum ControlFrame {
    Header(Varints<2>),
    Payload(u64, Collect),
    Skip(u64),
}

impl Default for ControlFrame {
    fn default() -> Self {
        Self::Header(Varints::default())
    }
}

impl Control {
    fn poll(
        &mut self,
        t: &mut impl Transport,
        id: StreamId,
        input: &mut StreamInput,
    ) -> Result<PolledSignal, ConnectionError> {
        loop {
            let pause = match &mut self.frame {
                ControlFrame::Header(header) => match header.poll(t, id, input) {
                    Ok([kind, length]) => {
                        self.frame = self.begin(kind, length)?;
                        continue;
                    }
                    Err(pause) => pause,
                },
                ControlFrame::Payload(kind, payload) => match payload.poll(t, id, input) {
                    Ok(payload) => {
                        let kind = *kind;
                        self.frame = ControlFrame::default();
                        match self.on_frame(t.request_limit(), kind, &payload)? {
                            Some(signal) => return Ok(PolledSignal::Signal(signal)),
                            None => continue,
                        }
                    }
                    Err(pause) => pause,
                },
                ControlFrame::Skip(remaining) => match input.skip(t, id, remaining) {
                    Ok(()) => {
                        self.frame = ControlFrame::default();
                        continue;
                    }
                    Err(pause) => pause,
                },
            };
            return Ok(PolledSignal::Pause(pause));
        }
    }

    /// Starts a frame of this type and length.
    fn begin(&mut self, kind: u64, length: u64) -> Result<ControlFrame, ConnectionError> {
        // RFC 9114, section 6.2.1: if the first frame is any other than SETTINGS, "this MUST be
        // treated as a connection error of type H3_MISSING_SETTINGS"; a second one is
        // H3_FRAME_UNEXPECTED (section 7.2.4).
        let is_settings = kind == frame::SETTINGS;
        if !self.has_settings && !is_settings {
            return Err(ConnectionError::new(
                code::H3_MISSING_SETTINGS,
                "the control stream does not begin with SETTINGS",
            ));
        }
        let limit = match kind {
            frame::SETTINGS if !self.has_settings => MAX_PAYLOAD,
            frame::PRIORITY_UPDATE_REQUEST | frame::PRIORITY_UPDATE_PUSH => MAX_PAYLOAD,
            frame::CANCEL_PUSH | frame::GOAWAY | frame::MAX_PUSH_ID => {
                // A single variable-length integer.
                if length > 8 {
                    return Err(layout());
                }
                8
            }
            frame::SETTINGS | frame::DATA | frame::HEADERS | frame::PUSH_PROMISE => {
                return Err(unexpected());
            }
            _ if frame::is_reserved_by_http2(kind) => return Err(unexpected()),
            _ => return Ok(ControlFrame::Skip(length)),
        };
        if length > limit {
            let reason = "frame on the control stream exceeds the limit";
            return Err(ConnectionError::new(code::H3_EXCESSIVE_LOAD, reason));
        }
        self.has_settings = true;
        Ok(ControlFrame::Payload(kind, Collect::new(length as usize)))
    }

    fn on_frame(
        &mut self,
        request_limit: u64,
        kind: u64,
        payload: &Bytes,
    ) -> Result<Option<Signal>, ConnectionError> {
        let id_error = |reason| Err(ConnectionError::new(code::H3_ID_ERROR, reason));
        let mut rest = Reader::new(payload);
        if kind == frame::SETTINGS {
            return read_settings(rest);
        }
        let number = rest.varint().map_err(|_| layout())?;
        match kind {
            frame::PRIORITY_UPDATE_REQUEST => {
                let id = StreamId(number);
                let is_request =
                    id.initiator() == Side::Client && id.direction() == Direction::Bidirectional;
                // RFC 9218, section 7.2: a stream that is no request stream "MUST be treated as a
                // connection error of type H3_ID_ERROR".
                if !is_request {
                    return id_error("PRIORITY_UPDATE for a stream other than a request");
                }
                // And one "that is beyond the stream limits" SHOULD be.
                if id.index() >= request_limit {
                    return id_error("PRIORITY_UPDATE for a stream beyond the limit");
                }
                return Ok(Some(Signal::Priority(id, priority::parse(rest.rest()))));
            }
            // RFC 9218, section 7.2: for a push "that has not yet been promised", H3_ID_ERROR.
            frame::PRIORITY_UPDATE_PUSH => {
                return id_error("PRIORITY_UPDATE for a push that was not promised");
            }
            _ if !rest.is_empty() => return Err(layout()),
            _ => {}
        }
        match kind {
            // RFC 9114, section 7.2.3: a push "that has not yet been mentioned by a PUSH_PROMISE
            // frame" is H3_ID_ERROR, and nothing is ever promised.
            frame::CANCEL_PUSH => id_error("CANCEL_PUSH for a push that was not promised"),
            frame::MAX_PUSH_ID => {
                // RFC 9114, section 7.2.7: it "cannot reduce the maximum push ID".
                if self.max_push_id.is_some_and(|previous| number < previous) {
                    return id_error("MAX_PUSH_ID decreased");
                }
                self.max_push_id = Some(number);
                Ok(None)
            }
            _ => {
                // GOAWAY. RFC 9114, section 5.2: a larger identifier than before is H3_ID_ERROR.
                if self.goaway.is_some_and(|previous| number > previous) {
                    return id_error("GOAWAY identifier increased");
                }
                let is_first = self.goaway.replace(number).is_none();
                Ok(is_first.then_some(Signal::GoAway))
            }
        }
    }
}

/// Parses a SETTINGS payload (RFC 9114, section 7.2.4).
fn read_settings(mut payload: Reader<'_>) -> Result<Option<Signal>, ConnectionError> {
    let settings_error = |reason| Err(ConnectionError::new(code::H3_SETTINGS_ERROR, reason));
    let mut seen = Vec::new();
    let mut signal = None;
    while !payload.is_empty() {
        let identifier = payload.varint().map_err(|_| layout())?;
        let value = payload.varint().map_err(|_| layout())?;
        match identifier {
            // RFC 9114, section 7.2.4.1: receipt of the settings that HTTP/2 had and HTTP/3 has
            // not "MUST be treated as a connection error of type H3_SETTINGS_ERROR".
            0x00 | 0x02..=0x05 => return settings_error("setting reserved by HTTP/2"),
            MAX_FIELD_SECTION_SIZE => signal = Some(Signal::MaxFieldSectionSize(value)),
            // The client's dynamic table is never used, and "an implementation MUST ignore any
            // parameter with an identifier it does not understand".
            _ => {}
        }
        seen.push(identifier);
    }
    seen.sort_unstable();
    if seen.windows(2).any(|pair| pair[0] == pair[1]) {
        return settings_error("duplicate setting");
    }
    Ok(signal)
}

const fn unexpected() -> ConnectionError {
    ConnectionError::new(code::H3_FRAME_UNEXPECTED, "frame not allowed on the control stream")
}

const fn layout() -> ConnectionError {
    ConnectionError::new(code::H3_FRAME_ERROR, "frame with an invalid layout or size")
}
