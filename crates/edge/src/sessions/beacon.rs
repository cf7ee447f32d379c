//! Player reports: small JSON objects, untrusted.

use serde::Deserialize;

/// Maximum bytes of a report.
pub const MAX_BEACON: usize = 4_096;
/// Maximum plausible time in a report, in seconds.
const MAX_SECONDS: f64 = 30.0 * 86_400.0;

/// A player's report, cumulative since its page was opened, by the player's clock.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Beacon {
    /// The viewer's pass, from the page or from the path of the HLS media playlist.
    pub viewer: String,
    /// The stream.
    pub stream: String,
    /// Time from the request to the first displayed picture, in ms.
    pub first_frame_ms: Option<f64>,
    /// Seconds played.
    pub played_s: f64,
    /// Number of freezes after the first picture.
    pub freezes: u64,
    /// Seconds frozen.
    pub freeze_s: f64,
    /// Buffer level at the time of the report, in ms.
    pub buffer_ms: Option<f64>,
}

impl Beacon {
    /// Returns the difference to an earlier report of the same page. Counts of a page continue
    /// across reconnects.
    #[must_use]
    pub fn since(mut self, before: Option<&Self>) -> Self {
        if let Some(before) = before {
            self.played_s = (self.played_s - before.played_s).max(0.0);
            self.freezes = self.freezes.saturating_sub(before.freezes);
            self.freeze_s = (self.freeze_s - before.freeze_s).max(0.0);
            // The first frame belongs to an earlier session.
            self.first_frame_ms = None;
        }
        self
    }

    /// Parses a report; `None` if it is malformed or impossible.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let beacon: Self = serde_json::from_slice(body).ok()?;
        let seconds = |s: f64| (0.0..=MAX_SECONDS).contains(&s);
        let first = beacon.first_frame_ms.is_none_or(|ms| seconds(ms * 1e-3));
        let times = seconds(beacon.played_s) && seconds(beacon.freeze_s) && first;
        // At most 1,000 freezes per second.
        let buffered = beacon.buffer_ms.is_none_or(|ms| seconds(ms * 1e-3));
        let freezes = beacon.freezes as f64 <= (beacon.played_s + beacon.freeze_s + 1.0) * 1e3;
        (times && buffered && freezes && beacon.stream.len() <= 256).then_some(beacon)
    }
}
