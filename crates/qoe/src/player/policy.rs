//! When a player starts, resumes and speeds up: three presets after players in use, and a player that
//! aims at a buffer of its own. Results are worth reporting for at least two of them: what freezes one
//! buffer does not touch a larger one.

use core::fmt;
use core::ops::RangeInclusive;
use core::str::FromStr;
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

    /// Buffers that [`Policy::aiming_at`] takes: below the least one such a player would resume with less
    /// than it starts with, and above the largest one nobody calls it low delay.
    pub const BUFFERS: RangeInclusive<Duration> =
        Duration::from_millis(100)..=Duration::from_secs(10);

    /// A low-delay web player that aims at `buffer` of media, as mpegts.js' `liveSync` or WebRTC's jitter
    /// buffer do: it starts with 100 ms, since the cached group of pictures that comes first fills the buffer
    /// anyway; it resumes with `buffer`; and above 1.3 times `buffer` it plays at 1.2 times the speed until
    /// `buffer` is left. So what a freeze added to the delay goes away again, and the next late frame meets a
    /// buffer of this size, not a larger one. `None` unless `buffer` is in [`Policy::BUFFERS`].
    pub fn aiming_at(buffer: Duration) -> Option<Self> {
        Self::BUFFERS.contains(&buffer).then(|| Self {
            start: Duration::from_millis(100),
            rebuffer: buffer,
            catch_up: Some(CatchUp { speed_percent: 120, above: buffer * 13 / 10, until: buffer }),
        })
    }

    /// The media that the player keeps: what it catches up to, or without that what it resumes with. A frame that
    /// is later than this empties the buffer.
    pub fn buffer(&self) -> Duration {
        self.catch_up.map_or(self.rebuffer, |catch_up| catch_up.until)
    }
}

/// A text that names no player.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownPlayer(String);

impl fmt::Display for UnknownPlayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Policy::PRESETS.map(|(name, _)| name).join(", ");
        let (least, most) = (Policy::BUFFERS.start(), Policy::BUFFERS.end());
        write!(f, "`{}`; it may be {names}, or buffer:{least:?} to buffer:{most:?}", self.0)
    }
}

impl core::error::Error for UnknownPlayer {}

/// `low-latency`, `mobile`, `cautious`, or `buffer:300ms` ([`Policy::aiming_at`]), in `ms` or `s`.
impl FromStr for Policy {
    type Err = UnknownPlayer;

    fn from_str(text: &str) -> Result<Self, UnknownPlayer> {
        let preset = Self::PRESETS.into_iter().find(|(name, _)| *name == text);
        let buffer = || {
            let time = text.strip_prefix("buffer:")?;
            let (number, seconds) = match time.strip_suffix("ms") {
                Some(number) => (number, 1e-3),
                None => (time.strip_suffix('s')?, 1.0),
            };
            let time = number.parse::<f64>().ok()? * seconds;
            Self::aiming_at(Duration::try_from_secs_f64(time).ok()?)
        };
        let policy = preset.map(|(_, policy)| policy).or_else(buffer);
        policy.ok_or_else(|| UnknownPlayer(text.to_owned()))
    }
}

/// The name that [`Policy::from_str`] reads; of any other policy what it starts and resumes with.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { start, rebuffer, .. } = self;
        match Self::PRESETS.into_iter().find(|(_, policy)| policy == self) {
            Some((name, _)) => f.pad(name),
            None if Self::aiming_at(*rebuffer) == Some(*self) => {
                f.pad(&format!("buffer:{rebuffer:?}"))
            }
            None => f.pad(&format!("start {start:?}, resume {rebuffer:?}")),
        }
    }
}
