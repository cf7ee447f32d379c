//! Deadline miss rate (DMR): the "proportion of video frames failing to render before their
//! deadline" (AutoRec, journal version, section VII-A). The paper's comparison with forward error
//! correction has a "100 ms playback deadline" at 60 frames per second. We read this as 100 ms
//! after a frame's capture.

use core::time::Duration;

use units::Timestamp;

/// Counts the frames of a session against a fixed play-out deadline.
///
/// ```
/// use core::time::Duration;
/// use mendcast_qoe::Deadlines;
/// use units::Timestamp;
///
/// let mut deadlines = Deadlines::new(Duration::from_millis(100));
/// let captured = Timestamp::from_millis(40);
/// deadlines.on_frame(captured, Some(Timestamp::from_millis(90)));
/// deadlines.on_frame(captured, None);
/// assert_eq!(deadlines.rate(), Some(0.5));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    budget: Duration,
    frames: u64,
    missed: u64,
}

impl Deadlines {
    /// Creates a counter for a deadline of `budget` after each frame's capture.
    pub const fn new(budget: Duration) -> Self {
        Self { budget, frames: 0, missed: 0 }
    }

    /// Counts a frame captured at `captured`. `complete` is the time when the player had the last
    /// byte of the frame and of all frames it depends on, `None` for never. Returns true if it met
    /// the deadline, inclusive.
    pub fn on_frame(&mut self, captured: Timestamp, complete: Option<Timestamp>) -> bool {
        let in_time = complete.is_some_and(|at| at <= captured + self.budget);
        self.frames += 1;
        self.missed += u64::from(!in_time);
        in_time
    }

    /// Number of frames.
    pub const fn frames(&self) -> u64 {
        self.frames
    }

    /// Number of frames that missed their deadline.
    pub const fn missed(&self) -> u64 {
        self.missed
    }

    /// The metric `dmr`: missed frames per frame, 0 to 1. `None` without frames.
    pub fn rate(&self) -> Option<f64> {
        (self.frames > 0).then(|| self.missed as f64 / self.frames as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deadline_is_inclusive_and_incomplete_frames_miss_it() {
        let mut deadlines = Deadlines::new(Duration::from_millis(100));
        assert_eq!(deadlines.rate(), None);
        let captured = Timestamp::from_millis(50);
        let deadline = Timestamp::from_millis(150);
        assert!(deadlines.on_frame(captured, Some(deadline)));
        assert!(!deadlines.on_frame(captured, Some(deadline + Duration::from_nanos(1))));
        assert!(!deadlines.on_frame(captured, None));
        assert!(deadlines.on_frame(captured, Some(captured)));
        assert_eq!((deadlines.frames(), deadlines.missed()), (4, 2));
        assert_eq!(deadlines.rate(), Some(0.5));
    }
}
