//! Input of tags from publishers and upstreams. Corrections are counted and logged.

use std::sync::Arc;

use media::{Assembler, Repair, Tag};
use relay::{Publisher, Stream};

use super::alignment::{Alignment, CommonClock};
use crate::live::{Events, KeyFrames};

/// A publisher with correction of its tags.
#[derive(Debug)]
pub struct PublisherInput {
    publisher: Publisher,
    /// For renditions of a ladder.
    alignment: Option<Box<Alignment>>,
    assembler: Box<Assembler>,
    ready: Vec<Tag>,
    /// Corrections already counted and logged.
    reported: Box<[u64; Repair::ALL.len()]>,
}

impl PublisherInput {
    /// Creates the input of a publisher that has sent no tags.
    pub fn new(publisher: Publisher) -> Self {
        let assembler = Box::default();
        Self { publisher, alignment: None, assembler, ready: Vec::new(), reported: Box::default() }
    }

    /// Appends a tag with the publisher's timestamp, and counts corrections in `repairs`. Returns
    /// false if the stream accepts no more tags.
    pub fn push(&mut self, tag: Tag, repairs: &Events) -> bool {
        self.assembler.push(tag, &mut self.ready);
        self.report(repairs);
        // A closed stream rejects the first tag already.
        self.forward()
    }

    fn forward(&mut self) -> bool {
        let Self { publisher, alignment, ready, .. } = self;
        ready.drain(..).all(|tag| match alignment {
            Some(alignment) => alignment.push(publisher, tag),
            None => publisher.push(tag),
        })
    }

    /// Aligns the publisher with the other renditions of `ladder`. Must be called before its first
    /// tag, instead of [`PublisherInput::begin_at`]. Tracks of one connection share `clock`.
    pub(crate) fn align(&mut self, keys: Arc<KeyFrames>, ladder: &str, clock: Arc<CommonClock>) {
        self.alignment = Some(Box::new(Alignment::new(keys, ladder, &self.publisher, clock)));
    }

    /// Sets the stream's first timestamp: [`Publisher::begin_at`].
    pub fn begin_at(&self, start: u32) {
        self.publisher.begin_at(start);
    }

    /// Returns the stream.
    pub fn stream(&self) -> &Arc<Stream> {
        self.publisher.stream()
    }

    /// Returns the number of this publisher in the stream: [`Publisher::number`].
    pub fn number(&self) -> u64 {
        self.publisher.number()
    }

    fn report(&mut self, repairs: &Events) {
        for ((repair, made), reported) in self.assembler.repairs().zip(self.reported.iter_mut()) {
            if made > *reported {
                if *reported == 0 {
                    let name = self.publisher.stream().name();
                    tracing::warn!("{name}: corrected: {}", repair.description());
                }
                repairs.add(repair.name(), made - *reported);
                self.publisher.stream().count_corrections(repair.name(), made - *reported);
                *reported = made;
            }
        }
    }
}

impl Drop for PublisherInput {
    fn drop(&mut self) {
        self.assembler.flush(&mut self.ready);
        self.forward();
        if let Some(alignment) = &mut self.alignment {
            alignment.release(&self.publisher);
        }
    }
}

#[cfg(test)]
mod tests {
    use media::Kind;
    use relay::{Registry, Settings};

    use super::*;

    #[test]
    fn corrected_tags_enter_and_are_counted() {
        let streams = Registry::new(1);
        let publisher = streams.publish("live/a", Settings::default()).expect("room");
        let stream = publisher.stream().clone();
        let (mut input, events) = (PublisherInput::new(publisher), Events::default());
        let tag = |payload: &[u8]| Tag::new(Kind::Audio, 0, payload).expect("short");
        // An empty header; a frame with an ADTS header.
        let adts = [0xaf, 1, 0xff, 0xf1, 0x50, 0x80, 1, 0x3f, 0xfc, 0x21, 7];
        assert!(input.push(tag(&[0xaf, 0]), &events) && input.push(tag(&adts), &events));
        assert_eq!(events.all(), [("adts", 1), ("empty_header", 1)]);
        assert!(stream.corrections().into_iter().eq(events.all()));
        let payloads = |number| stream.with_cache(|c| c.get(number).map(Tag::payload));
        assert_eq!(payloads(0).as_deref(), Some(&[0xaf, 0, 0x12, 0x10][..]));
        assert_eq!(payloads(1).as_deref(), Some(&[0xaf, 1, 0x21, 7][..]));
        streams.end(&stream);
        assert!(!input.push(tag(&adts), &events), "the stream is over");
    }

    #[test]
    fn dropping_the_input_flushes_the_last_picture() {
        let streams = Registry::new(1);
        let publisher = streams.publish("live/a", Settings::default()).expect("room");
        let stream = publisher.stream().clone();
        let (mut input, events) = (PublisherInput::new(publisher), Events::default());
        let tag = |time, payload: &[u8]| Tag::new(Kind::Video, time, payload).expect("short");
        input.push(tag(0, &[0x17, 0, 0, 0, 0, 1]), &events);
        for (time, slice) in [(0, 0x88), (0, 0x46), (40, 0x88)] {
            input.push(tag(time, &[0x17, 1, 0, 0, 0, 0, 0, 0, 3, 0x65, slice, 1]), &events);
        }
        let newest = || stream.with_cache(|cache| cache.newest().map(Tag::timestamp));
        let before = newest();
        drop(input);
        assert_ne!(newest(), before);
    }
}
