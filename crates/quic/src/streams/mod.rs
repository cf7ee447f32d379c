//! Streams and flow control of a server's connection (RFC 9000, sections 2 to 4), with the
//! priorities of RFC 9218: the application's interface (`application`), received frames
//! (`incoming`), sent data (`outgoing`), content for loss recovery (`content`), and control frames
//! (`control`).
//!
//! Packets refer to data by [`StreamRange`], never by copies. Payload stays in the application's
//! chunks until a packet is written, and every transmission of the same bytes names the same range.
//! Acknowledged, reset or removed ranges have nothing [missing](recovery::Content::missing).

mod application;
mod assembler;
mod content;
mod control;
mod flags;
mod flow;
mod incoming;
mod interface;
mod outgoing;
mod range;
mod recv;
mod schedule;
mod send;
mod table;

use core::time::Duration;
use std::collections::VecDeque;

use units::{Direction, Side, StreamId, Timestamp};

use crate::ranges::RangeSet;
use crate::wire::{MAX_STREAMS_LIMIT, TransportParameters};

pub use control::ControlFrame;
pub use interface::{Priority, SendProgress, StreamEvent, StreamLimits, UnknownStream, WriteError};
pub use range::StreamRange;
pub use recv::ReadOutcome;

use flags::of_connection;
use flow::FlowWindow;
use recv::RecvStream;
use schedule::Schedule;
use send::SendStream;
use table::{Stream, StreamTable};

/// Streams of one direction that we open.
#[derive(Debug, Default)]
struct LocalStreams {
    opened: u64,
    /// The peer's MAX_STREAMS.
    limit: u64,
    /// The application wanted a stream beyond `limit`.
    is_blocked: bool,
}

/// Streams of one direction that the peer opens.
#[derive(Debug, Default)]
struct RemoteStreams {
    /// One past the highest index opened.
    opened: u64,
    /// Indices below `opened` that were opened only by the use of a higher one and have no state.
    dormant: RangeSet,
    /// How many may exist at once.
    allowance: u64,
    /// How many are over.
    closed: u64,
    /// Our MAX_STREAMS, as last told to the peer.
    advertised: u64,
}

impl RemoteStreams {
    fn new(allowance: u64) -> Self {
        let allowance = allowance.min(MAX_STREAMS_LIMIT);
        Self { allowance, advertised: allowance, ..Self::default() }
    }

    /// The MAX_STREAMS that could be told to the peer now.
    fn limit(&self) -> u64 {
        (self.closed + self.allowance).min(MAX_STREAMS_LIMIT)
    }
}

/// Index of a direction in arrays of two.
const fn lane(direction: Direction) -> usize {
    match direction {
        Direction::Bidirectional => 0,
        Direction::Unidirectional => 1,
    }
}

/// The streams of one connection, seen from the server.
///
/// A stream exists until both of its parts are done and the application has polled its events: the
/// sending part is done when all data and the FIN, or the RESET_STREAM, were acknowledged; the
/// receiving part when the application has read up to [`ReadOutcome::Finished`], when the peer has
/// reset it, or when the application has stopped it and its final size is known. Only then does
/// the peer get the right to open another one.
#[derive(Debug, Default)]
pub struct Streams {
    table: StreamTable,
    limits: StreamLimits,
    local: [LocalStreams; 2],
    remote: [RemoteStreams; 2],
    /// Streams with events, ordered by their first event.
    events: VecDeque<u32>,
    /// Streams that ended before the application heard of it.
    closed: VecDeque<StreamId>,
    schedule: Schedule,
    /// Scheduled streams that have only a FIN to send.
    scheduled_fins: usize,
    /// Bytes written and not yet sent, of all streams.
    unsent: u64,
    /// First-time bytes sent, of all streams.
    data_sent: u64,
    /// The peer's MAX_DATA.
    max_data: u64,
    /// The peer's initial limits for streams: bidirectional of its own, bidirectional of ours,
    /// unidirectional of ours.
    peer_stream_data: [u64; 3],
    /// The connection's receive window.
    window: FlowWindow,
    /// Sum of the highest offsets received, of all streams.
    data_received: u64,
    /// [`Assembler::fragments`](assembler::Assembler::fragments) of all streams.
    fragments: usize,
    /// The limit that was last reported in DATA_BLOCKED.
    blocked_at: Option<u64>,
    /// Frames of the connection that are due (bits of `flags::of_connection`).
    due: u8,
    /// Streams with frames that are due.
    due_streams: VecDeque<u32>,
    /// The time and the smoothed RTT that came with the latest STREAM frame.
    now: Timestamp,
    srtt: Duration,
}

impl Streams {
    /// Creates an empty set of streams with the local limits. Nothing can be opened or sent until
    /// the peer's parameters are [known](Self::set_peer_limits).
    pub fn new(local: &StreamLimits) -> Self {
        Self {
            limits: *local,
            remote: [local.max_streams_bidi, local.max_streams_uni].map(RemoteStreams::new),
            window: FlowWindow::new(local.max_data, local.connection_window_ceiling),
            ..Self::default()
        }
    }

    /// Takes over the peer's limits. They only rise: called again with the final parameters after
    /// remembered ones (RFC 9000, section 7.4.1), lower values change nothing.
    pub fn set_peer_limits(&mut self, peer: &TransportParameters) {
        let limits = [
            peer.initial_max_stream_data_bidi_local,
            peer.initial_max_stream_data_bidi_remote,
            peer.initial_max_stream_data_uni,
        ];
        for (own, new) in self.peer_stream_data.iter_mut().zip(limits) {
            *own = new.max(*own);
        }
        let raised: Vec<_> =
            self.table.iter().map(|(slot, s)| (slot, self.initial_max_data(s.id))).collect();
        for (slot, max) in raised {
            self.raise_stream_limit(slot, max);
        }
        self.on_max_data(peer.initial_max_data);
        self.on_max_streams(Direction::Bidirectional, peer.initial_max_streams_bidi);
        self.on_max_streams(Direction::Unidirectional, peer.initial_max_streams_uni);
    }

    /// Returns our initial send limit on stream `id` from the peer's parameters.
    fn initial_max_data(&self, id: StreamId) -> u64 {
        // "Local" and "remote" are from the view of the endpoint that sent the parameter.
        match (id.initiator(), id.direction()) {
            (Side::Client, Direction::Bidirectional) => self.peer_stream_data[0],
            (Side::Server, Direction::Bidirectional) => self.peer_stream_data[1],
            (Side::Server, Direction::Unidirectional) => self.peer_stream_data[2],
            (Side::Client, Direction::Unidirectional) => 0,
        }
    }

    /// Gives a stream its state.
    fn create(&mut self, id: StreamId) -> u32 {
        let ours = id.initiator() == Side::Server;
        let both = id.direction() == Direction::Bidirectional;
        let window = match (ours, both) {
            (true, _) => self.limits.max_stream_data_bidi_local,
            (false, true) => self.limits.max_stream_data_bidi_remote,
            (false, false) => self.limits.max_stream_data_uni,
        };
        let window = || FlowWindow::new(window, self.limits.stream_window_ceiling);
        self.table.insert(Stream {
            id,
            priority: Priority::default(),
            send: (ours || both).then(|| SendStream::new(self.initial_max_data(id)).into()),
            recv: (!ours || both).then(|| RecvStream::new(window()).into()),
            scheduled: None,
            events: 0,
            control: 0,
        })
    }

    /// Notes an event for the application.
    fn tell(&mut self, slot: u32, event: u8) {
        let stream = self.table.at(slot);
        if stream.events == 0 {
            self.events.push_back(slot);
        }
        stream.events |= event;
    }

    /// Takes events back that no longer mean anything.
    fn untell(&mut self, slot: u32, events: u8) {
        let stream = self.table.at(slot);
        if stream.events & events != 0 {
            stream.events &= !events;
            if stream.events == 0 {
                self.events.retain(|other| *other != slot);
            }
        }
    }

    /// Returns true if a bidirectional stream of the peer is open.
    pub(crate) fn has_requests(&self) -> bool {
        let requests = &self.remote[lane(Direction::Bidirectional)];
        requests.opened > requests.closed
    }

    /// Removes the stream if it is over; the peer may then open another one in its place.
    fn retire(&mut self, slot: u32) {
        let stream = self.table.at(slot);
        if !stream.is_over() {
            return;
        }
        let id = stream.id;
        self.cancel(slot, u8::MAX);
        self.table.remove(slot);
        self.closed.push_back(id);
        if id.initiator() == Side::Client {
            let remote = &mut self.remote[lane(id.direction())];
            remote.closed += 1;
            if remote.limit() - remote.advertised >= (remote.allowance / 8).max(1) {
                self.due |= of_connection::MAX_STREAMS[lane(id.direction())];
            }
        }
    }

    /// Returns read or discarded bytes to the connection's window.
    fn consume(&mut self, bytes: u64) {
        if bytes > 0 && self.window.consume(bytes) {
            self.due |= of_connection::MAX_DATA;
        }
    }
}

#[cfg(test)]
mod tests;
