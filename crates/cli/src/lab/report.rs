//! `mendcast lab report`: reports from stored results.

use std::path::{Path, PathBuf};

use ::lab::{experiments, platform};
use clap::Args;

use crate::error::Error;

const EXAMPLES: &str = "\
Examples:
  mendcast lab report out --page target/results.md > docs/reproduce/results.md
  mendcast lab report out/population
  mendcast lab report out --papers docs/reproduce
  mendcast lab report out --papers docs/reproduce --calls out-calls";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Report {
    /// Directories of `lab run` (or their parent) and `lab population`.
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Also write a page with every table of the experiments (Markdown).
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// Write only papers.md, with the papers' numbers beside ours, and papers/ (Markdown).
    ///
    /// Also reads `lab visits` and `lab groups`. A number without results is `not measured`.
    #[arg(long, value_name = "DIR", conflicts_with = "page")]
    papers: Option<PathBuf>,
    /// Also write papers/calls.md, from the same experiments under loss as in calls.
    ///
    /// Results of `lab run ... --set path.loss_model=calls:rate={}`.
    #[arg(long, value_name = "DIR", requires = "papers")]
    calls: Option<PathBuf>,
}

impl Report {
    pub(super) fn run(self) -> Result<(), Error> {
        if let Some(out) = self.papers {
            let dirs: Vec<&Path> = self.dirs.iter().map(PathBuf::as_path).collect();
            experiments::papers(&out, &dirs, self.calls.as_deref())?;
            log_line!("{}", out.join("papers.md").display());
            return Ok(());
        }
        let is_experiment = |dir: &&PathBuf| experiments::has_results(dir);
        let (runs, populations): (Vec<_>, Vec<_>) = self.dirs.iter().partition(is_experiment);
        for dir in populations {
            if !dir.join("summary.json").is_file() {
                let why = "no results of `mendcast lab run` or `mendcast lab population`";
                return Err(Error::at(dir.display())(why));
            }
            platform::rewrite(dir)?;
            log_line!("{}", dir.join("report.md").display());
        }
        if runs.is_empty() {
            return Ok(());
        }
        let runs: Vec<&Path> = runs.into_iter().map(PathBuf::as_path).collect();
        let report = experiments::report(&runs)?;
        if let Some(path) = self.page {
            std::fs::write(&path, report.page).map_err(Error::at(path.display()))?;
        }
        crate::output::print(report.summary);
        Ok(())
    }
}
