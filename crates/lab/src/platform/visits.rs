//! Viewers who come back: what a first frame takes in each way to start a connection, when the last visit has
//! measured the path (Wira, sections VI and VII). Paths and ages are those of the population, whose deviations within groups,
//! within pairs of viewer and server, and between visits are Wira's; each visit is run in packets, and so is
//! the one before it, which makes the cookie.
//!
//! From the ground up: `draw` (who comes back, and to what) · `run` (a visit in one way) · `figures` (the paper's) ·
//! `page`.

mod draw;
mod figures;
mod page;
mod run;

use std::path::Path;

use startup::decision::Mode;

use super::population::Population;
use super::specification::{Specification, WIRA};
use crate::experiments::output::write_file;
use crate::experiments::parallel::in_order;
use draw::World;
use figures::Figures;
use run::{Seen, Usual, run};

/// What a comparison of ways to start is made of.
#[derive(Clone, Copy, Debug)]
pub struct VisitOptions<'a> {
    /// Visits, 1 to 1,000,000.
    pub visits: u32,
    /// Who comes back, over which paths: a file; without it the built-in `experiments/populations/wira.toml`.
    pub population: Option<&'a Path>,
    /// Of everything random.
    pub seed: u64,
    /// Threads; results are the same for any number.
    pub jobs: usize,
    /// Where results go.
    pub out: &'a Path,
}

/// Visits, as many as the options say, under every way to start; the page `first-frame.md` and its plot go to `out`.
///
/// # Errors
/// One line: an option makes no sense, results cannot be written, or visits could not be run.
pub fn visits(options: &VisitOptions<'_>) -> Result<(), String> {
    if !(1..=1_000_000).contains(&options.visits) {
        return Err(format!("`--visits` is {}; it may be 1 to 1000000", options.visits));
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
    let mut all: Vec<Vec<Seen>> = Vec::new();
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
    if let Some(first) = faults.first() {
        return Err(format!("{} visits could not be run: {first}", faults.len()));
    }
    let fell = all.split_off(Mode::ALL.len());
    let figures = Figures::of(&visits, &all, &fell);
    let mut command =
        format!("mendcast lab visits --visits {} --seed {}", options.visits, options.seed);
    if let Some(path) = options.population {
        command += &format!(" --population {}", path.display());
    }
    std::fs::create_dir_all(options.out).map_err(|e| format!("{}: {e}", options.out.display()))?;
    write_file(&options.out.join(page::PLOT), &page::plot(&figures)?)?;
    write_file(&options.out.join(page::PAGE), &page::page(&figures, &usual, &command))
}
