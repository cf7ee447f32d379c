//! Derives a session's cap from its group's parameters, as in the paper or with a floor per stream.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use congestion::{Cap, Halfway};
use units::Rate;

use crate::table::Parameters;

/// How parameters are applied.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub enum Mode {
    /// No caps.
    #[default]
    Off,
    /// Algorithm 1 and equation 1 to the letter, for comparison only. Streams above their group's
    /// usual bit rate starve, and capped sessions lower the next cap.
    Paper,
    /// A multiple of the stream's bit rate, without learning: see [`Limits::demand`].
    Demand,
    /// The group's rate, clamped to multiples of the stream's bit rate: see [`Limits::safe`].
    Safe,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 4] = [Self::Off, Self::Paper, Self::Demand, Self::Safe];

    /// Name in configurations, metrics and records.
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

/// Unknown name of a mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown mode: expected off, paper, demand or safe")]
pub struct UnknownMode;

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, UnknownMode> {
        Self::ALL.into_iter().find(|mode| mode.name() == text).ok_or(UnknownMode)
    }
}

/// Current demand of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Need {
    /// Published bit rate of the stream, including known protocol overhead. `None` while unknown.
    pub bitrate: Option<Rate>,
    /// Whether the player is behind or still filling its buffer. It then needs more than `bitrate`.
    pub is_behind: bool,
    /// Smoothed round-trip time.
    pub rtt: Duration,
}

/// Bounds of the cap, as multiples of the stream's bit rate.
///
/// ```
/// use core::time::Duration;
/// use mendcast_groups::{Limits, Mode, Need};
/// use units::Rate;
///
/// let need = Need {
///     bitrate: Some(Rate::from_mbps(2)),
///     is_behind: false,
///     rtt: Duration::from_millis(50),
/// };
/// let cap = Limits::default().cap(Mode::Demand, None, &need);
/// assert_eq!(cap.rate, Some(Rate::from_mbps(6)));
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limits {
    /// Lower bound of the pacing rate; at least 1, default 1.5.
    pub floor: f64,
    /// Upper bound, default 3. A faster sender only overruns queues.
    pub ceiling: f64,
    /// Factor on both bounds for sessions that are behind or have just started; default 1.5.
    pub behind: f64,
}

impl Default for Limits {
    /// 1.5 leaves room for key frames and for retransmissions under heavy loss. Below 3,
    /// `mendcast lab groups` finds more late frames. With `behind` at 1.5, a buffer of 1 s fills
    /// within 1 s.
    fn default() -> Self {
        Self { floor: 1.5, ceiling: 3.0, behind: 1.5 }
    }
}

/// Round trips at the capped rate that a window holds. BBR uses 2: less would undercut its window.
const WINDOW_ROUND_TRIPS: u64 = 2;
/// Minimum window: 16 full datagrams. The last packets of a frame then need not wait for
/// acknowledgements that the client delays.
const MIN_WINDOW: u64 = 16 * 1_500;

impl Limits {
    /// Returns the cap of a session under `mode`, given the parameters of its group.
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

    /// Caps at the most that the stream can use. No cap while its bit rate is unknown.
    pub fn demand(&self, need: &Need) -> Cap {
        let wide = Parameters { rate: Rate::MAX, in_flight: 0, sessions: 0, decided: 0 };
        self.safe(&wide, need)
    }

    /// Caps at the group's rate, clamped to the stream's needs, and at a window that carries this
    /// rate. No cap while the bit rate is unknown.
    pub fn safe(&self, parameters: &Parameters, need: &Need) -> Cap {
        let Some(bitrate) = need.bitrate.filter(|rate| *rate > Rate::ZERO) else {
            return Cap::default();
        };
        let behind = if need.is_behind { self.behind.max(1.0) } else { 1.0 };
        let floor = self.floor.max(1.0);
        let [least, most] = [floor, self.ceiling.max(floor)].map(|n| bitrate.scale(n * behind));
        let rate = parameters.rate.clamp(least, most);
        let carries = rate.bytes_in(need.rtt).saturating_mul(WINDOW_ROUND_TRIPS);
        let in_flight = parameters.in_flight.max(carries).max(MIN_WINDOW);
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
    fn the_group_rate_applies_between_floor_and_ceiling() {
        let limits = Limits::default();
        let rate = |stream, is_behind| {
            limits.safe(&parameters(3_000, 50_000), &need(stream, is_behind)).rate
        };
        assert_eq!(rate(500, false), Some(Rate::from_kbps(1_500)), "ceiling");
        assert_eq!(rate(500, true), Some(Rate::from_kbps(2_250)));
        assert_eq!(rate(1_500, false), Some(Rate::from_kbps(3_000)));
        assert_eq!(rate(2_000, false), Some(Rate::from_kbps(3_000)));
        assert_eq!(rate(4_000, false), Some(Rate::from_kbps(6_000)), "floor");
        assert_eq!(rate(2_000, true), Some(Rate::from_kbps(4_500)));
        let demand = |stream| limits.demand(&need(stream, false)).rate;
        assert_eq!((demand(1_000), demand(0)), (Some(Rate::from_kbps(3_000)), None));
        assert_eq!(rate(0, true), None, "unknown bit rate");
    }

    #[test]
    fn paper_mode_ignores_the_bit_rate() {
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
    fn mode_names_parse() {
        assert!(Mode::ALL.iter().all(|mode| mode.name().parse() == Ok(*mode)));
        assert_eq!("Safe".parse::<Mode>(), Err(UnknownMode));
    }

    proptest! {
        #[test]
        fn no_stream_is_capped_below_its_floor(
            kbps in 8u64..100_000_000, in_flight in 2_400u64..1 << 30, stream in 1u64..200_000,
            is_behind: bool, rtt_ms in 0u64..5_000,
        ) {
            let need = Need { rtt: Duration::from_millis(rtt_ms), ..need(stream, is_behind) };
            let cap = Limits::default().safe(&parameters(kbps, in_flight), &need);
            let (rate, window) = (cap.rate.expect("a cap"), cap.in_flight.expect("a cap"));
            prop_assert!(rate.as_bps() * 2 >= stream * 1_000 * 3);
            prop_assert!(window >= 2 * Rate::from_kbps(stream).bytes_in(need.rtt));
        }
    }
}
