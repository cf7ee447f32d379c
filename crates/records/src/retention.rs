//! How long files of records are kept: by age, and by what all of them take together. The oldest go
//! first; the file that is being written stays.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// What is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Retention {
    /// Files that were last written longer ago than this go; 0 keeps them whatever their age.
    pub age: Duration,
    /// The most bytes that all files may take; 0 for any number.
    pub bytes: u64,
}

/// A file of records.
struct Kept {
    path: PathBuf,
    written: SystemTime,
    bytes: u64,
}

/// Removes what is too old or too much. `current` is the stem of the file that is being written.
///
/// # Errors
/// The directory cannot be read, or a file cannot be removed; the others are.
pub(crate) fn tidy(
    directory: &Path,
    current: &str,
    retention: Retention,
    now: SystemTime,
) -> io::Result<()> {
    let mut all = files(directory, current)?;
    // The names begin with the time.
    all.sort_by(|a, b| a.path.file_name().cmp(&b.path.file_name()));
    let mut bytes: u64 = all.iter().map(|file| file.bytes).sum();
    let mut outcome = Ok(());
    for file in all {
        let age = now.duration_since(file.written).unwrap_or_default();
        let is_old = !retention.age.is_zero() && age > retention.age;
        let is_too_much = retention.bytes > 0 && bytes > retention.bytes;
        if is_old || is_too_much {
            bytes -= file.bytes;
            outcome = outcome.and(std::fs::remove_file(&file.path));
        }
    }
    outcome
}

fn files(directory: &Path, current: &str) -> io::Result<Vec<Kept>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some((stem, "jsonl" | "parquet" | "parquet.part")) = name.split_once('.') else {
            continue;
        };
        if stem.starts_with("sessions-") && stem != current {
            let metadata = entry.metadata()?;
            all.push(Kept { path, written: metadata.modified()?, bytes: metadata.len() });
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn what_is_old_or_too_much_goes_and_what_is_not_ours_stays() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let now = SystemTime::now();
        let put = |name: &str, days: u32| {
            let file = std::fs::File::create_new(directory.path().join(name)).expect("created");
            file.set_len(1_000).expect("set");
            file.set_modified(now - DAY * days).expect("set");
        };
        let names = || {
            let entries = std::fs::read_dir(directory.path()).expect("a directory");
            let names = entries.map(|entry| entry.expect("an entry").file_name());
            let mut names: Vec<_> = names.map(|n| n.to_string_lossy().into_owned()).collect();
            names.sort();
            names
        };
        put("notes.txt", 100);
        put("sessions-1.jsonl", 9);
        put("sessions-1.parquet", 8);
        put("sessions-2.jsonl", 3);
        put("sessions-3.jsonl", 2);
        put("sessions-4.jsonl", 30);
        let keep = |age, bytes| {
            let retention = Retention { age, bytes };
            tidy(directory.path(), "sessions-4", retention, now).expect("tidied");
            names()
        };
        assert_eq!(keep(Duration::ZERO, 0).len(), 6, "nothing is to go");
        let left = ["notes.txt", "sessions-2.jsonl", "sessions-3.jsonl", "sessions-4.jsonl"];
        assert_eq!(keep(DAY * 7, 0), left);
        assert_eq!(keep(DAY * 7, 1_000), [left[0], left[2], left[3]]);
        assert_eq!(keep(Duration::ZERO, 1), [left[0], left[3]]);
    }
}
