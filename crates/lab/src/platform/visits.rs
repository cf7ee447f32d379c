//! Returning viewers: first-frame time under each startup mode, when the last visit has measured
//! the path (Wira, sections VI and VII). Paths and cookie ages come from the population. Its
//! deviations within groups, within pairs of viewer and server, and between visits are Wira's. Each
//! visit is simulated in packets, as is the preceding one that makes the cookie.
//!
//! From the ground up: `draw` (visits and their paths) · `run` (a visit under one startup mode) ·
//! `figures` (the paper's figures) · `condition` (populations and transports) · `lines`
//! (`summary.json`) · `page`.

mod condition;
mod draw;
mod figures;
mod lines;
mod page;
mod run;

use std::path::Path;

use super::distribution::not_allowed;
use crate::error::{Context as _, Error};
use crate::experiments::output::{SUMMARY, write_file, write_json};
use condition::{ConditionResult, conditions};

/// Options of a comparison of startup modes.
#[derive(Clone, Copy, Debug)]
pub struct VisitOptions<'a> {
    /// Number of visits, 1 to 1,000,000.
    pub visits: u32,
    /// Population file. If `None`, the built-in `experiments/populations/wira.toml` beside
    /// `fleet.toml`, and with another transport.
    pub population: Option<&'a Path>,
    /// Keys of the server's configuration and of `[lab]`, with their values, for all visits.
    pub set: &'a [(String, String)],
    /// Random seed.
    pub seed: u64,
    /// Number of threads. It does not affect the results.
    pub jobs: usize,
    /// Output directory.
    pub out: &'a Path,
}

/// Runs the visits under every startup mode. The page `first-frame.md`, its plot and `summary.json`
/// go to `out`.
///
/// # Errors
/// One line: an option is invalid, results cannot be written, or visits failed to run.
pub fn visits(options: &VisitOptions<'_>) -> Result<(), Error> {
    if !(1..=1_000_000).contains(&options.visits) {
        return Err(not_allowed("--visits", &options.visits, "1 to 1000000"));
    }
    let all = conditions(options.population, options.set)?;
    let measured = all.iter().map(|one| one.measure(options.seed, options.visits, options.jobs));
    let results: Vec<ConditionResult> = measured.collect::<Result<_, Error>>()?;
    let command = command(options);
    std::fs::create_dir_all(options.out).at(options.out)?;
    let lines: Vec<_> =
        results.iter().flat_map(|one| lines::lines(one.name, &one.figures)).collect();
    write_json(&options.out.join(SUMMARY), &lines)?;
    if let Some(first) = results.first() {
        write_file(&options.out.join(page::PLOT), &page::plot(&first.figures))?;
    }
    write_file(&options.out.join(page::PAGE), &page::page(&results, lines, &command)?)
}

fn command(options: &VisitOptions<'_>) -> String {
    let mut command =
        format!("mendcast lab visits --visits {} --seed {}", options.visits, options.seed);
    if let Some(path) = options.population {
        command += &format!(" --population {}", path.display());
    }
    for (key, value) in options.set {
        command += &format!(" --set {key}={value}");
    }
    command
}
