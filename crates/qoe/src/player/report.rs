//! What a player reports, and the two rates of AutoRec's figures 2 and 22: freezes, and seconds
//! frozen, per 100 s.

use core::time::Duration;

use units::Timestamp;

/// Players and studies ignore freezes below different lengths: none (AutoRec), about 200 ms
/// (`waiting` events, which also come without a visible stop), 500 ms (Agora), 1,250 ms (hls.js).
/// Reports count all four from the same events.
pub const FREEZE_THRESHOLDS: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_millis(1_250),
];

/// The index in [`FREEZE_THRESHOLDS`] of 200 ms.
const NOTICED: usize = 1;
const _: () = assert!(FREEZE_THRESHOLDS[NOTICED].as_millis() == 200);

/// One freeze.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Freeze {
    /// When the buffer ran empty.
    pub start: Timestamp,
    /// From then until playing went on.
    pub duration: Duration,
}

/// Freezes of some length or more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Freezes {
    /// How many.
    pub count: u64,
    /// Their whole durations, together.
    pub total: Duration,
}

/// What a viewer experienced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// From the request to now, or to the end of what was played. It is the sum of `waiting`,
    /// `played` and all freezes, to the nanosecond.
    pub elapsed: Duration,
    /// From the request to the first frame that can be shown, which is shown at once (the
    /// first-frame time that viewers notice; Wira's FFCT is the transport's part of it).
    pub first_frame: Option<Duration>,
    /// From the request to the start of playing.
    pub start: Option<Duration>,
    /// Time before playing started.
    pub waiting: Duration,
    /// Time spent playing.
    pub played: Duration,
    /// Freezes at least as long as each of [`FREEZE_THRESHOLDS`], one that goes on included; the
    /// first are all freezes.
    pub freezes: [Freezes; FREEZE_THRESHOLDS.len()],
    /// Jumps forward in media time.
    pub skips: u64,
    /// Media that these jumps left out.
    pub skipped: Duration,
    /// Frames that brought media; what is interleaved behind a newer frame does not count.
    pub frames: u64,
    /// Frames among them that came later than the quickest one before them by more than the buffer that
    /// the player keeps ([`super::Policy::buffer`]).
    pub late: u64,
    /// Media that came and was not played yet.
    pub buffered: Duration,
    /// How far what is shown lies behind the live edge, which is where the stream would be had
    /// every frame been as quick as the quickest one since its capture. The delay of that
    /// quickest frame from camera to player is unknown here and comes on top. Skipped media
    /// counts as passed from the moment that the jump arrives. `None` before the first frame.
    pub live_latency: Option<Duration>,
    /// The stream ended and all of it was played.
    pub ended: bool,
}

impl Report {
    /// Time from the start of playing on, freezes included: what rates divide by.
    pub fn watched(&self) -> Duration {
        self.played + self.freezes[0].total
    }

    /// Freezes of 200 ms or more: those that the web player counts and reports. It takes shorter ones for playing.
    pub fn noticed(&self) -> Freezes {
        self.freezes[NOTICED]
    }

    /// Late frames per frame; `None` before the second frame.
    pub fn late_rate(&self) -> Option<f64> {
        (self.frames > 0).then(|| self.late as f64 / self.frames as f64)
    }

    /// Rates of all freezes in this session; `None` if nothing was watched.
    pub fn rates(&self) -> Option<FreezeRates> {
        FreezeRates::of(self.freezes[0], self.watched())
    }
}

/// The metrics `freezes_per_100s` and `freeze_s_per_100s`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FreezeRates {
    /// Freezes per 100 s watched.
    pub freezes_per_100s: f64,
    /// Seconds frozen per 100 s watched: also the percentage of the time that was frozen.
    pub freeze_s_per_100s: f64,
}

impl FreezeRates {
    /// The rates of `freezes` in a time of `watched`; `None` if that is zero.
    pub fn of(freezes: Freezes, watched: Duration) -> Option<Self> {
        let hundreds = watched.as_secs_f64() / 100.0;
        (hundreds > 0.0).then(|| Self {
            freezes_per_100s: freezes.count as f64 / hundreds,
            freeze_s_per_100s: freezes.total.as_secs_f64() / hundreds,
        })
    }
}

/// Counts a freeze of `duration` at each threshold that it reaches.
pub(super) fn add(tallies: &mut [Freezes; FREEZE_THRESHOLDS.len()], duration: Duration) {
    for (tally, _) in
        tallies.iter_mut().zip(FREEZE_THRESHOLDS).filter(|(_, least)| duration >= *least)
    {
        tally.count += 1;
        tally.total += duration;
    }
}
