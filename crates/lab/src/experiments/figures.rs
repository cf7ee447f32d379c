//! Figures and tables of the loss recovery papers, one specification each in `experiments/`. A
//! single engine runs them, compares them with the paper's numbers, and judges the claims.
//!
//! Runs are paired by seed: the fate of the n-th packet offered to a link depends on the seed alone
//! and not on the scheme. (With losses in time slots, the state of a slot follows the clock.) Once
//! a scheme sends replicas, the n-th packet carries other data than under another scheme. Pairing
//! therefore fixes the path's behaviour, not the loss of particular bytes. Differences are computed
//! run by run.

use std::path::{Path, PathBuf};
use std::time::Instant;

use super::claims::{ClaimVerdict, Delivery, announce, verdicts};
use super::engine;
use super::files::{self, Made};
use super::options::RunOptions;
use super::output::{note, write_file, write_page};
use super::page::{self, ExperimentReport};
use super::rows::{RunRow, SenderCurve, describe};
use super::spec::Spec;
use super::waits::{self, RunWaits};
use crate::error::{Context as _, Error, FileError, NameError};

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../../../experiments/", $name, ".toml")))),*]
    };
}

/// The built-in specifications, by name.
const BUILT_IN: &[(&str, &str)] = &built_in![
    "transport",
    "formula-limits",
    "guard-ablation",
    "live-default",
    "deadline-harm",
    "deadline-narrow",
    "deadline-ablation",
    "deadline-acks",
    "deadline-fast",
    "deadline-rtt",
    "deadline-sessions",
    "deadline-start",
    "live-calls",
    "live-thinning",
    "live-check",
    "demo",
    "probes",
    "wira-fig2",
    "wira-harm",
    "autorec-fig13",
    "autorec-fig13-gate",
    "autorec-causes",
    "autorec-fig14",
    "autorec-fig15",
    "autorec-fig16",
    "autorec-fig17",
    "autorec-fig18",
    "autorec-mm-fig11",
    "autorec-mm-fig12",
    "autorec-mm-fig13",
    "art-appendix-b",
    "art-fig8",
    "art-fig12",
    "art-fig15",
    "art-fig18b",
    "art-fig19",
    "art-fig20",
    "art-fig21",
    "art-fig23",
    "art-fig24",
    "art-fig26",
    "art-fig27",
    "art-gamma",
    "dash-fig25",
    "congestion-curves",
    "links",
    "congestion-fairness",
    "congestion-loss",
    "congestion-shared",
];

/// Names and titles of the built-in specifications.
pub(super) fn list() -> impl Iterator<Item = (&'static str, String)> {
    BUILT_IN.iter().map(|(name, text)| {
        // The title is the second line.
        let title = text.lines().find_map(|line| line.strip_prefix("title = "));
        (*name, title.unwrap_or_default().trim_matches('"').to_owned())
    })
}

/// Returns the text of a built-in specification.
///
/// # Errors
/// The name is unknown.
pub(super) fn built_in(name: &str) -> Result<&'static str, NameError> {
    let found = BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text);
    found.ok_or_else(|| NameError::Experiment(name.to_owned()))
}

/// Runs a specification and writes its results to `out`. Returns whether its claims hold.
pub(super) fn run(text: &str, options: &RunOptions<'_>, out: &Path) -> Result<bool, Error> {
    run_for(text, options, out, None)
}

/// Like [`run`], with each run cut to `seconds`.
fn run_for(
    text: &str,
    options: &RunOptions<'_>,
    out: &Path,
    seconds: Option<f64>,
) -> Result<bool, Error> {
    let mut spec = Spec::parse(text)?;
    spec.set(options.set)?;
    spec.unused().iter().for_each(|line| eprintln!("warning: {line}"));
    let start = Instant::now();
    let results = engine::run(&spec, options, seconds)?;
    let made = Made {
        name: spec.name.clone(),
        set: options.set.to_vec(),
        runs: options.runs.unwrap_or(spec.runs),
        seed: options.seed,
        cpu_seconds: results.cpu.as_secs_f64(),
        wall_seconds: start.elapsed().as_secs_f64(),
        ..Made::here()
    };
    files::write_made(out, &made, text)?;
    files::write_rows(out, &results.rows)?;
    files::write_curves(out, &results.curves)?;
    waits::write(out, &results.waits)?;
    for row in results.rows.iter().filter(|row| !row.error.is_empty()) {
        let place = describe(&row.point);
        note(format_args!(
            "{}: {} {place} seed {}: {}",
            spec.name, row.scheme, row.seed, row.error
        ));
    }
    let holds = report(out)?;
    note(format_args!("{}: {:.1} CPU-seconds", spec.name, made.cpu_seconds));
    Ok(holds)
}

/// Returns whether a folder holds results of this engine.
fn is_of(out: &Path) -> bool {
    out.join("run.json").is_file()
}

/// Rewrites plots, report and summary from stored results. Returns whether the claims hold.
pub(super) fn report(out: &Path) -> Result<bool, Error> {
    let stored = StoredExperiment::read(out)?;
    let report = stored.report();
    files::write_summary(out, report.spec, report.rows)?;
    let plots = report.plots();
    for plot in &plots {
        write_file(&out.join(&plot.file), &plot.svg)?;
    }
    write_page(out, &report.spec.title, &report.html(&plots))?;
    Ok(announce(report.delivery, report.verdicts))
}

/// Returns the folder itself if it has results of this engine, else its subfolders that do, in
/// catalogue order.
pub(super) fn with_results(folder: &Path) -> Vec<PathBuf> {
    if is_of(folder) {
        return vec![folder.to_owned()];
    }
    let all = BUILT_IN.iter().map(|(name, _)| folder.join(name));
    all.filter(|folder| is_of(folder)).collect()
}

/// Results of experiments, in Markdown.
#[derive(Clone, Debug)]
pub struct Results {
    /// A table with a row per experiment: docs/reproduce/results.md.
    pub summary: String,
    /// The summary, and every table and claim.
    pub page: String,
}

/// Title of both pages.
const TITLE: &str = "# Results\n\n\
Made by `mendcast lab report` from the directories of `mendcast lab run`; do not edit. Runs are \
paired by seed, and claims are judged by means over the runs. The claims are in the \
specifications; `mendcast lab report --page FILE` writes all of them with their tables.";
/// Explanation of the runs.
const LEGEND: &str = "The fate of the n-th packet offered to a link depends on the seed alone. \
With losses in time slots, the state of a slot follows the clock. Neither depends on the scheme. \
Differences are computed run by run. Intervals that cross a bound are reported.";
const HEAD: &str = "\
| experiment | subject | claims that hold | paper's numbers: within 10 % / 25 % / 2× / beyond / \
opposite sign | runs per point | CPU-seconds | commit |\n\
|---|---|---|---|---|---|---|\n";

/// Renders the results in these folders.
pub(super) fn markdown(folders: &[&Path]) -> Result<Results, Error> {
    if let Some(folder) = folders.iter().find(|folder| with_results(folder).is_empty()) {
        return Err(FileError::NoResults).at(folder);
    }
    let (mut summary, mut contents, mut parts) = (String::new(), String::new(), String::new());
    let mut cpu_seconds = 0.0;
    for folder in folders.iter().flat_map(|folder| with_results(folder)) {
        let stored = StoredExperiment::read(&folder)?;
        let report = stored.report();
        let name = &report.spec.name;
        summary.push_str(&report.summary(&format!("../../experiments/{name}.toml")));
        contents.push_str(&report.summary(&format!("#{name}")));
        parts.push_str(&report.markdown());
        cpu_seconds += report.made.cpu_seconds;
    }
    let hours = format!("All runs took {:.2} hours of CPU time.", cpu_seconds / 3_600.0);
    Ok(Results {
        summary: format!("{TITLE}\n\n{HEAD}{summary}\n{hours}\n"),
        page: format!(
            "{TITLE}\n\n{} {} {LEGEND}\n\n{HEAD}{contents}\n{hours}\n\n{parts}",
            page::LEGEND,
            page::near_zero()
        ),
    })
}

/// Results of an experiment, read from a directory and judged.
pub(super) struct StoredExperiment {
    pub spec: Spec,
    made: Made,
    rows: Vec<RunRow>,
    curves: Vec<SenderCurve>,
    waits: Vec<RunWaits>,
    delivery: Delivery,
    verdicts: Vec<ClaimVerdict>,
}

impl StoredExperiment {
    /// # Errors
    /// Files are missing, or malformed, or of another version; or a claim cannot fail.
    pub(super) fn read(out: &Path) -> Result<Self, Error> {
        let (made, text) = files::read_made(out)?;
        let mut spec = Spec::parse(&text)?;
        spec.set(&made.set)?;
        let rows = files::read_rows(out, &spec)?;
        let curves = files::read_curves(out, &spec)?;
        let waits = waits::read_waits(out, &spec)?;
        let (delivery, verdicts) = (Delivery::of(&rows), verdicts(&spec, &rows));
        Ok(Self { spec, made, rows, curves, waits, delivery, verdicts })
    }

    /// Returns a quantile of the recovery time that a scheme saves against the baseline, in
    /// milliseconds, over the lost units of all runs of a sweep.
    pub(super) fn pooled_saving(&self, sweep: &str, scheme: &str, q: f64) -> Option<f64> {
        let place = self.spec.sweeps.iter().position(|one| one.title == sweep)?;
        waits::pooled_saving(&self.spec, &self.waits, place, scheme, q)
    }

    pub(super) fn report(&self) -> ExperimentReport<'_> {
        let Self { spec, made, rows, curves, delivery, verdicts, .. } = self;
        ExperimentReport { spec, made, rows, curves, delivery, verdicts }
    }
}

#[cfg(test)]
mod tests;
