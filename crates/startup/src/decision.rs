//! Start parameters (Wira, section IV-C, equations 2 and 3, both corner cases, and table I) as a
//! pure function of the state at the start of a response.
//!
//! **Corner case 1**: the size of the first frame is unknown. `init_cwnd_exp` replaces it. Decide
//! and start again once it is known.
//!
//! **Corner case 2**: there is no cookie, or it was rejected
//! ([`Cookie::accept`](crate::Cookie::accept), which checks Δ). The window is the size of the first
//! frame, sent within one round trip.
//!
//! **0-RTT and 1-RTT** (section VI): a round trip measured by a 1-RTT handshake replaces the saved
//! and the default round trip.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use congestion::{Start, initial_window, minimum_window};
use units::Rate;

use crate::careful::Saved;
use crate::cookie::PathState;

/// Startup mode of a connection. Each is a treatment in experiments.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mode {
    /// Ten datagrams, paced by the controller (RFC 9002, section 7.2; RFC 6928).
    Iw10,
    /// The paper's baseline: default window and default round trip for all.
    Fixed,
    /// Wira(FF): the window is the size of the first frame.
    WiraFf,
    /// Wira(Hx): window and rate of the last connection.
    WiraHx,
    /// Wira: the smaller of both windows, at the last connection's rate.
    Wira,
    /// The smaller of the first frame and the bytes per round trip at the last connection's usual
    /// rate, sent at that rate. Without a cookie: Rapid Start's first flight, but not beyond the
    /// first frame. Using the maximum rate instead, as [`Mode::Wira`] does, overruns the path about
    /// half of the time.
    Steady,
    /// Rapid Start: twice the initial window over one round trip, then tripling per round until the
    /// queue grows ([`Rapid`](crate::rapid::Rapid)).
    Rapid,
    /// Careful Resume: the initial window, and a jump after its first round trip without congestion
    /// ([`Careful`](crate::careful::Careful)).
    Careful,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 8] = [
        Self::Iw10,
        Self::Fixed,
        Self::WiraFf,
        Self::WiraHx,
        Self::Wira,
        Self::Steady,
        Self::Rapid,
        Self::Careful,
    ];

    /// Returns true if the window depends on path state, which requires a claim
    /// ([`JumpLedger`](crate::JumpLedger)).
    pub const fn needs_past(self) -> bool {
        matches!(self, Self::WiraHx | Self::Wira | Self::Steady | Self::Careful)
    }

    /// Name in configurations, records and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Iw10 => "iw10",
            Self::Fixed => "fixed",
            Self::WiraFf => "wira-ff",
            Self::WiraHx => "wira-hx",
            Self::Wira => "wira",
            Self::Steady => "steady",
            Self::Rapid => "rapid",
            Self::Careful => "careful",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mode {
    /// Message that quotes the text and lists the modes.
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|mode| mode.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(" ");
            format!("unknown start mode `{text}`: expected one of {names}")
        })
    }
}

/// Inputs of a decision.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Inputs {
    /// FF_Size in bytes; `None` while unknown.
    pub first_frame: Option<u64>,
    /// Path state from an accepted cookie.
    pub past: Option<PathState>,
    /// Round trip measured by the handshake; `None` for 0-RTT.
    pub handshake_rtt: Option<Duration>,
}

/// Limits and defaults set by the operator.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limits {
    /// Size of a datagram in bytes.
    pub mtu: u16,
    /// Largest first flight and largest jump in bytes; default 256 KiB, the largest first frame in
    /// the paper (section II-A). Bounds the burst that a wrong cookie can cause. At least two
    /// datagrams.
    pub max_jump: u64,
    /// `init_cwnd_exp` in bytes; default 43,100, the paper's mean first frame (section II-A). A
    /// weekly mean of the operator's own streams is better.
    pub usual_window: u64,
    /// `init_RTT_exp`; default 50 ms, as in the paper's testbed. The paper does not report the
    /// round trip of its servers. A weekly mean of the operator's own viewers is better.
    pub usual_rtt: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            mtu: 1_200,
            max_jump: 256 << 10,
            usual_window: 43_100,
            usual_rtt: Duration::from_millis(50),
        }
    }
}

/// Start parameters of a connection.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StartDecision {
    /// Start parameters of the congestion controller. The window is at most `max_jump`.
    pub start: Start,
    /// Algorithm that controls the round trips that follow.
    pub course: Course,
}

/// Algorithm after the first flight.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Course {
    /// The congestion controller alone.
    Normal,
    /// [`Rapid`](crate::rapid::Rapid).
    Rapid,
    /// [`Careful`](crate::careful::Careful) with these saved parameters.
    Careful(Saved),
}

/// Decides the start parameters of a connection.
///
/// ```
/// use core::time::Duration;
/// use mendcast_startup::decision::{Inputs, Limits, Mode, decide};
///
/// // A viewer without a cookie: the first frame over the round trip of the handshake.
/// let known = Inputs {
///     first_frame: Some(60_000),
///     handshake_rtt: Some(Duration::from_millis(40)),
///     ..Inputs::default()
/// };
/// let start = decide(Mode::Wira, &known, &Limits::default()).start;
/// assert_eq!(start.window, Some(60_000));
/// assert_eq!(start.rate.unwrap().to_string(), "12mbps");
/// ```
pub fn decide(mode: Mode, known: &Inputs, limits: &Limits) -> StartDecision {
    let within = |window: u64| window.min(limits.max_jump).max(minimum_window(limits.mtu));
    let iw = initial_window(limits.mtu);
    let past = known.past.as_ref();
    let measured = known.handshake_rtt.filter(|rtt| !rtt.is_zero());
    let past_rtt = past.map(|past| past.cookie.min_rtt);
    let experience = measured.unwrap_or(limits.usual_rtt);
    let supposed = measured.or(past_rtt).unwrap_or(limits.usual_rtt);
    let first_frame = known.first_frame.unwrap_or(limits.usual_window);

    let paced = |window: u64, rtt: Duration| {
        let window = within(window);
        (window, Some(Rate::from_bytes_in(window, rtt)))
    };
    // Equation 2, and the second half of equation 3.
    let max = past.map(|past| {
        let rate = past.cookie.max_rate;
        (rate.bytes_in(supposed), rate)
    });
    let ((window, rate), course) = match mode {
        Mode::Iw10 => ((within(iw), None), Course::Normal),
        Mode::Fixed => (paced(limits.usual_window, experience), Course::Normal),
        Mode::WiraFf => (paced(first_frame, experience), Course::Normal),
        Mode::WiraHx => match max {
            Some((bdp, rate)) => ((within(bdp), Some(rate)), Course::Normal),
            None => (paced(limits.usual_window, experience), Course::Normal),
        },
        Mode::Wira => match max {
            Some((bdp, rate)) => ((within(first_frame.min(bdp)), Some(rate)), Course::Normal),
            None => (paced(first_frame, experience), Course::Normal),
        },
        Mode::Steady => {
            let start = match past.map(|past| past.cookie.usual_rate) {
                Some(rate) => (within(first_frame.min(rate.bytes_in(supposed))), Some(rate)),
                None => paced(first_frame.min(2 * iw), supposed),
            };
            (start, Course::Normal)
        }
        Mode::Rapid => (paced(2 * iw, supposed), Course::Rapid),
        Mode::Careful => {
            let course = past.map_or(Course::Normal, |past| {
                Course::Careful(Saved::new(past, known.first_frame, limits.max_jump))
            });
            ((within(iw), None), course)
        }
    };
    StartDecision { start: Start { window: Some(window), rate, rtt: Some(supposed) }, course }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cookie::{Carrier, Cookie, CookieRules};
    use crate::fixture::cookie;
    use proptest::prelude::*;

    /// The paper's testbed (figure 2): 66 KB, 8 Mbit/s and 50 ms, thus a BDP of 50 KB.
    const FIRST_FRAME: u64 = 66_000;

    fn past() -> PathState {
        PathState { cookie: cookie(), confidence: 1.0 }
    }

    fn known(first_frame: bool, past_known: bool, rtt_ms: Option<u64>) -> Inputs {
        Inputs {
            first_frame: first_frame.then_some(FIRST_FRAME),
            past: past_known.then(past),
            handshake_rtt: rtt_ms.map(Duration::from_millis),
        }
    }

    /// Window in bytes, and rate in kbit/s.
    fn decided(mode: Mode, known: Inputs) -> (u64, Option<u64>) {
        let start = decide(mode, &known, &Limits::default()).start;
        (start.window.expect("always"), start.rate.map(|rate| rate.as_bps() / 1_000))
    }

    #[test]
    fn table_1_with_0_rtt() {
        let all = known(true, true, None);
        assert_eq!(decided(Mode::Iw10, all), (12_000, None));
        // 43,100 bytes in 50 ms.
        assert_eq!(decided(Mode::Fixed, all), (43_100, Some(6_896)));
        // 66,000 bytes in 50 ms.
        assert_eq!(decided(Mode::WiraFf, all), (66_000, Some(10_560)));
        assert_eq!(decided(Mode::WiraHx, all), (50_000, Some(8_000)));
        assert_eq!(decided(Mode::Wira, all), (50_000, Some(8_000)));
        let small = Inputs { first_frame: Some(30_000), ..all };
        assert_eq!(decided(Mode::Wira, small), (30_000, Some(8_000)));
        assert_eq!(decided(Mode::WiraHx, small), (50_000, Some(8_000)));
    }

    #[test]
    fn table_1_with_1_rtt_uses_the_measured_round_trip() {
        let all = known(true, true, Some(40));
        assert_eq!(decided(Mode::Fixed, all), (43_100, Some(8_620)));
        assert_eq!(decided(Mode::WiraFf, all), (66_000, Some(13_200)));
        // 8 Mbit/s in 40 ms.
        assert_eq!(decided(Mode::WiraHx, all), (40_000, Some(8_000)));
        assert_eq!(decided(Mode::Wira, all), (40_000, Some(8_000)));
        let start = decide(Mode::Wira, &all, &Limits::default()).start;
        assert_eq!(start.rtt, Some(Duration::from_millis(40)));
    }

    #[test]
    fn corner_case_1_uses_the_default_window() {
        let none = known(false, true, None);
        assert_eq!(decided(Mode::Wira, none), (43_100, Some(8_000)), "below 50,000");
        assert_eq!(decided(Mode::WiraFf, none), (43_100, Some(6_896)));
        // Once it is known, the same function gives the window of equation 3.
        assert_eq!(decided(Mode::Wira, known(true, true, None)), (50_000, Some(8_000)));
    }

    #[test]
    fn corner_case_2_sends_the_first_frame_within_a_round_trip() {
        assert_eq!(decided(Mode::Wira, known(true, false, None)), (66_000, Some(10_560)));
        assert_eq!(decided(Mode::Wira, known(true, false, Some(100))), (66_000, Some(5_280)));
        assert_eq!(decided(Mode::WiraHx, known(true, false, None)), (43_100, Some(6_896)));
        // Both cases together are the baseline.
        let fixed = decided(Mode::Fixed, known(false, false, None));
        assert_eq!(decided(Mode::Wira, known(false, false, None)), fixed);
        // T > Δ: the cookie is rejected.
        let late = cookie().issued + 3_601;
        let client = "192.0.2.7".parse().expect("an address");
        assert!(cookie().accept(Carrier::Token, client, late, &CookieRules::default()).is_err());
    }

    #[test]
    fn steady_uses_the_usual_rate_and_a_small_window_without_a_cookie() {
        // 6 Mbit/s for 50 ms.
        assert_eq!(decided(Mode::Steady, known(true, true, None)), (37_500, Some(6_000)));
        assert_eq!(decided(Mode::Steady, known(true, true, Some(40))), (30_000, Some(6_000)));
        let small = Inputs { first_frame: Some(20_000), ..known(true, true, None) };
        assert_eq!(decided(Mode::Steady, small), (20_000, Some(6_000)));
        // 24,000 bytes in 50 ms, or the measured round trip.
        assert_eq!(decided(Mode::Steady, known(true, false, None)), (24_000, Some(3_840)));
        assert_eq!(decided(Mode::Steady, known(true, false, Some(100))), (24_000, Some(1_920)));
        let small = Inputs { past: None, ..small };
        assert_eq!(decided(Mode::Steady, small), (20_000, Some(3_200)));
    }

    #[test]
    fn rapid_paces_twice_the_initial_window_over_a_round_trip() {
        // 24,000 bytes in 50 ms: the cookie's, the measured, or the default round trip.
        assert_eq!(decided(Mode::Rapid, known(true, true, None)), (24_000, Some(3_840)));
        assert_eq!(decided(Mode::Rapid, known(true, true, Some(100))), (24_000, Some(1_920)));
        assert_eq!(decided(Mode::Rapid, known(true, false, None)), (24_000, Some(3_840)));
        let decision = decide(Mode::Rapid, &known(true, true, None), &Limits::default());
        assert_eq!(decision.course, Course::Rapid);
    }

    #[test]
    fn careful_starts_with_the_initial_window_and_jumps_only_with_a_cookie() {
        let limits = Limits::default();
        let decision = decide(Mode::Careful, &known(true, true, None), &limits);
        assert_eq!((decision.start.window, decision.start.rate), (Some(12_000), None));
        let Course::Careful(saved) = decision.course else { panic!("{:?}", decision.course) };
        // 6 Mbit/s for 50 ms are 37,500 bytes. A jump may use half of that.
        assert_eq!(saved.jump, 18_750);
        assert_eq!(saved.first_frame, Some(FIRST_FRAME));
        let first = decide(Mode::Careful, &known(true, false, None), &limits);
        assert_eq!(first.course, Course::Normal);
        let doubtful = PathState { confidence: 0.5, ..past() };
        let doubtful = Inputs { past: Some(doubtful), ..known(true, true, None) };
        let Course::Careful(saved) = decide(Mode::Careful, &doubtful, &limits).course else {
            panic!("no jump")
        };
        assert_eq!(saved.jump, 9_375);
    }

    #[test]
    fn mode_names_parse() {
        for mode in Mode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        let error = "slow".parse::<Mode>().expect_err("no such mode");
        assert!(error.ends_with("wira steady rapid careful"), "{error}");
    }

    proptest! {
        #[test]
        fn first_flights_and_jumps_respect_the_limit(
            index in 0..Mode::ALL.len(),
            first_frame: Option<u64>,
            bps: u64,
            rtt_us: u64,
            handshake_us: Option<u64>,
            max_jump in prop_oneof![0..100_000u64, any::<u64>()],
            confidence in 0.0..=1.0f64,
        ) {
            let rate = Rate::from_bps(bps);
            let min_rtt = Duration::from_micros(rtt_us);
            let past = PathState {
                cookie: Cookie { max_rate: rate, usual_rate: rate, min_rtt, ..cookie() },
                confidence,
            };
            let known = Inputs {
                first_frame,
                past: Some(past),
                handshake_rtt: handshake_us.map(Duration::from_micros),
            };
            let limits = Limits { max_jump, ..Limits::default() };
            let decision = decide(Mode::ALL[index], &known, &limits);
            let window = decision.start.window.expect("always");
            prop_assert!(window <= max_jump.max(2_400) && window >= 2_400, "{window}");
            if let Course::Careful(saved) = decision.course {
                prop_assert!(saved.jump <= max_jump);
            }
        }
    }
}
