//! The decision module: selects sessions, and turns their statistics into the table that edges
//! apply.
//!
//! Queries return the narrowest groups; ancestors sum the selections of their parts. An ancestor
//! thus has the best sessions of each city rather than the sessions of the best city, and only
//! sessions that share a path are compared.

use core::fmt;
use core::ops::Range;
use core::time::Duration;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use groups::decide::{GroupStats, Rules};
use groups::select::Selection;
use groups::{Arm, GroupId, MAX_FILE, Table, Times};

use crate::engine::{Engine, Kept, Source};
use crate::geo::{Geo, with_ancestors};
use crate::guard::{self, Guard, Sums};
use crate::integers::Integers;
use crate::query::{self, Plan};
use crate::report::ReportWriter;
use crate::store::{Store, list_directory, replace_with};
use crate::{Error, ranges, rows};

/// Source of the selections.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Rows {
    /// Sessions in the store, by histograms.
    Sessions,
    /// Sessions in the store, exactly.
    Exact,
    /// Histograms of several points of presence, in this directory.
    Histograms(PathBuf),
    /// CSV file written by another engine.
    File(PathBuf),
}

/// Parameters of a decision.
#[derive(Debug)]
pub struct Decision<'a> {
    /// Directory of measurements and decisions.
    pub store: &'a Store,
    /// Address databases. If empty, records name the groups of their networks.
    pub geo: &'a Geo,
    /// Query engine.
    pub engine: &'a Engine,
    /// Queries.
    pub plan: Plan,
    /// Source of the selections.
    pub rows: Rows,
    /// Settings for small groups and gradual changes.
    pub rules: Rules,
    /// Time between decisions, which are made at its multiples.
    pub period: Duration,
    /// Maximum age of sessions, by their end.
    pub window: Duration,
    /// Lifetime of the decision.
    pub lifetime: Duration,
    /// Current time, in Unix seconds.
    pub now: u64,
}

/// Result of a decision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Summary {
    /// End of the window, in Unix seconds.
    pub end: u64,
    /// Candidate sessions of the narrowest groups.
    pub sessions: i64,
    /// Groups of the table.
    pub groups: usize,
    /// Groups with parameters.
    pub decided: usize,
    /// Groups that are off.
    pub off: usize,
    /// Address ranges.
    pub ranges: usize,
    /// Problems that did not prevent the decision.
    pub warnings: Vec<String>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { end, sessions, groups, decided, off, ranges, warnings } = self;
        write!(f, "decided {decided} of {groups} groups ({off} off) in {ranges} address ranges ")?;
        write!(f, "from {sessions} sessions until {end}")?;
        warnings.iter().try_for_each(|warning| write!(f, "; {warning}"))
    }
}

impl Decision<'_> {
    /// Returns the end of the last complete period, in Unix seconds.
    pub fn end(&self) -> u64 {
        let period = self.period.as_secs().max(1);
        self.now / period * period
    }

    fn window(&self) -> Range<u64> {
        self.end().saturating_sub(self.window.as_secs())..self.end()
    }

    /// Decides; `None` if the window was decided before. On errors, the previous decision stays
    /// active.
    ///
    /// # Errors
    /// If a file cannot be read or written, or a query fails.
    pub fn run(&self) -> Result<Option<Summary>, Error> {
        let end = self.end();
        let done = self.store.path(&format!("decisions/{end}.csv"));
        if done.exists() {
            return Ok(None);
        }
        let names = self.names()?;
        let rows = self.selections()?;
        replace_with(&self.store.path("chosen.csv"), rows.csv().as_bytes())?;
        let mut warnings = Vec::new();
        let guard = self.guard(&names, &mut warnings)?;
        let previous = self.previous(&mut warnings);
        let groups = self.groups(with_names(&rows, &names, &mut warnings), &guard);
        let times = Times { issued: end, lifetime: self.lifetime };
        let (mut table, ids) =
            groups::decide::decide(&groups, previous.as_ref(), &self.rules, times);
        let ids: HashMap<&str, GroupId> =
            groups.iter().map(|group| &*group.name).zip(ids).collect();
        if self.geo.is_empty() {
            ranges::add_from_prefixes(&self.store.read_pairs("prefixes.csv")?, &ids, &mut table);
        } else {
            ranges::add_from_databases(self.geo, &ids, &mut table)?;
        }
        let table = table.finish()?;
        let bytes = table.encode();
        if bytes.len() > MAX_FILE {
            return Err(Error::TableSize { bytes: bytes.len() });
        }
        replace_with(&self.store.path("table.groups"), &bytes)?;
        let sessions = rows.columns[1].iter().sum();
        let report = ReportWriter {
            store: self.store,
            table: &table,
            groups: &groups,
            guard: &guard,
            policy: self.plan.name(),
            period: self.period,
            window: self.window,
            sessions,
        };
        // The decision is active even without a report.
        if let Err(e) = report.write() {
            warnings.push(e.to_string());
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
            warnings,
        }))
    }

    /// Lists the files of the window's histograms with this suffix.
    fn histograms(&self, folder: &Path, suffix: &str) -> Result<Vec<PathBuf>, Error> {
        let mut files = list_directory(&folder.join(self.end().to_string()))?;
        files.retain(|path| path.to_string_lossy().ends_with(suffix));
        Ok(files)
    }

    /// Returns the names of groups by number.
    fn names(&self) -> Result<HashMap<i64, String>, Error> {
        let mut all = self.store.read_pairs("groups.csv")?;
        if let Rows::Histograms(folder) = &self.rows {
            for path in self.histograms(folder, ".groups.csv")? {
                all.extend(Store::new(Path::new("")).read_pairs(&path.to_string_lossy())?);
            }
        }
        let number = |(id, name): (String, String)| Some((id.parse().ok()?, name));
        Ok(all.into_iter().filter_map(number).collect())
    }

    /// Returns the selections of the narrowest groups, by group number.
    ///
    /// # Errors
    /// If a file cannot be read, or a query fails.
    pub fn selections(&self) -> Result<Integers, Error> {
        let rows = match &self.rows {
            Rows::File(path) => Integers::read_csv(path, &query::SELECTION_COLUMNS)?,
            Rows::Exact => self.query(&self.plan.band(&self.window()), self.plan.kept())?,
            Rows::Sessions => {
                let query = self.plan.histogram(&self.window());
                let histograms = self.query(&query, self.plan.kept())?;
                self.merged(Source::Table(histograms))?
            }
            Rows::Histograms(folder) => {
                let files = self.histograms(folder, ".parquet")?;
                self.merged(Source::Files(files, &query::HISTOGRAM_COLUMNS, Kept::Most))?
            }
        };
        Ok(rows)
    }

    fn query(&self, sql: &str, kept: Kept) -> Result<Integers, Error> {
        let window = self.window();
        let files = self.store.sessions_between(window.start, window.end)?;
        self.engine.run(sql, "sessions", Source::Files(files, &rows::COLUMNS, kept))
    }

    fn merged(&self, histograms: Source) -> Result<Integers, Error> {
        self.engine.run(&self.plan.merge(), "histograms", histograms)
    }

    /// Returns the period of outcomes for the guard: the first of the window, because records of
    /// later ones may be incomplete.
    fn outcome_period(&self) -> Range<u64> {
        let start = self.window().start;
        start..(start + self.period.as_secs()).min(self.end())
    }

    fn outcomes(&self) -> Result<Integers, Error> {
        self.query(&query::outcomes(&self.outcome_period()), Kept::Most)
    }

    /// Adds the period's outcomes to the guard and evaluates it.
    fn guard(
        &self,
        names: &HashMap<i64, String>,
        warnings: &mut Vec<String>,
    ) -> Result<Guard, Error> {
        let path = self.store.path("guard.csv");
        let mut guard = Guard::read(&path).unwrap_or_else(|e| {
            warnings.push(format!("the guard's counts restart: {e}"));
            Guard::default()
        });
        if !guard.is_due(self.end()) {
            return Ok(guard);
        }
        let all: Result<Vec<Integers>, Error> = match &self.rows {
            Rows::Histograms(folder) => {
                let files = self.histograms(folder, ".outcomes.csv")?;
                files.iter().map(|path| Integers::read_csv(path, &guard::COLUMNS)).collect()
            }
            _ => self.outcomes().map(|rows| vec![rows]),
        };
        // Without treated viewers, as in control periods, there is nothing to compare.
        let is_treated = |sums: &Sums| sums.iter().any(|sum| *sum > 0);
        for (group, [treated, holdout]) in by_group(&all?) {
            let Some(name) = names.get(&group).filter(|_| is_treated(&treated)) else { continue };
            guard.add(name, &treated, &holdout);
        }
        guard.evaluate(self.end());
        guard.write(&path)?;
        Ok(guard)
    }

    /// Returns the active decision.
    fn previous(&self, warnings: &mut Vec<String>) -> Option<Table> {
        let path = self.store.path("table.groups");
        let bytes = std::fs::read(&path).ok()?;
        match Table::decode(&bytes) {
            Ok(table) => {
                let Times { issued, lifetime } = table.times();
                (self.now <= issued.saturating_add(lifetime.as_secs())).then_some(table)
            }
            Err(e) => {
                warnings.push(format!("{}: {e}; ignored", path.display()));
                None
            }
        }
    }

    /// Returns the groups of the decision, ancestors first.
    fn groups(&self, selections: Vec<(String, Selection)>, guard: &Guard) -> Vec<GroupStats> {
        let off: HashSet<&str> = guard.off().collect();
        // Groups that are off are listed even without sessions, so that no ancestor's cap applies.
        let unseen = off.iter().map(|name| ((*name).to_owned(), Selection::default()));
        let mut groups = self.plan.policy.groups(selections.into_iter().chain(unseen));
        for group in &mut groups {
            group.is_off = with_ancestors(&group.name).any(|name| off.contains(name));
        }
        groups
    }

    /// Writes the histograms, outcomes and group names of a point of presence for a decision
    /// elsewhere. Returns the number of bins.
    ///
    /// # Errors
    /// If a file cannot be read or written, or a query fails.
    pub fn write_histograms(&self, pop: &str) -> Result<usize, Error> {
        let path = |suffix| self.store.path(&format!("histograms/{}/{pop}.{suffix}", self.end()));
        let outcomes = self.outcomes()?;
        replace_with(&path("outcomes.csv"), outcomes.csv().as_bytes())?;
        let names = self.store.read_pairs("groups.csv")?;
        self.store.write_pairs(
            &format!("histograms/{}/{pop}.groups.csv", self.end()),
            "id,name",
            &names,
        )?;
        let histograms = self.query(&self.plan.histogram(&self.window()), self.plan.kept())?;
        let rows = histograms.len();
        histograms.write_parquet(&path("parquet"))?;
        Ok(rows)
    }
}

/// Adds up the outcomes of treated viewers and of the hold-out of each group.
fn by_group(all: &[Integers]) -> BTreeMap<i64, [Sums; 2]> {
    let mut groups: BTreeMap<i64, [Sums; 2]> = BTreeMap::new();
    for row in all.iter().flat_map(Integers::rows) {
        let arm = match row[1] {
            arm if arm == rows::arm(Some(Arm::Treated.name())) => 0,
            arm if arm == rows::arm(Some(Arm::Holdout.name())) => 1,
            _ => continue,
        };
        let sums = &mut groups.entry(row[0]).or_default()[arm];
        sums.iter_mut().zip(&row[2..]).for_each(|(sum, more)| *sum = sum.saturating_add(*more));
    }
    groups
}

/// Returns the selections with the names of their groups.
fn with_names(
    rows: &Integers,
    names: &HashMap<i64, String>,
    warnings: &mut Vec<String>,
) -> Vec<(String, Selection)> {
    let row = |row: Vec<i64>| {
        let [group, sessions, weight, goodput_kbps, open_kbps, in_flight, window] = row[..] else {
            return None;
        };
        let selection =
            Selection { group, sessions, weight, goodput_kbps, open_kbps, in_flight, window };
        Some((names.get(&group)?.clone(), selection))
    };
    let named: Vec<_> = rows.rows().filter_map(row).collect();
    if named.len() < rows.len() {
        warnings.push(format!("{} groups without a name omitted", rows.len() - named.len()));
    }
    named
}

/// Formats a decision as CSV: bit/s, bytes and sessions of each group; 0 without parameters.
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
