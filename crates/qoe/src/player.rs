//! Player model: start, freezes, and live latency.
//!
//! Freezes are defined as in AutoRec: "video freezing occurs when the player buffer becomes empty"
//! (journal version, section II-B). A freeze lasts until enough is buffered to resume, like the
//! time between `waiting` and `playing` of an HTML media element. Time before playback starts is
//! waiting, not freezing. Rates per 100 s divide by the time since the start of playback, including
//! freezes (CTA-2066's stall / (stall + play), Puffer's stall / total after startup).
//!
//! Times are exact. The model computes between two calls when the buffer ran empty, and so supports
//! virtual and real time.
//!
//! The duration of the newest frame is unknown until the next one arrives. Buffered media therefore
//! ends at the newest frame's time, and a freeze starts up to one frame early.

mod policy;
mod report;
#[cfg(test)]
mod tests;

use core::time::Duration;

use units::Timestamp;

pub use policy::{CatchUp, Policy, UnknownPlayer};
pub use report::{FREEZE_THRESHOLDS, Freeze, FreezeRates, Freezes, Report};

/// Maximum media time between two frames. A larger step is a jump, as frames are not that long: the
/// relay skipped to the live edge. Agora counts gaps of this length.
pub const MAX_STEP: Duration = Duration::from_millis(500);

/// Maximum number of freezes that a player lists. Further ones are only counted.
pub const MAX_LISTED_FREEZES: usize = 1_000;

/// Normal playback speed in percent. Buffered media is stored in hundredths of a nanosecond, so
/// that the media consumed per nanosecond at any speed is an integer.
const NORMAL_SPEED: u128 = 100;

/// Dependency of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameKind {
    /// None: a key frame, or any frame of a stream without video.
    Key,
    /// Depends on earlier frames. Also audio of a stream with video, as players start with a
    /// picture.
    Dependent,
}

#[derive(Clone, Copy, Debug)]
enum PlaybackPhase {
    /// Before playback starts.
    Waiting,
    Playing {
        /// Percent.
        speed: u128,
    },
    Frozen {
        since: Timestamp,
    },
    /// The stream has ended and all media was played.
    Ended,
}

/// Player of one viewer, from the request to the end.
///
/// ```
/// use core::time::Duration;
/// use mendcast_qoe::{FrameKind, Player, Policy};
/// use units::Timestamp;
///
/// let policy = Policy::with_buffer(Duration::from_millis(300)).unwrap();
/// let mut player = Player::new(policy, Timestamp::ZERO);
/// for frame in 0..50 {
///     // 25 frames per second; the path is down for 1 s after frame 30.
///     let delay = if frame < 30 { 50 } else { 1_050 };
///     let kind = if frame == 0 { FrameKind::Key } else { FrameKind::Dependent };
///     player.on_media(Timestamp::from_millis(40 * frame + delay), 40 * frame as u32, kind);
/// }
/// let report = player.report(Timestamp::from_millis(3_100));
/// assert_eq!(report.noticed().count, 1);
/// ```
#[derive(Clone, Debug)]
pub struct Player {
    policy: Policy,
    requested: Timestamp,
    /// Time up to which the model is computed.
    now: Timestamp,
    phase: PlaybackPhase,
    /// Whether the stream has ended.
    ending: bool,
    first_frame: Option<Timestamp>,
    started: Option<Timestamp>,
    /// Media time of the newest frame, in milliseconds modulo 2^32.
    newest: Option<u32>,
    /// Received media, excluding skipped media.
    received: Duration,
    skipped: Duration,
    skips: u64,
    /// Received but unplayed media, in hundredths of a nanosecond.
    buffered: u128,
    /// Arrival time and position of the frame that arrived earliest relative to its media time. The
    /// position is counted from the first frame and includes skipped media.
    live_edge: (Timestamp, Duration),
    /// Frames that added media, and late frames among them.
    frames: u64,
    late: u64,
    played: Duration,
    /// Completed freezes by [`FREEZE_THRESHOLDS`].
    tallies: [Freezes; FREEZE_THRESHOLDS.len()],
    listed: Vec<Freeze>,
}

impl Player {
    /// Creates a player that requests its stream at `requested`.
    pub fn new(policy: Policy, requested: Timestamp) -> Self {
        Self {
            policy,
            requested,
            now: requested,
            phase: PlaybackPhase::Waiting,
            ending: false,
            first_frame: None,
            started: None,
            newest: None,
            received: Duration::ZERO,
            skipped: Duration::ZERO,
            skips: 0,
            buffered: 0,
            live_edge: (requested, Duration::ZERO),
            frames: 0,
            late: 0,
            played: Duration::ZERO,
            tallies: [Freezes::default(); FREEZE_THRESHOLDS.len()],
            listed: Vec::new(),
        }
    }

    /// Processes a frame that was completely received at `now`. `media_ms` is its media time
    /// in milliseconds modulo 2^32, as in FLV, and is interpreted as the time nearest to the newest
    /// frame.
    ///
    /// Frames before the first key frame are ignored. A step back of up to [`MAX_STEP`] results
    /// from interleaved audio and video, and adds nothing. A larger step in either direction is a
    /// jump: playback continues across it without a pause, and the media in between is skipped if
    /// the jump is forward.
    pub fn on_media(&mut self, now: Timestamp, media_ms: u32, kind: FrameKind) {
        self.advance(now);
        if self.ending {
            return;
        }
        let Some(newest) = self.newest else {
            if kind == FrameKind::Key {
                self.first_frame = Some(self.now);
                self.newest = Some(media_ms);
                self.live_edge = (self.now, Duration::ZERO);
            }
            return;
        };
        let step_ms = media_ms.wrapping_sub(newest).cast_signed();
        let step = Duration::from_millis(step_ms.unsigned_abs().into());
        if step > MAX_STEP {
            if step_ms > 0 {
                self.skips += 1;
                self.skipped = self.skipped.saturating_add(step);
            }
        } else if step_ms > 0 {
            self.received = self.received.saturating_add(step);
            self.buffered += hundredths(step);
        } else {
            return;
        }
        self.newest = Some(media_ms);
        let position = self.received.saturating_add(self.skipped);
        let live_edge = self.live_edge_at(self.now);
        if position >= live_edge {
            self.live_edge = (self.now, position);
        }
        self.frames += 1;
        self.late += u64::from(live_edge.saturating_sub(position) > self.policy.buffer());
        self.play_if_buffered();
    }

    /// Ends the stream at `now`. The player plays the rest of its buffer regardless of thresholds.
    pub fn on_end(&mut self, now: Timestamp) {
        self.advance(now);
        self.ending = true;
        self.play_if_buffered();
        if self.buffered == 0 {
            self.end();
        }
    }

    /// Advances the model to `now`. Ignores times in the past.
    pub fn advance(&mut self, now: Timestamp) {
        while self.now < now {
            match self.phase {
                PlaybackPhase::Waiting | PlaybackPhase::Frozen { .. } => self.now = now,
                PlaybackPhase::Playing { .. } if self.buffered == 0 => {
                    self.phase = PlaybackPhase::Frozen { since: self.now };
                }
                PlaybackPhase::Playing { speed } => self.play(speed, now),
                PlaybackPhase::Ended => return,
            }
        }
    }

    /// Returns the viewer's experience up to `now`.
    pub fn report(&mut self, now: Timestamp) -> Report {
        self.advance(now);
        let mut freezes = self.tallies;
        if let PlaybackPhase::Frozen { since } = self.phase {
            report::add(&mut freezes, self.now.since(since));
        }
        let elapsed = self.now.since(self.requested);
        let start = self.started.map(|at| at.since(self.requested));
        let buffered = nanoseconds(self.buffered);
        let shown = self.received.saturating_add(self.skipped).saturating_sub(buffered);
        Report {
            elapsed,
            first_frame: self.first_frame.map(|at| at.since(self.requested)),
            start,
            waiting: start.unwrap_or(elapsed),
            played: self.played,
            freezes,
            skips: self.skips,
            skipped: self.skipped,
            frames: self.frames,
            late: self.late,
            buffered,
            live_latency: self
                .first_frame
                .map(|_| self.live_edge_at(self.now).saturating_sub(shown)),
            ended: matches!(self.phase, PlaybackPhase::Ended),
        }
    }

    /// The first [`MAX_LISTED_FREEZES`] completed freezes.
    pub fn freezes(&self) -> &[Freeze] {
        &self.listed
    }

    /// Plays until `now`, or until the speed changes or the buffer is empty.
    fn play(&mut self, speed: u128, now: Timestamp) {
        let catch_up = self.policy.catch_up.filter(|_| speed > NORMAL_SPEED);
        let floor = catch_up.map_or(0, |catch_up| hundredths(catch_up.until));
        let until_floor = self.buffered.saturating_sub(floor).div_ceil(speed);
        let span = now.since(self.now).min(whole_nanoseconds(until_floor));
        self.now += span;
        self.played += span;
        self.buffered = self.buffered.saturating_sub(span.as_nanos() * speed);
        if self.buffered <= floor {
            self.phase = PlaybackPhase::Playing { speed: NORMAL_SPEED };
        }
        if self.ending && self.buffered == 0 {
            self.end();
        }
    }

    /// Starts, resumes or speeds up if the buffer suffices or the stream has ended.
    fn play_if_buffered(&mut self) {
        let (needed, speed) = match self.phase {
            PlaybackPhase::Waiting => (self.policy.start, NORMAL_SPEED),
            PlaybackPhase::Frozen { .. } => (self.policy.rebuffer, NORMAL_SPEED),
            PlaybackPhase::Playing { speed } => (Duration::ZERO, speed),
            PlaybackPhase::Ended => return,
        };
        // An empty buffer would freeze again at once.
        if self.buffered == 0 || (self.buffered < hundredths(needed) && !self.ending) {
            return;
        }
        self.close_freeze();
        self.started.get_or_insert(self.now);
        let speed = match self.policy.catch_up {
            Some(catch_up) if self.buffered > hundredths(catch_up.above) => {
                u128::from(catch_up.speed_percent).max(NORMAL_SPEED)
            }
            _ => speed,
        };
        self.phase = PlaybackPhase::Playing { speed };
    }

    fn end(&mut self) {
        self.close_freeze();
        self.phase = PlaybackPhase::Ended;
    }

    fn close_freeze(&mut self) {
        let PlaybackPhase::Frozen { since } = self.phase else { return };
        let duration = self.now.since(since);
        report::add(&mut self.tallies, duration);
        if self.listed.len() < MAX_LISTED_FREEZES {
            self.listed.push(Freeze { start: since, duration });
        }
    }

    /// Returns the position of a frame that arrives now as early as the earliest frame did.
    fn live_edge_at(&self, now: Timestamp) -> Duration {
        let (at, position) = self.live_edge;
        position.saturating_add(now.since(at))
    }
}

fn hundredths(span: Duration) -> u128 {
    span.as_nanos() * NORMAL_SPEED
}

fn nanoseconds(hundredths: u128) -> Duration {
    whole_nanoseconds(hundredths / NORMAL_SPEED)
}

fn whole_nanoseconds(nanos: u128) -> Duration {
    u64::try_from(nanos).map_or(Duration::MAX, Duration::from_nanos)
}
