//! What a player reports of itself: a small JSON object, from anybody on the internet.

use serde::Deserialize;

/// The most bytes of a report.
pub const MAX_BEACON: usize = 4_096;
/// The longest that a page is believed to have played, in seconds.
const MAX_SECONDS: f64 = 30.0 * 86_400.0;

/// A player's report, cumulative since its page was opened. Times as the player's own clock has them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Beacon {
    /// The viewer's pass: the page's, or the one in the path of the HLS media playlist.
    pub viewer: String,
    /// The stream.
    pub stream: String,
    /// From the start of the request to the first picture on the screen, in milliseconds.
    pub first_frame_ms: Option<f64>,
    /// Seconds played.
    pub played_s: f64,
    /// Times that the picture froze after it had begun.
    pub freezes: u64,
    /// Seconds that it was frozen.
    pub freeze_s: f64,
    /// Media that the player holds and has not played yet, in milliseconds, when it reported.
    pub buffer_ms: Option<f64>,
}

impl Beacon {
    /// What happened after an earlier report of the same player: its page goes on counting when it
    /// connects again.
    #[must_use]
    pub fn since(mut self, before: Option<&Self>) -> Self {
        if let Some(before) = before {
            self.played_s = (self.played_s - before.played_s).max(0.0);
            self.freezes = self.freezes.saturating_sub(before.freezes);
            self.freeze_s = (self.freeze_s - before.freeze_s).max(0.0);
            // The first frame was that of an earlier session.
            self.first_frame_ms = None;
        }
        self
    }

    /// Reads a report; `None` if it is none, or claims what cannot be.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let beacon: Self = serde_json::from_slice(body).ok()?;
        let seconds = |s: f64| (0.0..=MAX_SECONDS).contains(&s);
        let first = beacon.first_frame_ms.is_none_or(|ms| seconds(ms * 1e-3));
        let sound = seconds(beacon.played_s) && seconds(beacon.freeze_s) && first;
        // More than a thousand freezes a second cannot be counted.
        let buffered = beacon.buffer_ms.is_none_or(|ms| seconds(ms * 1e-3));
        let freezes = beacon.freezes as f64 <= (beacon.played_s + beacon.freeze_s + 1.0) * 1e3;
        (sound && buffered && freezes && beacon.stream.len() <= 256).then_some(beacon)
    }
}
