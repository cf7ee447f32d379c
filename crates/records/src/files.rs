//! Record files of a directory, by name: `sessions-20261121T083000Z.jsonl`, and `.parquet` with the
//! same stem.
//!
//! Several servers may share a directory. The server that writes a `.jsonl` file locks it, and
//! others ignore the files of that stem.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Files of one stem.
#[derive(Debug, Default)]
pub(crate) struct FileSet {
    /// JSON lines.
    pub lines: Option<PathBuf>,
    /// The same rows as Parquet.
    pub parquet: Option<PathBuf>,
    /// An incomplete Parquet file.
    pub unfinished: Option<PathBuf>,
    /// Total size in bytes.
    pub bytes: u64,
    /// Last modification of the rows. A Parquet file may be newer.
    pub written: Option<SystemTime>,
}

impl FileSet {
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        let all = [&self.lines, &self.parquet, &self.unfinished];
        all.into_iter().filter_map(Option::as_deref)
    }

    /// Locks the files until the result is dropped. Returns `None` if another process holds the
    /// lock.
    pub(crate) fn lock(&self) -> io::Result<Option<Lock>> {
        let Some(path) = &self.lines else { return Ok(Some(Lock(None))) };
        match File::open(path) {
            Ok(file) => Ok(is_free(&file).then_some(Lock(Some(file)))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Some(Lock(None))),
            Err(e) => Err(e),
        }
    }
}

/// Lock on the files of a stem.
#[derive(Debug)]
pub(crate) struct Lock(pub Option<File>);

/// Locks an open file. Returns false if another process holds the lock. On file systems without
/// locks, assumes that there are no other writers.
pub(crate) fn is_free(file: &File) -> bool {
    !matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}

/// Returns the record files in `directory` by stem, oldest first. Ignores other files, links and
/// directories.
pub(crate) fn all(directory: &Path) -> io::Result<BTreeMap<String, FileSet>> {
    let mut all: BTreeMap<String, FileSet> = BTreeMap::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some((stem, form)) = name.split_once('.') else { continue };
        if !is_stem(stem) || !entry.file_type()?.is_file() {
            continue;
        }
        let (stem, metadata) = (stem.to_owned(), entry.metadata()?);
        let assign = |kept: &mut FileSet| -> Option<()> {
            let written = metadata.modified().ok();
            match form {
                "jsonl" => (kept.lines, kept.written) = (Some(path.clone()), written),
                "parquet" => kept.parquet = Some(path.clone()),
                "parquet.part" => kept.unfinished = Some(path.clone()),
                _ => return None,
            }
            kept.written = kept.written.or(written);
            kept.bytes += metadata.len();
            Some(())
        };
        let mut kept = all.remove(&stem).unwrap_or_default();
        if assign(&mut kept).is_some() || kept.paths().next().is_some() {
            all.insert(stem, kept);
        }
    }
    Ok(all)
}

/// Returns true if a server created files with this stem: `sessions-`, the time, and an optional
/// number.
fn is_stem(stem: &str) -> bool {
    let digits = |text: &str, count: usize| {
        text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    let Some(rest) = stem.strip_prefix("sessions-") else { return false };
    let (time, number) = rest.split_once('-').map_or((rest, None), |(time, n)| (time, Some(n)));
    let is_time = time
        .strip_suffix('Z')
        .and_then(|time| time.split_once('T'))
        .is_some_and(|(day, time)| digits(day, 8) && digits(time, 6));
    is_time && number.is_none_or(|number| (1..=3).any(|count| digits(number, count)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_generated_names_are_record_files() {
        for (stem, is_ours) in [
            ("sessions-20261121T083000Z", true),
            ("sessions-20261121T083000Z-12", true),
            ("sessions-20261121T083000Z-", false),
            ("sessions-20261121T083000Z-copy", false),
            ("sessions-backup", false),
            ("sessions-20261121T083000", false),
            ("sessions-2026112T1083000Z", false),
            ("visits-20261121T083000Z", false),
        ] {
            assert_eq!(is_stem(stem), is_ours, "{stem}");
        }
    }

    #[test]
    fn files_are_grouped_by_stem_and_links_are_ignored() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let at = |name: &str| directory.path().join(name);
        for name in ["jsonl", "parquet.part", "bak"] {
            std::fs::write(at(&format!("sessions-20261121T083000Z.{name}")), "ab")
                .expect("written");
        }
        std::os::unix::fs::symlink("/etc/passwd", at("sessions-20261122T083000Z.jsonl"))
            .expect("linked");
        std::fs::create_dir(at("sessions-20261123T083000Z.jsonl")).expect("made");
        let found = all(directory.path()).expect("readable");
        let kept = &found["sessions-20261121T083000Z"];
        assert_eq!((found.len(), kept.bytes, kept.paths().count()), (1, 4, 2));
        assert!(kept.lines.is_some() && kept.parquet.is_none() && kept.unfinished.is_some());
    }
}
