//! Events and control frames that wait, as bits.

/// Events of a stream, as bits of `Stream::events`; told in this order.
pub(super) mod event {
    pub(in super::super) const OPENED: u8 = 1 << 0;
    pub(in super::super) const READABLE: u8 = 1 << 1;
    pub(in super::super) const RESET: u8 = 1 << 2;
    pub(in super::super) const STOPPED: u8 = 1 << 3;
    pub(in super::super) const WRITABLE: u8 = 1 << 4;
    pub(in super::super) const FINISHED: u8 = 1 << 5;
}

/// Frames of a stream that are due, as bits of `Stream::control`.
pub(super) mod of_stream {
    pub(in super::super) const RESET_STREAM: u8 = 1 << 0;
    pub(in super::super) const STOP_SENDING: u8 = 1 << 1;
    pub(in super::super) const MAX_STREAM_DATA: u8 = 1 << 2;
    pub(in super::super) const STREAM_DATA_BLOCKED: u8 = 1 << 3;
}

/// Frames of the connection that are due, as bits of `Streams::due`; arrays by direction.
pub(super) mod of_connection {
    pub(in super::super) const MAX_DATA: u8 = 1 << 0;
    pub(in super::super) const MAX_STREAMS: [u8; 2] = [1 << 1, 1 << 2];
    pub(in super::super) const DATA_BLOCKED: u8 = 1 << 3;
    pub(in super::super) const STREAMS_BLOCKED: [u8; 2] = [1 << 4, 1 << 5];
}
