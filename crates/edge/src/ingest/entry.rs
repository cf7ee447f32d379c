//! Where tags of publishers and upstreams enter a stream: corrected, counted, and named in the log.

use std::sync::Arc;

use media::{Assembler, Repair, Tag};
use relay::{Publisher, Stream};

use crate::live::Events;

/// A publisher whose tags are corrected before the stream takes them.
#[derive(Debug)]
pub struct Entry {
    publisher: Publisher,
    assembler: Box<Assembler>,
    ready: Vec<Tag>,
    /// Corrections that are counted and logged.
    told: Box<[u64; Repair::ALL.len()]>,
}

impl Entry {
    /// The entry of this publisher, which has sent nothing yet.
    pub fn new(publisher: Publisher) -> Self {
        let assembler = Box::default();
        Self { publisher, assembler, ready: Vec::new(), told: Box::default() }
    }

    /// Appends a tag with the publisher's own time, and counts corrections in `repairs`. Returns whether
    /// the stream still takes it.
    pub fn push(&mut self, tag: Tag, repairs: &Events) -> bool {
        self.assembler.push(tag, &mut self.ready);
        self.tell(repairs);
        // A stream that takes no tags says so with the first of them.
        self.ready.drain(..).all(|tag| self.publisher.push(tag))
    }

    /// Where the stream's time begins: [`Publisher::begin_at`].
    pub fn begin_at(&self, start: u32) {
        self.publisher.begin_at(start);
    }

    /// The stream.
    pub fn stream(&self) -> &Arc<Stream> {
        self.publisher.stream()
    }

    /// Which publisher of the stream this is: [`Publisher::number`].
    pub fn number(&self) -> u64 {
        self.publisher.number()
    }

    fn tell(&mut self, repairs: &Events) {
        for ((repair, made), told) in self.assembler.repairs().zip(self.told.iter_mut()) {
            if made > *told {
                if *told == 0 {
                    let name = self.publisher.stream().name();
                    tracing::warn!("{name}: corrected: {}", repair.description());
                }
                repairs.add(repair.name(), made - *told);
                self.publisher.stream().count_corrections(repair.name(), made - *told);
                *told = made;
            }
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.assembler.flush(&mut self.ready);
        self.ready.drain(..).for_each(|tag| _ = self.publisher.push(tag));
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
        let (mut entry, events) = (Entry::new(publisher), Events::default());
        let tag = |payload: &[u8]| Tag::new(Kind::Audio, 0, payload).expect("short");
        // An empty header; a frame with an ADTS header.
        let adts = [0xaf, 1, 0xff, 0xf1, 0x50, 0x80, 1, 0x3f, 0xfc, 0x21, 7];
        assert!(entry.push(tag(&[0xaf, 0]), &events) && entry.push(tag(&adts), &events));
        assert_eq!(events.all(), [("adts", 1), ("empty_header", 1)]);
        assert!(stream.corrections().into_iter().eq(events.all()));
        let payloads = |number| stream.with_cache(|c| c.get(number).map(Tag::payload));
        assert_eq!(payloads(0).as_deref(), Some(&[0xaf, 0, 0x12, 0x10][..]));
        assert_eq!(payloads(1).as_deref(), Some(&[0xaf, 1, 0x21, 7][..]));
        streams.end(&stream);
        assert!(!entry.push(tag(&adts), &events), "the stream is over");
    }

    #[test]
    fn the_last_picture_enters_when_its_publisher_leaves() {
        let streams = Registry::new(1);
        let publisher = streams.publish("live/a", Settings::default()).expect("room");
        let stream = publisher.stream().clone();
        let (mut entry, events) = (Entry::new(publisher), Events::default());
        let tag = |time, payload: &[u8]| Tag::new(Kind::Video, time, payload).expect("short");
        entry.push(tag(0, &[0x17, 0, 0, 0, 0, 1]), &events);
        for (time, slice) in [(0, 0x88), (0, 0x46), (40, 0x88)] {
            entry.push(tag(time, &[0x17, 1, 0, 0, 0, 0, 0, 0, 3, 0x65, slice, 1]), &events);
        }
        let newest = || stream.with_cache(|cache| cache.newest().map(Tag::timestamp));
        let before = newest();
        drop(entry);
        assert_ne!(newest(), before);
    }
}
