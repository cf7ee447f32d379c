//! A day under one policy. Rows are stored in a file, and an interrupted run resumes from it.

use std::fs;
use std::path::{Path, PathBuf};

use groups::Arm;
use groups::select::group_id;

use super::policy::{CapPolicy, Learner, Tuning};
use super::row::GroupRow;
use super::world::Day;
use crate::error::{Context as _, Error};
use crate::experiments::output::write_file;
use crate::platform::arm::{self, BASELINE};
use crate::platform::population::Population;
use crate::platform::run::{CappedSession, run_held, run_together};
use crate::platform::session::Session;

/// Sharing of bottlenecks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bottleneck {
    /// Every session has its own bottleneck.
    Own,
    /// Two sessions of the same group and period share a bottleneck; `held` of them are capped.
    /// Sessions without a partner are left out.
    Shared { held: usize },
}

/// Conditions of a day.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct PolicyRun {
    /// Name of the policy on the command line.
    pub name: String,
    pub policy: CapPolicy,
    pub bottleneck: Bottleneck,
}

impl PolicyRun {
    /// Returns the rows of a day; partners are adjacent.
    ///
    /// # Errors
    /// One line: a session could not be run, or rows could not be written.
    pub(super) fn day(
        &self,
        population: &Population,
        seed: u32,
        sessions: u32,
        out: &Path,
    ) -> Result<Vec<GroupRow>, Error> {
        let path = self.file(out, seed, sessions, population);
        if let Some(rows) = read(&path) {
            return Ok(rows);
        }
        let rows = self.run(&Day::new(population, seed.into(), sessions))?;
        write(&path, &rows)?;
        Ok(rows)
    }

    fn run(&self, day: &Day) -> Result<Vec<GroupRow>, Error> {
        let arq = arm::Arm::parse(BASELINE)?;
        let mut learner = Learner::new(self.policy, Tuning::default());
        let mut rows = Vec::with_capacity(day.sessions.len());
        for (period, places) in day.periods.iter().enumerate() {
            let mut keep =
                |learner: &mut Learner, session: &Session, arm: Arm, capped: &CappedSession| {
                    learner.learn(session, arm, &capped.record);
                    rows.push(GroupRow::new(session, period as u32, arm, capped));
                };
            let sessions = &day.sessions[places.clone()];
            match self.bottleneck {
                Bottleneck::Own => {
                    for session in sessions {
                        let arm = learner.arm(session);
                        let held = learner.capping(session, arm);
                        let (_, capped) = run_held(session, &arq, held)?;
                        keep(&mut learner, session, arm, &capped);
                    }
                }
                Bottleneck::Shared { held: count } => {
                    for pair in partners(sessions) {
                        let arms = [0, 1].map(|place| {
                            if place < count { learner.arm(pair[place]) } else { Arm::Holdout }
                        });
                        let held = [0, 1].map(|place| learner.capping(pair[place], arms[place]));
                        let both = run_together(pair, &arq, held)?;
                        for place in [0, 1] {
                            keep(&mut learner, pair[place], arms[place], &both[place]);
                        }
                    }
                }
            }
            learner.decide();
        }
        Ok(rows)
    }

    /// File names include a hash of the population.
    fn file(&self, out: &Path, seed: u32, sessions: u32, population: &Population) -> PathBuf {
        let bottleneck = match self.bottleneck {
            Bottleneck::Own => String::new(),
            Bottleneck::Shared { held } => format!("-{held}of2"),
        };
        let who = group_id(&format!("{population:?}")) as u32;
        let name = format!("{}{bottleneck}-{sessions}-{who:08x}.csv", self.name);
        out.join(format!("seed-{seed}")).join(name)
    }
}

/// Pairs up sessions of the same group.
fn partners(sessions: &[Session]) -> Vec<[&Session; 2]> {
    let mut sorted: Vec<&Session> = sessions.iter().collect();
    sorted.sort_by_key(|session| session.viewer.group);
    let groups = sorted.chunk_by(|a, b| a.viewer.group == b.viewer.group);
    groups.flat_map(|group| group.chunks_exact(2).map(|pair| [pair[0], pair[1]])).collect()
}

/// Reads the rows of an earlier run; `None` if missing.
fn read(path: &Path) -> Option<Vec<GroupRow>> {
    let text = fs::read_to_string(path).ok()?;
    let mut lines = text.lines();
    if lines.next() != Some(GroupRow::HEADER.join(",").as_str()) {
        return None;
    }
    lines.map(GroupRow::parse).collect()
}

fn write(path: &Path, rows: &[GroupRow]) -> Result<(), Error> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).at(folder)?;
    let mut text = GroupRow::HEADER.join(",");
    for row in rows {
        text.push('\n');
        text += &row.line();
    }
    text.push('\n');
    write_file(path, &text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::specification::Specification;

    #[test]
    fn partners_share_a_group_and_are_unique() {
        let groups = include_str!("../../../../../experiments/populations/groups.toml");
        let population = Population::new(Specification::parse(groups).expect("valid"), None);
        let sessions = population.sessions(3, 400);
        let pairs = partners(&sessions);
        assert!(pairs.iter().all(|[a, b]| a.viewer.group == b.viewer.group));
        let mut numbers: Vec<u32> = pairs.iter().flatten().map(|session| session.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        // At most one session of each group is left over.
        assert!(numbers.len() == 2 * pairs.len() && numbers.len() >= 400 - 40, "{}", pairs.len());
    }

    #[test]
    fn a_capped_session_relieves_the_other_on_its_bottleneck() {
        let groups = include_str!("../../../../../experiments/populations/groups.toml");
        let population = Population::new(Specification::parse(groups).expect("valid"), None);
        let day = Day::new(&population, 5, 400);
        let total = |name: &str, held, of: fn(&GroupRow) -> bool| {
            let course = PolicyRun {
                name: name.to_owned(),
                policy: CapPolicy::parse(name).expect("known"),
                bottleneck: Bottleneck::Shared { held },
            };
            let rows = course.run(&day).expect("a day");
            let lost = rows.iter().filter(|row| of(row)).map(|row| row.retransmissions);
            (rows.len(), lost.sum::<i64>())
        };
        let all = |_: &GroupRow| true;
        let (free, one, both) =
            (total("bbr", 0, all), total("demand-1.5", 1, all), total("demand-1.5", 2, all));
        assert!(free.0 == both.0 && one.0 == both.0 && both.0 > 40, "{free:?} {one:?} {both:?}");
        assert!(free.1 > one.1 && one.1 > both.1, "{free:?} {one:?} {both:?}");
        let held = |row: &GroupRow| row.arm == Arm::Treated as usize;
        assert_eq!(total("demand-1.5", 1, held).0, one.0);
        assert!(total("demand-1.5", 1, held).1 < one.1);
    }

    #[test]
    fn partial_deployments_cap_one_half_and_goodput_while_sending_starves_fewer() {
        let groups = include_str!("../../../../../experiments/populations/groups.toml");
        let specification = Specification::parse(groups).expect("valid");
        let one = specification.with_largest_groups(1).expect("a group");
        let day = Day::new(&Population::new(one, None), 5, 300);
        let run = |name: &str| {
            let policy = CapPolicy::parse(name).expect("known");
            let course = PolicyRun { name: name.to_owned(), policy, bottleneck: Bottleneck::Own };
            course.run(&day).expect("a day")
        };
        let [all, sending] = ["paper-retransmission", "paper-retransmission-sending"].map(run);
        let [vip, low] = ["paper-retransmission-vip", "paper-retransmission-low"].map(run);
        let is_capped = |row: &GroupRow| row.cap_mbps.is_finite();
        let count = |rows: &[GroupRow]| rows.iter().filter(|row| is_capped(row)).count();
        let counts = [&all, &vip, &low].map(|rows| count(rows));
        assert!(counts[0] > 200 && counts[1] > 30 && counts[2] > 30, "{counts:?}");
        assert!(vip.iter().zip(&low).all(|(vip, low)| !(is_capped(vip) && is_capped(low))));
        let caps = |rows: &[GroupRow]| {
            rows.iter().filter(|row| is_capped(row)).map(|row| row.cap_mbps).sum::<f64>()
                / count(rows) as f64
        };
        assert!(caps(&sending) > 1.5 * caps(&all), "{} {}", caps(&sending), caps(&all));
        let starved = |rows: &[GroupRow]| rows.iter().filter(|row| row.is_starved).count();
        let starved = [&all, &sending, &run("bbr")].map(|rows| starved(rows));
        assert!(starved[0] > 2 * starved[1] && starved[0] > 2 * starved[2], "{starved:?}");
    }
}
