//! What a session may send at most, from the parameters of its group: as the paper has it, or with a floor below
//! which no stream is pushed.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use congestion::{Cap, Halfway};
use units::Rate;

use crate::table::Parameters;

/// How parameters are applied.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub enum Mode {
    /// Not at all.
    #[default]
    Off,
    /// Algorithm 1 and equation 1 to the letter. What sessions asked for becomes a bound on what the next ones may
    /// ask for, so that streams of a higher bit rate than their group's usual one are starved; and those who are
    /// bounded teach the next bound, which is lower. For comparison only.
    Paper,
    /// A multiple of what each stream needs, and nothing learned: see [`Limits::demand`].
    Demand,
    /// The group's bound, between what each stream needs and a multiple of that: see [`Limits::safe`].
    Safe,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 4] = [Self::Off, Self::Paper, Self::Demand, Self::Safe];

    /// As configurations, metrics and records name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Paper => "paper",
            Self::Demand => "demand",
            Self::Safe => "safe",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no such mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there are the modes off, paper, demand and safe")]
pub struct UnknownMode;

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, UnknownMode> {
        Self::ALL.into_iter().find(|mode| mode.name() == text).ok_or(UnknownMode)
    }
}

/// What a session sends now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Need {
    /// The bit rate of the stream as it is published, protocol included as far as it is known; `None` if it is not
    /// known yet.
    pub bitrate: Option<Rate>,
    /// The player has yet to fill its buffer, or is behind: it needs more than what is published.
    pub is_behind: bool,
    /// The smoothed round-trip time.
    pub rtt: Duration,
}

/// Between what a stream is held, as multiples of its bit rate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limits {
    /// The least pacing rate; at least 1.
    pub floor: f64,
    /// The most: above it a sender only overruns queues, since the stream has no more to send.
    pub ceiling: f64,
    /// What both are multiplied by for a session that is behind or has just begun.
    pub behind: f64,
}

impl Default for Limits {
    /// At least 1.5: room for retransmissions under heavy loss and for key frames. At most 3: `mendcast lab autoplex` finds
    /// more late frames below that. Half as much more for those who are behind: a buffer of a second fills in a second.
    fn default() -> Self {
        Self { floor: 1.5, ceiling: 3.0, behind: 1.5 }
    }
}

/// Round trips that a window carries at its rate: as BBR has it, whose own window this must not undercut.
const ROUNDS: u64 = 2;
/// A window always has room for these many full datagrams, so that a frame's last packets do not wait for
/// acknowledgements that the client delays.
const LEAST_WINDOW: u64 = 16 * 1_500;

impl Limits {
    /// The cap of a session under `mode`, whose group has these parameters.
    pub fn cap(&self, mode: Mode, parameters: Option<&Parameters>, need: &Need) -> Cap {
        match (mode, parameters) {
            (Mode::Off, _) | (Mode::Paper | Mode::Safe, None) => Cap::default(),
            (Mode::Demand, _) => self.demand(need),
            (Mode::Safe, Some(parameters)) => self.safe(parameters, need),
            (Mode::Paper, Some(parameters)) => {
                let (rate, in_flight) = (Some(parameters.rate), Some(parameters.in_flight));
                Cap { halfway: Halfway { rate, in_flight }, ..Cap::default() }
            }
        }
    }

    /// The most that the stream can use. No bound as long as nobody knows what it needs.
    pub fn demand(&self, need: &Need) -> Cap {
        let wide = Parameters { rate: Rate::MAX, in_flight: 0, sessions: 0, decided: 0 };
        self.safe(&wide, need)
    }

    /// The group's rate, but at least what this stream needs and at most what it can use; and a window that carries that
    /// rate. No bound as long as nobody knows what the stream needs.
    pub fn safe(&self, parameters: &Parameters, need: &Need) -> Cap {
        let Some(bitrate) = need.bitrate.filter(|rate| *rate > Rate::ZERO) else {
            return Cap::default();
        };
        let behind = if need.is_behind { self.behind.max(1.0) } else { 1.0 };
        let floor = self.floor.max(1.0);
        let [least, most] = [floor, self.ceiling.max(floor)].map(|n| bitrate.scale(n * behind));
        let rate = parameters.rate.clamp(least, most);
        let carries = rate.bytes_in(need.rtt).saturating_mul(ROUNDS);
        let in_flight = parameters.in_flight.max(carries).max(LEAST_WINDOW);
        Cap { rate: Some(rate), in_flight: Some(in_flight), ..Cap::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parameters(kbps: u64, in_flight: u64) -> Parameters {
        Parameters { rate: Rate::from_kbps(kbps), in_flight, sessions: 300, decided: 0 }
    }

    fn need(kbps: u64, is_behind: bool) -> Need {
        let bitrate = (kbps > 0).then(|| Rate::from_kbps(kbps));
        Need { bitrate, is_behind, rtt: Duration::from_millis(50) }
    }

    #[test]
    fn the_group_bounds_those_who_need_less_and_nobody_else() {
        let limits = Limits::default();
        let rate = |stream, is_behind| {
            limits.safe(&parameters(3_000, 50_000), &need(stream, is_behind)).rate
        };
        assert_eq!(rate(500, false), Some(Rate::from_kbps(1_500)), "it can use no more");
        assert_eq!(rate(500, true), Some(Rate::from_kbps(2_250)));
        assert_eq!(rate(1_500, false), Some(Rate::from_kbps(3_000)));
        assert_eq!(rate(2_000, false), Some(Rate::from_kbps(3_000)));
        assert_eq!(rate(4_000, false), Some(Rate::from_kbps(6_000)), "it needs more");
        assert_eq!(rate(2_000, true), Some(Rate::from_kbps(4_500)));
        let demand = |stream| limits.demand(&need(stream, false)).rate;
        assert_eq!((demand(1_000), demand(0)), (Some(Rate::from_kbps(3_000)), None));
        assert_eq!(rate(0, true), None, "nobody knows what it needs");
    }

    #[test]
    fn the_paper_draws_back_whatever_a_stream_needs() {
        let cap = Limits::default().cap(
            Mode::Paper,
            Some(&parameters(3_000, 50_000)),
            &need(6_000, true),
        );
        assert_eq!((cap.rate, cap.in_flight), (None, None));
        // Equation 1.
        assert_eq!(cap.rate(Some(Rate::from_kbps(6_000)), 1_200), Some(Rate::from_kbps(4_500)));
        assert_eq!(cap.rate(Some(Rate::from_kbps(2_000)), 1_200), Some(Rate::from_kbps(2_000)));
        assert_eq!((cap.window(90_000, 0), cap.window(40_000, 0)), (70_000, 40_000));
        let off =
            Limits::default().cap(Mode::Off, Some(&parameters(3_000, 50_000)), &need(1_000, false));
        assert_eq!(off, Cap::default());
    }

    #[test]
    fn modes_are_known_by_their_names() {
        assert!(Mode::ALL.iter().all(|mode| mode.name().parse() == Ok(*mode)));
        assert_eq!("Safe".parse::<Mode>(), Err(UnknownMode));
    }

    proptest! {
        #[test]
        fn no_stream_is_ever_pushed_below_its_floor(
            kbps in 8u64..100_000_000, in_flight in 2_400u64..1 << 30, stream in 1u64..200_000,
            is_behind: bool, rtt_ms in 0u64..5_000,
        ) {
            let need = Need { rtt: Duration::from_millis(rtt_ms), ..need(stream, is_behind) };
            let cap = Limits::default().safe(&parameters(kbps, in_flight), &need);
            let (rate, window) = (cap.rate.expect("a bound"), cap.in_flight.expect("a bound"));
            prop_assert!(rate.as_bps() * 2 >= stream * 1_000 * 3);
            prop_assert!(window >= 2 * Rate::from_kbps(stream).bytes_in(need.rtt));
        }
    }
}
