//! Sessions of a day, period by period, and the change of paths during it.

use std::ops::Range;

use crate::platform::population::Population;
use crate::platform::run::MAX_STREAM_SHARE;
use crate::platform::session::Session;

/// Periods of a day, half an hour each (section 5 of the paper).
pub(super) const PERIODS: u32 = 48;
pub(super) const PERIOD_S: u64 = 1_800;
/// Period of the step, which changes the path rates of two groups in three.
pub(super) const STEP: u32 = 24;
/// Rate factors after the step: a third of the groups halves, a third doubles.
const STEPS: [f64; 3] = [0.5, 2.0, 1.0];

/// Sessions of a seed in order, and the sessions that start in each period.
pub(super) struct Day {
    pub sessions: Vec<Session>,
    pub periods: Vec<Range<usize>>,
}

/// Returns the rate factor of a group's paths from [`STEP`] on.
pub(super) fn step(group: u32) -> f64 {
    STEPS[group as usize % STEPS.len()]
}

impl Day {
    pub(super) fn new(population: &Population, seed: u64, sessions: u32) -> Self {
        let mut sessions = population.sessions(seed, sessions);
        let Some(midnight) = sessions.iter().map(|session| session.started_ms).min() else {
            return Self { sessions, periods: Vec::new() };
        };
        let day = 86_400_000;
        let midnight = midnight - midnight.rem_euclid(day);
        let period = |session: &Session| {
            ((session.started_ms - midnight).rem_euclid(day) / (PERIOD_S as i64 * 1_000)) as u32
        };
        sessions.sort_by_key(|session| (period(session), session.number));
        for session in &mut sessions {
            if period(session) >= STEP {
                session.rate_mbps *= step(session.viewer.group);
                session.bitrate_mbps =
                    session.bitrate_mbps.min(MAX_STREAM_SHARE * session.rate_mbps);
            }
        }
        let begins = |number: u32| sessions.partition_point(|session| period(session) < number);
        let periods = (0..PERIODS).map(|number| begins(number)..begins(number + 1)).collect();
        Self { sessions, periods }
    }
}
