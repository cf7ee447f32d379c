//! Alignment of audio frames to contiguous times at their sample rate.
//!
//! FLV rounds timestamps to milliseconds, which is audible. Each segment has its own sample grid,
//! fitted to the frame times of its first part, so that its content does not depend on when
//! packaging started. Only differences of more than a frame count as gaps.

use crate::fmp4::Sample;
use crate::fmp4::config::Audio;

/// The sample grid of a segment.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Grid {
    /// Expected start of the next frame, in samples; `None` at the start of a segment.
    next: Option<i64>,
}

impl Grid {
    /// Moves frames from stream time to the grid and drops surplus frames.
    pub(super) fn align(&mut self, audio: &Audio, frames: &mut Vec<Sample>) {
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
