//! What a viewer's connection is held to because of its user group (AutoPlex, sections 4.1 and 4.3): the group's
//! parameters and what the stream needs become the controller's cap, again and again while it is served.

use core::time::Duration;

use congestion::Cap;
use groups::{Limits, Mode, Need, Parameters};
use quic::Connection;
use units::{Rate, Timestamp};

/// How often the cap follows what the stream needs.
const PERIOD: Duration = Duration::from_millis(100);
/// A viewer who came a moment ago has a buffer to fill.
const YOUNG: Duration = Duration::from_secs(3);
/// Whoever is further behind the newest frame has to catch up.
const BEHIND: Duration = Duration::from_millis(250);

/// A stream at one viewer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Playing {
    /// The rate at which the stream is published; `None` if nobody knows yet.
    pub bitrate: Option<Rate>,
    /// How far what was handed out is behind the newest frame; `None` where the viewer fetches the stream in parts, each as
    /// fast as can be.
    pub lag: Option<Duration>,
}

/// What one connection is held to.
#[derive(Clone, PartialEq, Debug)]
pub struct Capping {
    mode: Mode,
    limits: Limits,
    is_capped: bool,
    begun: Option<Timestamp>,
    due: Timestamp,
    least: Option<Rate>,
}

impl Capping {
    /// A viewer whose connection is to be held in this way.
    pub fn new(mode: Mode, limits: Limits) -> Self {
        let (is_capped, begun, due, least) = (false, None, Timestamp::ZERO, None);
        Self { mode, limits, is_capped, begun, due, least }
    }

    /// Whether [`Capping::look`] would do something now.
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.mode != Mode::Off && now >= self.due
    }

    /// The stream is served: to be called as often as that happens, with the parameters that the viewer's group has now.
    /// Without any there is no cap, but in [`Mode::Demand`], which needs none.
    pub fn look(
        &mut self,
        now: Timestamp,
        connection: &mut Connection,
        parameters: Option<Parameters>,
        playing: Playing,
    ) {
        if !self.is_due(now) {
            return;
        }
        self.due = now + PERIOD;
        let begun = *self.begun.get_or_insert(now);
        let is_behind = now.since(begun) < YOUNG || playing.lag.is_none_or(|lag| lag > BEHIND);
        let rtt = connection.rtt().smoothed();
        let need = Need { bitrate: playing.bitrate, is_behind, rtt };
        let cap = self.limits.cap(self.mode, parameters.as_ref(), &need);
        let is_capped = cap != Cap::default();
        // Nobody else sets caps: what was never set need not be lifted.
        if is_capped || self.is_capped {
            connection.cap(cap);
        }
        self.is_capped = is_capped;
        let rate = cap.rate.or(cap.halfway.rate);
        self.least = [self.least, rate].into_iter().flatten().min();
    }

    /// The smallest rate that the connection was held to; `None` if to none.
    pub fn least(&self) -> Option<Rate> {
        self.least
    }
}
