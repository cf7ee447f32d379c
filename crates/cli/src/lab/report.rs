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
  mendcast lab report out --papers docs/reproduce --beside \"loss as in calls=out-calls\"";

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
    /// Also write papers/choices.md: the same with one thing changed; repeatable.
    ///
    /// For example "loss as in calls=out-calls", from `lab run ... --set
    /// path.loss_model=calls:rate={}`.
    #[arg(long, value_name = "TITLE=DIR", requires = "papers", value_parser = titled)]
    beside: Vec<(String, PathBuf)>,
}

/// Parses a title and a directory.
fn titled(text: &str) -> Result<(String, PathBuf), String> {
    match text.rsplit_once('=') {
        Some((title, dir)) if !title.is_empty() && !dir.is_empty() => {
            Ok((title.to_owned(), dir.into()))
        }
        _ => Err("expected TITLE=DIR".to_owned()),
    }
}

impl Report {
    pub(super) fn run(self) -> Result<(), Error> {
        if let Some(out) = self.papers {
            let dirs: Vec<&Path> = self.dirs.iter().map(PathBuf::as_path).collect();
            let beside: Vec<(&str, &Path)> =
                self.beside.iter().map(|(title, dir)| (&**title, dir.as_path())).collect();
            experiments::papers(&out, &dirs, &beside)?;
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
