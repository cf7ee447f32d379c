//! The sessions of a day, period by period, and how paths change meanwhile.

use std::ops::Range;

use crate::platform::population::Population;
use crate::platform::run::FITS;
use crate::platform::session::Session;

/// Periods of a day: of half an hour, as the paper has it (section 5).
pub(super) const PERIODS: u32 = 48;
pub(super) const PERIOD_S: u64 = 1_800;
/// From this period on the paths of two groups in three are others.
pub(super) const STEP: u32 = 24;
/// How wide a group's paths are then: a third half as wide, a third twice as wide.
const STEPS: [f64; 3] = [0.5, 2.0, 1.0];

/// A seed's sessions in order, and which of them begin in each period.
pub(super) struct Day {
    pub sessions: Vec<Session>,
    pub periods: Vec<Range<usize>>,
}

/// The factor to the rate of a group's paths from [`STEP`] on.
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
                session.bitrate_mbps = session.bitrate_mbps.min(FITS * session.rate_mbps);
            }
        }
        let begins = |number: u32| sessions.partition_point(|session| period(session) < number);
        let periods = (0..PERIODS).map(|number| begins(number)..begins(number + 1)).collect();
        Self { sessions, periods }
    }
}
