//! A live stream in virtual time: a publisher whose frames leave in bursts at the stream's rate, and
//! the product's relay between it and the transport.

use core::task::{Context, Poll, Waker};
use core::time::Duration;

use bytes::Bytes;
use media::{Kind, Tag, flv};
use quic::Connection;
use relay::{Publisher, Registry, Settings, Start, Viewer, send_ahead};
use units::{Rate, StreamId, Timestamp};

/// A key frame is this much larger than the others.
const KEY_WEIGHT: u64 = 6;
/// Bytes before a frame's own in the payload: FrameType and codec, AVCPacketType, composition time.
const FRAME_HEADER: usize = 5;
/// Unsent bytes before the pacing rate is known.
const FIRST_AHEAD: u64 = 2_400;

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

/// A viewer on its stream.
struct Watching {
    id: StreamId,
    viewer: Viewer,
    /// Whether the head of the file has been written.
    has_head: bool,
}

/// The publisher, and the viewer's end of the relay.
pub(crate) struct Source {
    live: Live,
    registry: Registry,
    publisher: Publisher,
    next: u32,
    viewer: Option<Watching>,
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
        self.viewer = Some(Watching { id, viewer, has_head: false });
    }

    /// Hands over what the stream has room for.
    pub(crate) fn fill(&mut self, connection: &mut Connection) {
        let Some(Watching { id, viewer, has_head }) = &mut self.viewer else { return };
        let ahead = connection.pacing_rate().map_or(FIRST_AHEAD, send_ahead);
        let context = &mut Context::from_waker(Waker::noop());
        while let Some(unsent) = connection.unsent(*id) {
            self.most_unsent = self.most_unsent.max(unsent);
            if unsent >= ahead {
                return;
            }
            let bytes: Option<Bytes> = if *has_head {
                match viewer.poll_next(context) {
                    Poll::Ready(tag) => tag.map(|tag| tag.bytes().clone()),
                    Poll::Pending => return,
                }
            } else {
                *has_head = true;
                Some(flv::file_header(false, true))
            };
            let progress = viewer.progress();
            self.skips = Skips { count: progress.skips, ms: progress.skipped_ms };
            let written = bytes.map(|bytes| connection.write(*id, bytes));
            if !matches!(written, Some(Ok(_))) {
                // A stream that the client gave up needs no end.
                let _ = connection.finish(*id);
                self.viewer = None;
                return;
            }
        }
    }
}

/// The viewer's side: what arrives must be what was published.
pub(crate) struct Reception {
    live: Live,
    reader: flv::Reader,
    pub arrivals: Vec<Arrival>,
}

impl Reception {
    pub(crate) fn new(live: Live) -> Self {
        Self { live, reader: flv::Reader::new(flv::MAX_PAYLOAD), arrivals: Vec::new() }
    }

    /// Takes bytes. Returns whether all is as it was published.
    pub(crate) fn take(&mut self, now: Timestamp, data: &[u8]) -> bool {
        let mut intact = self.reader.read(data).is_ok();
        while let Some(tag) = self.reader.next_tag() {
            if tag.role().is_header() {
                intact &= tag == Live::header();
                continue;
            }
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
                media_ms: tag.timestamp(),
                delay: now.since(self.live.due(frame)),
                at: now,
            });
        }
        intact
    }
}

#[cfg(test)]
mod tests;
