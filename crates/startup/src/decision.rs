//! Start parameters (Wira, section IV-C, equations 2 and 3, both corner cases, and table I): a pure
//! function of what is known when a connection begins to send.
//!
//! **Corner case 1**, the size of the first frame is not known in time: `init_cwnd_exp` stands for it.
//! Decide again, and start again, when it is.
//!
//! **Corner case 2**, there is no cookie, or it was refused ([`Cookie::accept`](crate::Cookie::accept),
//! which has Δ): the window is the first frame's size, sent within one round trip.
//!
//! **0-RTT and 1-RTT** (section VI): with 1-RTT the handshake has measured the round trip, and that
//! stands wherever a round trip of the past or of experience would.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use congestion::{Start, initial_window, minimum_window};
use units::Rate;

use crate::careful::Saved;
use crate::cookie::Past;

/// How connections start; each is one cohort's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mode {
    /// Ten datagrams, which leave as the controller likes (RFC 9002, section 7.2; RFC 6928).
    Iw10,
    /// The paper's baseline: the window and the round trip of experience for all.
    Fixed,
    /// Wira(FF): the window is the first frame's size.
    WiraFf,
    /// Wira(Hx): window and rate are those of the last connection.
    WiraHx,
    /// Wira: the smaller of both windows, at the last connection's rate.
    Wira,
    /// The smaller of the first frame's size and what the last connection's path usually carried in a round trip, at that
    /// rate; without a cookie the first flight of Rapid Start, no longer than the first frame. What a path carries at
    /// best, as [`Mode::Wira`] takes it, overflows it as often as not.
    Steady,
    /// Rapid Start: twice the initial window over one round trip, then three times as much each round
    /// until the queue grows ([`Rapid`](crate::rapid::Rapid)).
    Rapid,
    /// Careful Resume: the initial window, and after its first clean round trip a jump
    /// ([`Careful`](crate::careful::Careful)).
    Careful,
}

impl Mode {
    /// All of them.
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

    /// Whether its window follows from the past, so that it has to be bought ([`Spent`](crate::Spent)).
    pub const fn needs_past(self) -> bool {
        matches!(self, Self::WiraHx | Self::Wira | Self::Steady | Self::Careful)
    }

    /// Its name in configurations, records and metrics.
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
    /// One line: the text names no mode.
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|mode| mode.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(" ");
            format!("`{text}` is no way to start; expected one of {names}")
        })
    }
}

/// What is known when a connection begins to send.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Known {
    /// FF_Size in bytes; `None` before the first frame is in sight.
    pub first_frame: Option<u64>,
    /// A cookie that was accepted.
    pub past: Option<Past>,
    /// The round trip that the handshake has measured; `None` for 0-RTT.
    pub handshake_rtt: Option<Duration>,
}

/// What the operator sets.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limits {
    /// Bytes of a datagram.
    pub mtu: u16,
    /// The largest first flight, and the largest jump, in bytes: what a wrong cookie can throw at a path
    /// in one round trip. Default 256 KiB, the largest first frame of the paper (section II-A). Below
    /// two datagrams it is two.
    pub max_jump: u64,
    /// `init_cwnd_exp` in bytes. Default 43,100, the paper's average first frame (section II-A); better
    /// is a week's average of one's own.
    pub usual_window: u64,
    /// `init_RTT_exp`. Default 50 ms, the round trip of the paper's testbed; the paper does not state
    /// that of its servers. Better is a week's average of one's own.
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

/// How a connection starts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Decision {
    /// What the congestion controller begins with. Its window is at most `max_jump`.
    pub start: Start,
    /// What goes on from there.
    pub course: Course,
}

/// What goes on after the first packet.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Course {
    /// The congestion controller alone.
    Normal,
    /// [`Rapid`](crate::rapid::Rapid).
    Rapid,
    /// [`Careful`](crate::careful::Careful), with these saved parameters.
    Careful(Saved),
}

/// Start parameters for a connection of this mode.
pub fn decide(mode: Mode, known: &Known, limits: &Limits) -> Decision {
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
    Decision { start: Start { window: Some(window), rate, rtt: Some(supposed) }, course }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cookie::{Carrier, Cookie, Rules};
    use crate::fixture::cookie;
    use proptest::prelude::*;

    /// The paper's testbed (figure 2): 66 KB at 8 Mbit/s and 50 ms, whose product is 50 KB.
    const FIRST_FRAME: u64 = 66_000;

    fn past() -> Past {
        Past { cookie: cookie(), confidence: 1.0 }
    }

    fn known(first_frame: bool, past_known: bool, rtt_ms: Option<u64>) -> Known {
        Known {
            first_frame: first_frame.then_some(FIRST_FRAME),
            past: past_known.then(past),
            handshake_rtt: rtt_ms.map(Duration::from_millis),
        }
    }

    /// Window in bytes, and rate in kbit/s.
    fn decided(mode: Mode, known: Known) -> (u64, Option<u64>) {
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
        let small = Known { first_frame: Some(30_000), ..all };
        assert_eq!(decided(Mode::Wira, small), (30_000, Some(8_000)));
        assert_eq!(decided(Mode::WiraHx, small), (50_000, Some(8_000)));
    }

    #[test]
    fn table_1_with_1_rtt_uses_the_round_trip_that_was_measured() {
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
    fn corner_case_1_takes_experience_for_the_first_frame() {
        let none = known(false, true, None);
        assert_eq!(decided(Mode::Wira, none), (43_100, Some(8_000)), "less than 50,000");
        assert_eq!(decided(Mode::WiraFf, none), (43_100, Some(6_896)));
        // Once it is known, the same function gives the window of equation 3.
        assert_eq!(decided(Mode::Wira, known(true, true, None)), (50_000, Some(8_000)));
    }

    #[test]
    fn corner_case_2_sends_the_first_frame_within_a_round_trip() {
        assert_eq!(decided(Mode::Wira, known(true, false, None)), (66_000, Some(10_560)));
        assert_eq!(decided(Mode::Wira, known(true, false, Some(100))), (66_000, Some(5_280)));
        assert_eq!(decided(Mode::WiraHx, known(true, false, None)), (43_100, Some(6_896)));
        // Both at once are the baseline.
        let fixed = decided(Mode::Fixed, known(false, false, None));
        assert_eq!(decided(Mode::Wira, known(false, false, None)), fixed);
        // T > Δ: the cookie never gets here.
        let late = cookie().issued + 3_601;
        let client = "192.0.2.7".parse().expect("an address");
        assert!(cookie().accept(Carrier::Token, client, late, &Rules::default()).is_err());
    }

    #[test]
    fn steady_takes_what_the_path_usually_carries_and_little_of_a_path_that_nobody_knows() {
        // 6 Mbit/s for 50 ms.
        assert_eq!(decided(Mode::Steady, known(true, true, None)), (37_500, Some(6_000)));
        assert_eq!(decided(Mode::Steady, known(true, true, Some(40))), (30_000, Some(6_000)));
        let small = Known { first_frame: Some(20_000), ..known(true, true, None) };
        assert_eq!(decided(Mode::Steady, small), (20_000, Some(6_000)));
        // 24,000 bytes in 50 ms, or the measured round trip.
        assert_eq!(decided(Mode::Steady, known(true, false, None)), (24_000, Some(3_840)));
        assert_eq!(decided(Mode::Steady, known(true, false, Some(100))), (24_000, Some(1_920)));
        let small = Known { past: None, ..small };
        assert_eq!(decided(Mode::Steady, small), (20_000, Some(3_200)));
    }

    #[test]
    fn rapid_paces_twice_the_initial_window_over_a_round_trip() {
        // 24,000 bytes in 50 ms: the cookie's round trip, or the measured one, or experience.
        assert_eq!(decided(Mode::Rapid, known(true, true, None)), (24_000, Some(3_840)));
        assert_eq!(decided(Mode::Rapid, known(true, true, Some(100))), (24_000, Some(1_920)));
        assert_eq!(decided(Mode::Rapid, known(true, false, None)), (24_000, Some(3_840)));
        let decision = decide(Mode::Rapid, &known(true, true, None), &Limits::default());
        assert_eq!(decision.course, Course::Rapid);
    }

    #[test]
    fn careful_begins_with_the_initial_window_and_jumps_only_with_a_cookie() {
        let limits = Limits::default();
        let decision = decide(Mode::Careful, &known(true, true, None), &limits);
        assert_eq!((decision.start.window, decision.start.rate), (Some(12_000), None));
        let Course::Careful(saved) = decision.course else { panic!("{:?}", decision.course) };
        // 6 Mbit/s for 50 ms are 37,500 bytes, and half of that may be jumped to.
        assert_eq!(saved.jump, 18_750);
        assert_eq!(saved.first_frame, Some(FIRST_FRAME));
        let first = decide(Mode::Careful, &known(true, false, None), &limits);
        assert_eq!(first.course, Course::Normal);
        let doubtful = Past { confidence: 0.5, ..past() };
        let doubtful = Known { past: Some(doubtful), ..known(true, true, None) };
        let Course::Careful(saved) = decide(Mode::Careful, &doubtful, &limits).course else {
            panic!("no jump")
        };
        assert_eq!(saved.jump, 9_375);
    }

    #[test]
    fn modes_are_read_back_by_their_names() {
        for mode in Mode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        let error = "slow".parse::<Mode>().expect_err("no such mode");
        assert!(error.ends_with("wira steady rapid careful"), "{error}");
    }

    proptest! {
        #[test]
        fn no_first_flight_and_no_jump_is_above_the_limit(
            place in 0..Mode::ALL.len(),
            first_frame: Option<u64>,
            bps: u64,
            rtt_us: u64,
            handshake_us: Option<u64>,
            max_jump in prop_oneof![0..100_000u64, any::<u64>()],
            confidence in 0.0..=1.0f64,
        ) {
            let rate = Rate::from_bps(bps);
            let min_rtt = Duration::from_micros(rtt_us);
            let past = Past {
                cookie: Cookie { max_rate: rate, usual_rate: rate, min_rtt, ..cookie() },
                confidence,
            };
            let known = Known {
                first_frame,
                past: Some(past),
                handshake_rtt: handshake_us.map(Duration::from_micros),
            };
            let limits = Limits { max_jump, ..Limits::default() };
            let decision = decide(Mode::ALL[place], &known, &limits);
            let window = decision.start.window.expect("always");
            prop_assert!(window <= max_jump.max(2_400) && window >= 2_400, "{window}");
            if let Course::Careful(saved) = decision.course {
                prop_assert!(saved.jump <= max_jump);
            }
        }
    }
}
