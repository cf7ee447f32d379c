//! Directory of all recordings of a rule: `STREAM/TIME/index.m3u8`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::segment::WrittenSegment;
use super::take::Take;
use units::{date_time, parse_compact_date};

/// Length of a time in names: `20261128T094847Z`.
const TIME_LEN: usize = 16;
/// Maximum number of recordings that begin in the same second.
const MAX_SAME_SECOND: u32 = 100;

/// Directory of recordings.
#[derive(Debug)]
pub(super) struct Directory(PathBuf);

impl Directory {
    pub(super) fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Opens the recording of the segment's stream: the unfinished one of a killed process, if it
    /// is not full, or a new one. Finishes other unfinished ones.
    ///
    /// # Errors
    /// A directory cannot be created.
    pub(super) fn open(&self, segment: &WrittenSegment) -> io::Result<Take> {
        // Parts of a stream's name neither start with a dot nor contain separators.
        let folder = segment.stream.split('/').fold(self.0.clone(), |path, part| path.join(part));
        fs::create_dir_all(&folder)?;
        let mut found: Vec<(i64, PathBuf)> = fs::read_dir(&folder)?
            .flatten()
            .filter_map(|entry| Some((start_ms(&entry.path())?, entry.path())))
            .collect();
        found.sort();
        let mut resumed = None;
        for (start, path) in found.into_iter().rev() {
            let Some(take) = Take::resume(path, start) else { continue };
            if resumed.is_none() && !take.is_full(segment) {
                resumed = Some(take);
            } else {
                take.end()?;
            }
        }
        if let Some(take) = resumed {
            tracing::info!("{}: recording continued in {}", segment.stream, take.path().display());
            return Ok(take);
        }
        let name = compact(segment.wall_ms);
        for number in 1..MAX_SAME_SECOND {
            let name = if number == 1 { name.clone() } else { format!("{name}-{number}") };
            match Take::create(folder.join(name), segment) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                created => return created,
            }
        }
        Err(io::Error::new(io::ErrorKind::AlreadyExists, "too many recordings in one second"))
    }
}

/// Returns the time as `20261128T094847Z`.
fn compact(ms: i64) -> String {
    let text = date_time(ms);
    let seconds = text.split('.').next().unwrap_or_default();
    let digits: String = seconds.chars().filter(|c| *c != '-' && *c != ':').collect();
    digits + "Z"
}

/// Returns the start of a recording from its directory's name, in milliseconds since 1970. `None`
/// for other names.
pub(super) fn start_ms(path: &Path) -> Option<i64> {
    let name = path.file_name()?.to_str()?;
    let (time, number) = name.split_at_checked(TIME_LEN)?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let is_numbered = number.is_empty() || number.strip_prefix('-').is_some_and(is_number);
    let time = time.strip_suffix('Z').filter(|time| time.as_bytes().get(8) == Some(&b'T'))?;
    is_numbered.then(|| parse_compact_date(time))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_time_of_their_start() {
        for ms in [0, 951_782_400_000, 1_709_251_199_000, 4_107_542_400_000] {
            assert_eq!(start_ms(Path::new(&compact(ms))), Some(ms), "{}", compact(ms));
        }
        assert_eq!(compact(1_795_859_327_000), "20261128T094847Z");
        assert!(start_ms(Path::new("a/20261128T094847Z-2")).is_some());
        for name in [
            "",
            "demo",
            "20261128T094847",
            "20260231T000000Z",
            "20261128T094847Z-",
            "20261128T094847Zx",
            "2026112üT094847Z",
            "+0261128T094847Z",
        ] {
            assert_eq!(start_ms(Path::new(name)), None, "{name}");
        }
    }
}
