//! Deadline miss rate (DMR): the "proportion of video frames failing to render before their
//! deadline" (AutoRec, journal version, section VII-A). Its comparison with forward error
//! correction has a "100 ms playback deadline" at 60 frames per second, read here as 100 ms after
//! a frame's capture.

use core::time::Duration;

use units::Timestamp;

/// Counts the frames of a session against a fixed play-out deadline.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    budget: Duration,
    frames: u64,
    missed: u64,
}

impl Deadlines {
    /// Each frame must be there `budget` after its capture at the latest.
    pub const fn new(budget: Duration) -> Self {
        Self { budget, frames: 0, missed: 0 }
    }

    /// A frame captured at `captured` whose last byte, and that of every frame that it needs, the
    /// player could read at `complete`; `None` if it never could. Exactly at the deadline is in
    /// time. Returns whether it was.
    pub fn on_frame(&mut self, captured: Timestamp, complete: Option<Timestamp>) -> bool {
        let in_time = complete.is_some_and(|at| at <= captured + self.budget);
        self.frames += 1;
        self.missed += u64::from(!in_time);
        in_time
    }

    /// Frames so far.
    pub const fn frames(&self) -> u64 {
        self.frames
    }

    /// Frames so far that came too late or never.
    pub const fn missed(&self) -> u64 {
        self.missed
    }

    /// The metric `dmr`: missed frames per frame, 0 to 1; `None` before the first.
    pub fn rate(&self) -> Option<f64> {
        (self.frames > 0).then(|| self.missed as f64 / self.frames as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_at_its_deadline_is_in_time_and_one_that_never_comes_is_missed() {
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
