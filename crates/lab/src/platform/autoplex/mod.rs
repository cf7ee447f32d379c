//! AutoPlex on the virtual platform: user groups over a day, in packets. What a period's sessions did sets what the next
//! period's may do, in each of several ways, and every way has the same sessions on the same paths.
//!
//! From the ground up: `world` (a day's sessions, and how paths change) · `way` (what holds sessions, and what it
//! learns) · `row` (what is kept of each) · `figures` · `page`.

mod figures;
mod page;
mod row;
mod way;
mod world;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::arm::{Arm, BASELINE};
use super::population::Population;
use super::run::run_held;
use super::specification::Specification;
use crate::experiments::output::write_file;
use crate::experiments::parallel::in_order;
use figures::Figures;
use row::Row;
use way::{FREE, Learner, Tuning, Way};
use world::Day;

/// The built-in population.
const GROUPS: &str = include_str!("../../../../../experiments/populations/groups.toml");
/// The ways that are compared if the command names none.
pub const WAYS: &str = "bbr,constant-8,paper-retransmission,paper-goodput,safe,oracle";

/// What a comparison of ways to hold groups is made of.
#[derive(Clone, Debug)]
pub struct AutoPlexOptions<'a> {
    /// Days, each with groups, viewers and paths of its own.
    pub seeds: u32,
    /// The first of their seeds.
    pub seed: u32,
    /// Sessions of a day.
    pub sessions: u32,
    /// Ways to hold them.
    pub ways: &'a [String],
    /// Who comes: a specification; the built-in one without.
    pub population: Option<&'a Path>,
    /// Threads; results are the same for any number.
    pub jobs: usize,
    /// Where results go. What is there from a run with the same options that was stopped is used.
    pub out: &'a Path,
}

impl AutoPlexOptions<'_> {
    fn command(&self) -> String {
        let mut text = format!(
            "mendcast lab autoplex --seeds {} --seed {} --sessions {} --ways {}",
            self.seeds,
            self.seed,
            self.sessions,
            self.ways.join(",")
        );
        if let Some(path) = self.population {
            text += &format!(" --population {}", path.display());
        }
        text
    }
}

/// Days under every way; rows, `autoplex.md` and its plots go to `out`.
///
/// # Errors
/// One line: an option makes no sense, results cannot be written, or sessions could not be run.
pub fn autoplex(options: &AutoPlexOptions<'_>) -> Result<(), String> {
    let ways: Vec<Way> =
        options.ways.iter().map(|way| Way::parse(way)).collect::<Result<_, _>>()?;
    if !options.ways.iter().any(|way| way == FREE) {
        return Err(format!("`{FREE}` is what the others are compared with: name it too"));
    }
    if !(1..=1_000).contains(&options.seeds)
        || options.seed > 1_000_000
        || !(100..=1_000_000).contains(&options.sessions)
    {
        return Err("there may be 1 to 1000 seeds and 100 to 1000000 sessions".to_owned());
    }
    let specification = match options.population {
        Some(path) => Specification::read(path)?,
        None => Specification::parse(GROUPS)?,
    };
    let population = Population::new(specification, None);
    let work: Vec<(u32, usize)> = (options.seed..options.seed + options.seeds)
        .flat_map(|seed| (0..ways.len()).map(move |way| (seed, way)))
        .collect();
    let mut all: BTreeMap<usize, Vec<Vec<Row>>> = BTreeMap::new();
    let mut faults = Vec::new();
    in_order(
        &work,
        options.jobs,
        |&(seed, way)| {
            let path = file(options, seed, &options.ways[way]);
            match read(&path, options.sessions) {
                Some(rows) => Ok(rows),
                None => {
                    let rows = day(&population, seed.into(), options.sessions, ways[way])?;
                    write(&path, &rows)?;
                    Ok(rows)
                }
            }
        },
        |&(_, way), rows: Result<Vec<Row>, String>| match rows {
            Ok(rows) => all.entry(way).or_default().push(rows),
            Err(fault) => faults.push(fault),
        },
    );
    if let Some(first) = faults.first() {
        return Err(format!("{} days could not be run: {first}", faults.len()));
    }
    let days: Vec<(&str, &[Vec<Row>])> =
        all.iter().map(|(way, days)| (options.ways[*way].as_str(), &days[..])).collect();
    let figures = Figures::of(&days).ok_or("there are too few sessions for figures")?;
    for (name, svg) in page::plots(&figures)? {
        write_file(&options.out.join(name), &svg)?;
    }
    write_file(&options.out.join(page::PAGE), &page::page(&figures, &options.command()))
}

/// A day's sessions in one way.
fn day(population: &Population, seed: u64, sessions: u32, way: Way) -> Result<Vec<Row>, String> {
    let day = Day::new(population, seed, sessions);
    let arq = Arm::parse(BASELINE)?;
    let mut learner = Learner::new(way, Tuning::default());
    let mut rows = Vec::with_capacity(day.sessions.len());
    for (period, places) in day.periods.iter().enumerate() {
        for session in &day.sessions[places.clone()] {
            let arm = learner.arm(session);
            let (_, record) = run_held(session, &arq, learner.capping(session, arm))?;
            learner.learn(session, arm, &record);
            rows.push(Row::new(session, period as u32, arm, &record));
        }
        learner.decide();
    }
    Ok(rows)
}

fn file(options: &AutoPlexOptions<'_>, seed: u32, way: &str) -> PathBuf {
    options.out.join(format!("seed-{seed}")).join(format!("{way}-{}.csv", options.sessions))
}

/// The rows of a day that was run before; `None` if it was not, or not to its end.
fn read(path: &Path, sessions: u32) -> Option<Vec<Row>> {
    let text = fs::read_to_string(path).ok()?;
    let mut lines = text.lines();
    if lines.next() != Some(Row::HEADER.join(",").as_str()) {
        return None;
    }
    let rows: Vec<Row> = lines.map(Row::parse).collect::<Option<_>>()?;
    (rows.len() == sessions as usize).then_some(rows)
}

fn write(path: &Path, rows: &[Row]) -> Result<(), String> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut text = Row::HEADER.join(",");
    for row in rows {
        text.push('\n');
        text += &row.line();
    }
    text.push('\n');
    write_file(path, &text)
}
