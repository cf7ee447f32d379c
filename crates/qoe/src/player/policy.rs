//! When a player starts, resumes and speeds up: three presets after players in use. Results are
//! worth reporting for at least two of them: what freezes one buffer does not touch a larger one.

use core::time::Duration;

/// When a player plays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Buffered media from which playing starts.
    pub start: Duration,
    /// Buffered media from which playing resumes after a freeze.
    pub rebuffer: Duration,
    /// Faster playing while much is buffered, if the player does that.
    pub catch_up: Option<CatchUp>,
}

/// Faster playing that brings a player back to the live edge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CatchUp {
    /// Playing speed meanwhile, in percent; less than 100 counts as 100.
    pub speed_percent: u32,
    /// Starts when more than this is buffered.
    pub above: Duration,
    /// Stops when no more than this is buffered.
    pub until: Duration,
}

impl Policy {
    /// A web player of low-latency HTTP-FLV: 200 ms to start, 500 ms to resume, and the speed of
    /// mpegts.js' `liveSync`: 1.2 above 1.2 s of buffered media, until 0.8 s. Without it the burst
    /// of a cached group of pictures would stay in the buffer and hide every freeze.
    pub const LOW_LATENCY: Self = Self {
        start: Duration::from_millis(200),
        rebuffer: Duration::from_millis(500),
        catch_up: Some(CatchUp {
            speed_percent: 120,
            above: Duration::from_millis(1_200),
            until: Duration::from_millis(800),
        }),
    };

    /// Android's media3 (ExoPlayer): 1 s to start, 2 s to resume. Its speed stays within 3 % of
    /// normal and is left out.
    pub const MOBILE: Self =
        Self { start: Duration::from_secs(1), rebuffer: Duration::from_secs(2), catch_up: None };

    /// A cautious player with 3 s to start and to resume, at normal speed, as hls.js by default.
    pub const CAUTIOUS: Self =
        Self { start: Duration::from_secs(3), rebuffer: Duration::from_secs(3), catch_up: None };

    /// The presets with the names that reports use.
    pub const PRESETS: [(&'static str, Self); 3] = [
        ("low-latency", Self::LOW_LATENCY),
        ("mobile", Self::MOBILE),
        ("cautious", Self::CAUTIOUS),
    ];
}
