//! Times of audio frames: contiguous, on the grid of their sample rate.
//!
//! FLV rounds times to milliseconds, which is audible. Each segment has its own grid, fitted to
//! the frame times of its first part: its content does not depend on how long the stream has been
//! packed. Only differences of more than a frame count as gaps.

use crate::fmp4::Sample;
use crate::fmp4::config::Audio;

/// The grid of a segment.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Grid {
    /// Where the next frame is expected, in samples; `None` at a segment's start.
    next: Option<i64>,
}

impl Grid {
    /// Moves frames from the stream's times onto the grid. A surplus frame is dropped.
    pub(super) fn lay(&mut self, audio: &Audio, frames: &mut Vec<Sample>) {
        let rate = i64::from(audio.sample_rate);
        let tolerance = |samples: i64| samples.max(rate / 50);
        let samples = |frame: &Sample| i64::from(audio.samples(&frame.data));
        let mut expected = self.next.or_else(|| {
            let (mut behind, mut sum, mut count) = (0, 0, 0);
            let first = frames.first()?.dts;
            for frame in frames.iter() {
                let start = frame.dts - behind;
                if (start - first).abs() > tolerance(samples(frame)) {
                    break;
                }
                behind += samples(frame);
                (sum, count) = (sum + start - first, count + 1);
            }
            Some((first + i64::div_euclid(sum, count.max(1))).max(0))
        });
        frames.retain_mut(|frame| {
            let length = samples(frame);
            let place = expected.unwrap_or(frame.dts);
            if place - frame.dts > tolerance(length) {
                return false;
            }
            if frame.dts - place <= tolerance(length) {
                frame.dts = place;
            }
            expected = Some(frame.dts + length);
            true
        });
        self.next = expected;
    }
}
