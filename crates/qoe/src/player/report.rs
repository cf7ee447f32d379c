//! Player reports, and the rates of AutoRec's figures 2 and 22: freezes and frozen seconds per 100
//! s.

use core::time::Duration;

use units::Timestamp;

/// Minimum lengths of counted freezes. Players and studies differ: 0 (AutoRec), about 200 ms
/// (`waiting` events, which also occur without a visible stop), 500 ms (Agora), 1,250 ms (hls.js).
/// Reports count all four from the same events.
pub const FREEZE_THRESHOLDS: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_millis(1_250),
];

/// Index of 200 ms in [`FREEZE_THRESHOLDS`].
const NOTICED: usize = 1;
const _: () = assert!(FREEZE_THRESHOLDS[NOTICED].as_millis() == 200);

/// One freeze.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Freeze {
    /// Time when the buffer ran empty.
    pub start: Timestamp,
    /// Time until playback resumed.
    pub duration: Duration,
}

/// Freezes of a minimum length.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Freezes {
    /// Number of freezes.
    pub count: u64,
    /// Total duration.
    pub total: Duration,
}

/// Viewer's experience of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// Time from the request until now, or until the end of playback. Equals the sum of `waiting`,
    /// `played` and all freezes, to the nanosecond.
    pub elapsed: Duration,
    /// Time from the request to the first displayable frame, which is displayed at once. This is
    /// the first-frame time that viewers notice; Wira's FFCT is the part caused by the transport.
    pub first_frame: Option<Duration>,
    /// Time from the request to the start of playback.
    pub start: Option<Duration>,
    /// Time before playback started.
    pub waiting: Duration,
    /// Time spent playing.
    pub played: Duration,
    /// Freezes at least as long as each of [`FREEZE_THRESHOLDS`], including a current one. The
    /// first entry counts all.
    pub freezes: [Freezes; FREEZE_THRESHOLDS.len()],
    /// Forward jumps in media time.
    pub skips: u64,
    /// Media skipped by these jumps.
    pub skipped: Duration,
    /// Frames that added media. Interleaved frames after a newer one do not count.
    pub frames: u64,
    /// Late frames among them: frames later, relative to the quickest earlier one, than the
    /// player's buffer ([`super::Policy::buffer`]).
    pub late: u64,
    /// Received but unplayed media.
    pub buffered: Duration,
    /// Distance of the displayed frame behind the live edge. The live edge is the position that the
    /// stream would have if every frame had been as quick as the quickest one. The quickest frame's
    /// own delay from camera to player is unknown and not included. Skipped media counts as
    /// displayed once the jump arrives. `None` before the first frame.
    pub live_latency: Option<Duration>,
    /// Whether the stream has ended and all media was played.
    pub ended: bool,
}

impl Report {
    /// Time since the start of playback, including freezes: the denominator of rates.
    pub fn watched(&self) -> Duration {
        self.played + self.freezes[0].total
    }

    /// Freezes of at least 200 ms, which the web player counts and reports.
    pub fn noticed(&self) -> Freezes {
        self.freezes[NOTICED]
    }

    /// Late frames per frame. `None` before the second frame.
    pub fn late_rate(&self) -> Option<f64> {
        (self.frames > 0).then(|| self.late as f64 / self.frames as f64)
    }

    /// Rates of all freezes. `None` before playback starts.
    pub fn rates(&self) -> Option<FreezeRates> {
        FreezeRates::of(self.freezes[0], self.watched())
    }
}

/// The metrics `freezes_per_100s` and `freeze_s_per_100s`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FreezeRates {
    /// Freezes per 100 s watched.
    pub freezes_per_100s: f64,
    /// Frozen seconds per 100 s watched, which is the percentage of frozen time.
    pub freeze_s_per_100s: f64,
}

impl FreezeRates {
    /// Computes the rates of `freezes` in a time of `watched`. `None` if that is zero.
    pub fn of(freezes: Freezes, watched: Duration) -> Option<Self> {
        let hundreds = watched.as_secs_f64() / 100.0;
        (hundreds > 0.0).then(|| Self {
            freezes_per_100s: freezes.count as f64 / hundreds,
            freeze_s_per_100s: freezes.total.as_secs_f64() / hundreds,
        })
    }
}

/// Counts a freeze at each threshold that it reaches.
pub(super) fn add(tallies: &mut [Freezes; FREEZE_THRESHOLDS.len()], duration: Duration) {
    for (tally, _) in
        tallies.iter_mut().zip(FREEZE_THRESHOLDS).filter(|(_, least)| duration >= *least)
    {
        tally.count += 1;
        tally.total += duration;
    }
}
