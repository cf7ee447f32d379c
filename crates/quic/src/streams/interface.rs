//! Application interface of streams: limits, priorities, progress, events and errors.

use units::StreamId;

/// The limits that this endpoint advertises in its transport parameters (RFC 9000, section 18.2),
/// how far it lets its windows grow, and how much unsent data it calls much. All but the counts of
/// streams in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// initial_max_data.
    pub max_data: u64,
    /// initial_max_stream_data_bidi_local: bidirectional streams that this endpoint opens.
    pub max_stream_data_bidi_local: u64,
    /// initial_max_stream_data_bidi_remote: bidirectional streams that the peer opens.
    pub max_stream_data_bidi_remote: u64,
    /// initial_max_stream_data_uni: unidirectional streams that the peer opens.
    pub max_stream_data_uni: u64,
    /// initial_max_streams_bidi: how many of the peer's streams may exist at once; at most 2^60.
    pub max_streams_bidi: u64,
    /// initial_max_streams_uni: the same for unidirectional streams.
    pub max_streams_uni: u64,
    /// Up to where auto-tuning may grow the connection's window.
    pub connection_window_ceiling: u64,
    /// Up to where auto-tuning may grow a stream's window.
    pub stream_window_ceiling: u64,
    /// High-water mark of a stream's unsent bytes. Beyond it, the application is notified
    /// ([`StreamEvent::Writable`]) once fewer than half are left.
    pub send_high_water: u64,
}

impl Default for StreamLimits {
    /// For a server that sends much and receives little.
    fn default() -> Self {
        Self {
            max_data: 128 << 10,
            max_stream_data_bidi_local: 64 << 10,
            max_stream_data_bidi_remote: 64 << 10,
            max_stream_data_uni: 64 << 10,
            max_streams_bidi: 100,
            max_streams_uni: 8,
            connection_window_ceiling: 4 << 20,
            stream_window_ceiling: 1 << 20,
            send_high_water: 64 << 10,
        }
    }
}

/// The priority of a stream (RFC 9218, section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// 0 (first) to 7 (last), default 3 (RFC 9218, section 4.1). Larger values count as 7.
    pub urgency: u8,
    /// Whether the stream shares the bandwidth with others of its urgency, rather than being served
    /// in the order of identifiers: parts of the response are of use (RFC 9218, section 4.2).
    pub incremental: bool,
}

impl Default for Priority {
    fn default() -> Self {
        Self { urgency: 3, incremental: false }
    }
}

/// What happened to a stream, for the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEvent {
    /// The peer opened the stream.
    Opened(StreamId),
    /// New data, or the end of the stream, can be read.
    Readable(StreamId),
    /// Few bytes are left unsent, after there were many ([`StreamLimits::send_high_water`]).
    Writable(StreamId),
    /// The peer reset its part of the stream.
    Reset {
        /// The stream.
        id: StreamId,
        /// Application error code.
        code: u64,
    },
    /// The peer asked us to stop sending; the stream was reset with the same code (RFC 9000,
    /// section 3.5).
    Stopped {
        /// The stream.
        id: StreamId,
        /// Application error code.
        code: u64,
    },
    /// The peer acknowledged all of our data and the end of the stream.
    Finished(StreamId),
    /// The stream is over in both directions, however it ended, and all its other events were told:
    /// the identifier never occurs again. Told once for every stream.
    Closed(StreamId),
}

/// Progress of a stream's data, in bytes from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendProgress {
    /// Bytes written by the application.
    pub written: u64,
    /// Bytes sent at least once.
    pub sent: u64,
    /// Everything before this was acknowledged.
    pub acked: u64,
}

/// The stream does not exist, not yet or no more, or has no such part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such stream")]
pub struct UnknownStream;

/// Reason why a stream takes no more data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The stream does not exist, not yet or no more, or is the peer's alone to send on.
    #[error("no such stream")]
    UnknownStream,
    /// The application has finished or reset it.
    #[error("the stream was finished or reset")]
    Finished,
    /// The peer asked us to stop, with this application error code.
    #[error("the peer stopped the stream with code {0:#x}")]
    Stopped(u64),
}
