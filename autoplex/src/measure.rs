//! The measurement module: turns session records into rows of integers, each record once.
//!
//! A source is a closed record file. Its sessions go to one file per hour, by the time of their
//! end. A mark is written last; a run that crashes leaves none, and the next run rewrites the same
//! files. Names of record files are unique per edge only, so a source's name includes its
//! directories: `edge-a/sessions-1.parquet` becomes `edge-a~1sessions-1` (`~1` for `/`, `~0` for
//! `~`).

use core::fmt;
use core::time::Duration;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use groups::Arm;
use groups::select::{Sample, group_id};
use records::{Column, Location, Row};

use crate::Error;
use crate::geo::{Geo, MAX_NAME, sanitized};
use crate::rows::{self, Measured};
use crate::store::{Store, list_directory, replace_with};

/// Maximum lead of an edge's clock, in seconds.
const MAX_CLOCK_LEAD: u64 = 60;
/// Minimum duration of a session, in seconds. Shorter sessions say little about their path.
const MIN_DURATION: f64 = 10.0;
/// Minimum first transmissions of a session. With fewer, even a bad path may lose none.
const MIN_PACKETS: i64 = 500;

/// Reason for which a record is dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DropReason {
    /// A value is not a number, negative, infinite, or above its limit.
    Implausible,
    /// A required value is missing, as on TCP.
    Incomplete,
    /// The session was too short, or had too few packets.
    Short,
    /// The session ended in the future.
    Future,
    /// The session ended before the retention period.
    Old,
    /// The group is unknown.
    NoGroup,
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Implausible => "implausible",
            Self::Incomplete => "incomplete",
            Self::Short => "too short",
            Self::Future => "from the future",
            Self::Old => "too old",
            Self::NoGroup => "without a group",
        })
    }
}

/// Result of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Record files measured in this run.
    pub sources: u64,
    /// Measured sessions.
    pub sessions: u64,
    /// Lines that are not records.
    pub broken_lines: u64,
    /// Dropped sessions by reason.
    pub dropped: BTreeMap<DropReason, u64>,
    /// Unreadable files with the cause. The next run retries them.
    pub unreadable: Vec<String>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "measured {} sessions in {} files", self.sessions, self.sources)?;
        for (why, count) in &self.dropped {
            write!(f, ", {count} {why}")?;
        }
        if self.broken_lines > 0 {
            write!(f, ", {} broken lines", self.broken_lines)?;
        }
        if let Some(first) = self.unreadable.first() {
            write!(f, ", {} unreadable files, such as {first}", self.unreadable.len())?;
        }
        Ok(())
    }
}

/// Parameters of a measurement.
#[derive(Debug)]
pub struct Measurement<'a> {
    /// Record files, and directories that are searched for closed ones (`.parquet`).
    pub records: &'a [PathBuf],
    /// Directory of the measurements.
    pub store: &'a Store,
    /// Address databases. If empty, records name their groups.
    pub geo: &'a Geo,
    /// Current time, in Unix seconds.
    pub now: u64,
    /// Retention period of sessions.
    pub keep: Duration,
}

impl Measurement<'_> {
    /// Measures the sources that no earlier run has finished.
    ///
    /// # Errors
    /// If a directory cannot be read or a file written. Unreadable records are counted instead.
    pub fn run(&self) -> Result<Summary, Error> {
        let mut summary = Summary::default();
        let mut names = self.store.read_pairs("groups.csv")?;
        let mut prefixes = self.store.read_pairs("prefixes.csv")?;
        for (source, path) in sources(self.records)? {
            let mark = self.store.path("measured").join(&source);
            if mark.exists() {
                continue;
            }
            let mut reader = SourceReader::new(self, &source);
            let read = records::read(&[path], &rows::SOURCES.concat(), |location, record| {
                reader.add(location, record);
                Ok(())
            })?;
            if !read.unreadable.is_empty() {
                summary.unreadable.extend(read.unreadable);
                continue;
            }
            summary.broken_lines += read.broken_lines;
            reader.write(&mut names, &mut prefixes)?;
            replace_with(&mark, b"")?;
            summary.sources += 1;
            summary.sessions += reader.hours.values().map(|rows| rows.len() as u64).sum::<u64>();
            for (why, count) in &reader.dropped {
                *summary.dropped.entry(*why).or_default() += count;
            }
        }
        self.store.remove_before(self.oldest())?;
        Ok(summary)
    }

    fn oldest(&self) -> u64 {
        self.now.saturating_sub(self.keep.as_secs())
    }
}

/// Lists the closed record files by source name.
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
    for path in list_directory(folder)? {
        // Links to directories are not followed, so that the search ends.
        let kind = path.symlink_metadata().map_err(Error::io(&path))?;
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

/// A source that is being measured.
struct SourceReader<'a> {
    measurement: &'a Measurement<'a>,
    source: &'a str,
    /// Sessions by the hour of their end.
    hours: BTreeMap<u64, Vec<Measured>>,
    dropped: HashMap<DropReason, u64>,
    /// Groups by network, or by name without address databases.
    groups: HashMap<String, Option<(i64, String)>>,
    prefixes: HashMap<String, String>,
}

impl<'a> SourceReader<'a> {
    fn new(measurement: &'a Measurement<'a>, source: &'a str) -> Self {
        Self {
            measurement,
            source,
            hours: BTreeMap::new(),
            dropped: HashMap::new(),
            groups: HashMap::new(),
            prefixes: HashMap::new(),
        }
    }

    fn add(&mut self, location: Location<'_>, record: &Row) {
        match self.measure(location, record) {
            Ok(row) => {
                let hour = row.sample.ended as u64 / 3_600;
                self.hours.entry(hour).or_default().push(row);
            }
            Err(why) => *self.dropped.entry(why).or_default() += 1,
        }
    }

    fn measure(&mut self, location: Location<'_>, record: &Row) -> Result<Measured, DropReason> {
        let seen = Seen(record);
        let duration = seen.needed(Column::duration_s, rows::MAX_SECONDS)?;
        let started_ms = seen.needed(Column::started_ms, 1e15)?;
        let packets = seen.whole(Column::first_transmissions, rows::MAX_PACKETS)?;
        if duration < MIN_DURATION || packets < MIN_PACKETS {
            return Err(DropReason::Short);
        }
        let ended = (started_ms / 1e3 + duration) as u64;
        if ended > self.measurement.now.saturating_add(MAX_CLOCK_LEAD) {
            return Err(DropReason::Future);
        }
        if ended < self.measurement.oldest() {
            return Err(DropReason::Old);
        }
        let rtt_ms = seen.needed(Column::rtt_ms, rows::MAX_RTT_MS)?;
        if rtt_ms <= 0.0 {
            return Err(DropReason::Implausible);
        }
        let open_mbps = seen.number(Column::open_rate_mbps, rows::MAX_KBPS / 1e3)?.unwrap_or(0.0);
        let arm = rows::arm(seen.0.text(Column::autoplex));
        let mut row = Measured {
            sample: Sample {
                group: 0,
                session: group_id(&format!("{}:{}", self.source, location.row)),
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
        row.sample.group = self.group(&seen).ok_or(DropReason::NoGroup)?;
        Ok(row)
    }

    fn group(&mut self, seen: &Seen<'_>) -> Option<i64> {
        let geo = &self.measurement.geo;
        let prefix = seen.0.text(Column::prefix);
        let key = if geo.is_empty() { seen.0.text(Column::group)? } else { prefix? };
        if !self.groups.contains_key(key) {
            let name = if geo.is_empty() {
                Some(sanitized(key, MAX_NAME)).filter(|name| !name.is_empty())
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

    /// Writes the rows, and new names of groups and networks.
    fn write(
        &self,
        names: &mut BTreeMap<String, String>,
        prefixes: &mut BTreeMap<String, String>,
    ) -> Result<(), Error> {
        let store = self.measurement.store;
        for (hour, rows) in &self.hours {
            rows::table(rows).write_parquet(&store.sessions(hour * 3_600, self.source))?;
        }
        let groups = self.groups.values().flatten();
        if merge(names, groups.map(|(id, name)| (id.to_string(), name.clone()))) {
            store.write_pairs("groups.csv", "id,name", names)?;
        }
        if merge(prefixes, self.prefixes.iter().map(|(key, name)| (key.clone(), name.clone()))) {
            store.write_pairs("prefixes.csv", "prefix,group", prefixes)?;
        }
        Ok(())
    }
}

/// Returns true for text of a network's characters only, which cannot break a line of a CSV file.
fn is_network(prefix: &str) -> bool {
    prefix.len() < 64 && prefix.bytes().all(|b| b.is_ascii_hexdigit() || b".:/".contains(&b))
}

/// Adds new and changed pairs. Returns true if there were any.
fn merge(all: &mut BTreeMap<String, String>, new: impl Iterator<Item = (String, String)>) -> bool {
    let mut changed = false;
    for (key, value) in new {
        if all.get(&key) != Some(&value) {
            all.insert(key, value);
            changed = true;
        }
    }
    changed
}

/// Untrusted values of a record.
struct Seen<'a>(&'a Row);

impl Seen<'_> {
    /// Returns a number from 0 to `max`; `None` if it is missing.
    fn number(&self, column: Column, max: f64) -> Result<Option<f64>, DropReason> {
        match self.0.value(column) {
            None => Ok(None),
            Some(value) => {
                let number = value.as_f64().filter(|number| (0.0..=max).contains(number));
                number.map(Some).ok_or(DropReason::Implausible)
            }
        }
    }

    fn needed(&self, column: Column, max: f64) -> Result<f64, DropReason> {
        self.number(column, max)?.ok_or(DropReason::Incomplete)
    }

    fn whole(&self, column: Column, max: i64) -> Result<i64, DropReason> {
        Ok(self.needed(column, max as f64)? as i64)
    }

    /// Copies the player's report, unless the reader marked it as exceeding its session.
    fn player(&self, row: &mut Measured) {
        if self.0.is_clamped() {
            return;
        }
        let said = |column, max| self.number(column, max).ok().flatten();
        if let Some(first_frame) = said(Column::player_first_frame_ms, rows::MAX_FIRST_FRAME_MS) {
            row.first_frame_ms = first_frame as i64;
        }
        let max = rows::MAX_SECONDS;
        let played = said(Column::player_played_s, max).filter(|played| *played > 0.0);
        let (freezes, frozen) =
            (said(Column::player_freezes, max), said(Column::player_freeze_s, max));
        if let (Some(played), Some(freezes), Some(frozen)) = (played, freezes, frozen) {
            row.played_ms = ((played * 1e3) as i64).max(1);
            row.freezes = freezes as i64;
            row.frozen_ms = (frozen * 1e3) as i64;
        }
    }
}
