//! The measurement module: from session records to rows of integers that queries can add up, each record once.
//!
//! A source is a closed file of records. Its sessions go to a file of its own in each hour in which some ended; when
//! all of these are there, a mark says that the source is done. A run that dies in between leaves no mark, and the next
//! one writes the same files anew. Names of records are unique per edge only, so a source is called after the
//! folders that it lies in as well: `edge-a/sessions-1.parquet` is `edge-a~1sessions-1` (`/` is written `~1`, `~` is `~0`).

use core::fmt;
use core::time::Duration;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use groups::Arm;
use groups::select::{Sample, group_id};
use records::{Column, Location, Row};

use crate::geo::{Geo, MAX_NAME, clean};
use crate::rows::{self, Measured};
use crate::store::{Store, listed, replace_with};
use crate::{Error, about};

/// How far ahead of ours an edge's clock may be, in seconds.
const SKEW: u64 = 60;
/// A session that was shorter says nothing about its path, in seconds.
const SHORTEST: f64 = 10.0;
/// Of fewer packets none need be lost on the worst path.
const FEWEST: i64 = 500;

/// Why a record teaches nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Dropped {
    /// A value is no number, negative, infinite or larger than any can be.
    Absurd,
    /// Something that decisions need was not measured, as on TCP.
    Incomplete,
    /// It was too short, or had too few packets.
    Short,
    /// It ended later than it is now.
    Future,
    /// Its hour is not kept any more.
    Old,
    /// Nobody knows its group.
    Nowhere,
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absurd => "absurd",
            Self::Incomplete => "incomplete",
            Self::Short => "too short",
            Self::Future => "from the future",
            Self::Old => "too old",
            Self::Nowhere => "of no known group",
        })
    }
}

/// What was measured, and what was not.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Files that were done now.
    pub sources: u64,
    /// Sessions of them that count.
    pub sessions: u64,
    /// Lines that are no record.
    pub broken_lines: u64,
    /// Sessions that do not count, by reason.
    pub dropped: BTreeMap<Dropped, u64>,
    /// Files that cannot be read, and why; they are tried again next time.
    pub unreadable: Vec<String>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "measured {} sessions of {} files", self.sessions, self.sources)?;
        for (why, count) in &self.dropped {
            write!(f, ", {count} {why}")?;
        }
        if self.broken_lines > 0 {
            write!(f, ", {} broken lines", self.broken_lines)?;
        }
        if let Some(first) = self.unreadable.first() {
            write!(f, ", {} files cannot be read, such as {first}", self.unreadable.len())?;
        }
        Ok(())
    }
}

/// What to measure.
#[derive(Debug)]
pub struct Measuring<'a> {
    /// Files of records, and folders of closed ones (`.parquet`), however deep.
    pub records: &'a [PathBuf],
    /// Where rows go.
    pub store: &'a Store,
    /// Where addresses are; if empty, records name their groups.
    pub geo: &'a Geo,
    /// The time, in Unix seconds.
    pub now: u64,
    /// How long sessions are kept.
    pub keep: Duration,
}

impl Measuring<'_> {
    /// Measures the sources that no run has finished.
    ///
    /// # Errors
    /// One line: a folder cannot be read or written. Records that cannot be read are counted.
    pub fn run(&self) -> Result<Summary, Error> {
        let mut summary = Summary::default();
        let mut names = self.store.pairs("groups.csv")?;
        let mut prefixes = self.store.pairs("prefixes.csv")?;
        for (source, path) in sources(self.records)? {
            let mark = self.store.path("measured").join(&source);
            if mark.exists() {
                continue;
            }
            let mut reading = Reading::new(self, &source);
            let read = records::read(&[path], &rows::SOURCES.concat(), |place, record| {
                reading.take(place, record);
                Ok(())
            })?;
            if !read.unreadable.is_empty() {
                summary.unreadable.extend(read.unreadable);
                continue;
            }
            summary.broken_lines += read.broken_lines;
            reading.write(&mut names, &mut prefixes)?;
            replace_with(&mark, b"")?;
            summary.sources += 1;
            summary.sessions += reading.hours.values().map(|rows| rows.len() as u64).sum::<u64>();
            for (why, count) in &reading.dropped {
                *summary.dropped.entry(*why).or_default() += count;
            }
        }
        self.store.tidy(self.oldest())?;
        Ok(summary)
    }

    fn oldest(&self) -> u64 {
        self.now.saturating_sub(self.keep.as_secs())
    }
}

/// The closed files of records, by the names of the sources that they are.
fn sources(paths: &[PathBuf]) -> Result<BTreeMap<String, PathBuf>, Error> {
    let mut all = BTreeMap::new();
    for path in paths {
        if path.is_dir() {
            walk(path, path, &mut all)?;
        } else {
            let root = path.parent().unwrap_or(Path::new(""));
            all.insert(source(root, path), path.clone());
        }
    }
    Ok(all)
}

fn walk(root: &Path, folder: &Path, all: &mut BTreeMap<String, PathBuf>) -> Result<(), Error> {
    for path in listed(folder)? {
        // Links are followed to files only, so that no folder is its own.
        let kind = path.symlink_metadata().map_err(|e| about(path.display())(&e))?;
        if kind.is_dir() {
            walk(root, &path, all)?;
        } else if path.extension().is_some_and(|extension| extension == "parquet") {
            all.insert(source(root, &path), path);
        }
    }
    Ok(())
}

fn source(root: &Path, path: &Path) -> String {
    let name = path.strip_prefix(root).unwrap_or(path).with_extension("");
    name.to_string_lossy().replace('~', "~0").replace('/', "~1")
}

/// A source on the way.
struct Reading<'a> {
    measuring: &'a Measuring<'a>,
    source: &'a str,
    /// Sessions by the hour in which they ended.
    hours: BTreeMap<u64, Vec<Measured>>,
    dropped: HashMap<Dropped, u64>,
    /// The group of each network, or of each name.
    groups: HashMap<String, Option<(i64, String)>>,
    prefixes: HashMap<String, String>,
}

impl<'a> Reading<'a> {
    fn new(measuring: &'a Measuring<'a>, source: &'a str) -> Self {
        Self {
            measuring,
            source,
            hours: BTreeMap::new(),
            dropped: HashMap::new(),
            groups: HashMap::new(),
            prefixes: HashMap::new(),
        }
    }

    fn take(&mut self, place: Location<'_>, record: &Row) {
        match self.measured(place, record) {
            Ok(row) => {
                let hour = row.sample.ended as u64 / 3_600;
                self.hours.entry(hour).or_default().push(row);
            }
            Err(why) => *self.dropped.entry(why).or_default() += 1,
        }
    }

    fn measured(&mut self, place: Location<'_>, record: &Row) -> Result<Measured, Dropped> {
        let seen = Seen(record);
        let duration = seen.needed(Column::duration_s, rows::MAX_SECONDS)?;
        let started_ms = seen.needed(Column::started_ms, 1e15)?;
        let packets = seen.whole(Column::first_transmissions, rows::MAX_PACKETS)?;
        if duration < SHORTEST || packets < FEWEST {
            return Err(Dropped::Short);
        }
        let ended = (started_ms / 1e3 + duration) as u64;
        if ended > self.measuring.now.saturating_add(SKEW) {
            return Err(Dropped::Future);
        }
        if ended < self.measuring.oldest() {
            return Err(Dropped::Old);
        }
        let rtt_ms = seen.needed(Column::rtt_ms, rows::MAX_RTT_MS)?;
        if rtt_ms <= 0.0 {
            return Err(Dropped::Absurd);
        }
        let open_mbps = seen.number(Column::open_rate_mbps, rows::MAX_KBPS / 1e3)?.unwrap_or(0.0);
        let arm = rows::arm(seen.0.text(Column::autoplex));
        let mut row = Measured {
            sample: Sample {
                group: 0,
                session: group_id(&format!("{}:{}", self.source, place.row)),
                prefix: group_id(seen.0.text(Column::prefix).unwrap_or_default()),
                ended: ended as i64,
                explorer: i64::from(arm == rows::arm(Some(Arm::Explorer.name()))),
                packets,
                retransmitted: seen.whole(Column::retransmissions, rows::MAX_PACKETS)?,
                goodput_kbps: (seen.needed(Column::goodput_mbps, rows::MAX_KBPS / 1e3)? * 1e3)
                    as i64,
                rtt_us: ((rtt_ms * 1e3) as i64).max(1),
                in_flight: seen.whole(Column::max_in_flight, rows::MAX_BYTES)?,
                window: seen.whole(Column::max_window, rows::MAX_BYTES)?,
                open_kbps: (open_mbps * 1e3) as i64,
            },
            arm,
            ..Measured::default()
        };
        seen.player(&mut row);
        row.sample.group = self.group(&seen).ok_or(Dropped::Nowhere)?;
        Ok(row)
    }

    fn group(&mut self, seen: &Seen<'_>) -> Option<i64> {
        let geo = &self.measuring.geo;
        let prefix = seen.0.text(Column::prefix);
        let key = if geo.is_empty() { seen.0.text(Column::group)? } else { prefix? };
        if !self.groups.contains_key(key) {
            let name = if geo.is_empty() {
                Some(clean(key, MAX_NAME)).filter(|name| !name.is_empty())
            } else {
                let address = key.split('/').next().and_then(|text| text.parse::<IpAddr>().ok());
                address.and_then(|address| geo.group(address))
            };
            let group = name.map(|name| (group_id(&name), name));
            self.groups.insert(key.to_owned(), group);
        }
        let (id, name) = self.groups.get(key)?.as_ref()?;
        if let Some(prefix) = prefix.filter(|prefix| geo.is_empty() && is_network(prefix))
            && self.prefixes.get(prefix) != Some(name)
        {
            self.prefixes.insert(prefix.to_owned(), name.clone());
        }
        Some(*id)
    }

    /// Writes the rows, and the names that are new.
    fn write(
        &self,
        names: &mut BTreeMap<String, String>,
        prefixes: &mut BTreeMap<String, String>,
    ) -> Result<(), Error> {
        let store = self.measuring.store;
        for (hour, rows) in &self.hours {
            rows::table(rows).write_parquet(&store.sessions(hour * 3_600, self.source))?;
        }
        let groups = self.groups.values().flatten();
        if union(names, groups.map(|(id, name)| (id.to_string(), name.clone()))) {
            store.write_pairs("groups.csv", "id,name", names)?;
        }
        if union(prefixes, self.prefixes.iter().map(|(key, name)| (key.clone(), name.clone()))) {
            store.write_pairs("prefixes.csv", "prefix,group", prefixes)?;
        }
        Ok(())
    }
}

/// Whether it looks like one, so that no text from a record breaks a line of a file.
fn is_network(prefix: &str) -> bool {
    prefix.len() < 64 && prefix.bytes().all(|b| b.is_ascii_hexdigit() || b".:/".contains(&b))
}

/// Adds what is new; whether anything was.
fn union(all: &mut BTreeMap<String, String>, new: impl Iterator<Item = (String, String)>) -> bool {
    let mut changed = false;
    for (key, value) in new {
        if all.get(&key) != Some(&value) {
            all.insert(key, value);
            changed = true;
        }
    }
    changed
}

/// A record's values, none of which is believed.
struct Seen<'a>(&'a Row);

impl Seen<'_> {
    /// A number from 0 to `most`, if there is one.
    fn number(&self, column: Column, most: f64) -> Result<Option<f64>, Dropped> {
        match self.0.value(column) {
            None => Ok(None),
            Some(value) => {
                let number = value.as_f64().filter(|number| (0.0..=most).contains(number));
                number.map(Some).ok_or(Dropped::Absurd)
            }
        }
    }

    fn needed(&self, column: Column, most: f64) -> Result<f64, Dropped> {
        self.number(column, most)?.ok_or(Dropped::Incomplete)
    }

    fn whole(&self, column: Column, most: i64) -> Result<i64, Dropped> {
        Ok(self.needed(column, most as f64)? as i64)
    }

    /// Takes what the player says, unless that is more than its session has room for: the reader
    /// marks such records.
    fn player(&self, row: &mut Measured) {
        if self.0.is_clamped() {
            return;
        }
        let said = |column, most| self.number(column, most).ok().flatten();
        if let Some(first_frame) = said(Column::player_first_frame_ms, rows::MAX_FIRST_FRAME_MS) {
            row.first_frame_ms = first_frame as i64;
        }
        let most = rows::MAX_SECONDS;
        let played = said(Column::player_played_s, most).filter(|played| *played > 0.0);
        let (freezes, frozen) =
            (said(Column::player_freezes, most), said(Column::player_freeze_s, most));
        if let (Some(played), Some(freezes), Some(frozen)) = (played, freezes, frozen) {
            row.played_ms = ((played * 1e3) as i64).max(1);
            row.freezes = freezes as i64;
            row.frozen_ms = (frozen * 1e3) as i64;
        }
    }
}
