//! Retention of record files by age and total size. Removes the oldest first, but no file that is
//! being written.

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::files::{self, FileSet};

/// Retention limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Retention {
    /// Maximum age of a file, by its last row. 0 disables the limit.
    ///
    /// The gap between two files counts as at most a third of this, or as a day if that is more, so
    /// that a clock that jumps ahead does not make files old.
    pub age: Duration,
    /// Maximum total size in bytes. 0 disables the limit.
    pub bytes: u64,
}

/// Minimum for the largest counted gap between two files.
const DAY: Duration = Duration::from_secs(86_400);

/// Removes files beyond the limits, except those with the stem `current`, which is being written.
///
/// # Errors
/// If the directory cannot be read or a file cannot be removed. The other files are still removed.
pub(crate) fn enforce(
    directory: &Path,
    current: &str,
    retention: Retention,
    now: SystemTime,
) -> io::Result<()> {
    let mut all = files::all(directory)?;
    all.remove(current);
    let is_old = ages(all.values(), now, retention.age.div_f64(3.0).max(DAY));
    let mut bytes: u64 = all.values().map(|kept| kept.bytes).sum();
    let mut outcome = Ok(());
    let is_old = is_old.into_iter().map(|age| !retention.age.is_zero() && age > retention.age);
    for (kept, is_old) in all.values().zip(is_old) {
        let is_too_much = retention.bytes > 0 && bytes > retention.bytes;
        if is_old || is_too_much {
            match remove(kept) {
                Ok(true) => bytes -= kept.bytes,
                Ok(false) => {}
                Err(e) => outcome = outcome.and(Err(e)),
            }
        }
    }
    outcome
}

/// Returns the age of each file, in order. Counts gaps as at most `longest`.
fn ages<'a>(
    all: impl Iterator<Item = &'a FileSet>,
    now: SystemTime,
    longest: Duration,
) -> Vec<Duration> {
    let written: Vec<SystemTime> = all.map(|kept| kept.written.unwrap_or(now)).collect();
    let mut newest_first: Vec<usize> = (0..written.len()).collect();
    newest_first.sort_by_key(|index| core::cmp::Reverse(written[*index]));
    let mut ages = vec![Duration::ZERO; written.len()];
    let (mut later, mut age) = (now, Duration::ZERO);
    for index in newest_first {
        age += later.duration_since(written[index]).unwrap_or_default().min(longest);
        (later, ages[index]) = (written[index], age);
    }
    ages
}

/// Removes the files of a stem. Returns false if another process is writing them.
fn remove(kept: &FileSet) -> io::Result<bool> {
    let Some(_lock) = kept.lock()? else { return Ok(false) };
    // Rows last, as the Parquet file can be recreated from them.
    for path in [&kept.unfinished, &kept.parquet, &kept.lines].into_iter().flatten() {
        std::fs::remove_file(path)?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder {
        directory: tempfile::TempDir,
        now: SystemTime,
    }

    impl Folder {
        fn new() -> Self {
            let directory = tempfile::tempdir().expect("a temporary directory");
            Self { directory, now: SystemTime::now() }
        }

        fn put(&self, name: &str, days: u32) {
            let path = self.directory.path().join(name);
            let file = std::fs::File::create_new(path).expect("created");
            file.set_len(1_000).expect("set");
            file.set_modified(self.now - DAY * days).expect("set");
        }

        /// Returns the remaining files after enforcement `days` later.
        fn remaining(&self, current: &str, age: Duration, bytes: u64, days: u32) -> Vec<String> {
            let retention = Retention { age, bytes };
            let now = self.now + DAY * days;
            enforce(self.directory.path(), current, retention, now).expect("removed");
            let entries = std::fs::read_dir(self.directory.path()).expect("a directory");
            let names = entries.map(|entry| entry.expect("an entry").file_name());
            let mut names: Vec<_> = names.map(|n| n.to_string_lossy().into_owned()).collect();
            names.sort();
            names
        }
    }

    fn name(n: u32, form: &str) -> String {
        format!("sessions-2026110{n}T000000Z.{form}")
    }

    #[test]
    fn old_and_excess_files_are_removed_and_foreign_files_stay() {
        let folder = Folder::new();
        folder.put("notes.txt", 100);
        folder.put("sessions-backup.jsonl", 100);
        folder.put(&name(1, "jsonl"), 9);
        folder.put(&name(1, "parquet"), 8);
        folder.put(&name(2, "jsonl"), 6);
        folder.put(&name(3, "jsonl"), 4);
        folder.put(&name(4, "jsonl"), 2);
        folder.put(&name(5, "jsonl"), 30);
        let current = "sessions-20261105T000000Z";
        assert_eq!(folder.remaining(current, Duration::ZERO, 0, 0).len(), 8, "no limits");
        let all = [name(2, "jsonl"), name(3, "jsonl"), name(4, "jsonl"), name(5, "jsonl")];
        let ours = |names: Vec<String>| -> Vec<String> {
            assert!(
                names.contains(&"notes.txt".to_owned())
                    && names.contains(&"sessions-backup.jsonl".to_owned())
            );
            names.into_iter().filter(|name| name.starts_with("sessions-2")).collect()
        };
        assert_eq!(ours(folder.remaining(current, DAY * 8, 0, 0)), all);
        assert_eq!(ours(folder.remaining(current, DAY * 8, 2_000, 0)), all[1..]);
        assert_eq!(ours(folder.remaining(current, Duration::ZERO, 1, 0)), all[3..]);
    }

    #[test]
    fn a_clock_that_jumps_ahead_does_not_age_files() {
        let folder = Folder::new();
        (1..=5).for_each(|n| folder.put(&name(n, "jsonl"), 50 - 10 * n));
        let current = "sessions-20271231T000000Z";
        assert_eq!(folder.remaining(current, DAY * 90, 0, 400).len(), 5);
        // A file is written at the wrong time, then the clock is corrected.
        std::fs::File::create_new(folder.directory.path().join("sessions-20271230T000000Z.jsonl"))
            .and_then(|file| file.set_modified(folder.now + DAY * 400))
            .expect("created");
        assert_eq!(folder.remaining(current, DAY * 90, 0, 400).len(), 6);
        assert_eq!(folder.remaining(current, DAY * 90, 0, 0).len(), 6);
        // Time with files in between counts.
        assert!(folder.remaining(current, DAY * 35, 0, 400).len() < 6);
    }

    #[test]
    fn a_file_that_another_server_writes_stays() {
        let folder = Folder::new();
        folder.put(&name(1, "jsonl"), 9);
        folder.put(&name(2, "jsonl"), 9);
        let other =
            std::fs::File::open(folder.directory.path().join(name(1, "jsonl"))).expect("opened");
        other.lock().expect("locked");
        assert_eq!(folder.remaining("", DAY, 1, 0), [name(1, "jsonl")]);
        drop(other);
        assert_eq!(folder.remaining("", DAY, 1, 0), [""; 0]);
    }
}
