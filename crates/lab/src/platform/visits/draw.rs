//! Draws visits: the viewer's return, path, and first-frame size.

use recovery::Random;

use crate::platform::draws::{Draws, normal};
use crate::platform::population::Population;
use crate::platform::session::Session;

/// Share of connections with 0-RTT data: Wira, section VI, says "about 90 %"; its averages of both
/// kinds imply 88 %.
const EARLY_SHARE: f64 = 0.88;
/// Share of first visits: in section VI-A about 90 % of connections resume an earlier one.
const FIRST_VISIT_SHARE: f64 = 0.1;
/// First-frame sizes in KB: a truncated gamma distribution fitted to section II-A (more than 100
/// million streams): mean 43.1 (43.3), 30 % below 30 (30.2 %), 20 % above 60 (19.6 %), all from 6
/// to 250.
const SHAPE: f64 = 3.99;
const SCALE_KB: f64 = 10.8;
const SIZES_KB: core::ops::RangeInclusive<f64> = 6.0..=250.0;
/// Duration of the preceding visit, and of this one.
const PREVIOUS_STAY_S: f64 = 6.0;
const WATCHED_S: f64 = 3.0;
/// Largest share of its group of pictures that a first frame takes.
const MAX_GROUP_SHARE: f64 = 0.4;

/// State of the paths, compared with the preceding visits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum World {
    /// As the population says.
    Usual,
    /// A quarter of the rate: every cookie is wrong.
    Fell,
}

/// A visit.
#[derive(Clone, Debug)]
pub(super) struct Visit {
    /// The preceding visit, if any.
    pub before: Option<Session>,
    pub session: Session,
    /// Time between the two, in seconds.
    pub age_s: u64,
    /// Whether the request arrives in 0-RTT data.
    pub is_early: bool,
}

/// Returns the first `count` visits of this seed.
pub(super) fn visits(population: &Population, seed: u64, count: u32) -> Vec<Visit> {
    let draws = Draws::new(seed);
    // Four in ten sessions are first visits, most of them left out.
    let sessions = population.sessions(seed, count.saturating_mul(3).saturating_add(100));
    let mut all = Vec::with_capacity(count as usize);
    for (place, session) in sessions.iter().enumerate() {
        let mut chance = draws.of("visit", place as u64);
        let before = place.checked_sub(1).map(|place| &sessions[place]);
        let before = before.filter(|before| before.viewer.number == session.viewer.number);
        // Keep one first visit for every nine returns.
        if before.is_none() && chance.fraction() > FIRST_VISIT_SHARE {
            continue;
        }
        let is_early = before.is_some() && chance.fraction() < EARLY_SHARE;
        let age_ms = before.map_or(0, |before| session.started_ms - before.started_ms);
        all.push(Visit {
            before: before.map(|before| view(before, &draws, PREVIOUS_STAY_S)),
            session: view(session, &draws, WATCHED_S),
            age_s: u64::try_from(age_ms / 1_000).unwrap_or(0),
            is_early,
        });
        if all.len() == count as usize {
            break;
        }
    }
    all
}

/// Gives the session a first frame with Wira's size distribution.
fn view(session: &Session, draws: &Draws, stay_s: f64) -> Session {
    let mut random = draws.of("first frame", session.number.into());
    let bytes = gamma(&mut random) * 1e3;
    let mut session = session.clone();
    session.stay_s = stay_s;
    session.joined_s = session.joined_s.max(0.2);
    let encoder = &mut session.encoder;
    encoder.size_variation = 0.0;
    encoder.audio_kbps = encoder.audio_kbps.min(64.0);
    // The rate determines the length of the group: thin streams with large key frames have long
    // groups.
    let pictures_mbps =
        session.bitrate_mbps - encoder.audio_kbps.min(session.bitrate_mbps * 300.0) / 1e3;
    let per_second = pictures_mbps.max(0.05) * 125_000.0;
    encoder.group_s = encoder.group_s.max((bytes / MAX_GROUP_SHARE / per_second).ceil()).min(60.0);
    let group = encoder.group_s * per_second;
    let others = encoder.group_s * session.fps - 1.0;
    encoder.key_ratio = (bytes * others / (group - bytes).max(1.0)).clamp(0.1, 1_000.0);
    session
}

/// Draws from the gamma distribution (Marsaglia and Tsang 2000), within [`SIZES_KB`].
fn gamma(random: &mut Random) -> f64 {
    let d = SHAPE - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(random);
        let v = (1.0 + c * x).powi(3);
        let u = 1.0 - random.fraction();
        let is_in = v > 0.0 && u.ln() < 0.5 * x * x + d - d * v + d * v.ln();
        let size = d * v * SCALE_KB;
        if is_in && SIZES_KB.contains(&size) {
            return size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::specification::{Specification, WIRA};

    #[test]
    fn first_frames_have_the_sizes_that_the_paper_states() {
        let mut random = Draws::new(5).of("sizes", 0);
        let all: Vec<f64> = (0..50_000).map(|_| gamma(&mut random)).collect();
        let share = |is: &dyn Fn(f64) -> bool| {
            all.iter().filter(|size| is(**size)).count() as f64 / all.len() as f64
        };
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        assert!((mean - 43.1).abs() < 0.6, "{mean}");
        assert!((share(&|size| size < 30.0) - 0.3).abs() < 0.01);
        assert!((share(&|size| size > 60.0) - 0.2).abs() < 0.01);
    }

    #[test]
    fn nine_in_ten_visits_are_returns_of_the_same_viewer_over_much_the_same_path() {
        let population = Population::new(Specification::parse(WIRA).expect("valid"), None);
        let all = visits(&population, 1, 2_000);
        assert_eq!(all.len(), 2_000);
        let returns: Vec<_> = all.iter().filter_map(|v| Some((v.before.as_ref()?, v))).collect();
        let share = returns.len() as f64 / 2_000.0;
        assert!((0.89..0.97).contains(&share), "{share}");
        assert!(
            returns.iter().all(|(before, v)| before.viewer == v.session.viewer && v.age_s >= 60)
        );
        let early =
            returns.iter().filter(|(_, v)| v.is_early).count() as f64 / returns.len() as f64;
        assert!((early - EARLY_SHARE).abs() < 0.03, "{early}");
        // Between two visits round-trip times differ as in Wira's figure 4a, by about a tenth.
        let mut apart: Vec<f64> = returns
            .iter()
            .map(|(before, v)| (v.session.rtt_ms / before.rtt_ms).ln().abs())
            .collect();
        apart.sort_by(f64::total_cmp);
        let median = apart[apart.len() / 2];
        assert!((0.04..0.14).contains(&median), "{median}");
    }
}
