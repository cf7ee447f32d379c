//! The directory that measurements write and decisions read:
//!
//! | path | content |
//! |---|---|
//! | `sessions/hour=YYYYMMDDHH/SOURCE.parquet` | sessions by source and hour of their end (UTC) |
//! | `measured/SOURCE` | empty mark: all sessions of the record file are written |
//! | `groups.csv` | numbers and names of all groups ever seen |
//! | `prefixes.csv` | networks and the groups in their records, without an address database |
//! | `histograms/END/POP.parquet` | histograms of a point of presence for the window until END |
//! | `table.groups` | the active decision |
//! | `chosen.csv`, `decisions/END.csv` | its selections, and a readable copy |
//! | `guard.csv` | state of the guard |
//! | `report.json` | the report for operators, distributed with the table |
//!
//! All files are complete: they are written under a temporary name and renamed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::Error;

const HOUR: u64 = 3_600;
/// Extension of incomplete files.
const PARTIAL: &str = "part";

/// Replaces a file atomically, creating its directory. Overwrites the temporary file of a crashed
/// run.
///
/// # Errors
/// If `write` fails, or the file cannot be written.
pub fn replace(path: &Path, write: impl FnOnce(&File) -> Result<(), Error>) -> Result<(), Error> {
    let failed = Error::io(path);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(&failed)?;
    }
    let mut part = path.as_os_str().to_owned();
    part.push(".");
    part.push(PARTIAL);
    let file = File::create(&part).map_err(&failed)?;
    write(&file)?;
    file.sync_all().map_err(&failed)?;
    fs::rename(part, path).map_err(&failed)
}

/// Replaces the content of a file atomically, creating its directory.
///
/// # Errors
/// If the file cannot be written.
pub fn replace_with(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    replace(path, |mut file| file.write_all(bytes).map_err(Error::io(path)))
}

/// Formats the hour of a time in Unix seconds as in directory names: 2026112108.
pub fn hour(time: u64) -> String {
    // Days since 0000-03-01, in eras of 400 years.
    let days = time / (24 * HOUR) + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let from_march = (5 * day + 2) / 153;
    let day = day - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year + 400 * era + u64::from(month <= 2);
    format!("{year:04}{month:02}{day:02}{:02}", time / HOUR % 24)
}

/// A directory of measurements and decisions.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
}

impl Store {
    /// Refers to the directory `root`, which need not exist.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Returns the path of a file.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Returns the path of the sessions of `source` that ended at `time`, in Unix seconds.
    pub fn sessions(&self, time: u64, source: &str) -> PathBuf {
        self.root.join(format!("sessions/hour={}/{source}.parquet", hour(time)))
    }

    /// Lists the session files of the hours that overlap `begin..end`.
    ///
    /// # Errors
    /// If a directory cannot be read.
    pub fn sessions_between(&self, begin: u64, end: u64) -> Result<Vec<PathBuf>, Error> {
        let mut files = Vec::new();
        for time in (begin / HOUR * HOUR..end).step_by(HOUR as usize) {
            let folder = self.root.join(format!("sessions/hour={}", hour(time)));
            files.extend(
                list_directory(&folder)?.into_iter().filter(|path| {
                    path.extension().is_some_and(|extension| extension == "parquet")
                }),
            );
        }
        Ok(files)
    }

    /// Removes sessions, decisions and histograms from before `time`.
    ///
    /// # Errors
    /// If a file cannot be removed.
    pub fn remove_before(&self, time: u64) -> Result<(), Error> {
        let oldest = format!("hour={}", hour(time));
        for folder in list_directory(&self.path("sessions"))? {
            let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with("hour=") && name < oldest {
                fs::remove_dir_all(&folder).map_err(Error::io(&folder))?;
            }
        }
        for entry in
            [list_directory(&self.path("decisions"))?, list_directory(&self.path("histograms"))?]
                .concat()
        {
            let end = entry.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok());
            if end.is_some_and(|end| end < time) {
                let remove = if entry.is_dir() { fs::remove_dir_all } else { fs::remove_file };
                remove(entry.as_path()).map_err(Error::io(&entry))?;
            }
        }
        Ok(())
    }

    /// Reads a file with a header and lines `KEY,TEXT`; empty if it does not exist. Other lines are
    /// skipped.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read_pairs(&self, name: &str) -> Result<BTreeMap<String, String>, Error> {
        let path = self.path(name);
        let text = match fs::read_to_string(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
            text => text.map_err(Error::io(&path))?,
        };
        let lines = text.lines().skip(1).filter_map(|line| line.split_once(','));
        Ok(lines.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    /// Writes a file for [`Store::read_pairs`].
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_pairs(
        &self,
        name: &str,
        header: &str,
        pairs: &BTreeMap<String, String>,
    ) -> Result<(), Error> {
        let lines = pairs.iter().map(|(key, value)| format!("{key},{value}\n"));
        let text: String = core::iter::once(format!("{header}\n")).chain(lines).collect();
        replace_with(&self.path(name), text.as_bytes())
    }
}

/// Lists a directory, sorted; empty if it does not exist.
///
/// # Errors
/// If the directory cannot be read.
pub fn list_directory(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = match fs::read_dir(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.and_then(|entries| entries.collect::<Result<Vec<_>, _>>()),
    };
    let entries = entries.map_err(Error::io(folder))?;
    let mut paths: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_follow_the_calendar() {
        let hours = [0, 951_782_399, 951_782_400, 1_709_251_199, 1_795_249_800, 4_102_444_800];
        let names = hours.map(hour);
        let wanted =
            ["1970010100", "2000022823", "2000022900", "2024022923", "2026112108", "2100010100"];
        assert_eq!(names, wanted);
    }

    #[test]
    fn a_failed_write_keeps_the_previous_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("deep/file");
        replace_with(&path, b"one").expect("written");
        assert!(replace(&path, |_| Err(Error::invalid(&path, "no"))).is_err());
        assert_eq!(fs::read(&path).expect("there"), b"one");
        replace_with(&path, b"two").expect("written");
        assert_eq!(fs::read(&path).expect("there"), b"two");
        assert_eq!(list_directory(&folder.path().join("deep")).expect("listed"), [path]);
    }

    #[test]
    fn old_sessions_decisions_and_histograms_are_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::new(folder.path());
        let (old, new) = (1_795_249_800, 1_795_249_800 + HOUR);
        for time in [old, new] {
            replace_with(&store.sessions(time, "a"), b"").expect("written");
            replace_with(&store.path(&format!("decisions/{time}.csv")), b"").expect("written");
            replace_with(&store.path(&format!("histograms/{time}/a.parquet")), b"")
                .expect("created");
        }
        store.remove_before(new).expect("removed");
        assert!(store.sessions_between(old, old + 1).expect("listed").is_empty());
        assert_eq!(store.sessions_between(old, new).expect("listed").len(), 1);
        assert_eq!(list_directory(&store.path("decisions")).expect("listed").len(), 1);
        assert_eq!(list_directory(&store.path("histograms")).expect("listed").len(), 1);
    }
}
