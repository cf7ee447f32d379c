//! Position of a viewer's player on the media time line. Acknowledgements tell which media the
//! player has, and its reports how much of it is not shown yet. Data ahead of the position has a
//! deadline.
//!
//! Between reports the player is assumed to play at normal speed; a player that catches up or
//! freezes is elsewhere until its next report. Without reports the position is unknown:
//! acknowledgements alone give only an upper bound of the buffer, for a player that started with
//! its first frame and never caught up.

use core::time::Duration;
use std::collections::VecDeque;

use units::{Timestamp, release_capacity};

/// Maximum number of pieces in flight that are tracked. Beyond it, the last ones count as one.
const MAX_PIECES: usize = 64;
/// Maximum age of a report: 30 s. Players report every few seconds.
pub const STALE_REPORT: Duration = Duration::from_secs(30);

/// A player's report of its buffer level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buffered {
    /// Number of the report.
    pub report: u32,
    /// Buffered media.
    pub media: Duration,
}

/// Playback position of a viewer.
#[derive(Clone, Debug, Default)]
pub struct Playhead {
    /// End offsets and media times of pieces in flight.
    pieces: VecDeque<(u64, Duration)>,
    acked: Option<Duration>,
    /// Time and position of the last report.
    shown: Option<(Timestamp, Duration)>,
    last_report: Option<u32>,
}

impl Playhead {
    /// Notes that the stream was written up to offset `end`, the end of a piece of this media time.
    pub(crate) fn on_written(&mut self, end: u64, media: Duration) {
        let is_full = self.pieces.len() >= MAX_PIECES;
        match self.pieces.back_mut() {
            Some(last) if last.0 >= end => {}
            Some(last) if is_full => *last = (end, media),
            _ => self.pieces.push_back((end, media)),
        }
    }

    /// Notes that the viewer has all bytes up to offset `end`.
    pub(crate) fn on_acked(&mut self, end: u64) {
        while let Some(&(_, media)) = self.pieces.front().filter(|(piece, _)| *piece <= end) {
            self.pieces.pop_front();
            // Audio and video are interleaved, so times may go back.
            self.acked = self.acked.max(Some(media));
        }
        release_capacity(&mut self.pieces);
    }

    /// Handles the player's latest report, of the time `at`, unless it is already known.
    pub(crate) fn on_report(&mut self, at: Timestamp, buffered: Buffered) {
        if self.last_report == Some(buffered.report) {
            return;
        }
        if let Some(has) = self.has() {
            self.last_report = Some(buffered.report);
            self.shown = Some((at, has.saturating_sub(buffered.media)));
        }
    }

    /// Returns the media time up to which the viewer has everything.
    pub fn has(&self) -> Option<Duration> {
        self.acked
    }

    /// Returns the media time shown at `at`, no earlier than the last report; `None` without a
    /// report.
    pub fn shown_at(&self, at: Timestamp) -> Option<Duration> {
        let (since, shown) = self.shown?;
        let elapsed = at.since(since);
        (elapsed <= STALE_REPORT).then(|| shown + elapsed)
    }

    /// Returns when the player reaches this media time; `None` if its position at `now` is unknown.
    pub(crate) fn deadline(&self, now: Timestamp, media: Duration) -> Option<Timestamp> {
        let (since, shown) = self.shown?;
        self.shown_at(now)?;
        Some(since + media.saturating_sub(shown))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    const fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn report(report: u32, media: u64) -> Buffered {
        Buffered { report, media: ms(media) }
    }

    #[test]
    fn data_ahead_of_the_player_has_a_deadline() {
        let mut head = Playhead::default();
        (0..10).for_each(|n| head.on_written(1_000 * (n + 1), ms(40 * n)));
        assert_eq!(head.deadline(at(5_000), ms(400)), None);
        head.on_report(at(5_000), report(1, 100));
        assert_eq!(head.shown_at(at(5_000)), None, "nothing was acknowledged");
        head.on_acked(5_500);
        assert_eq!(head.has(), Some(ms(160)));
        head.on_report(at(5_000), report(1, 100));
        assert_eq!(head.shown_at(at(5_020)), Some(ms(80)));
        assert_eq!(head.deadline(at(5_020), ms(360)), Some(at(5_300)));
        assert_eq!(head.deadline(at(5_020), ms(20)), Some(at(5_000)), "late");
        // A repeated report is ignored.
        head.on_acked(10_000);
        head.on_report(at(6_000), report(1, 100));
        assert_eq!(head.shown_at(at(6_000)), Some(ms(1_060)));
        head.on_report(at(6_000), report(2, 300));
        assert_eq!(head.shown_at(at(6_000)), Some(ms(60)), "it froze");
        assert_eq!(head.deadline(at(40_000), ms(80)), None, "the report is stale");
    }

    #[test]
    fn memory_is_bounded_without_acknowledgements() {
        let mut head = Playhead::default();
        (0..100_000).for_each(|n| head.on_written(1_000 * (n + 1), ms(40 * n)));
        assert_eq!(head.pieces.len(), MAX_PIECES);
        head.on_acked(100_000_000);
        assert_eq!(head.has(), Some(ms(40 * 99_999)));
    }

    #[test]
    fn audio_after_a_picture_does_not_turn_time_back() {
        let mut head = Playhead::default();
        head.on_written(1_000, ms(80));
        head.on_written(1_100, ms(64));
        head.on_acked(1_100);
        assert_eq!(head.has(), Some(ms(80)));
    }
}
