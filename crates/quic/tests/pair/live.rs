//! A live stream over the pair: a frame each 40 ms on a stream of the server's, and how it arrives.

use crate::common::{Pair, Setup};
use bytes::Bytes;
use mendcast_quic::detection::Detection;
use quinn_proto as client;
use std::time::Duration;
use units::{Direction, Mark, StreamId, Timestamp};

/// Time between two frames, and bytes of each: 1.66 Mbit/s.
const FRAME: Duration = Duration::from_millis(40);
const FRAME_BYTES: usize = 8_300;
const TICK: Duration = Duration::from_millis(10);

/// A connection with a live stream from the server, over 20 ms each way.
pub struct Live {
    pub pair: Pair,
    server_stream: StreamId,
    client_stream: Option<client::StreamId>,
    next_frame: Timestamp,
    /// When the stream began.
    pub began: Timestamp,
    pub written: usize,
    pub received: usize,
    /// When the first frame was complete.
    pub first_frame: Option<Duration>,
    /// When data arrived last, and the longest time without, from [`Live::forget_stalls`] on.
    progressed: Timestamp,
    pub stall: Duration,
}

/// The settings of a server of live streams.
pub fn setup(seed: u64) -> Setup {
    let mut setup = Setup::with_keep_alive(seed, Some(Duration::from_millis(50)));
    setup.transport(|t| t.detection = Detection::LIVE);
    setup
}

impl Live {
    /// Connects, and begins the stream.
    pub fn new(mut pair: Pair) -> Self {
        pair.both(|link| link.delay = Some(Duration::from_millis(20)));
        pair.connect();
        let server_stream = pair.connection().open(Direction::Unidirectional).expect("a stream");
        let now = pair.now;
        Self {
            pair,
            server_stream,
            client_stream: None,
            next_frame: now,
            began: now,
            written: 0,
            received: 0,
            first_frame: None,
            progressed: now,
            stall: Duration::ZERO,
        }
    }

    /// Measures the longest stall from here on.
    pub fn forget_stalls(&mut self) {
        (self.progressed, self.stall) = (self.pair.now, Duration::ZERO);
    }

    /// Runs for this long; `each` is called each 10 ms.
    pub fn run(&mut self, time: Duration, mut each: impl FnMut(&mut Self)) {
        let end = self.pair.now + time;
        while self.pair.now < end {
            if self.pair.now >= self.next_frame {
                self.next_frame += FRAME;
                let media_time = Some(self.next_frame.since(self.began));
                let mark = Some(Mark { media_time, deadline: None, catching_up: None });
                let (id, frame) = (self.server_stream, Bytes::from(vec![7; FRAME_BYTES]));
                self.pair.connection().write_marked(id, frame, mark).expect("an open stream");
                self.written += FRAME_BYTES;
            }
            self.pair.run_until(TICK, |_| false);
            self.read();
            each(self);
        }
    }

    fn read(&mut self) {
        let accepted = self.pair.client.streams().accept(client::Dir::Uni);
        self.client_stream = self.client_stream.or(accepted);
        let mut got = Vec::new();
        if let Some(id) = self.client_stream {
            self.pair.read(id, &mut got);
        }
        self.stall = self.stall.max(self.pair.now.since(self.progressed));
        if !got.is_empty() {
            self.progressed = self.pair.now;
        }
        self.received += got.len();
        if self.received >= FRAME_BYTES && self.first_frame.is_none() {
            self.first_frame = Some(self.pair.now.since(self.began));
        }
    }
}
