//! Removal of old recordings, as whole directories.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::directory::start_ms;
use super::segment::Settings;
use super::take::{PLAYLIST, UNFINISHED};

/// Maximum depth of streams' directories: names have at most 128 characters.
const MAX_DEPTH: usize = 64;

/// A recording on disk.
struct Stored {
    start_ms: i64,
    path: PathBuf,
    bytes: u64,
    /// Time of its last change.
    changed: SystemTime,
}

/// Removes recordings whose last change is older than `keep`, and the oldest ones beyond
/// `max_size`, except `running` ones. Returns their number.
pub(super) fn remove_old(root: &Path, settings: Settings, running: &[PathBuf]) -> u64 {
    let mut all = Vec::new();
    find(root, 0, &mut all);
    all.sort_by(|a, b| (a.start_ms, &a.path).cmp(&(b.start_ms, &b.path)));
    let mut total: u64 = all.iter().map(|stored| stored.bytes).sum();
    let mut removed = 0;
    for stored in all {
        let age = stored.changed.elapsed().unwrap_or_default();
        let is_old = !settings.keep.is_zero() && age > settings.keep;
        let is_beyond = settings.max_size > 0 && total > settings.max_size;
        if (is_old || is_beyond) && !running.contains(&stored.path) && remove(&stored.path) {
            total -= stored.bytes;
            removed += 1;
            tracing::info!("recording removed: {}", stored.path.display());
        }
    }
    removed
}

/// Finds the recordings below a directory. Does not follow symbolic links.
fn find(directory: &Path, depth: usize, all: &mut Vec<Stored>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let path = entry.path();
        match start_ms(&path) {
            Some(start_ms) => {
                let (mut bytes, mut changed) = (0, SystemTime::UNIX_EPOCH);
                let files = own_files(&path);
                for metadata in files.iter().filter_map(|file| fs::symlink_metadata(file).ok()) {
                    bytes += metadata.len();
                    changed = changed.max(metadata.modified().unwrap_or(changed));
                }
                if !files.is_empty() {
                    all.push(Stored { start_ms, path, bytes, changed });
                } else if depth < MAX_DEPTH {
                    // A stream whose name looks like a time.
                    find(&path, depth + 1, all);
                }
            }
            None if depth < MAX_DEPTH => find(&path, depth + 1, all),
            None => {}
        }
    }
}

/// Returns the files of a recording that this server wrote.
fn own_files(path: &Path) -> Vec<PathBuf> {
    let is_own = |file: &Path| {
        let extension = file.extension().and_then(OsStr::to_str);
        file.file_name() == Some(OsStr::new(PLAYLIST))
            || matches!(extension, Some("m4s" | "mp4" | UNFINISHED))
    };
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|file| is_own(file)).collect()
}

/// Removes a recording. The playlist goes first: without it, a later start does not continue the
/// rest. A directory with other files stays.
fn remove(path: &Path) -> bool {
    let _ = fs::remove_file(path.join(PLAYLIST));
    let is_gone = own_files(path).iter().all(|file| fs::remove_file(file).is_ok());
    // Fails if there are other files.
    let _ = fs::remove_dir(path);
    is_gone
}
