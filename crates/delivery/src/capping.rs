//! Caps on a viewer's connection from its user group (AutoPlex, sections 4.1 and 4.3). The group's
//! parameters and the stream's demand determine the controller's cap, which is updated while the
//! stream is served.

use core::time::Duration;

use congestion::Cap;
use groups::{Limits, Mode, Need, Parameters};
use quic::Connection;
use units::{Rate, Timestamp};

const UPDATE_PERIOD: Duration = Duration::from_millis(100);
/// Time after its start for which a viewer fills its buffer.
const STARTUP_PERIOD: Duration = Duration::from_secs(3);
/// Lag at which a viewer has to catch up.
const MAX_LAG: Duration = Duration::from_millis(250);

/// State of a stream at a viewer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Playing {
    /// Rate at which the stream is published, if known.
    pub bitrate: Option<Rate>,
    /// Lag of delivered data (time to the newest frame); `None` if the viewer fetches segments as
    /// fast as possible.
    pub lag: Option<Duration>,
}

/// Caps on one connection.
#[derive(Clone, PartialEq, Debug)]
pub struct Capping {
    mode: Mode,
    limits: Limits,
    is_capped: bool,
    started: Option<Timestamp>,
    due: Timestamp,
    min_rate: Option<Rate>,
}

impl Capping {
    /// Creates the state of a new connection.
    pub fn new(mode: Mode, limits: Limits) -> Self {
        let (is_capped, started, due, min_rate) = (false, None, Timestamp::ZERO, None);
        Self { mode, limits, is_capped, started, due, min_rate }
    }

    /// Returns whether [`Capping::update`] is due.
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.mode != Mode::Off && now >= self.due
    }

    /// Updates the cap if it is due. To be called whenever the stream is served, with the current
    /// parameters of the viewer's group. Without parameters there is no cap, except in
    /// [`Mode::Demand`], which needs none.
    pub fn update(
        &mut self,
        now: Timestamp,
        connection: &mut Connection,
        parameters: Option<Parameters>,
        playing: Playing,
    ) {
        if !self.is_due(now) {
            return;
        }
        self.due = now + UPDATE_PERIOD;
        let started = *self.started.get_or_insert(now);
        let is_behind =
            now.since(started) < STARTUP_PERIOD || playing.lag.is_none_or(|lag| lag > MAX_LAG);
        let rtt = connection.rtt().smoothed();
        let need = Need { bitrate: playing.bitrate, is_behind, rtt };
        let cap = self.limits.cap(self.mode, parameters.as_ref(), &need);
        let is_capped = cap != Cap::default();
        // Caps are set only here, so a connection without one needs no update.
        if is_capped || self.is_capped {
            connection.cap(cap);
        }
        self.is_capped = is_capped;
        let rate = cap.rate.or(cap.halfway.rate);
        self.min_rate = [self.min_rate, rate].into_iter().flatten().min();
    }

    /// Returns the lowest rate the connection was capped to, if any.
    pub fn min_rate(&self) -> Option<Rate> {
        self.min_rate
    }
}
