//! The decision module: chooses the sessions that teach, and makes of what they had the table that edges apply.
//!
//! The rows are of the finest groups, and a wider group has the sums of those that it is made of. Its best sessions are
//! thus the best of each of its cities, not those of its best city: what is compared shares its path.

use core::fmt;
use core::ops::Range;
use core::time::Duration;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use groups::decide::{GroupStats, Rules};
use groups::select::Selection;
use groups::{Arm, GroupId, MAX_FILE, Table, Times};

use crate::engine::{Engine, Source};
use crate::geo::{Geo, widening};
use crate::guard::{self, Guard, Sums};
use crate::integers::Integers;
use crate::query::{self, Plan};
use crate::report::Reporting;
use crate::store::{Store, listed, replace_with};
use crate::{Error, about, ranges, rows};

/// Where the chosen rows come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Rows {
    /// From the sessions in the store by way of histograms.
    Sessions,
    /// From the sessions in the store exactly.
    Exact,
    /// From the histograms of several points of presence in this folder.
    Histograms(PathBuf),
    /// From a CSV file that another engine wrote.
    File(PathBuf),
}

/// A decision to make.
#[derive(Debug)]
pub struct Deciding<'a> {
    /// What was measured, and where the decision goes.
    pub store: &'a Store,
    /// Where addresses are; if empty, records have named the groups of their networks.
    pub geo: &'a Geo,
    /// What runs queries.
    pub engine: &'a Engine,
    /// Which sessions teach, and what.
    pub plan: Plan,
    /// Where the chosen rows come from.
    pub rows: Rows,
    /// How much is made of how little.
    pub rules: Rules,
    /// Decisions are made at multiples of this.
    pub period: Duration,
    /// Sessions that ended within this time before it teach.
    pub window: Duration,
    /// How long a decision holds.
    pub lifetime: Duration,
    /// The time, in Unix seconds.
    pub now: u64,
}

/// What was decided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Summary {
    /// The end of the window, in Unix seconds.
    pub end: u64,
    /// Sessions of the finest groups that were chosen among.
    pub sessions: i64,
    /// Groups of the table.
    pub groups: usize,
    /// Those that have parameters.
    pub decided: usize,
    /// Those that are off.
    pub off: usize,
    /// Ranges of addresses.
    pub ranges: usize,
    /// What is odd about what was there before, if anything.
    pub odd: Vec<String>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { end, sessions, groups, decided, off, ranges, odd } = self;
        write!(
            f,
            "decided for {decided} of {groups} groups ({off} off) in {ranges} ranges of addresses, from "
        )?;
        write!(f, "{sessions} sessions until {end}")?;
        odd.iter().try_for_each(|odd| write!(f, "; {odd}"))
    }
}

impl Deciding<'_> {
    /// The end of the last whole period, in Unix seconds.
    pub fn end(&self) -> u64 {
        let period = self.period.as_secs().max(1);
        self.now / period * period
    }

    fn window(&self) -> Range<u64> {
        self.end().saturating_sub(self.window.as_secs())..self.end()
    }

    /// Decides, unless the window was decided already. Until the very end the last decision stays in force.
    ///
    /// # Errors
    /// One line: something cannot be read, run or written.
    pub fn run(&self) -> Result<Option<Summary>, Error> {
        let end = self.end();
        let done = self.store.path(&format!("decisions/{end}.csv"));
        if done.exists() {
            return Ok(None);
        }
        let names = self.names()?;
        let rows = self.chosen()?;
        replace_with(&self.store.path("chosen.csv"), rows.csv().as_bytes())?;
        let mut odd = Vec::new();
        let guard = self.guard(&names, &mut odd)?;
        let last = self.last(&mut odd);
        let groups = self.groups(named(&rows, &names, &mut odd), &guard);
        let times = Times { issued: end, lifetime: self.lifetime };
        let (mut building, ids) =
            groups::decide::decide(&groups, last.as_ref(), &self.rules, times);
        let known: HashMap<&str, GroupId> =
            groups.iter().map(|group| &*group.name).zip(ids).collect();
        if self.geo.is_empty() {
            ranges::of_prefixes(&self.store.pairs("prefixes.csv")?, &known, &mut building);
        } else {
            ranges::of_databases(self.geo, &known, &mut building)?;
        }
        let table = building.finish().map_err(|e| Error::new(format!("ranges: {e}")))?;
        let bytes = table.encode();
        if bytes.len() > MAX_FILE {
            return Err(Error::new(format!(
                "the table has {} bytes, which is too large",
                bytes.len()
            )));
        }
        replace_with(&self.store.path("table.groups"), &bytes)?;
        let sessions = rows.columns[1].iter().sum();
        let reporting = Reporting {
            store: self.store,
            table: &table,
            groups: &groups,
            guard: &guard,
            policy: self.plan.name(),
            period: self.period,
            window: self.window,
            sessions,
        };
        // A decision is in force whether people see it or not.
        if let Err(e) = reporting.write() {
            odd.push(e.to_string());
        }
        replace_with(&done, history(&table).as_bytes())?;
        let is_decided = |group: &&groups::Group| group.parameters.is_some();
        Ok(Some(Summary {
            end,
            sessions,
            groups: table.groups().len(),
            decided: table.groups().iter().filter(is_decided).count(),
            off: table.groups().iter().filter(|group| group.is_off).count(),
            ranges: table.ranges(),
            odd,
        }))
    }

    /// The files of the window's histograms that end so.
    fn histograms(&self, folder: &Path, ending: &str) -> Result<Vec<PathBuf>, Error> {
        let mut files = listed(&folder.join(self.end().to_string()))?;
        files.retain(|path| path.to_string_lossy().ends_with(ending));
        Ok(files)
    }

    /// The names of groups by their numbers.
    fn names(&self) -> Result<HashMap<i64, String>, Error> {
        let mut all = self.store.pairs("groups.csv")?;
        if let Rows::Histograms(folder) = &self.rows {
            for path in self.histograms(folder, ".groups.csv")? {
                all.extend(Store::new(Path::new("")).pairs(&path.to_string_lossy())?);
            }
        }
        let number = |(id, name): (String, String)| Some((id.parse().ok()?, name));
        Ok(all.into_iter().filter_map(number).collect())
    }

    /// Of each of the finest groups what was chosen, in order.
    ///
    /// # Errors
    /// One line: something cannot be read or run.
    pub fn chosen(&self) -> Result<Integers, Error> {
        let rows = match &self.rows {
            Rows::File(path) => Integers::read_csv(path, &query::CHOSEN)?,
            Rows::Exact => self.query(&self.plan.band(&self.window()))?,
            Rows::Sessions => {
                let histograms = self.query(&self.plan.histogram(&self.window()))?;
                self.merged(Source::Table(histograms))?
            }
            Rows::Histograms(folder) => {
                let files = self.histograms(folder, ".parquet")?;
                self.merged(Source::Files(files, &query::HISTOGRAM))?
            }
        };
        Ok(rows)
    }

    fn query(&self, sql: &str) -> Result<Integers, Error> {
        let window = self.window();
        let files = self.store.sessions_between(window.start, window.end)?;
        self.engine.run(sql, "sessions", Source::Files(files, &rows::COLUMNS))
    }

    fn merged(&self, histograms: Source) -> Result<Integers, Error> {
        self.engine.run(&self.plan.merge(), "histograms", histograms)
    }

    /// The period whose outcomes are counted: the first one of the window, so that late records have come.
    fn counted(&self) -> Range<u64> {
        let start = self.window().start;
        start..(start + self.period.as_secs()).min(self.end())
    }

    /// Shows the guard how viewers fared.
    fn guard(&self, names: &HashMap<i64, String>, odd: &mut Vec<String>) -> Result<Guard, Error> {
        let path = self.store.path("guard.csv");
        let mut guard = Guard::read(&path).unwrap_or_else(|e| {
            odd.push(format!("the guard begins anew: {e}"));
            Guard::default()
        });
        if !guard.is_behind(self.end()) {
            return Ok(guard);
        }
        let all: Result<Vec<Integers>, Error> = match &self.rows {
            Rows::Histograms(folder) => {
                let files = self.histograms(folder, ".outcomes.csv")?;
                files.iter().map(|path| Integers::read_csv(path, &guard::COLUMNS)).collect()
            }
            _ => self.query(&query::outcomes(&self.counted())).map(|rows| vec![rows]),
        };
        // Where nobody is treated, as in a turn in which all of a group is free, there is nothing to compare.
        let is_treated = |sums: &Sums| sums.iter().any(|sum| *sum > 0);
        for (group, [treated, free]) in by_group(&all?) {
            let Some(name) = names.get(&group).filter(|_| is_treated(&treated)) else { continue };
            guard.count(name, &treated, &free);
        }
        guard.judge(self.end());
        guard.write(&path)?;
        Ok(guard)
    }

    /// The decision in force.
    fn last(&self, odd: &mut Vec<String>) -> Option<Table> {
        let path = self.store.path("table.groups");
        let bytes = std::fs::read(&path).ok()?;
        match Table::decode(&bytes) {
            Ok(table) => {
                let Times { issued, lifetime } = table.times();
                (self.now <= issued.saturating_add(lifetime.as_secs())).then_some(table)
            }
            Err(e) => {
                odd.push(about(path.display())(&format!("{e}; it is not leaned on")).to_string());
                None
            }
        }
    }

    /// The groups of the decision, wider ones first.
    fn groups(&self, chosen: Vec<(String, Selection)>, guard: &Guard) -> Vec<GroupStats> {
        let off: HashSet<&str> = guard.off().collect();
        // A group that is off has a place of its own even if nothing is known of it, or its wider one's would count.
        let unseen = off.iter().map(|name| ((*name).to_owned(), Selection::default()));
        let mut groups = self.plan.policy.groups(chosen.into_iter().chain(unseen));
        for group in &mut groups {
            group.is_off = widening(&group.name).any(|name| off.contains(name));
        }
        groups
    }

    /// Writes what a point of presence has seen in the window, for a decision elsewhere.
    ///
    /// # Errors
    /// One line: something cannot be read, run or written.
    pub fn write_histograms(&self, pop: &str) -> Result<usize, Error> {
        let path = |ending| self.store.path(&format!("histograms/{}/{pop}.{ending}", self.end()));
        let outcomes = self.query(&query::outcomes(&self.counted()))?;
        replace_with(&path("outcomes.csv"), outcomes.csv().as_bytes())?;
        let names = self.store.pairs("groups.csv")?;
        self.store.write_pairs(
            &format!("histograms/{}/{pop}.groups.csv", self.end()),
            "id,name",
            &names,
        )?;
        let histograms = self.query(&self.plan.histogram(&self.window()))?;
        let rows = histograms.len();
        histograms.write_parquet(&path("parquet"))?;
        Ok(rows)
    }
}

/// The outcomes of those treated and of the hold-out in each group, from any number of places.
fn by_group(all: &[Integers]) -> BTreeMap<i64, [Sums; 2]> {
    let mut groups: BTreeMap<i64, [Sums; 2]> = BTreeMap::new();
    for row in all.iter().flat_map(Integers::rows) {
        let side = match row[1] {
            part if part == rows::arm(Some(Arm::Treated.name())) => 0,
            part if part == rows::arm(Some(Arm::Holdout.name())) => 1,
            _ => continue,
        };
        let sums = &mut groups.entry(row[0]).or_default()[side];
        sums.iter_mut().zip(&row[2..]).for_each(|(sum, more)| *sum = sum.saturating_add(*more));
    }
    groups
}

/// Chosen rows with the names of their groups.
fn named(
    rows: &Integers,
    names: &HashMap<i64, String>,
    odd: &mut Vec<String>,
) -> Vec<(String, Selection)> {
    let row = |row: Vec<i64>| {
        let [group, sessions, weight, goodput_kbps, open_kbps, in_flight, window] = row[..] else {
            return None;
        };
        let chosen =
            Selection { group, sessions, weight, goodput_kbps, open_kbps, in_flight, window };
        Some((names.get(&group)?.clone(), chosen))
    };
    let named: Vec<_> = rows.rows().filter_map(row).collect();
    if named.len() < rows.len() {
        odd.push(format!("{} groups have no name and are left out", rows.len() - named.len()));
    }
    named
}

/// A decision as people read it: bit/s, bytes and sessions of each group; 0 where nothing is known.
fn history(table: &Table) -> String {
    let mut text = String::from("rate,in_flight,sessions,off,group\n");
    for group in table.groups() {
        let (rate, in_flight, sessions) = group.parameters.map_or((0, 0, 0), |parameters| {
            (parameters.rate.as_bps(), parameters.in_flight, parameters.sessions)
        });
        let off = u8::from(group.is_off);
        text += &format!("{rate},{in_flight},{sessions},{off},{}\n", group.name);
    }
    text
}
