//! Alignment of a publisher with the other renditions of its ladder.
//!
//! Tags are held back until the first key frame, which determines the stream time of them all
//! ([`KeyFrames`]). Viewers need the key frame anyway.

use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use media::{Kind, Role, Tag};
use relay::Publisher;

use crate::ladder;
use crate::live::{KeyFrame, KeyFrames};
use crate::sync::lock;

/// Maximum number of tags held back. Two seconds of audio have about 100.
const MAX_TAGS: usize = 256;
/// Maximum bytes held back, without the key frame.
const MAX_BYTES: usize = 1 << 20;
/// Maximum media time held back, in milliseconds. A publisher without a key frame until then is
/// aligned by the arrival of its tags.
const MAX_HELD_MS: u32 = 2_000;
/// Maximum distance of a header's timestamp from the first frame, in milliseconds. Encoders send
/// headers with arbitrary timestamps, mostly 0.
const MAX_HEADER_DISTANCE_MS: u32 = 1_000;

/// The clock of a publisher, which all its tracks have in common.
#[derive(Debug, Default)]
pub(crate) struct CommonClock {
    /// Stream time at the publisher's time 0, in wrapping milliseconds. Set by the first aligned
    /// track, and updated at key frames, because the clock may jump.
    base: Mutex<Option<u32>>,
    /// Whether the publisher sends all tracks of the ladder. Their earlier key frames then belong
    /// to a previous publisher.
    has_tracks: bool,
}

impl CommonClock {
    /// Creates the clock of a publisher that sends all tracks of a ladder.
    pub(crate) fn of_tracks() -> Self {
        Self { base: Mutex::default(), has_tracks: true }
    }
}

/// The alignment of a publisher.
#[derive(Debug)]
pub(crate) struct Alignment {
    keys: Arc<KeyFrames>,
    ladder: String,
    /// The clock of all tracks of the publisher.
    clock: Arc<CommonClock>,
    held: Vec<Tag>,
    held_bytes: usize,
    is_aligned: bool,
}

impl Alignment {
    /// Creates the alignment of a new publisher, or of a track of one, with the other renditions of
    /// `ladder`.
    pub(crate) fn new(
        keys: Arc<KeyFrames>,
        ladder: &str,
        publisher: &Publisher,
        clock: Arc<CommonClock>,
    ) -> Self {
        keys.forget(ladder, publisher.stream().name());
        let ladder = ladder.to_owned();
        Self { keys, ladder, clock, held: Vec::new(), held_bytes: 0, is_aligned: false }
    }

    /// Appends a tag to the stream, or holds it back. Returns false if the stream accepts no more
    /// tags.
    pub(crate) fn push(&mut self, publisher: &Publisher, tag: Tag) -> bool {
        if self.is_aligned {
            return self.pass(publisher, tag);
        }
        let is_key = is_key(&tag);
        self.held_bytes += tag.bytes().len();
        self.held.push(tag);
        let times = self.held.iter().filter(|tag| is_frame(tag)).map(Tag::timestamp);
        let first_ms = times.clone().next();
        let span_ms =
            first_ms.zip(times.last()).map_or(0, |(first, last)| last.wrapping_sub(first));
        // Audio may run slightly behind.
        let is_long = (MAX_HELD_MS..1 << 31).contains(&span_ms);
        if is_key || is_long || self.held.len() >= MAX_TAGS || self.held_bytes > MAX_BYTES {
            return self.release(publisher);
        }
        // A publisher that was replaced must learn of it.
        publisher.is_current()
    }

    /// Appends all tags held back.
    pub(crate) fn release(&mut self, publisher: &Publisher) -> bool {
        let held = core::mem::take(&mut self.held);
        if self.is_aligned || held.is_empty() {
            return true;
        }
        self.is_aligned = true;
        let frame = held.iter().rfind(|tag| is_key(tag));
        let frame = frame.or_else(|| held.iter().rfind(|tag| is_frame(tag)));
        let own_ms = frame.or(held.last()).map_or(0, Tag::timestamp);
        publisher.align(self.base(publisher.stream().name(), own_ms));
        let near = |tag: Tag| {
            let ahead = tag.timestamp().wrapping_sub(own_ms);
            let is_far = ahead.min(ahead.wrapping_neg()) > MAX_HEADER_DISTANCE_MS;
            if is_far && !is_frame(&tag) { tag.with_timestamp(own_ms) } else { tag }
        };
        held.into_iter().all(|tag| self.pass(publisher, near(tag)))
    }

    /// Returns the stream time of the publisher's time 0. Its first frame, of time `own_ms`, has
    /// just arrived.
    fn base(&self, name: &str, own_ms: u32) -> u32 {
        let mut common = lock(&self.clock.base);
        *common.get_or_insert_with(|| {
            let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let (now, wall_ms) = ((Instant::now(), own_ms), wall.as_millis() as u32);
            let is_own = |other: &str| {
                other == name || self.clock.has_tracks && ladder::is_track(&self.ladder, other)
            };
            let (base, basis) = self.keys.align(&self.ladder, is_own, now, wall_ms);
            tracing::debug!("{name}: aligned in the ladder {}: {basis:?}", self.ladder);
            base
        })
    }

    fn pass(&self, publisher: &Publisher, tag: Tag) -> bool {
        let (is_key, own_ms) = (is_key(&tag), tag.timestamp());
        let accepted = publisher.push(tag);
        if is_key && accepted {
            let stream = publisher.stream();
            let stream_ms = stream.with_cache(|cache| cache.newest().map(Tag::timestamp));
            let at = Instant::now();
            if let Some(stream_ms) = stream_ms {
                *lock(&self.clock.base) = Some(stream_ms.wrapping_sub(own_ms));
            }
            let key = stream_ms.map(|stream_ms| KeyFrame { at, own_ms, stream_ms });
            if key.is_some_and(|key| self.keys.push(&self.ladder, stream.name(), key)) {
                tracing::warn!(
                    "{}: no other rendition of the ladder {} has key frames at these times: \
                     switches are visible; set equal key frame intervals and no scene cuts",
                    stream.name(),
                    self.ladder
                );
            }
        }
        accepted
    }
}

fn is_key(tag: &Tag) -> bool {
    tag.kind() == Kind::Video && tag.role() == Role::KeyFrame
}

fn is_frame(tag: &Tag) -> bool {
    tag.kind() != Kind::Script && !tag.role().is_header()
}

#[cfg(test)]
mod tests {
    use relay::{Registry, Settings};

    use super::*;

    fn tag(kind: Kind, time: u32, payload: &[u8]) -> Tag {
        Tag::new(kind, time, payload).expect("short")
    }

    struct Setup {
        keys: Arc<KeyFrames>,
        streams: Registry,
    }

    impl Setup {
        fn publish(&self, name: &str) -> (Publisher, Alignment) {
            let publisher = self.streams.publish(name, Settings::default()).expect("room");
            let keys = self.keys.clone();
            let alignment = Alignment::new(keys, "live/show", &publisher, Arc::default());
            (publisher, alignment)
        }
    }

    fn times(publisher: &Publisher) -> Vec<u32> {
        let at = |cache: &media::GopCache| {
            let numbers = cache.base()..cache.head();
            numbers
                .filter_map(|n| cache.get(n))
                .filter(|t| is_frame(t))
                .map(Tag::timestamp)
                .collect()
        };
        publisher.stream().with_cache(at)
    }

    #[test]
    fn renditions_with_different_clocks_have_equal_times() {
        let setup = Setup { keys: Arc::default(), streams: Registry::new(10) };
        let mut newest = Vec::new();
        for (name, clock) in [("live/a", 0), ("live/b", 900_000_000), ("live/c", 77)] {
            let (publisher, mut alignment) = setup.publish(name);
            for (time, payload) in [(0, [0xaf, 0]), (10, [0xaf, 1]), (30, [0xaf, 1])] {
                assert!(alignment.push(&publisher, tag(Kind::Audio, clock + time, &payload)));
            }
            assert!(times(&publisher).is_empty(), "held back");
            // The header has no meaningful time.
            alignment.push(&publisher, tag(Kind::Video, 0, &[0x17, 0, 0, 0, 0, 1]));
            alignment.push(&publisher, tag(Kind::Video, clock + 40, &[0x17, 1, 0, 0, 0, 1]));
            let seen = times(&publisher);
            assert_eq!(seen.len(), 3, "{name}");
            let key = seen[2];
            assert_eq!([key - 30, key - 10], seen[..2], "{name}");
            newest.push(key);
        }
        assert_eq!(newest[1..], [newest[0]; 2]);
    }

    #[test]
    fn tracks_of_one_clock_are_aligned_exactly_whatever_their_arrival() {
        let setup = Setup { keys: Arc::default(), streams: Registry::new(10) };
        let clock: Arc<CommonClock> = Arc::default();
        let key = |time| tag(Kind::Video, time, &[0x17, 1, 0, 0, 0, 1]);
        // All arrive at once, as after an outage. By arrival, the nearest key frame would match.
        let mut times = Vec::new();
        for (name, first_ms) in [("live/a", 1_000), ("live/b", 1_000), ("live/c", 5_000)] {
            let publisher = setup.streams.publish(name, Settings::default()).expect("room");
            let (keys, clock) = (setup.keys.clone(), clock.clone());
            let mut alignment = Alignment::new(keys, "live/show", &publisher, clock);
            for time in (first_ms..=9_000).step_by(2_000) {
                assert!(alignment.push(&publisher, key(time)));
            }
            times.push(self::times(&publisher));
        }
        // The cached groups: key frames of 7 and 9 s.
        assert_eq!(times[0][1] - times[0][0], 2_000);
        assert_eq!(times[1..], [times[0].clone(), times[0].clone()]);
    }

    #[test]
    fn the_next_publisher_of_all_tracks_continues_after_the_previous_one() {
        let setup = Setup { keys: Arc::default(), streams: Registry::new(10) };
        let key = |time| tag(Kind::Video, time, &[0x17, 1, 0, 0, 0, 1]);
        let publish = |id: u8, clock: &Arc<CommonClock>, first_ms: u32| {
            let name = format!("live/show_{id}");
            let publisher = setup.streams.publish(&name, Settings::default()).expect("room");
            let (keys, clock) = (setup.keys.clone(), clock.clone());
            let mut alignment = Alignment::new(keys, "live/show", &publisher, clock);
            assert!([0, 2_000].map(|ms| alignment.push(&publisher, key(first_ms + ms)))[1]);
            times(&publisher)
        };
        let first = Arc::new(CommonClock::of_tracks());
        let before = [0, 1].map(|id| publish(id, &first, 5_000));
        std::thread::sleep(std::time::Duration::from_millis(50));
        // The other track's last key frame arrived just now, but has been replaced.
        let second = Arc::new(CommonClock::of_tracks());
        let [zero, one] = [0, 1].map(|id| publish(id, &second, 77));
        assert_eq!(zero[zero.len() - 2..], one[one.len() - 2..]);
        assert!(zero[zero.len() - 2] >= before[1][1] + 50, "{before:?} {zero:?}");
    }

    /// Tags that the stream has accepted.
    fn tags(publisher: &Publisher) -> u64 {
        publisher.stream().stats().tags
    }

    #[test]
    fn tags_without_a_key_frame_are_held_back_within_bounds() {
        let setup = Setup { keys: Arc::default(), streams: Registry::new(10) };
        for (step, size, held) in [(23, 10, 87), (0, 10, 255), (0, 100_000, 10)] {
            let (publisher, mut alignment) = setup.publish(&format!("live/{step}-{size}"));
            let payload = vec![[0xaf, 1]; size / 2].concat();
            for n in 0..held {
                assert!(alignment.push(&publisher, tag(Kind::Audio, n * step, &payload)));
                assert_eq!(tags(&publisher), 0, "{n} of {step} {size}");
            }
            assert!(alignment.push(&publisher, tag(Kind::Audio, held * step, &payload)));
            assert_eq!(tags(&publisher), u64::from(held) + 1, "{step} {size}");
        }
        let (publisher, mut alignment) = setup.publish("live/short");
        alignment.push(&publisher, tag(Kind::Audio, 0, &[0xaf, 1]));
        assert!(alignment.release(&publisher) && tags(&publisher) == 1, "at its end");
        setup.streams.end(publisher.stream());
        let (publisher, mut alignment) = setup.publish("live/ended");
        setup.streams.end(publisher.stream());
        assert!(!alignment.push(&publisher, tag(Kind::Audio, 0, &[0xaf, 1])), "it has ended");
    }
}
