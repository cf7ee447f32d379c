//! Traffic of a server: a file, a live stream through the product's relay, a video with several
//! bitrates, or one of two endless sources for loss recovery experiments: frames of equal size
//! published in bursts, and unlimited bytes (a sender that is never in off-mode).

use core::time::Duration;

use units::{Rate, Timestamp};

use crate::dash::Dash;
use crate::live::Live;

/// Content of the client's request.
#[derive(Clone, Debug)]
pub enum Traffic {
    /// A download, all of it available at once.
    Download {
        /// Size in bytes.
        bytes: u64,
    },
    /// A view of a live stream.
    Live(Live),
    /// A playback of a video, until its last segment has arrived.
    Dash(Dash),
    /// A frame of `rate / fps` every `1 / fps`, from the request until the end of the run. Nothing
    /// is skipped: excess data waits.
    Frames {
        /// Rate of the stream.
        rate: Rate,
        /// Frames per second, above 0.
        fps: f64,
        /// Data cached when the request arrives, as duration of the stream.
        cached: Duration,
    },
    /// More data than any path carries, until the end of the run.
    Unbounded,
}

impl Traffic {
    /// Number of bytes requested.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Download { bytes } => *bytes,
            _ => u64::MAX,
        }
    }

    /// Returns whether requests are HTTP/3.
    pub(crate) fn is_http3(&self) -> bool {
        matches!(self, Self::Live(_) | Self::Dash(_))
    }

    /// Application protocol of the request.
    pub(crate) fn alpn(&self) -> &'static [u8] {
        if self.is_http3() { b"h3" } else { b"hq-interop" }
    }

    /// Returns whether the run ends at its time limit instead of the last byte.
    pub(crate) fn is_endless(&self) -> bool {
        matches!(self, Self::Frames { .. } | Self::Unbounded)
    }
}

/// The source of [`Traffic::Frames`].
#[derive(Debug)]
pub(crate) struct FrameTraffic {
    bytes_per_second: f64,
    fps: f64,
    /// Frames available at the start, besides the first.
    cached: u64,
    start: Option<Timestamp>,
    /// Frames published since the start.
    published: u64,
}

impl FrameTraffic {
    pub(crate) fn new(rate: Rate, fps: f64, cached: Duration) -> Self {
        let bytes_per_second = rate.as_mbps_f64() * 1e6 / 8.0;
        let cached = (cached.as_secs_f64() * fps).round() as u64;
        Self { bytes_per_second, fps, cached, start: None, published: 0 }
    }

    /// Publishes the first frame.
    pub(crate) fn begin(&mut self, now: Timestamp) {
        self.start = Some(now);
        self.published = 1;
    }

    /// Time of the next frame.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        Some(self.start? + Duration::from_secs_f64(self.published as f64 / self.fps))
    }

    pub(crate) fn publish(&mut self, now: Timestamp) {
        while self.deadline().is_some_and(|due| due <= now) {
            self.published += 1;
        }
    }

    /// Bytes of all published frames.
    pub(crate) fn bytes(&self) -> u64 {
        if self.start.is_none() {
            return 0;
        }
        (self.bytes_per_second * (self.cached + self.published) as f64 / self.fps) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_at_their_rate_and_add_up_to_the_streams() {
        let mut frames = FrameTraffic::new(Rate::from_mbps(4), 25.0, Duration::ZERO);
        assert_eq!((frames.bytes(), frames.deadline()), (0, None));
        frames.begin(Timestamp::from_millis(100));
        assert_eq!(frames.bytes(), 20_000);
        assert_eq!(frames.deadline(), Some(Timestamp::from_millis(140)));
        frames.publish(Timestamp::from_millis(139));
        assert_eq!(frames.bytes(), 20_000);
        frames.publish(Timestamp::from_millis(1_090));
        assert_eq!(frames.bytes(), 500_000);
    }

    #[test]
    fn cached_frames_are_there_at_the_start_and_nothing_is_before() {
        let mut frames = FrameTraffic::new(Rate::from_mbps(4), 25.0, Duration::from_secs(2));
        assert_eq!(frames.bytes(), 0);
        frames.begin(Timestamp::from_millis(100));
        assert_eq!(frames.bytes(), 1_020_000);
        assert_eq!(frames.deadline(), Some(Timestamp::from_millis(140)));
        frames.publish(Timestamp::from_millis(140));
        assert_eq!(frames.bytes(), 1_040_000);
    }
}
