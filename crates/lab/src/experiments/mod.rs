//! Experiments: read `experiments/*.toml`, run the sweeps, and write `results.csv` (a row per run),
//! `summary.json`, plots and one `report.html`.

mod check;
mod claims;
mod deploy;
mod engine;
mod falsifiable;
mod figures;
pub(crate) mod files;
mod metrics;
mod options;
pub(crate) mod output;
mod page;
pub(crate) mod papers;
pub(crate) mod parallel;
mod playback;
mod rows;
mod spec;
mod speed;
mod verdict;
mod viewing;
mod waits;

use std::path::Path;

use self::files::Made;
use crate::error::{Context as _, Error, ValueError};

pub use deploy::{DEFAULT as DEPLOYMENT_EXPERIMENT, deployment, with_deployment};
pub use figures::Results;
pub use options::RunOptions;
pub use papers::papers;

/// Lists the names and titles of all experiments.
pub fn list() -> Vec<(&'static str, String)> {
    figures::list().chain([(speed::NAME, speed::TITLE.to_owned())]).collect()
}

/// Runs the experiment `name` and writes its results to `out`. Returns whether its claims hold.
///
/// # Errors
/// One line: the experiment is unknown, the given specification does not fit it, or `out` cannot be
/// written.
pub fn run(name: &str, options: &RunOptions<'_>, out: &Path) -> Result<bool, Error> {
    let text = match name {
        speed::NAME if options.set.is_empty() && options.spec.is_none() => None,
        speed::NAME => {
            let conflict = ValueError::Conflict("`speed` has no keys and no specification");
            return Err(conflict.into());
        }
        _ => Some(figures::built_in(name)?),
    };
    std::fs::create_dir_all(out).at(out)?;
    match text {
        Some(text) => figures::run(options.spec.unwrap_or(text), options, out),
        None => speed::run(options, out),
    }
}

/// Returns whether a directory, or one of its subdirectories, holds results of an experiment.
pub fn has_results(folder: &Path) -> bool {
    !figures::with_results(folder).is_empty()
}

/// Rewrites each `report.html` from the results in these directories or their subdirectories.
///
/// # Errors
/// One line: the results cannot be read, or a report cannot be written.
pub fn report(folders: &[&Path]) -> Result<Results, Error> {
    for folder in folders.iter().flat_map(|folder| figures::with_results(folder)) {
        figures::report(&folder)?;
    }
    figures::markdown(folders)
}

/// Describes the origin of results made now: the commit of the current directory, and the machine.
pub fn origin() -> String {
    let Made { commit, machine, .. } = Made::here();
    format!("Commit {commit}; {machine}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_experiment_is_an_error() {
        let options = RunOptions { spec: None, set: &[], runs: Some(1), jobs: 1, seed: 1 };
        assert!(run("nothing", &options, Path::new(".")).is_err());
    }
}
