//! A model of the player: when it starts, when it freezes, how far behind it is.
//!
//! A freeze is what AutoRec measures: "video freezing occurs when the player buffer becomes empty"
//! (journal version, section II-B). It lasts until the player has buffered enough to go on, as
//! between `waiting` and `playing` of an HTML media element. The time before playing starts is
//! waiting, not freezing; rates per 100 s divide by the time from the start of playing on, freezes
//! included (CTA-2066's stall / (stall + play), Puffer's stall / total after startup).
//!
//! Time is exact. Between two calls the model computes when the buffer ran empty; it need not be
//! called at those instants, so virtual and real time work alike.
//!
//! The duration of the newest frame is unknown until the next one comes. Buffered media therefore
//! ends at the newest frame's time, and a freeze begins up to one frame early.

mod policy;
mod report;
#[cfg(test)]
mod tests;

use core::time::Duration;

use units::Timestamp;

pub use policy::{CatchUp, Policy, UnknownPlayer};
pub use report::{FREEZE_THRESHOLDS, Freeze, FreezeRates, Freezes, Report};

/// A longer step of media time from one frame to the next is a jump: nobody encodes a frame that
/// long, a relay skipped to the live edge. Agora counts gaps of this length.
pub const MAX_STEP: Duration = Duration::from_millis(500);

/// How many freezes a player lists; further ones are counted only.
pub const MAX_LISTED_FREEZES: usize = 1_000;

/// Playing speeds are in percent, so buffered media is kept in hundredths of a nanosecond: what
/// playing at 120 % takes in a nanosecond is then a whole number.
const NORMAL_SPEED: u128 = 100;

/// What a frame needs to be shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameKind {
    /// Nothing: a key frame; every frame of a stream without video.
    Key,
    /// What came before it: other video, and the sound of a stream with video, since players begin
    /// with a picture.
    Dependent,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Playing has not started.
    Waiting,
    Playing {
        /// Percent.
        speed: u128,
    },
    Frozen {
        since: Timestamp,
    },
    /// The stream has ended and all of it was played.
    Ended,
}

/// One viewer's player, from request to end.
#[derive(Clone, Debug)]
pub struct Player {
    policy: Policy,
    requested: Timestamp,
    /// Until when the model has been computed.
    now: Timestamp,
    phase: Phase,
    /// No more frames will come.
    ending: bool,
    first_frame: Option<Timestamp>,
    started: Option<Timestamp>,
    /// Media time of the newest frame, in milliseconds modulo 2^32.
    newest: Option<u32>,
    /// Media that came, without what was skipped.
    received: Duration,
    skipped: Duration,
    skips: u64,
    /// Received and not yet played, in hundredths of a nanosecond.
    buffered: u128,
    /// The frame that came earliest for its media time: when, and its place since the first frame,
    /// with what was skipped.
    live_edge: (Timestamp, Duration),
    /// Frames that brought media, and those among them that were late.
    frames: u64,
    late: u64,
    played: Duration,
    /// Freezes that have ended, by [`FREEZE_THRESHOLDS`].
    tallies: [Freezes; FREEZE_THRESHOLDS.len()],
    listed: Vec<Freeze>,
}

impl Player {
    /// A player that requests its stream at `requested`.
    pub fn new(policy: Policy, requested: Timestamp) -> Self {
        Self {
            policy,
            requested,
            now: requested,
            phase: Phase::Waiting,
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

    /// At `now` the player has read the last byte of a frame whose media time is `media_ms`
    /// milliseconds modulo 2^32, as in FLV; nearest to the newest frame's is meant.
    ///
    /// Nothing counts before the first key frame. A step back of up to [`MAX_STEP`] is the
    /// interleaving of sound and pictures and adds nothing. A larger step, either way, is a jump:
    /// the player plays on from the frame before it to the frame after it without a pause, and
    /// what lies between is skipped if the jump was forward.
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
        let place = self.received.saturating_add(self.skipped);
        let live_edge = self.live_edge_at(self.now);
        if place >= live_edge {
            self.live_edge = (self.now, place);
        }
        self.frames += 1;
        self.late += u64::from(live_edge.saturating_sub(place) > self.policy.buffer());
        self.play_if_buffered();
    }

    /// At `now` the stream ended: the player plays what it has, thresholds or not, and is done.
    pub fn on_end(&mut self, now: Timestamp) {
        self.advance(now);
        self.ending = true;
        self.play_if_buffered();
        if self.buffered == 0 {
            self.end();
        }
    }

    /// Lets time pass until `now`. Times before the latest one count as the latest.
    pub fn advance(&mut self, now: Timestamp) {
        while self.now < now {
            match self.phase {
                Phase::Waiting | Phase::Frozen { .. } => self.now = now,
                Phase::Playing { .. } if self.buffered == 0 => {
                    self.phase = Phase::Frozen { since: self.now };
                }
                Phase::Playing { speed } => self.play(speed, now),
                Phase::Ended => return,
            }
        }
    }

    /// What the viewer experienced until `now`.
    pub fn report(&mut self, now: Timestamp) -> Report {
        self.advance(now);
        let mut freezes = self.tallies;
        if let Phase::Frozen { since } = self.phase {
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
            ended: matches!(self.phase, Phase::Ended),
        }
    }

    /// The first [`MAX_LISTED_FREEZES`] freezes, without one that goes on.
    pub fn freezes(&self) -> &[Freeze] {
        &self.listed
    }

    /// Plays until `now`, or until the buffer asks for another speed or is empty.
    fn play(&mut self, speed: u128, now: Timestamp) {
        let catch_up = self.policy.catch_up.filter(|_| speed > NORMAL_SPEED);
        let floor = catch_up.map_or(0, |catch_up| hundredths(catch_up.until));
        let until_floor = self.buffered.saturating_sub(floor).div_ceil(speed);
        let span = now.since(self.now).min(whole_nanoseconds(until_floor));
        self.now += span;
        self.played += span;
        self.buffered = self.buffered.saturating_sub(span.as_nanos() * speed);
        if self.buffered <= floor {
            self.phase = Phase::Playing { speed: NORMAL_SPEED };
        }
        if self.ending && self.buffered == 0 {
            self.end();
        }
    }

    /// More was buffered, or no more will be: starts, resumes or speeds up if that is enough.
    fn play_if_buffered(&mut self) {
        let (needed, speed) = match self.phase {
            Phase::Waiting => (self.policy.start, NORMAL_SPEED),
            Phase::Frozen { .. } => (self.policy.rebuffer, NORMAL_SPEED),
            Phase::Playing { speed } => (Duration::ZERO, speed),
            Phase::Ended => return,
        };
        // With nothing at all, a player would stop at once.
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
        self.phase = Phase::Playing { speed };
    }

    fn end(&mut self) {
        self.close_freeze();
        self.phase = Phase::Ended;
    }

    fn close_freeze(&mut self) {
        let Phase::Frozen { since } = self.phase else { return };
        let duration = self.now.since(since);
        report::add(&mut self.tallies, duration);
        if self.listed.len() < MAX_LISTED_FREEZES {
            self.listed.push(Freeze { start: since, duration });
        }
    }

    /// The place in the stream that a frame would have that came now as early as the earliest.
    fn live_edge_at(&self, now: Timestamp) -> Duration {
        let (at, place) = self.live_edge;
        place.saturating_add(now.since(at))
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
