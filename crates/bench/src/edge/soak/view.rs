//! Result of one view of a healthy viewer: the received share of the media published during the
//! view, the first-frame time, and the freezes of a player.
//!
//! The player is the low-latency preset of [`qoe`], also used by the testbed and `mendcast watch`.
//! It has the smallest buffer and is the first to freeze.

use std::time::Duration;

use media::flv::{Error, Kind, Reader};
use media::{Role, Tag};
use qoe::{FrameKind, Player, Policy};
use units::Timestamp;

use super::super::media::{RATE, published};

/// Maximum tag size. The largest tag of the stream is a key frame of 60 KB.
const MAX_TAG: usize = 1 << 20;

/// An ongoing view. Times are nanoseconds of CLOCK_MONOTONIC.
pub(super) struct Meter {
    /// Just before the client's first packet.
    start: u64,
    reader: Reader,
    player: Player,
    live_bytes: u64,
    bytes: u64,
    first: Option<Duration>,
}

/// A finished view.
#[derive(Clone, Debug)]
pub(super) struct View {
    /// The viewer. Views of one viewer are not independent.
    pub viewer: u32,
    /// From just before the client's first packet to the end.
    pub lasted: Duration,
    /// Bytes of the body.
    pub bytes: u64,
    /// Payload of tags that were published during the view and arrived before its end.
    pub live_bytes: u64,
    /// Time until the first tag with a frame was complete.
    pub first: Option<Duration>,
    /// Playback in the player.
    pub seen: qoe::Report,
    /// Reason of a failure.
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

    /// Handles a part of the body.
    ///
    /// # Errors
    /// The data is not FLV.
    pub(super) fn read(&mut self, now: u64, part: &[u8]) -> Result<(), Error> {
        self.bytes += part.len() as u64;
        let result = self.reader.read(part);
        while let Some(tag) = self.reader.next_tag() {
            self.tag(now, &tag);
        }
        result
    }

    /// Returns whether a frame has arrived.
    pub(super) fn has_media(&self) -> bool {
        self.first.is_some()
    }

    /// Ends the view.
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
        // Cached media do not count: their amount depends on the time of joining relative to the
        // key frame.
        if then >= self.start {
            self.live_bytes += tag.payload().len() as u64;
        }
        // Players start with a picture.
        let kind = match (tag.kind(), tag.role()) {
            (Kind::Video, Role::KeyFrame) => FrameKind::Key,
            _ => FrameKind::Dependent,
        };
        self.player.on_media(Timestamp::ZERO + at, tag.timestamp(), kind);
    }
}

impl View {
    /// Returns the payload published during the view.
    pub(super) fn expected_bytes(&self) -> f64 {
        self.lasted.as_secs_f64() * RATE / 8.0
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::media::{TagSource, clock};
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Reads what is published in `seconds` without the `lost` tags, each `delay` after its due
    /// time.
    fn watched(
        seconds: u64,
        lost: impl Fn(Duration) -> bool,
        delay: impl Fn(Duration) -> u64,
    ) -> View {
        // Tags carry the time of their creation, which is later than this.
        let start = clock();
        let (mut meter, mut source) = (Meter::new(start), TagSource::new());
        let header = media::flv::file_header(true, true);
        meter.read(start, &header).expect("FLV");
        for header in TagSource::headers() {
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
    fn a_complete_stream_has_its_rate_and_no_freeze() {
        let view = watched(20, |_| false, |_| SECOND / 20);
        let share = view.live_bytes as f64 / view.expected_bytes();
        assert!((0.98..1.02).contains(&share), "{share}");
        assert_eq!(view.first, Some(Duration::from_millis(50)));
        assert_eq!((view.seen.freezes[0].count, view.viewer, view.failure), (0, 7, None));
        assert!(view.seen.watched() > Duration::from_secs(19));
    }

    #[test]
    fn missing_and_late_media_are_measured() {
        // Two of twenty seconds are skipped.
        let missing = |due: Duration| (6..8).contains(&due.as_secs());
        let view = watched(20, missing, |_| 0);
        let share = view.live_bytes as f64 / view.expected_bytes();
        assert!((0.88..0.92).contains(&share), "{share}");
        // From the tenth second on everything is three seconds late.
        let late = |due: Duration| if due.as_secs() >= 10 { 3 * SECOND } else { 0 };
        let view = watched(30, |_| false, late);
        assert_eq!(view.seen.freezes[0].count, 1);
        let frozen = view.seen.freezes[0].total.as_secs_f64();
        assert!((2.0..4.0).contains(&frozen), "{frozen}");
    }

    #[test]
    fn media_published_before_the_view_do_not_count() {
        let (tag, _) = TagSource::new().next();
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
    fn invalid_flv_is_an_error() {
        assert!(Meter::new(0).read(1, b"<!doctype html>").is_err());
    }
}
