//! Removal of old recordings, as whole directories.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::directory::start_ms;
use super::segment::Settings;
use super::take::{PLAYLIST, UNFINISHED};
use crate::upload::{PROGRESS, is_complete};

/// Maximum depth of streams' directories: names have at most 128 characters.
const MAX_DEPTH: usize = 64;

/// Time beyond `keep` after which the playlist of a recording is removed, although the recording is
/// not completely uploaded.
const HOPELESS: Duration = Duration::from_secs(30 * 86_400);

/// A recording on disk.
struct Stored {
    start_ms: i64,
    path: PathBuf,
    bytes: u64,
    /// Time of its last change.
    changed: SystemTime,
    /// Whether it has segments.
    has_media: bool,
}

/// Removes recordings with a last change older than `keep`, and the oldest ones beyond `max_size`,
/// except `running` ones. The playlist of an incomplete upload stays, so that the upload can name
/// the missing segments. Returns the number of removed recordings.
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
        if !(is_old || is_beyond) || running.contains(&stored.path) {
            continue;
        }
        let is_pending = settings.is_uploaded && !is_complete(&stored.path);
        let is_hopeless = is_beyond || age > settings.keep.saturating_add(HOPELESS);
        let is_removed = match (is_pending, stored.has_media) {
            (true, true) => remove_media(&stored.path),
            (true, false) if !is_hopeless => continue,
            _ => remove(&stored.path),
        };
        if is_removed {
            total -= stored.bytes;
            removed += u64::from(stored.has_media);
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
                for file in &files {
                    let Ok(metadata) = fs::symlink_metadata(file) else { continue };
                    bytes += metadata.len();
                    // An upload is no change of the recording.
                    if !file.ends_with(PROGRESS) {
                        changed = changed.max(metadata.modified().unwrap_or(changed));
                    }
                }
                if !files.is_empty() {
                    let has_media = files.iter().any(|file| is_media(file));
                    all.push(Stored { start_ms, path, bytes, changed, has_media });
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
        let name = file.file_name().and_then(OsStr::to_str);
        let is_unfinished = file.extension() == Some(OsStr::new(UNFINISHED));
        matches!(name, Some(PLAYLIST | PROGRESS)) || is_unfinished || is_media(file)
    };
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|file| is_own(file)).collect()
}

fn is_media(file: &Path) -> bool {
    matches!(file.extension().and_then(OsStr::to_str), Some("m4s" | "mp4"))
}

/// Removes the segments of a recording.
fn remove_media(path: &Path) -> bool {
    let mut is_gone = true;
    for file in own_files(path).iter().filter(|file| is_media(file)) {
        is_gone &= fs::remove_file(file).is_ok();
    }
    is_gone
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

#[cfg(test)]
mod tests {
    use super::super::fixture::StoredTake;
    use super::*;

    #[test]
    fn the_playlist_of_a_recording_stays_until_it_is_uploaded() {
        let scratch = tempfile::tempdir().expect("a directory");
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("now");
        let hour = Duration::from_secs(3_600);
        let long_ago = |ago: Duration| (now - ago).as_millis() as i64;
        let take = |ago| {
            let mut take = StoredTake::new(&scratch.path().join("live/a"), long_ago(ago), (0, 0));
            take.add(2);
            take.write(true);
            for file in own_files(&take.path).iter().filter(|file| is_media(file)) {
                let file = fs::File::options().append(true).open(file).expect("opened");
                file.set_modified(SystemTime::now() - ago).expect("set");
            }
            take.path
        };
        let (old, ancient) = (take(hour * 3), take(hour * 24 * 40));
        let remove = |is_uploaded| {
            let settings = Settings {
                segment: Duration::from_secs(6),
                rotate: hour,
                keep: hour,
                max_size: 0,
                is_uploaded,
            };
            remove_old(scratch.path(), settings, &[])
        };
        assert_eq!(remove(true), 2);
        for path in [&old, &ancient] {
            assert_eq!(own_files(path), [path.join(PLAYLIST)]);
        }
        // Once more: nothing for 30 days.
        assert_eq!(remove(true), 0);
        assert!(old.exists() && !ancient.exists());
        // Uploaded, with the segments as gaps.
        let done = "next 2\nlast_ms 0\nlisted 2\ncomplete true\nlost 0 1\ninits \n";
        fs::write(old.join(PROGRESS), done).expect("written");
        remove(true);
        assert!(!old.exists());
        let (again, _) = (take(hour * 3), remove(false));
        assert!(!again.exists(), "without upload");
    }
}
