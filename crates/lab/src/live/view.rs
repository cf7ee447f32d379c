//! View of a live stream, and its outcome at the viewer.

use core::num::NonZeroU32;
use core::time::Duration;
use std::sync::Arc;

use relay::{Settings, Start};
use units::Timestamp;

use super::encoder::Encoder;
use super::source::LiveSource;

/// Number of initial pictures with recorded losses, as in Wira's figure 15.
pub const PICTURES: usize = 4;

/// A stream and the viewer's position in it.
#[derive(Clone, Debug)]
pub struct Live {
    /// The stream.
    pub source: Arc<LiveSource>,
    /// Stream time of the viewer's first packet. Earlier tags are already published.
    pub begin: Duration,
    /// Relay settings.
    pub settings: Settings,
    /// Start policy of the viewer.
    pub start: Start,
    /// Number of video frames in the first frame, as startup decisions and records count it.
    pub video_frames: NonZeroU32,
}

impl Live {
    /// Creates a view of an encoder's stream with this seed: `before` pictures are published before
    /// the viewer's first packet, and the stream ends `pictures` later.
    pub fn encoded(encoder: &Encoder, seed: u64, before: u32, pictures: u32) -> Self {
        Self {
            source: Arc::new(LiveSource::encoded(encoder, seed, before + pictures)),
            begin: encoder.interval * before,
            settings: Settings::default(),
            start: Start::LatestGop,
            video_frames: NonZeroU32::MIN,
        }
    }

    /// Publication time of a tag, at the earliest the start of the run. For the number after the
    /// last: the end of the stream.
    pub(crate) fn published(&self, number: u32) -> Timestamp {
        self.since_begin(self.source.published(number))
    }

    /// Capture time of a tag, at the earliest the start of the run.
    pub(crate) fn captured(&self, number: u32) -> Timestamp {
        self.since_begin(self.source.captured(number))
    }

    fn since_begin(&self, time: Duration) -> Timestamp {
        Timestamp::ZERO + time.saturating_sub(self.begin)
    }

    /// Returns whether a frame counts in delay measurements: it is published during the view, not
    /// before `from`, and is a picture (or sound in a stream without pictures).
    pub(crate) fn is_measured(&self, number: u32, from: Timestamp) -> bool {
        self.source.is_frame(number)
            && self.source.published(number) >= self.begin
            && self.published(number) >= from
    }
}

/// A tag that reached the viewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameArrival {
    /// Number in the [`LiveSource`].
    pub frame: u32,
    /// Whether a player can start with it.
    pub is_key: bool,
    /// Media time in milliseconds.
    pub media_ms: u32,
    /// From its capture, or the viewer's first packet if later, to the arrival of its last byte.
    /// Includes the encoder's reordering delay.
    pub delay: Duration,
    /// Time of arrival.
    pub at: Timestamp,
}

/// Media withheld from a viewer that fell behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skips {
    /// Number of skips to a key frame.
    pub count: u64,
    /// Skipped media in milliseconds.
    pub ms: u64,
    /// Disposable pictures withheld in addition.
    pub thinned: u64,
}

/// A live stream as received by a client.
#[derive(Clone, Debug, Default)]
pub struct LiveOutcome {
    /// Tags that arrived, in order.
    pub arrivals: Vec<FrameArrival>,
    /// Bytes of media written to the server's transport.
    pub bytes: u64,
    /// Bytes of the stream up to the end of the first frame, once written.
    pub first_frame_bytes: Option<u64>,
    /// Arrival of the request at the server.
    pub asked_at: Option<Timestamp>,
    /// Time at which the whole first frame was acknowledged.
    pub first_frame_at: Option<Timestamp>,
    /// Packets lost, and packets with a known fate, until each of the first four pictures
    /// was acknowledged as a whole.
    pub picture_losses: Vec<(u64, u64)>,
    /// Media withheld because the viewer fell behind.
    pub skips: Skips,
    /// Maximum of unsent bytes in the transport.
    pub most_unsent: u64,
    /// Error of the server's playhead estimate at each report, based on the preceding report, in
    /// milliseconds. Positive if the estimate was ahead.
    pub playhead_off_ms: Vec<f64>,
    /// The same without any report, based on the first acknowledgement alone.
    pub playhead_off_unheard_ms: Vec<f64>,
}

impl LiveOutcome {
    /// Completion times of the first pictures at the client, in order, after the request's arrival
    /// at the server; of sound in a stream without pictures.
    pub fn first_pictures<'a>(&'a self, live: &'a Live) -> impl Iterator<Item = Duration> + 'a {
        let pictures = self.arrivals.iter().filter(|arrival| live.source.is_frame(arrival.frame));
        let asked = self.asked_at;
        pictures.filter_map(move |arrival| Some(arrival.at.since(asked?)))
    }
}
