//! A view of a live stream, and what the viewer had of it.

use core::time::Duration;
use std::sync::Arc;

use relay::Settings;
use units::Timestamp;

use super::encoder::Encoder;
use super::source::Source;

/// A stream and its viewer's place in it.
#[derive(Clone, Debug)]
pub struct Live {
    /// The stream.
    pub source: Arc<Source>,
    /// Where in the stream's time the viewer's first packet leaves: what comes before is there already.
    pub begin: Duration,
    /// What the relay does.
    pub settings: Settings,
}

impl Live {
    /// A view of what an encoder makes with this seed: `before` pictures are there already when the viewer's first
    /// packet leaves, and the stream ends `pictures` later.
    pub fn encoded(encoder: &Encoder, seed: u64, before: u32, pictures: u32) -> Self {
        Self {
            source: Arc::new(Source::encoded(encoder, seed, before + pictures)),
            begin: encoder.interval * before,
            settings: Settings::default(),
        }
    }

    /// When the tag with this number is published, or for the number behind the last, when the stream ends; what is
    /// there already, at the beginning.
    pub(crate) fn published(&self, number: u32) -> Timestamp {
        self.since_begin(self.source.published(number))
    }

    /// When it was captured, if that was not before the beginning.
    pub(crate) fn captured(&self, number: u32) -> Timestamp {
        self.since_begin(self.source.captured(number))
    }

    fn since_begin(&self, time: Duration) -> Timestamp {
        Timestamp::ZERO + time.saturating_sub(self.begin)
    }

    /// Whether a frame counts where it is measured what comes late: it is published while the viewer watches, not
    /// before `from`, and is a picture, or sound where there are no pictures.
    pub(crate) fn is_measured(&self, number: u32, from: Timestamp) -> bool {
        self.source.is_frame(number)
            && self.source.published(number) >= self.begin
            && self.published(number) >= from
    }
}

/// A tag that reached the viewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its number in the [`Source`].
    pub frame: u32,
    /// Whether a player can begin with it.
    pub is_key: bool,
    /// Its media time in milliseconds.
    pub media_ms: u32,
    /// From its capture, or the viewer's first packet, to the arrival of its last byte. What an encoder takes
    /// because it sends pictures in another order than that of their capture is part of it.
    pub delay: Duration,
    /// When that was.
    pub at: Timestamp,
}

/// What a viewer did not get who was behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skips {
    /// Times that it skipped to a key frame.
    pub count: u64,
    /// Milliseconds of media that were left out by that.
    pub ms: u64,
    /// Pictures that it did not get besides, since no other needs them.
    pub thinned: u64,
}

/// What a client saw of a live stream.
#[derive(Clone, Debug, Default)]
pub struct LiveOutcome {
    /// The tags that arrived, in order.
    pub arrivals: Vec<Arrival>,
    /// Bytes of media that the server handed to its transport.
    pub bytes: u64,
    /// Bytes of the stream up to the end of the first frame, once that was handed over.
    pub first_frame_bytes: Option<u64>,
    /// When the server had the request.
    pub asked_at: Option<Timestamp>,
    /// When the server had the acknowledgement of all of the first frame.
    pub first_frame_at: Option<Timestamp>,
    /// Packets that were lost until then, and packets whose fate was known.
    pub first_frame_loss: (u64, u64),
    /// What it was not sent because it was too far behind.
    pub skips: Skips,
    /// The most bytes that waited unsent inside the transport.
    pub most_unsent: u64,
    /// At each of the player's reports, how far ahead of where it is the server had thought it to be, by the report
    /// before: in milliseconds.
    pub playhead_off_ms: Vec<f64>,
    /// The same if it had never said anything: by its first acknowledgement alone.
    pub playhead_off_unheard_ms: Vec<f64>,
}

impl LiveOutcome {
    /// When each of the first pictures was complete at the client, in order, from the arrival of the request at the
    /// server on; sound where there are no pictures.
    pub fn first_pictures<'a>(&'a self, live: &'a Live) -> impl Iterator<Item = Duration> + 'a {
        let pictures = self.arrivals.iter().filter(|arrival| live.source.is_frame(arrival.frame));
        let asked = self.asked_at;
        pictures.filter_map(move |arrival| Some(arrival.at.since(asked?)))
    }
}
