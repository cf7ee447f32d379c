//! AutoPlex on the virtual platform: user groups over a day, in packets. What a period's sessions did sets what the next
//! period's may do, in each of several ways, and every way has the same sessions on the same paths.
//!
//! From the ground up: `world` (a day's sessions, and how paths change) · `way` (what holds sessions, and what it
//! learns) · `row` (what is kept of each) · `course` (a day under a way) · `figures` and `page`, or `shared` where two
//! sessions have one bottleneck.

mod course;
mod figures;
mod page;
mod row;
mod shared;
mod way;
mod world;

use std::path::{Path, PathBuf};

use super::population::Population;
use super::specification::Specification;
use crate::experiments::files::Made;
use crate::experiments::output::write_file;
use crate::experiments::parallel::in_order;
use course::{Bottleneck, Course};
use figures::Figures;
use row::Row;
use way::{FREE, Way};

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
    /// Two sessions of a group at a time behind one bottleneck, of which one is held or both are.
    pub shared: bool,
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
        if self.shared {
            text += " --shared";
        }
        if let Some(path) = self.population {
            text += &format!(" --population {}", path.display());
        }
        text
    }
}

/// Days under every way; rows, the page that is returned and its plots go to `out`.
///
/// # Errors
/// One line: an option makes no sense, results cannot be written, or sessions could not be run.
pub fn autoplex(options: &AutoPlexOptions<'_>) -> Result<PathBuf, String> {
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
    let courses = courses(options.ways, &ways, options.shared);
    let seeds = options.seed..options.seed + options.seeds;
    let work: Vec<(u32, usize)> =
        seeds.flat_map(|seed| (0..courses.len()).map(move |place| (seed, place))).collect();
    let mut all: Vec<Vec<Vec<Row>>> = vec![Vec::new(); courses.len()];
    let mut faults = Vec::new();
    in_order(
        &work,
        options.jobs,
        |&(seed, place)| courses[place].day(&population, seed, options.sessions, options.out),
        |&(_, place), rows: Result<Vec<Row>, String>| match rows {
            Ok(rows) => all[place].push(rows),
            Err(fault) => faults.push(fault),
        },
    );
    if let Some(first) = faults.first() {
        return Err(format!("{} days could not be run: {first}", faults.len()));
    }
    let few = "there are too few sessions for figures";
    let write = |name: &str, text: &str| {
        let path = options.out.join(name);
        write_file(&path, text).map(|()| path)
    };
    if options.shared {
        let days: Vec<(&Course, &[Vec<Row>])> =
            courses.iter().zip(&all).map(|(course, days)| (course, &days[..])).collect();
        let page = shared::page(&days, &options.command()).ok_or(few)?;
        return write(shared::PAGE, &signed(page));
    }
    let days: Vec<(&str, &[Vec<Row>])> =
        courses.iter().zip(&all).map(|(course, days)| (&*course.name, &days[..])).collect();
    let figures = Figures::of(&days).ok_or(few)?;
    for (name, svg) in page::plots(&figures)? {
        write(name, &svg)?;
    }
    write(page::PAGE, &signed(page::page(&figures, &options.command())))
}

/// A page with what made it.
fn signed(page: String) -> String {
    let Made { commit, machine, .. } = Made::here();
    format!("{page}\nCommit {commit}; {machine}.\n")
}

/// What a day is run under: each way, and behind shared bottlenecks each with one of two held and with both.
fn courses(names: &[String], ways: &[Way], shared: bool) -> Vec<Course> {
    let of = |(name, way): (&String, &Way)| {
        let held: &[usize] = if *way == Way::Free { &[0] } else { &[1, 2] };
        let bottlenecks: Vec<Bottleneck> = match shared {
            true => held.iter().map(|held| Bottleneck::Shared { held: *held }).collect(),
            false => vec![Bottleneck::Own],
        };
        let (name, way) = (name.clone(), *way);
        bottlenecks.into_iter().map(move |bottleneck| Course {
            name: name.clone(),
            way,
            bottleneck,
        })
    };
    names.iter().zip(ways).flat_map(of).collect()
}
