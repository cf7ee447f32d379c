//! Conditions of the comparison: a population and a transport.

use std::path::Path;

use startup::decision::Mode;

use super::draw::{self, Visit, World};
use super::figures::{Figures, ModeResults};
use super::run::{FirstFrameResult, Usual, run};
use crate::error::Error;
use crate::experiments::parallel::in_order;
use crate::platform::arm::{Arm, BASELINE as SCHEME};
use crate::platform::distribution::not_allowed;
use crate::platform::population::Population;
use crate::platform::specification::{FLEET, Specification, WIRA};

/// Names of the conditions on the page, in `summary.json`, and in `experiments/papers.toml`.
pub(super) const FITTED: &str = "fitted";
pub(super) const FLEET_PATHS: &str = "fleet";
pub(super) const DRAFT: &str = "fitted, draft transport";
/// A population given by the operator.
pub(super) const OWN: &str = "own population";
/// Startup modes of the paper.
const PAPER_MODES: [Mode; 5] = [Mode::Iw10, Mode::Fixed, Mode::WiraFf, Mode::WiraHx, Mode::Wira];
/// Keys that make the transport the paper's rather than the product's: BBR as in its draft, and
/// loss detection as in RFC 9002.
const DRAFT_TRANSPORT: [&str; 2] = ["congestion=bbr-draft", "detection=rfc9002"];
/// The key that the comparison determines.
const OWN_KEY: &str = "startup.mode";

/// A population and a transport.
pub(super) struct Condition {
    name: &'static str,
    population: Specification,
    arm: Arm,
    modes: Vec<Mode>,
    /// Whether the visits also run over paths that became slow.
    falls: bool,
}

/// Results of a condition.
pub(super) struct ConditionResult {
    pub name: &'static str,
    pub usual: Usual,
    pub figures: Figures,
}

/// Returns the conditions: the given population, or the paper's under several.
pub(super) fn conditions(
    population: Option<&Path>,
    set: &[(String, String)],
) -> Result<Vec<Condition>, Error> {
    let of = |name, population, keys: &[&str], modes: &[Mode]| {
        let mut arm = SCHEME.to_owned();
        set.iter().for_each(|(key, value)| arm += &format!("+{key}={value}"));
        keys.iter().for_each(|key| arm += &format!("+{key}"));
        let arm = Arm::parse(&arm)?;
        if arm.value(OWN_KEY).is_some() {
            return Err(not_allowed("--set", &OWN_KEY, &format!("any key but {OWN_KEY}")));
        }
        let falls = modes.len() == Mode::ALL.len();
        Ok(Condition { name, population, arm, modes: modes.to_vec(), falls })
    };
    Ok(match population {
        Some(path) => vec![of(OWN, Specification::read(path)?, &[], &Mode::ALL)?],
        None => vec![
            of(FITTED, Specification::parse(WIRA)?, &[], &Mode::ALL)?,
            of(FLEET_PATHS, Specification::parse(FLEET)?, &[], &PAPER_MODES)?,
            of(DRAFT, Specification::parse(WIRA)?, &DRAFT_TRANSPORT, &PAPER_MODES)?,
        ],
    })
}

impl Condition {
    /// Runs the visits of this seed.
    ///
    /// # Errors
    /// Visits failed to run.
    pub(super) fn measure(
        &self,
        seed: u64,
        visits: u32,
        jobs: usize,
    ) -> Result<ConditionResult, Error> {
        let population = Population::new(self.population.clone(), None);
        let visits = draw::visits(&population, seed, visits);
        let usual = Usual::of(&visits, &self.arm)?;
        let all = in_world(jobs, self, &visits, &usual, World::Usual)?;
        let fell = match self.falls {
            true => in_world(jobs, self, &visits, &usual, World::Fell)?,
            false => Vec::new(),
        };
        let of = |results| ModeResults { modes: self.modes.clone(), results };
        let figures = Figures::of(&visits, &of(all), &of(fell));
        Ok(ConditionResult { name: self.name, usual, figures })
    }
}

/// Returns the results of each visit, in visit order, by startup mode.
fn in_world(
    jobs: usize,
    condition: &Condition,
    visits: &[Visit],
    usual: &Usual,
    world: World,
) -> Result<Vec<Vec<FirstFrameResult>>, Error> {
    let of_mode = |mode: &Mode| {
        let mode = *mode;
        (0..visits.len()).map(move |visit| (visit, mode))
    };
    let work: Vec<(usize, Mode)> = condition.modes.iter().flat_map(of_mode).collect();
    let mut all: Vec<Vec<FirstFrameResult>> = Vec::new();
    let mut faults = Vec::new();
    in_order(
        &work,
        jobs,
        |&(visit, mode)| run(&visits[visit], mode, world, usual, &condition.arm),
        |&(visit, ..), seen| {
            if visit == 0 {
                all.push(Vec::with_capacity(visits.len()));
            }
            match (seen, all.last_mut()) {
                (Ok(seen), Some(seens)) => seens.push(seen),
                (Err(fault), _) => faults.push(fault),
                (Ok(_), None) => {}
            }
        },
    );
    Error::of_runs("visits could not be run", faults)?;
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_all_visits_are_those_that_the_modes_leave_open() {
        let with = |key: &str, value: &str| {
            let set = [(key.to_owned(), value.to_owned())];
            conditions(None, &set).map(|all| all.len()).map_err(|error| error.to_string())
        };
        assert_eq!(with("video_frames", "3"), Ok(3));
        assert_eq!(with("startup.video_frames", "3"), Ok(3));
        assert_eq!(with("usual_window", "20KiB"), Ok(3));
        for (key, value) in [("mode", "wira"), ("video_frames", "3+mode=wira")] {
            let error = with(key, value).expect_err(key);
            assert!(error.contains("--set") && error.contains("any key but"), "{error}");
        }
        for (key, value) in [("no_such_key", "1"), ("video_frames", "9"), ("video_frames", "0")] {
            let error = with(key, value).expect_err(key);
            assert!(error.contains(key), "{error}");
        }
    }

    #[test]
    fn usual_values_are_the_means_over_visits_or_as_given() {
        let usual = |set: &[(&str, &str)]| {
            let set: Vec<_> = set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            let condition = conditions(None, &set).expect("known keys").remove(0);
            let visits = draw::visits(&Population::new(condition.population, None), 1, 200);
            Usual::of(&visits, &condition.arm).expect("a scenario")
        };
        let means = usual(&[]);
        assert_eq!(means.window, 43_100);
        assert!((30..80).contains(&means.rtt.as_millis()), "{means:?}");
        let given = usual(&[("usual_window", "20KiB"), ("usual_rtt", "80ms")]);
        assert_eq!((given.window, given.rtt.as_millis()), (20 * 1_024, 80));
    }
}
