//! Where a viewer's player is on the media's time line: acknowledgements tell what it has, and its reports how much of
//! that it has not shown. What lies ahead of it has a deadline.
//!
//! Between two reports it is taken to play at normal speed. One that catches up, or froze meanwhile, is elsewhere until
//! it says so. Without reports nothing is known: acknowledgements alone say how much media a player has that began to
//! play with its first frame and never caught up, which is an upper bound.

use core::time::Duration;
use std::collections::VecDeque;

use units::Timestamp;

/// Pieces under way whose media times are remembered; of more than that those at the end count as one.
const PIECES: usize = 64;
/// A report says nothing after so long: players report each few seconds.
pub const STALE_REPORT: Duration = Duration::from_secs(30);

/// What a player said it has and has not shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buffered {
    /// Which report this is.
    pub report: u32,
    /// The media.
    pub media: Duration,
}

/// A player on the time line of its viewer.
#[derive(Clone, Debug, Default)]
pub struct Playhead {
    /// Of the pieces under way: where they end in the stream of bytes, and their media times.
    pieces: VecDeque<(u64, Duration)>,
    acked: Option<Duration>,
    /// When what was shown.
    shown: Option<(Timestamp, Duration)>,
    heard: Option<u32>,
}

impl Playhead {
    /// The stream was handed over up to this byte, the end of a piece of this media time.
    pub(crate) fn handed(&mut self, end: u64, media: Duration) {
        let is_full = self.pieces.len() >= PIECES;
        match self.pieces.back_mut() {
            Some(last) if last.0 >= end => {}
            Some(last) if is_full => *last = (end, media),
            _ => self.pieces.push_back((end, media)),
        }
    }

    /// The viewer has all bytes up to this one.
    pub(crate) fn acked(&mut self, end: u64) {
        while let Some(&(_, media)) = self.pieces.front().filter(|(piece, _)| *piece <= end) {
            self.pieces.pop_front();
            // Sound and pictures take turns.
            self.acked = self.acked.max(Some(media));
        }
    }

    /// What the player said last, if it was not heard yet, of the moment `at`.
    pub(crate) fn heard(&mut self, at: Timestamp, buffered: Buffered) {
        if self.heard == Some(buffered.report) {
            return;
        }
        if let Some(has) = self.has() {
            self.heard = Some(buffered.report);
            self.shown = Some((at, has.saturating_sub(buffered.media)));
        }
    }

    /// The media up to which the viewer has everything.
    pub fn has(&self) -> Option<Duration> {
        self.acked
    }

    /// The media that is shown at that time, which is not before the last report's; `None` without a report.
    pub fn shown_at(&self, at: Timestamp) -> Option<Duration> {
        let (since, shown) = self.shown?;
        let elapsed = at.since(since);
        (elapsed <= STALE_REPORT).then(|| shown + elapsed)
    }

    /// When the player comes to media of this time; `None` if that is not known at `now`.
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

    fn said(report: u32, media: u64) -> Buffered {
        Buffered { report, media: ms(media) }
    }

    #[test]
    fn what_is_ahead_of_the_player_has_until_it_comes_there() {
        let mut head = Playhead::default();
        (0..10).for_each(|n| head.handed(1_000 * (n + 1), ms(40 * n)));
        assert_eq!(head.deadline(at(5_000), ms(400)), None);
        head.heard(at(5_000), said(1, 100));
        assert_eq!(head.shown_at(at(5_000)), None, "nothing is known to be there");
        head.acked(5_500);
        assert_eq!(head.has(), Some(ms(160)));
        head.heard(at(5_000), said(1, 100));
        assert_eq!(head.shown_at(at(5_020)), Some(ms(80)));
        assert_eq!(head.deadline(at(5_020), ms(360)), Some(at(5_300)));
        assert_eq!(head.deadline(at(5_020), ms(20)), Some(at(5_000)), "it is late");
        // The same report again is none.
        head.acked(10_000);
        head.heard(at(6_000), said(1, 100));
        assert_eq!(head.shown_at(at(6_000)), Some(ms(1_060)));
        head.heard(at(6_000), said(2, 300));
        assert_eq!(head.shown_at(at(6_000)), Some(ms(60)), "it froze meanwhile");
        assert_eq!(head.deadline(at(40_000), ms(80)), None, "nothing was heard for long");
    }

    #[test]
    fn who_acknowledges_nothing_takes_no_more_memory() {
        let mut head = Playhead::default();
        (0..100_000).for_each(|n| head.handed(1_000 * (n + 1), ms(40 * n)));
        assert_eq!(head.pieces.len(), PIECES);
        head.acked(100_000_000);
        assert_eq!(head.has(), Some(ms(40 * 99_999)));
    }

    #[test]
    fn sound_that_follows_a_picture_does_not_turn_time_back() {
        let mut head = Playhead::default();
        head.handed(1_000, ms(80));
        head.handed(1_100, ms(64));
        head.acked(1_100);
        assert_eq!(head.has(), Some(ms(80)));
    }
}
