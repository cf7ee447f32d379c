//! The folder that measuring writes and deciding reads:
//!
//! | path | what |
//! |---|---|
//! | `sessions/hour=YYYYMMDDHH/SOURCE.parquet` | sessions that ended in that hour (UTC), of one file of records |
//! | `measured/SOURCE` | empty: all sessions of that file are there |
//! | `groups.csv` | the number and the name of every group ever seen |
//! | `prefixes.csv` | networks and the group that their records name, where there is no geo database |
//! | `histograms/END/POP.parquet` | what a point of presence saw in the window that ended then |
//! | `table.groups` | the decision in force |
//! | `chosen.csv`, `decisions/END.csv` | what it was made from, and what was decided |
//! | `guard.csv` | what the guard remembers |
//! | `report.json` | what operators see of the decision; it travels with the table |
//!
//! Whatever is there is whole: files are written under another name and renamed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::{Error, about};

const HOUR: u64 = 3_600;
/// What ends the name of a file that is being written.
const PART: &str = "part";

/// Writes a file by way of another name, so that nobody sees a part of it; what a run that died left of it goes.
///
/// # Errors
/// One line: what `write` says, or that the file cannot be written.
pub fn replace(path: &Path, write: impl FnOnce(&File) -> Result<(), Error>) -> Result<(), Error> {
    let failed = about(path.display());
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(|e| failed(&e))?;
    }
    let mut part = path.as_os_str().to_owned();
    part.push(".");
    part.push(PART);
    let file = File::create(&part).map_err(|e| failed(&e))?;
    write(&file)?;
    file.sync_all().map_err(|e| failed(&e))?;
    fs::rename(part, path).map_err(|e| failed(&e))
}

/// The same with bytes that are there already.
///
/// # Errors
/// One line: the file cannot be written.
pub fn replace_with(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    replace(path, |mut file| file.write_all(bytes).map_err(|e| about(path.display())(&e)))
}

/// The hour of a time in Unix seconds, as folders are called: 2026112108.
pub fn hour(time: u64) -> String {
    // Days since 0000-03-01 fall into eras of 400 years.
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

/// The folder.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
}

impl Store {
    /// The folder at `root`, which need not be there yet.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The path of something in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Where sessions of `source` go that ended at `time`.
    pub fn sessions(&self, time: u64, source: &str) -> PathBuf {
        self.root.join(format!("sessions/hour={}/{source}.parquet", hour(time)))
    }

    /// The files of sessions that ended from `begin` on and before `end`, and of others of these hours.
    ///
    /// # Errors
    /// One line: a folder cannot be read.
    pub fn sessions_between(&self, begin: u64, end: u64) -> Result<Vec<PathBuf>, Error> {
        let mut files = Vec::new();
        for time in (begin / HOUR * HOUR..end).step_by(HOUR as usize) {
            let folder = self.root.join(format!("sessions/hour={}", hour(time)));
            files.extend(
                listed(&folder)?.into_iter().filter(|path| {
                    path.extension().is_some_and(|extension| extension == "parquet")
                }),
            );
        }
        Ok(files)
    }

    /// Removes the hours of sessions, and the windows of decisions and histograms, that ended before `time`.
    ///
    /// # Errors
    /// One line: something cannot be removed.
    pub fn tidy(&self, time: u64) -> Result<(), Error> {
        let oldest = format!("hour={}", hour(time));
        for folder in listed(&self.path("sessions"))? {
            let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with("hour=") && name < oldest {
                fs::remove_dir_all(&folder).map_err(|e| about(folder.display())(&e))?;
            }
        }
        for entry in [listed(&self.path("decisions"))?, listed(&self.path("histograms"))?].concat()
        {
            let end = entry.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok());
            if end.is_some_and(|end| end < time) {
                let remove = if entry.is_dir() { fs::remove_dir_all } else { fs::remove_file };
                remove(entry.as_path()).map_err(|e| about(entry.display())(&e))?;
            }
        }
        Ok(())
    }

    /// The lines `KEY,TEXT` of a file; none if it is not there. A line that is not of this form is passed over.
    ///
    /// # Errors
    /// One line: it cannot be read.
    pub fn pairs(&self, name: &str) -> Result<BTreeMap<String, String>, Error> {
        let path = self.path(name);
        let text = match fs::read_to_string(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
            text => text.map_err(|e| about(path.display())(&e))?,
        };
        let lines = text.lines().skip(1).filter_map(|line| line.split_once(','));
        Ok(lines.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    /// Writes such a file.
    ///
    /// # Errors
    /// One line: it cannot be written.
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

/// What lies in a folder, in order; nothing if it is not there.
///
/// # Errors
/// One line: it cannot be read.
pub fn listed(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = match fs::read_dir(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.and_then(|entries| entries.collect::<Result<Vec<_>, _>>()),
    };
    let entries = entries.map_err(|e| about(folder.display())(&e))?;
    let mut paths: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_are_those_of_the_calendar() {
        let hours = [0, 951_782_399, 951_782_400, 1_709_251_199, 1_795_249_800, 4_102_444_800];
        let names = hours.map(hour);
        let wanted =
            ["1970010100", "2000022823", "2000022900", "2024022923", "2026112108", "2100010100"];
        assert_eq!(names, wanted);
    }

    #[test]
    fn a_write_that_fails_leaves_what_was_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("deep/file");
        replace_with(&path, b"one").expect("written");
        assert!(replace(&path, |_| Err(Error::new("no"))).is_err());
        assert_eq!(fs::read(&path).expect("there"), b"one");
        replace_with(&path, b"two").expect("written");
        assert_eq!(fs::read(&path).expect("there"), b"two");
        assert_eq!(listed(&folder.path().join("deep")).expect("listed"), [path]);
    }

    #[test]
    fn what_is_old_goes() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::new(folder.path());
        let (old, new) = (1_795_249_800, 1_795_249_800 + HOUR);
        for time in [old, new] {
            replace_with(&store.sessions(time, "a"), b"").expect("written");
            replace_with(&store.path(&format!("decisions/{time}.csv")), b"").expect("written");
            replace_with(&store.path(&format!("histograms/{time}/a.parquet")), b"").expect("made");
        }
        store.tidy(new).expect("tidied");
        assert!(store.sessions_between(old, old + 1).expect("listed").is_empty());
        assert_eq!(store.sessions_between(old, new).expect("listed").len(), 1);
        assert_eq!(listed(&store.path("decisions")).expect("listed").len(), 1);
        assert_eq!(listed(&store.path("histograms")).expect("listed").len(), 1);
    }
}
