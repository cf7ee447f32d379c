//! Viewer side: checks that received data equals published data.

use media::{Tag, flv};
use units::Timestamp;

use super::view::{FrameArrival, Live};
use crate::client::ResponseReader;

/// Received part of a stream.
pub(crate) struct Reception {
    live: Live,
    answer: ResponseReader,
    reader: flv::Reader,
    /// Stream time of the viewer's time zero.
    base: u32,
    /// Lowest tag number that can arrive next.
    next: u32,
    pub arrivals: Vec<FrameArrival>,
}

impl Reception {
    pub(crate) fn new(live: Live) -> Self {
        Self {
            live,
            answer: ResponseReader::default(),
            reader: flv::Reader::new(flv::MAX_PAYLOAD),
            base: 0,
            next: 0,
            arrivals: Vec::new(),
        }
    }

    /// Takes bytes. Returns whether they match the published data.
    pub(crate) fn take(&mut self, now: Timestamp, data: &[u8]) -> bool {
        let (reader, mut is_flv) = (&mut self.reader, true);
        let is_answer = self.answer.take(data, |content| is_flv &= reader.read(content).is_ok());
        let mut intact = is_answer && is_flv;
        while let Some(tag) = self.reader.next_tag() {
            if let Some(base) = flv::time_base(&tag) {
                self.base = base;
            } else if tag.role().is_header() {
                intact &= self.live.source.has_header(&tag);
            } else {
                intact &= self.arrived(now, &tag);
            }
        }
        intact
    }

    /// Handles a tag. Returns whether it was published after the ones that arrived before.
    fn arrived(&mut self, now: Timestamp, tag: &Tag) -> bool {
        let own = tag.timestamp();
        let media_ms = own.wrapping_add(self.base);
        let source = &self.live.source;
        let find = |is_at: &dyn Fn(u32) -> bool| {
            let mut published =
                (self.next..source.len()).take_while(|&number| self.live.published(number) <= now);
            published.find(|&number| is_at(source.time_ms(number)) && source.is(number, tag))
        };
        // The viewer's times start at its first frame. Earlier tags are clamped to that time.
        let clamped = || if own == 0 { find(&|time| time < self.base) } else { None };
        let Some(frame) = find(&|time| time == media_ms).or_else(clamped) else { return false };
        self.next = frame + 1;
        let delay = now.since(self.live.captured(frame));
        let is_key = source.is_key(frame);
        self.arrivals.push(FrameArrival { frame, is_key, media_ms, delay, at: now });
        true
    }
}
