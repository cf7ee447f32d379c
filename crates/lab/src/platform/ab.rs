//! The virtual A/B test: sessions of a population run through the product in virtual time, their records are written in
//! the server's own schema, and what viewers had is compared.

use core::time::Duration;
use std::path::Path;

use records::{Record, RecordWriter, Retention, Unit};

use super::arm::{Arm, BASELINE, COHORTS, COMPARED};
use super::compare::Trial;
use super::history::History;
use super::plots;
use super::population::Population;
use super::report;
use super::run::{Row, run};
use super::session::Session;
use super::specification::{FLEET, Specification};
use super::summary::{ArmSet, Read, Setting, Summary, summarise};
use crate::experiments::output::write_file;
use crate::experiments::parallel::in_parallel;

/// Sessions at most.
const MAX_SESSIONS: u32 = 10_000_000;

/// What a virtual A/B test is made of.
#[derive(Clone, Copy, Debug)]
pub struct AbOptions<'a> {
    /// Sessions, from 1.
    pub sessions: u32,
    /// A specification (`*.toml`) or an operator's records; the built-in specification without.
    pub population: Option<&'a Path>,
    /// Schemes; without cohorts each is a cohort, all with the same weight.
    pub schemes: &'a [String],
    /// Cohorts as `NAME=SCHEME:WEIGHT`.
    pub cohorts: &'a [String],
    /// Whether each session is run under every scheme; otherwise under that of its viewer's cohort.
    pub paired: bool,
    /// Of everything random.
    pub seed: u64,
    /// Threads.
    pub jobs: usize,
    /// Where results go; records go into a directory in it.
    pub out: &'a Path,
}

impl AbOptions<'_> {
    fn arms(&self) -> Result<Vec<Arm>, String> {
        let named = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
        match (self.cohorts, self.schemes) {
            ([], []) if self.paired => Arm::all(&named(COMPARED), Arm::parse),
            ([], []) => Arm::all(&COHORTS.map(str::to_owned), Arm::parse_cohort),
            ([], schemes) => Arm::all(schemes, Arm::parse),
            (cohorts, []) => Arm::all(cohorts, Arm::parse_cohort),
            _ => Err("write `--schemes` or `--cohort`, not both".to_owned()),
        }
    }

    fn population(&self) -> Result<Population, String> {
        let built_in = || Specification::parse(FLEET);
        let Some(path) = self.population else { return Ok(Population::new(built_in()?, None)) };
        if path.extension().is_some_and(|extension| extension == "toml") {
            let named = |e: String| format!("{}: {e}", path.display());
            let text = std::fs::read_to_string(path).map_err(|e| named(e.to_string()))?;
            return Ok(Population::new(Specification::parse(&text).map_err(named)?, None));
        }
        Ok(Population::new(built_in()?, Some(History::read(path)?)))
    }

    /// The command that these options come from, less threads and place of the results, which change nothing.
    fn command(&self) -> String {
        let mut text = format!("mendcast lab ab --sessions {} --seed {}", self.sessions, self.seed);
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

    /// The schemes that a session has.
    fn arms_of(&self, session: &Session, arms: &[Arm]) -> core::ops::Range<usize> {
        if self.paired {
            return 0..arms.len();
        }
        let weights = arms.iter().map(|arm| arm.weight);
        let own = Unit(session.viewer.unit).cohort(&format!("lab {}", self.seed), weights);
        own..own + 1
    }
}

/// The place of what others are compared to: plain retransmission, or the first.
fn baseline(arms: &[Arm]) -> usize {
    let is = |arm: &Arm| arm.scheme() == BASELINE && !arm.is_oracle();
    arms.iter().position(is).unwrap_or(0)
}

/// Runs a virtual A/B test and writes its results: `summary.json`, `report.md`, plots, and `records/`, in which paired
/// sessions have a directory for each scheme.
///
/// # Errors
/// One line: an option makes no sense, results cannot be written, or sessions could not be run.
pub fn ab(options: &AbOptions<'_>) -> Result<(), String> {
    if !(1..=MAX_SESSIONS).contains(&options.sessions) {
        return Err(format!("`--sessions` is {}; it may be 1 to {MAX_SESSIONS}", options.sessions));
    }
    let (arms, population) = (options.arms()?, options.population()?);
    let folder = options.out.join("records");
    if std::fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(format!(
            "{} holds records already, which would be mixed with the new ones",
            folder.display()
        ));
    }
    std::fs::create_dir_all(options.out).map_err(|e| format!("{}: {e}", options.out.display()))?;
    let sessions = population.sessions(options.seed, options.sessions);
    let work: Vec<(usize, usize)> = sessions
        .iter()
        .enumerate()
        .flat_map(|(place, session)| options.arms_of(session, &arms).map(move |arm| (place, arm)))
        .collect();
    let done = in_parallel(&work, options.jobs, |(place, arm)| run(&sessions[*place], &arms[*arm]));
    let done: Vec<Done> = work.into_iter().zip(done).collect();
    let faults: Vec<String> =
        done.iter().filter_map(|(_, outcome)| outcome.as_ref().err().cloned()).collect();
    write_records(&folder, &arms, options.paired, &done)?;
    let trials = trials(&sessions, &done);
    if trials.is_empty() {
        return Err(format!("no session could be run: {}", faults.join("; ")));
    }
    let setting = Setting {
        command: options.command(),
        population: population.title().to_owned(),
        read: population.history().map(read_of),
        seed: options.seed,
        paired: options.paired,
        arms: arms.iter().map(arm_set).collect(),
        baseline: baseline(&arms),
        faults: faults.clone(),
    };
    write(&summarise(setting, &sessions, &trials), options.out)?;
    match faults.len() {
        0 => Ok(()),
        n => Err(format!("{n} runs are missing, the testbed is at fault: {}", faults[0])),
    }
}

/// A session and a scheme by their places, and what became of them.
type Done = ((usize, usize), Result<(Row, Record), String>);

/// What is compared: sessions that could be run under all their schemes.
fn trials(sessions: &[Session], done: &[Done]) -> Vec<Trial> {
    let faulty: std::collections::BTreeSet<usize> =
        done.iter().filter(|(_, outcome)| outcome.is_err()).map(|((place, _), _)| *place).collect();
    let sound = done.iter().filter(|((place, _), _)| !faulty.contains(place));
    let trial = |((place, arm), outcome): &Done| {
        let (row, _) = outcome.as_ref().ok()?;
        let viewer = sessions[*place].viewer.number;
        Some(Trial { session: *place as u32, viewer, arm: *arm, row: *row })
    };
    sound.filter_map(trial).collect()
}

fn write_records(folder: &Path, arms: &[Arm], paired: bool, done: &[Done]) -> Result<(), String> {
    let folders = match paired {
        true => arms.iter().map(|arm| folder.join(arm.folder())).collect(),
        false => vec![folder.to_owned()],
    };
    for (place, folder) in folders.iter().enumerate() {
        // One file, however long writing takes.
        let year = Duration::from_secs(365 * 86_400);
        let writer = RecordWriter::start(folder, year, Retention::default());
        let writer = writer.map_err(|e| e.to_string())?;
        for ((_, arm), outcome) in done {
            let Ok((_, record)) = outcome else { continue };
            if paired && *arm != place {
                continue;
            }
            let mut record = record.clone();
            while let Err(back) = writer.write(record) {
                record = *back;
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        writer.close();
        if writer.dropped() > 0 {
            return Err(format!(
                "{}: {} records were not written",
                folder.display(),
                writer.dropped()
            ));
        }
    }
    Ok(())
}

fn read_of(history: &History) -> Read {
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
    let keys = arm.set.iter().filter(|(key, _)| *key != "scheme");
    let keys: String = keys.map(|(key, value)| format!(" {key}={value}")).collect();
    ArmSet {
        name: arm.name.clone(),
        settings: format!("{}{keys}", arm.scheme()),
        weight: arm.weight,
        is_oracle: arm.is_oracle(),
    }
}

fn write(summary: &Summary, out: &Path) -> Result<(), String> {
    let json = serde_json::to_string_pretty(summary).map_err(|e| e.to_string())?;
    write_file(&out.join("summary.json"), &json)?;
    for (name, svg) in plots::draw(summary)? {
        write_file(&out.join(name), &svg)?;
    }
    write_file(&out.join("report.md"), &report::whole(summary))
}

/// The page for people (`docs/viewers.md`) from the results in `dir`; its plots go into `pictures`, and the page names
/// them as `link` followed by their names.
///
/// # Errors
/// One line: there are no results, or plots cannot be written.
pub fn viewers(dir: &Path, pictures: &Path, link: &str) -> Result<String, String> {
    let path = dir.join("summary.json");
    let named = |e: String| format!("{}: {e}", path.display());
    let text = std::fs::read_to_string(&path).map_err(|e| named(e.to_string()))?;
    let summary: Summary = serde_json::from_str(&text).map_err(|e| named(e.to_string()))?;
    if !summary.paired {
        return Err(named("the page needs results of `mendcast lab ab --paired`".to_owned()));
    }
    std::fs::create_dir_all(pictures).map_err(|e| format!("{}: {e}", pictures.display()))?;
    for (name, svg) in plots::draw(&summary)? {
        write_file(&pictures.join(name), &svg)?;
    }
    Ok(report::page(&summary, link))
}

#[cfg(test)]
mod tests;
