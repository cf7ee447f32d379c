//! Virtual A/B test: runs the sessions of a population through the product in virtual time, writes
//! their records in the server's schema, and compares playback.

use core::time::Duration;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use records::{Record, RecordWriter, Retention, Unit};

use super::arm::{Arm, BASELINE, COHORTS, COMPARED};
use super::compare::SessionTrial;
use super::distribution::not_allowed;
use super::history::RecordHistory;
use super::plots;
use super::population::Population;
use super::report::{self, PICTURES};
use super::run::run;
use super::session::Session;
use super::specification::{FLEET, Specification};
use super::summary::{ArmSet, PopulationSummary, Read, Setting, summarise};
use crate::error::{Context as _, Error, FileError, ValueError};
use crate::experiments::output::{SUMMARY, write_file, write_json};
use crate::experiments::parallel::in_order;

/// Maximum number of sessions. A result (one session under one scheme) takes half a kilobyte, so a
/// million sessions under seven schemes take 4 GB.
const MAX_SESSIONS: u32 = 1_000_000;

/// Options of a virtual A/B test.
#[derive(Clone, Copy, Debug)]
pub struct AbOptions<'a> {
    /// Number of sessions per random seed, 1 to 1,000,000.
    pub sessions: u32,
    /// Specification (`*.toml`) or an operator's records; the built-in specification if `None`.
    pub population: Option<&'a Path>,
    /// Schemes. Without cohorts each one is a cohort, all with the same weight.
    pub schemes: &'a [String],
    /// Cohorts as `NAME=SCHEME:WEIGHT`.
    pub cohorts: &'a [String],
    /// Whether each session runs under every scheme. Otherwise it runs under its viewer's cohort.
    pub paired: bool,
    /// First random seed.
    pub seed: u64,
    /// Number of consecutive seeds, at least 1. Results are pooled, and reported for each seed.
    pub seeds: u32,
    /// Number of threads.
    pub jobs: usize,
    /// Output directory. Records go into a subdirectory.
    pub out: &'a Path,
}

impl AbOptions<'_> {
    fn arms(&self) -> Result<Vec<Arm>, Error> {
        let named = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
        match (self.cohorts, self.schemes) {
            ([], []) if self.paired => Arm::all(&named(COMPARED), Arm::parse),
            ([], []) => Arm::all(&COHORTS.map(str::to_owned), Arm::parse_cohort),
            ([], schemes) => Arm::all(schemes, Arm::parse),
            (cohorts, []) => Arm::all(cohorts, Arm::parse_cohort),
            _ => Err(ValueError::Conflict("write `--schemes` or `--cohort`, not both").into()),
        }
    }

    fn population(&self) -> Result<Population, Error> {
        Ok(match self.population {
            None => Population::new(Specification::parse(FLEET)?, None),
            Some(path) if path.extension().is_some_and(|extension| extension == "toml") => {
                Population::new(Specification::read(path)?, None)
            }
            Some(path) => {
                Population::new(Specification::parse(FLEET)?, Some(RecordHistory::read(path)?))
            }
        })
    }

    /// Command line equivalent to these options, without thread count and output directory, which
    /// do not affect the results.
    fn command(&self) -> String {
        let mut text =
            format!("mendcast lab population --sessions {} --seed {}", self.sessions, self.seed);
        if self.seeds > 1 {
            text += &format!(" --seeds {}", self.seeds);
        }
        if self.paired {
            text += " --paired";
        }
        if !self.schemes.is_empty() {
            text += &format!(" --schemes {}", self.schemes.join(","));
        }
        self.cohorts.iter().for_each(|cohort| text += &format!(" --cohort {cohort}"));
        if let Some(path) = self.population {
            text += &format!(" --population {}", path.display());
        }
        text
    }

    /// Draws the sessions of all seeds. Viewers of different seeds are different viewers.
    fn sessions(&self, population: &Population) -> Vec<Session> {
        let mut all: Vec<Session> = Vec::new();
        for seed in (self.seed..).take(self.seeds as usize) {
            let before = all.iter().map(|session| session.viewer.number + 1).max().unwrap_or(0);
            let mut sessions = population.sessions(seed, self.sessions);
            sessions.iter_mut().for_each(|session| session.viewer.number += before);
            all.append(&mut sessions);
        }
        all
    }

    /// Returns the schemes that a session runs under.
    fn arms_of(&self, session: &Session, arms: &[Arm]) -> core::ops::Range<usize> {
        if self.paired {
            return 0..arms.len();
        }
        let weights = arms.iter().map(|arm| arm.weight);
        let own = Unit(session.viewer.unit).cohort(&format!("lab {}", self.seed), weights);
        own..own + 1
    }
}

/// Index of the baseline: plain retransmission, or else the first scheme.
fn baseline(arms: &[Arm]) -> usize {
    let is = |arm: &Arm| arm.scheme() == BASELINE && !arm.is_oracle();
    arms.iter().position(is).unwrap_or(0)
}

/// Runs a virtual A/B test and writes `summary.json`, `report.md`, plots, and `records/`. Paired
/// sessions have one record directory per scheme, and the page `viewers.md`.
///
/// # Errors
/// One line: an option is invalid, results cannot be written, or sessions failed to run.
pub fn ab(options: &AbOptions<'_>) -> Result<(), Error> {
    if !(1..=MAX_SESSIONS).contains(&options.sessions) {
        let allowed = format!("1 to {MAX_SESSIONS}");
        return Err(not_allowed("--sessions", &options.sessions, &allowed));
    }
    let total = u64::from(options.sessions) * u64::from(options.seeds);
    if !(1..=u64::from(MAX_SESSIONS)).contains(&total) {
        let allowed = format!("1 to {MAX_SESSIONS} sessions in all");
        return Err(not_allowed("--seeds", &options.seeds, &allowed));
    }
    let (arms, population) = (options.arms()?, options.population()?);
    for arm in &arms {
        for key in arm.unused() {
            eprintln!(
                "warning: {}: the scheme \"{}\" does not use `{key}`",
                arm.name,
                arm.scheme()
            );
        }
    }
    let folder = options.out.join("records");
    if std::fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(FileError::HoldsRecords(folder).into());
    }
    std::fs::create_dir_all(options.out).at(options.out)?;
    let sessions = options.sessions(&population);
    let work: Vec<(usize, usize)> = sessions
        .iter()
        .enumerate()
        .flat_map(|(place, session)| options.arms_of(session, &arms).map(move |arm| (place, arm)))
        .collect();
    let writers = Writers::start(&folder, &arms, options.paired)?;
    let mut trials = Vec::with_capacity(work.len());
    let (mut faults, mut faulty) = (Vec::new(), BTreeSet::new());
    in_order(
        &work,
        options.jobs,
        |(place, arm)| run(&sessions[*place], &arms[*arm]),
        |&(place, arm), outcome| match outcome {
            Ok((row, record)) => {
                writers.write(arm, record);
                let viewer = sessions[place].viewer.number;
                trials.push(SessionTrial { session: place as u32, viewer, arm, row });
            }
            Err(fault) => {
                faults.push(fault);
                faulty.insert(place as u32);
            }
        },
    );
    writers.close()?;
    // Compare only sessions that ran under all of their schemes.
    trials.retain(|trial| !faulty.contains(&trial.session));
    if trials.is_empty() {
        return Err(Error::NoSession(faults));
    }
    let setting = Setting {
        command: options.command(),
        population: population.title().to_owned(),
        read: population.history().map(read_of),
        seeds: (options.seed..).take(options.seeds as usize).collect(),
        paired: options.paired,
        arms: arms.iter().map(arm_set).collect(),
        baseline: baseline(&arms),
        faults: faults.iter().map(Error::to_string).collect(),
    };
    write(&summarise(setting, &sessions, &trials), options.out)?;
    Error::of_runs("runs failed in the testbed", faults)
}

/// Record writers: one per scheme if sessions are paired, otherwise one.
struct Writers(Vec<(PathBuf, Arc<RecordWriter>)>);

impl Writers {
    fn start(folder: &Path, arms: &[Arm], paired: bool) -> Result<Self, Error> {
        let folders = match paired {
            true => arms.iter().map(|arm| folder.join(arm.folder())).collect(),
            false => vec![folder.to_owned()],
        };
        let start = |folder: PathBuf| {
            // Records never expire: rotation starts new files and deletes none.
            let year = Duration::from_secs(365 * 86_400);
            let writer = RecordWriter::start(&folder, year, Retention::default());
            Ok::<_, Error>((folder, writer?))
        };
        folders.into_iter().map(start).collect::<Result<_, _>>().map(Self)
    }

    /// Writes the record of a session under a scheme. Blocks if the disk is slow.
    fn write(&self, arm: usize, mut record: Record) {
        let (_, writer) = &self.0[arm.min(self.0.len() - 1)];
        while let Err(back) = writer.write(record) {
            record = *back;
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn close(self) -> Result<(), Error> {
        for (folder, writer) in self.0 {
            writer.close();
            if writer.dropped() > 0 {
                return Err(FileError::Dropped(writer.dropped())).at(&folder);
            }
        }
        Ok(())
    }
}

fn read_of(history: &RecordHistory) -> Read {
    Read {
        records: history.records,
        used: history.used() as u64,
        incomplete: history.incomplete,
        broken: history.broken,
        impossible: history.impossible,
        named: history.named.clone(),
    }
}

fn arm_set(arm: &Arm) -> ArmSet {
    let keys = arm.keys.iter().skip(1);
    let keys: String = keys.map(|(key, value)| format!(" {key}={value}")).collect();
    ArmSet {
        name: arm.name.clone(),
        settings: format!("{}{keys}", arm.scheme()),
        weight: arm.weight,
        is_oracle: arm.is_oracle(),
    }
}

fn write(summary: &PopulationSummary, out: &Path) -> Result<(), Error> {
    write_json(&out.join(SUMMARY), summary)?;
    let pictures = out.join(PICTURES);
    std::fs::create_dir_all(&pictures).at(&pictures)?;
    for (name, svg) in plots::draw(summary) {
        write_file(&pictures.join(name), &svg)?;
    }
    if summary.paired {
        write_file(&out.join("viewers.md"), &report::page(summary))?;
    }
    write_file(&out.join("report.md"), &report::whole(summary))
}

/// Rewrites pages and plots from the `summary.json` in `dir`.
///
/// # Errors
/// One line: there are no results, or files cannot be written.
pub fn rewrite(dir: &Path) -> Result<(), Error> {
    let path = dir.join(SUMMARY);
    let text = std::fs::read_to_string(&path).at(&path)?;
    let summary: PopulationSummary = serde_json::from_str(&text).at(&path)?;
    write(&summary, dir)
}

#[cfg(test)]
mod tests;
