//! AutoPlex on the virtual platform: user groups over a day, simulated in packets. The sessions of
//! one period determine the caps of the next. Every policy gets the same sessions on the same
//! paths.
//!
//! From the ground up: `world` (sessions of a day, path changes) · `paper` and `policy` (policies
//! and their learned state) · `row` (results of a session) · `course` (a day under a policy) ·
//! `figures`, `lines` and `page`, or `shared` for two sessions per bottleneck.

mod course;
mod figures;
mod lines;
mod page;
mod paper;
mod policy;
mod row;
mod shared;
mod world;

use std::path::{Path, PathBuf};

use super::population::Population;
use super::specification::Specification;
use crate::error::{Error, RunError, ValueError};
use crate::experiments::origin;
use crate::experiments::output::{SUMMARY, write_file, write_json};
use crate::experiments::parallel::in_order;
use course::{Bottleneck, PolicyRun};
use figures::Figures;
use policy::{CapPolicy, FREE};
use row::GroupRow;

/// The built-in population.
const GROUPS: &str = include_str!("../../../../../experiments/populations/groups.toml");
/// Message for policies without [`FREE`].
const NO_REFERENCE: &str = "`bbr` is the reference of the comparison: add it to the list";
/// Policies compared by default.
pub const WAYS: &str = "bbr,paper-retransmission,paper-retransmission-sending,\
                        paper-retransmission-vip,paper-retransmission-low,\
                        paper-retransmission-decide,paper-goodput,paper-goodput-sending,\
                        constant-6,demand-3,safe,oracle";

/// Options of a comparison of group policies.
#[derive(Clone, Debug)]
pub struct AutoPlexOptions<'a> {
    /// Number of days, each with its own groups, viewers and paths.
    pub seeds: u32,
    /// First seed.
    pub seed: u32,
    /// Sessions per day.
    pub sessions: u32,
    /// Policies to compare.
    pub ways: &'a [String],
    /// Numbers of user groups, each the largest of the population. If empty, all of the population.
    pub groups: &'a [u32],
    /// Whether two concurrent sessions of a group share a bottleneck, with one or both capped.
    pub shared: bool,
    /// Specification of the population; the built-in one if `None`.
    pub population: Option<&'a Path>,
    /// Number of threads. It does not affect the results.
    pub jobs: usize,
    /// Output directory. Results of an interrupted run with the same options are reused.
    pub out: &'a Path,
}

impl AutoPlexOptions<'_> {
    fn command(&self) -> String {
        let mut text = format!(
            "mendcast lab groups --days {} --seed {} --sessions {} --policies {}",
            self.seeds,
            self.seed,
            self.sessions,
            self.ways.join(",")
        );
        if self.shared {
            text += " --shared";
        } else if !self.groups.is_empty() {
            let groups: Vec<String> = self.groups.iter().map(u32::to_string).collect();
            text += &format!(" --groups {}", groups.join(","));
        }
        if let Some(path) = self.population {
            text += &format!(" --population {}", path.display());
        }
        text
    }
}

/// Runs the days under every policy. Rows, the returned page and its plots go to `out`.
///
/// # Errors
/// One line: an option is invalid, results cannot be written, or sessions failed to run.
pub fn autoplex(options: &AutoPlexOptions<'_>) -> Result<PathBuf, Error> {
    let policies: Vec<CapPolicy> =
        options.ways.iter().map(|policy| CapPolicy::parse(policy)).collect::<Result<_, _>>()?;
    if !options.ways.iter().any(|policy| policy == FREE) {
        return Err(ValueError::Conflict(NO_REFERENCE).into());
    }
    let (seeds, sessions) = (1..=1_000, 100..=1_000_000);
    if !seeds.contains(&options.seeds)
        || options.seed > 1_000_000
        || !sessions.contains(&options.sessions)
    {
        return Err(ValueError::Days { seeds, sessions }.into());
    }
    let specification = match options.population {
        Some(path) => Specification::read(path)?,
        None => Specification::parse(GROUPS)?,
    };
    let courses = courses(options.ways, &policies, options.shared);
    let write = |name: &str, text: &str| {
        let path = options.out.join(name);
        write_file(&path, text).map(|()| path)
    };
    if options.shared {
        let all = days(options, &courses, &Population::new(specification, None))?;
        let days: Vec<(&PolicyRun, &[Vec<GroupRow>])> =
            courses.iter().zip(&all).map(|(course, days)| (course, &days[..])).collect();
        let page = shared::page(&days, &options.command()).ok_or(RunError::FewSessions)?;
        return write(shared::PAGE, &signed(page));
    }
    let counts: Vec<Option<u32>> = match options.groups {
        [] => vec![None],
        groups => groups.iter().copied().map(Some).collect(),
    };
    let mut all_figures = Vec::new();
    for count in counts {
        let specification = match count {
            Some(count) => specification.clone().with_largest_groups(count)?,
            None => specification.clone(),
        };
        let all = days(options, &courses, &Population::new(specification, None))?;
        let days: Vec<figures::PolicyDays<'_>> = courses
            .iter()
            .zip(&all)
            .map(|(course, days)| (&*course.name, course.policy, &days[..]))
            .collect();
        let figures = Figures::of(count, &days).ok_or(RunError::FewSessions)?;
        for (name, svg) in page::plots(&figures) {
            write(&name, &svg)?;
        }
        all_figures.push(figures);
    }
    let lines: Vec<lines::GroupLine<'_>> = all_figures.iter().flat_map(lines::lines).collect();
    write_json(&options.out.join(SUMMARY), &lines)?;
    write(page::PAGE, &signed(page::page(&all_figures, &options.command())))
}

/// Runs the days of all courses with a population.
fn days(
    options: &AutoPlexOptions<'_>,
    courses: &[PolicyRun],
    population: &Population,
) -> Result<Vec<Vec<Vec<GroupRow>>>, Error> {
    let seeds = options.seed..options.seed + options.seeds;
    let work: Vec<(u32, usize)> =
        seeds.flat_map(|seed| (0..courses.len()).map(move |place| (seed, place))).collect();
    let mut all: Vec<Vec<Vec<GroupRow>>> = vec![Vec::new(); courses.len()];
    let mut faults = Vec::new();
    in_order(
        &work,
        options.jobs,
        |&(seed, place)| courses[place].day(population, seed, options.sessions, options.out),
        |&(_, place), rows| match rows {
            Ok(rows) => all[place].push(rows),
            Err(fault) => faults.push(fault),
        },
    );
    Error::of_runs("days could not be run", faults)?;
    Ok(all)
}

/// Appends the command and version to a page.
fn signed(page: String) -> String {
    format!("{page}\n{}\n", origin())
}

/// Expands policies to courses. On shared bottlenecks each policy runs with one of two sessions
/// capped, and with both.
fn courses(names: &[String], policies: &[CapPolicy], shared: bool) -> Vec<PolicyRun> {
    let of = |(name, policy): (&String, &CapPolicy)| {
        let held: &[usize] = if *policy == CapPolicy::Free { &[0] } else { &[1, 2] };
        let bottlenecks: Vec<Bottleneck> = match shared {
            true => held.iter().map(|held| Bottleneck::Shared { held: *held }).collect(),
            false => vec![Bottleneck::Own],
        };
        let (name, policy) = (name.clone(), *policy);
        bottlenecks.into_iter().map(move |bottleneck| PolicyRun {
            name: name.clone(),
            policy,
            bottleneck,
        })
    };
    names.iter().zip(policies).flat_map(of).collect()
}
