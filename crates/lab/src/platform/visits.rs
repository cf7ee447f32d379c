//! Returning viewers: first-frame time under each startup mode, when the last visit has measured
//! the path (Wira, sections VI and VII). Paths and cookie ages come from the population. Its
//! deviations within groups, within pairs of viewer and server, and between visits are Wira's. Each
//! visit is simulated in packets, as is the preceding one that makes the cookie.
//!
//! From the ground up: `draw` (visits and their paths) · `run` (a visit under one startup mode) ·
//! `figures` (the paper's figures) · `page`.

mod draw;
mod figures;
mod page;
mod run;

use std::path::Path;

use startup::decision::Mode;

use super::distribution::not_allowed;
use super::population::Population;
use super::specification::{Specification, WIRA};
use crate::error::{Context as _, Error};
use crate::experiments::output::write_file;
use crate::experiments::parallel::in_order;
use draw::World;
use figures::Figures;
use run::{FirstFrameResult, Usual, run};

/// Options of a comparison of startup modes.
#[derive(Clone, Copy, Debug)]
pub struct VisitOptions<'a> {
    /// Number of visits, 1 to 1,000,000.
    pub visits: u32,
    /// Population file; the built-in `experiments/populations/wira.toml` if `None`.
    pub population: Option<&'a Path>,
    /// Random seed.
    pub seed: u64,
    /// Number of threads. It does not affect the results.
    pub jobs: usize,
    /// Output directory.
    pub out: &'a Path,
}

/// Runs the visits under every startup mode. The page `first-frame.md` and its plot go to `out`.
///
/// # Errors
/// One line: an option is invalid, results cannot be written, or visits failed to run.
pub fn visits(options: &VisitOptions<'_>) -> Result<(), Error> {
    if !(1..=1_000_000).contains(&options.visits) {
        return Err(not_allowed("--visits", &options.visits, "1 to 1000000"));
    }
    let specification = match options.population {
        Some(path) => Specification::read(path)?,
        None => Specification::parse(WIRA)?,
    };
    let population = Population::new(specification, None);
    let visits = draw::visits(&population, options.seed, options.visits);
    let usual = Usual::of(&visits);
    let worlds = [World::Usual, World::Fell];
    let work: Vec<(usize, Mode, World)> = worlds
        .into_iter()
        .flat_map(|world| Mode::ALL.map(|mode| (mode, world)))
        .flat_map(|(mode, world)| (0..visits.len()).map(move |visit| (visit, mode, world)))
        .collect();
    let mut all: Vec<Vec<FirstFrameResult>> = Vec::new();
    let mut faults = Vec::new();
    in_order(
        &work,
        options.jobs,
        |&(visit, mode, world)| run(&visits[visit], mode, world, &usual),
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
    let fell = all.split_off(Mode::ALL.len());
    let figures = Figures::of(&visits, &all, &fell);
    let mut command =
        format!("mendcast lab visits --visits {} --seed {}", options.visits, options.seed);
    if let Some(path) = options.population {
        command += &format!(" --population {}", path.display());
    }
    std::fs::create_dir_all(options.out).at(options.out)?;
    write_file(&options.out.join(page::PLOT), &page::plot(&figures))?;
    write_file(&options.out.join(page::PAGE), &page::page(&figures, &usual, &command))
}
