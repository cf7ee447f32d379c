//! The viewer's side: what arrives must be what was published.

use media::{Tag, flv};
use units::Timestamp;

use super::view::{Arrival, Live};
use crate::client::Answer;

/// What has arrived of a stream.
pub(crate) struct Reception {
    live: Live,
    answer: Answer,
    reader: flv::Reader,
    /// Where the viewer's times begin in the stream's.
    base: u32,
    /// The first tag that may come.
    next: u32,
    pub arrivals: Vec<Arrival>,
}

impl Reception {
    pub(crate) fn new(live: Live) -> Self {
        Self {
            live,
            answer: Answer::default(),
            reader: flv::Reader::new(flv::MAX_PAYLOAD),
            base: 0,
            next: 0,
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
            } else if tag.role().is_header() {
                intact &= self.live.source.has_header(&tag);
            } else {
                intact &= self.arrived(now, &tag);
            }
        }
        intact
    }

    /// A tag came. Returns whether it is one that was published behind those that came before.
    fn arrived(&mut self, now: Timestamp, tag: &Tag) -> bool {
        let own = tag.timestamp();
        let media_ms = own.wrapping_add(self.base);
        let source = &self.live.source;
        let find = |is_at: &dyn Fn(u32) -> bool| {
            let mut published =
                (self.next..source.len()).take_while(|&number| self.live.published(number) <= now);
            published.find(|&number| is_at(source.time_ms(number)) && source.is(number, tag))
        };
        // A viewer's times do not begin before its first frame's: what lies further back has the same.
        let clamped = || if own == 0 { find(&|time| time < self.base) } else { None };
        let Some(frame) = find(&|time| time == media_ms).or_else(clamped) else { return false };
        self.next = frame + 1;
        let delay = now.since(self.live.captured(frame));
        let is_key = source.is_key(frame);
        self.arrivals.push(Arrival { frame, is_key, media_ms, delay, at: now });
        true
    }
}
