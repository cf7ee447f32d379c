//! Playback policies: three presets modelled on existing players, and a player with a target
//! buffer. Report results for at least two, as a larger buffer avoids the freezes of a smaller one.

use core::fmt;
use core::ops::RangeInclusive;
use core::str::FromStr;
use core::time::Duration;

/// Thresholds for starting, resuming and speeding up playback.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Buffered media required to start.
    pub start: Duration,
    /// Buffered media required to resume after a freeze.
    pub rebuffer: Duration,
    /// Faster playback above a buffer level, if supported.
    pub catch_up: Option<CatchUp>,
}

/// Faster playback that returns a player to the live edge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CatchUp {
    /// Playback speed in percent. Values below 100 count as 100.
    pub speed_percent: u32,
    /// Buffer level above which it starts.
    pub above: Duration,
    /// Buffer level at which it stops.
    pub until: Duration,
}

impl Policy {
    /// A low-latency HTTP-FLV web player: 200 ms to start, 500 ms to resume, and the speed of
    /// mpegts.js' `liveSync`, which is 1.2 above 1.2 s of buffered media, until 0.8 s. Without it,
    /// an initial burst of cached media would stay in the buffer and prevent all freezes.
    pub const LOW_LATENCY: Self = Self {
        start: Duration::from_millis(200),
        rebuffer: Duration::from_millis(500),
        catch_up: Some(CatchUp {
            speed_percent: 120,
            above: Duration::from_millis(1_200),
            until: Duration::from_millis(800),
        }),
    };

    /// Android's media3 (ExoPlayer): 1 s to start, 2 s to resume. Omits its speed adjustment, which
    /// stays within 3 %.
    pub const MOBILE: Self =
        Self { start: Duration::from_secs(1), rebuffer: Duration::from_secs(2), catch_up: None };

    /// A cautious player at normal speed, like hls.js by default: 3 s to start and to resume.
    pub const CAUTIOUS: Self =
        Self { start: Duration::from_secs(3), rebuffer: Duration::from_secs(3), catch_up: None };

    /// Presets, with their names in reports.
    pub const PRESETS: [(&'static str, Self); 3] = [
        ("low-latency", Self::LOW_LATENCY),
        ("mobile", Self::MOBILE),
        ("cautious", Self::CAUTIOUS),
    ];

    /// Valid buffers of [`Policy::with_buffer`]. Below the minimum, it would resume with less than
    /// it starts with. Above the maximum, it is not a low-delay player.
    pub const BUFFERS: RangeInclusive<Duration> =
        Duration::from_millis(100)..=Duration::from_secs(10);

    /// Creates a low-delay web player with a target buffer, such as mpegts.js' `liveSync` or
    /// WebRTC's jitter buffer. Returns `None` unless `buffer` is in [`Policy::BUFFERS`].
    ///
    /// It starts with 100 ms, as cached media fills the buffer at once, and resumes with `buffer`.
    /// Above 1.3 times `buffer`, it plays at 1.2 times the speed until `buffer` remains. This
    /// removes the delay that a freeze adds, so each late frame meets a buffer of the same size.
    pub fn with_buffer(buffer: Duration) -> Option<Self> {
        Self::BUFFERS.contains(&buffer).then(|| Self {
            start: Duration::from_millis(100),
            rebuffer: buffer,
            catch_up: Some(CatchUp { speed_percent: 120, above: buffer * 13 / 10, until: buffer }),
        })
    }

    /// Buffer level of continuous playback: the catch-up target, or else the resume threshold. A
    /// frame that is later than this empties the buffer.
    pub fn buffer(&self) -> Duration {
        self.catch_up.map_or(self.rebuffer, |catch_up| catch_up.until)
    }
}

/// The text that is not a player.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownPlayer(String);

impl fmt::Display for UnknownPlayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Policy::PRESETS.map(|(name, _)| name).join(", ");
        let (least, most) = (Policy::BUFFERS.start(), Policy::BUFFERS.end());
        write!(
            f,
            "unknown player `{}`: expected {names}, or buffer:{least:?} to buffer:{most:?}",
            self.0
        )
    }
}

impl core::error::Error for UnknownPlayer {}

/// Parses `low-latency`, `mobile`, `cautious`, or `buffer:300ms` ([`Policy::with_buffer`]), in `ms`
/// or `s`.
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
            Self::with_buffer(Duration::try_from_secs_f64(time).ok()?)
        };
        let policy = preset.map(|(_, policy)| policy).or_else(buffer);
        policy.ok_or_else(|| UnknownPlayer(text.to_owned()))
    }
}

/// Writes the name that [`Policy::from_str`] parses, or else the start and resume thresholds.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { start, rebuffer, .. } = self;
        match Self::PRESETS.into_iter().find(|(_, policy)| policy == self) {
            Some((name, _)) => f.pad(name),
            None if Self::with_buffer(*rebuffer) == Some(*self) => {
                f.pad(&format!("buffer:{rebuffer:?}"))
            }
            None => f.pad(&format!("start {start:?}, resume {rebuffer:?}")),
        }
    }
}
