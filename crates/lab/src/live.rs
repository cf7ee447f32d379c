//! A live stream in virtual time: a publisher whose frames leave in bursts at the stream's rate, and
//! the product's relay between it and the transport.

use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::io;

use delivery::{Body, Delivery, Filled, FlvStream, Piece};
use media::{Kind, Tag, flv};
use quic::Connection;
use relay::{Publisher, Registry, Settings, Start, Viewer};
use units::{Mark, Rate, StreamId, Timestamp};

use crate::client::Answer;

/// A key frame is this much larger than the others.
const KEY_WEIGHT: u64 = 6;
/// Bytes before a frame's own in the payload: FrameType and codec, AVCPacketType, composition time.
const FRAME_HEADER: usize = 5;

/// A stream and its viewer's place in it.
#[derive(Clone, Copy, Debug)]
pub struct Live {
    /// Frames that are published after the viewer's first packet.
    pub frames: u32,
    /// Distance of frames.
    pub interval: Duration,
    /// Frames of a group of pictures.
    pub group: u32,
    /// Rate of the media.
    pub rate: Rate,
    /// Frames published before that.
    pub before: u32,
    /// What the relay does.
    pub settings: Settings,
}

impl Live {
    /// The codec's configuration, which is the stream's first tag.
    fn header() -> Tag {
        Tag::new(Kind::Video, 0, &[0x17, 0, 0, 0, 0, 1]).expect("a few bytes")
    }

    /// The frame with this number, which is in its payload too.
    fn frame(&self, number: u32) -> Tag {
        let is_key = number.is_multiple_of(self.group);
        let per_group = self.rate.bytes_in(self.interval * self.group);
        let share = per_group / (u64::from(self.group) - 1 + KEY_WEIGHT);
        let size = if is_key { share * KEY_WEIGHT } else { share } as usize;
        let mut payload = vec![number as u8; size.max(FRAME_HEADER + 4)];
        payload[..FRAME_HEADER].copy_from_slice(&[if is_key { 0x17 } else { 0x27 }, 1, 0, 0, 0]);
        payload[FRAME_HEADER..FRAME_HEADER + 4].copy_from_slice(&number.to_be_bytes());
        let time = (self.interval * number).as_millis() as u32;
        Tag::new(Kind::Video, time, &payload).expect("frames of live streams fit")
    }

    /// When the frame is published.
    pub(crate) fn due(&self, number: u32) -> Timestamp {
        Timestamp::ZERO + self.interval * number.saturating_sub(self.before)
    }
}

/// A frame that reached the viewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its number.
    pub frame: u32,
    /// Whether it is a key frame.
    pub is_key: bool,
    /// Its media time in milliseconds.
    pub media_ms: u32,
    /// From its publication, or the viewer's first packet, to the arrival of its last byte.
    pub delay: Duration,
    /// When that was.
    pub at: Timestamp,
}

/// How often a viewer skipped to a key frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skips {
    /// Times.
    pub count: u64,
    /// Milliseconds of media that were left out.
    pub ms: u64,
}

/// What a client saw of a live stream.
#[derive(Clone, Debug, Default)]
pub struct LiveOutcome {
    /// The frames that arrived, in order.
    pub arrivals: Vec<Arrival>,
    /// What it was not sent because it was too far behind.
    pub skips: Skips,
    /// The most bytes that waited unsent inside the transport.
    pub most_unsent: u64,
}

/// What the viewer's answer is made of: as in the edge, but without a session.
struct LiveBody(FlvStream);

impl Body for LiveBody {
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Piece>>> {
        self.0.poll_next(context).map(Ok)
    }

    fn live(&self) -> Option<&FlvStream> {
        Some(&self.0)
    }

    fn mark(&self, _: Timestamp) -> Option<Mark> {
        self.0.media_time().map(|media_time| Mark { media_time, deadline: None })
    }

    fn on_first_frame(&mut self) {}
}

/// The publisher, and the viewer's end of the relay.
pub(crate) struct Source {
    live: Live,
    registry: Registry,
    publisher: Publisher,
    next: u32,
    viewer: Option<Delivery<LiveBody>>,
    pub most_unsent: u64,
    pub skips: Skips,
}

impl Source {
    pub(crate) fn new(live: Live) -> Self {
        let registry = Registry::new(1);
        let publisher = registry.publish("live/lab", live.settings).expect("the first stream");
        publisher.push(Live::header());
        Self {
            live,
            registry,
            publisher,
            next: 0,
            viewer: None,
            most_unsent: 0,
            skips: Skips::default(),
        }
    }

    /// When the next frame is due; `None` at the end.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        (self.next <= self.live.before + self.live.frames).then(|| self.live.due(self.next))
    }

    /// Publishes what is due.
    pub(crate) fn publish(&mut self, now: Timestamp) {
        while self.deadline().is_some_and(|due| due <= now) {
            if self.next == self.live.before + self.live.frames {
                self.registry.end(self.publisher.stream());
            } else {
                self.publisher.push(self.live.frame(self.next));
            }
            self.next += 1;
        }
    }

    /// The viewer asks on this stream.
    pub(crate) fn join(&mut self, id: StreamId) {
        let viewer = Viewer::new(self.publisher.stream().clone(), Start::LatestGop)
            .expect("the first viewer");
        self.viewer = Some(Delivery::new(id, LiveBody(FlvStream::new(viewer))));
    }

    /// Hands over what the stream has room for.
    pub(crate) fn fill(
        &mut self,
        http: &mut http3::Server,
        now: Timestamp,
        connection: &mut Connection,
    ) {
        let Some(delivery) = &mut self.viewer else { return };
        let context = &mut Context::from_waker(Waker::noop());
        let filled = delivery.fill(http, now, connection, context);
        let unsent = connection.unsent(delivery.id()).unwrap_or(0);
        self.most_unsent = self.most_unsent.max(unsent);
        let progress = delivery.body().0.progress();
        self.skips = Skips { count: progress.skips, ms: progress.skipped_ms };
        if filled == Filled::Over {
            self.viewer = None;
        }
    }
}

/// The viewer's side: what arrives must be what was published.
pub(crate) struct Reception {
    live: Live,
    answer: Answer,
    reader: flv::Reader,
    /// Where the viewer's times begin in the stream's.
    base: u32,
    pub arrivals: Vec<Arrival>,
}

impl Reception {
    pub(crate) fn new(live: Live) -> Self {
        Self {
            live,
            answer: Answer::default(),
            reader: flv::Reader::new(flv::MAX_PAYLOAD),
            base: 0,
            arrivals: Vec::new(),
        }
    }

    /// Takes bytes. Returns whether all is as it was published.
    pub(crate) fn take(&mut self, now: Timestamp, data: &[u8]) -> bool {
        let (reader, mut is_flv) = (&mut self.reader, true);
        let is_answer = self.answer.take(data, |content| is_flv &= reader.read(content).is_ok());
        let mut intact = is_answer && is_flv;
        while let Some(tag) = self.reader.next_tag() {
            if let Some(base) = flv::time_base(&tag) {
                self.base = base;
                continue;
            }
            if tag.role().is_header() {
                intact &= tag.payload() == Live::header().payload();
                continue;
            }
            let media_ms = tag.timestamp().wrapping_add(self.base);
            let tag = tag.with_timestamp(media_ms);
            let payload = tag.payload();
            let number = payload.get(FRAME_HEADER..FRAME_HEADER + 4);
            let Some(number) = number.and_then(|bytes| bytes.try_into().ok()) else {
                intact = false;
                continue;
            };
            let frame = u32::from_be_bytes(number);
            intact &= tag == self.live.frame(frame);
            self.arrivals.push(Arrival {
                frame,
                is_key: tag.role() == media::Role::KeyFrame,
                media_ms,
                delay: now.since(self.live.due(frame)),
                at: now,
            });
        }
        intact
    }
}

#[cfg(test)]
mod tests;
