//! What one healthy viewer had of one view: how much of what was published meanwhile, when the first
//! of it came, and how often a player would have frozen.
//!
//! The player is the low-latency one of [`qoe`], which the testbed and `mendcast watch` use too: with
//! the least in its buffer it is the first to freeze.

use std::time::Duration;

use media::flv::{Error, Kind, Reader};
use media::{Role, Tag};
use qoe::{FrameKind, Player, Policy};
use units::Timestamp;

use super::super::media::{RATE, published};

/// The largest tag of the stream is a key frame of 60 KB.
const MAX_TAG: usize = 1 << 20;

/// A view that goes on. Times are nanoseconds of CLOCK_MONOTONIC.
pub(super) struct Meter {
    /// Just before the client's first packet.
    start: u64,
    reader: Reader,
    player: Player,
    live_bytes: u64,
    bytes: u64,
    first: Option<Duration>,
}

/// A view that is over.
#[derive(Clone, Debug)]
pub(super) struct View {
    /// Which of the viewers: what one has in several views is not independent.
    pub viewer: u32,
    /// From just before the client's first packet to the end.
    pub lasted: Duration,
    /// Bytes of the body.
    pub bytes: u64,
    /// Payload of the tags that were published while the viewer was there and arrived before it left.
    pub live_bytes: u64,
    /// Until the first tag with a frame was complete.
    pub first: Option<Duration>,
    /// What a player had.
    pub seen: qoe::Report,
    /// Why the view failed, if it did.
    pub failure: Option<String>,
}

impl Meter {
    pub(super) fn new(now: u64) -> Self {
        Self {
            start: now,
            reader: Reader::new(MAX_TAG),
            player: Player::new(Policy::LOW_LATENCY, Timestamp::ZERO),
            live_bytes: 0,
            bytes: 0,
            first: None,
        }
    }

    /// A part of the body arrived.
    ///
    /// # Errors
    /// It is no FLV.
    pub(super) fn read(&mut self, now: u64, part: &[u8]) -> Result<(), Error> {
        self.bytes += part.len() as u64;
        let result = self.reader.read(part);
        while let Some(tag) = self.reader.next_tag() {
            self.tag(now, &tag);
        }
        result
    }

    /// Whether a frame has arrived.
    pub(super) fn has_media(&self) -> bool {
        self.first.is_some()
    }

    /// The viewer leaves.
    pub(super) fn end(mut self, now: u64, viewer: u32, failure: Option<String>) -> View {
        let lasted = self.since_start(now);
        View {
            viewer,
            lasted,
            bytes: self.bytes,
            live_bytes: self.live_bytes,
            first: self.first,
            seen: self.player.report(Timestamp::ZERO + lasted),
            failure,
        }
    }

    fn since_start(&self, now: u64) -> Duration {
        Duration::from_nanos(now.saturating_sub(self.start))
    }

    fn tag(&mut self, now: u64, tag: &Tag) {
        let Some(then) = published(tag) else { return };
        let at = self.since_start(now);
        self.first.get_or_insert(at);
        // What the server had kept from before comes on top, and more of it to those who come just before
        // a key frame: it is no part of what the viewer was there for.
        if then >= self.start {
            self.live_bytes += tag.payload().len() as u64;
        }
        // Players begin with a picture.
        let kind = match (tag.kind(), tag.role()) {
            (Kind::Video, Role::KeyFrame) => FrameKind::Key,
            _ => FrameKind::Dependent,
        };
        self.player.on_media(Timestamp::ZERO + at, tag.timestamp(), kind);
    }
}

impl View {
    /// How much of what was published during the view arrived in it, 0 to about 1.
    pub(super) fn expected_bytes(&self) -> f64 {
        self.lasted.as_secs_f64() * RATE / 8.0
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::media::{Source, clock};
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Reads what is published in `seconds`, tags `lost` left out, each `delay` after it is due.
    fn watched(
        seconds: u64,
        lost: impl Fn(Duration) -> bool,
        delay: impl Fn(Duration) -> u64,
    ) -> View {
        // Tags bear the time at which the source makes them, which is later than this.
        let start = clock();
        let (mut meter, mut source) = (Meter::new(start), Source::new());
        let header = media::flv::file_header(true, true);
        meter.read(start, &header).expect("FLV");
        for header in Source::headers() {
            meter.read(start, header.bytes()).expect("FLV");
        }
        assert!(!meter.has_media(), "headers are no media");
        while source.due() < Duration::from_secs(seconds) {
            let due = source.due();
            let (tag, _) = source.next();
            if !lost(due) {
                let now = start + due.as_nanos() as u64 + delay(due);
                meter.read(now, tag.bytes()).expect("FLV");
            }
        }
        meter.end(start + seconds * SECOND, 7, None)
    }

    #[test]
    fn who_has_all_of_the_stream_has_its_rate_and_no_freeze() {
        let view = watched(20, |_| false, |_| SECOND / 20);
        let share = view.live_bytes as f64 / view.expected_bytes();
        assert!((0.98..1.02).contains(&share), "{share}");
        assert_eq!(view.first, Some(Duration::from_millis(50)));
        assert_eq!((view.seen.freezes[0].count, view.viewer, view.failure), (0, 7, None));
        assert!(view.seen.watched() > Duration::from_secs(19));
    }

    #[test]
    fn what_is_missing_and_what_is_late_show() {
        // Two seconds of twenty are skipped.
        let missing = |due: Duration| (6..8).contains(&due.as_secs());
        let view = watched(20, missing, |_| 0);
        let share = view.live_bytes as f64 / view.expected_bytes();
        assert!((0.88..0.92).contains(&share), "{share}");
        // The rest comes three seconds late from the tenth second on.
        let late = |due: Duration| if due.as_secs() >= 10 { 3 * SECOND } else { 0 };
        let view = watched(30, |_| false, late);
        assert_eq!(view.seen.freezes[0].count, 1);
        let frozen = view.seen.freezes[0].total.as_secs_f64();
        assert!((2.0..4.0).contains(&frozen), "{frozen}");
    }

    #[test]
    fn what_was_published_before_the_viewer_came_is_not_counted() {
        let (tag, _) = Source::new().next();
        let mut meter = Meter::new(clock());
        let now = clock();
        meter.read(now, &media::flv::file_header(true, true)).expect("FLV");
        meter.read(now, tag.bytes()).expect("FLV");
        assert!(meter.has_media());
        let view = meter.end(now, 0, None);
        assert_eq!(view.live_bytes, 0);
        assert!(view.bytes > 60_000);
    }

    #[test]
    fn what_is_no_flv_is_an_error() {
        assert!(Meter::new(0).read(1, b"<!doctype html>").is_err());
    }
}
