//! Experiments: what to sweep comes from `experiments/*.toml`, what comes out are `results.csv` (a
//! row per run), `summary.json`, plots and one `report.html`.

mod claims;
mod engine;
mod figures;
mod files;
mod metrics;
mod options;
pub(crate) mod output;
mod page;
mod parallel;
mod rows;
mod scenario;
mod schemes;
pub(crate) mod settings;
mod spec;
mod speed;
mod transport;

use std::path::Path;

pub use options::Options;

/// A known experiment.
enum Experiment {
    /// Completeness, reproducibility and utilisation of the transport.
    Transport,
    /// The testbed's own speed.
    Speed,
    /// A figure or table of a paper: the text of its specification.
    Figure(&'static str),
}

impl Experiment {
    fn named(name: &str) -> Option<Self> {
        match name {
            transport::NAME => Some(Self::Transport),
            speed::NAME => Some(Self::Speed),
            _ => figures::built_in(name).map(Self::Figure),
        }
    }

    fn run(&self, options: &Options<'_>, out: &Path) -> Result<bool, String> {
        match self {
            Self::Figure(text) => figures::run(options.spec.unwrap_or(text), options, out),
            Self::Transport | Self::Speed if !options.set.is_empty() => {
                Err("`transport` and `speed` have no settings of that kind".to_owned())
            }
            Self::Transport => transport::run(options, out),
            Self::Speed if options.spec.is_some() => {
                Err("`speed` takes no specification".to_owned())
            }
            Self::Speed => speed::run(options, out),
        }
    }
}

/// The experiments that exist: name and title.
pub fn list() -> Vec<(&'static str, String)> {
    let mut all =
        vec![(transport::NAME, transport::title()), (speed::NAME, speed::TITLE.to_owned())];
    all.extend(figures::list());
    all
}

/// Runs the experiment `name` and writes its results into `out`. Returns whether its claims hold.
///
/// # Errors
/// One line: there is no such experiment, the specification is not one for it, or `out` cannot be
/// written.
pub fn run(name: &str, options: &Options<'_>, out: &Path) -> Result<bool, String> {
    let experiment = Experiment::named(name)
        .ok_or_else(|| format!("no experiment `{name}`; `mendcast lab list` shows them"))?;
    std::fs::create_dir_all(out).map_err(|e| format!("{}: {e}", out.display()))?;
    experiment.run(options, out)
}

/// The results in these directories as one page of Markdown: docs/results.md.
///
/// # Errors
/// One line: the results cannot be read.
pub fn results(folders: &[&Path]) -> Result<String, String> {
    figures::markdown(folders)
}

/// Writes `report.html` again from the results in a directory.
///
/// # Errors
/// One line: the results cannot be read, or the report cannot be written.
pub fn report(out: &Path) -> Result<(), String> {
    if figures::is_of(out) { figures::report(out).map(|_| ()) } else { transport::report(out) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_experiment_is_an_error() {
        let options = Options { spec: None, set: &[], runs: Some(1), jobs: 1, seed: 1 };
        assert!(run("nothing", &options, Path::new(".")).is_err());
    }
}
