//! Directory of all recordings of a rule: `STREAM/TIME/index.m3u8`.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::playlist::Position;
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
        let folder = folder(&self.0, &segment.stream);
        fs::create_dir_all(&folder)?;
        let mut found: Vec<(i64, PathBuf)> = fs::read_dir(&folder)?
            .flatten()
            .filter_map(|entry| Some((start_ms(&entry.path())?, entry.path())))
            .collect();
        found.sort();
        let mut resumed = None;
        let mut last: Option<Position> = None;
        for (start, path) in found.into_iter().rev() {
            let Some((take, is_finished)) = Take::resume(path, start) else { continue };
            // The clock may have been set back, so the last one need not be the newest by name.
            last = last.max(Some(take.position()));
            if is_finished {
                continue;
            }
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
        self.create(segment, last.map_or_else(Position::default, |last| last.next(true)))
    }

    /// Starts a recording in a new directory.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub(super) fn create(&self, segment: &WrittenSegment, position: Position) -> io::Result<Take> {
        let folder = folder(&self.0, &segment.stream);
        fs::create_dir_all(&folder)?;
        for number in 1..MAX_SAME_SECOND {
            let name = TakeName { start_ms: segment.wall_ms.div_euclid(1_000) * 1_000, number };
            match Take::create(folder.join(name.to_string()), segment, position) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                created => return created,
            }
        }
        Err(io::Error::new(io::ErrorKind::AlreadyExists, "too many recordings in one second"))
    }
}

/// Returns the directory of a stream's recordings below `root`.
pub(super) fn folder(root: &Path, stream: &str) -> PathBuf {
    // Parts of a stream's name neither start with a dot nor contain separators.
    stream.split('/').fold(root.to_owned(), |path, part| path.join(part))
}

/// Name of a recording's directory: its start, and a number if several started in one second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct TakeName {
    /// Start in milliseconds since 1970, of a full second.
    pub(super) start_ms: i64,
    /// 1 for the first recording of the second.
    number: u32,
}

impl TakeName {
    /// Parses the name of a directory.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let start_ms = start_ms(Path::new(name))?;
        let number =
            name[TIME_LEN..].strip_prefix('-').map_or(Some(1), |text| text.parse().ok())?;
        let take = Self { start_ms, number };
        (take.to_string() == name).then_some(take)
    }
}

impl fmt::Display for TakeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&compact(self.start_ms))?;
        if self.number > 1 { write!(f, "-{}", self.number) } else { Ok(()) }
    }
}

/// Returns the time as `20261128T094847Z`.
pub(super) fn compact(ms: i64) -> String {
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
            assert_eq!(TakeName::parse(name), None, "{name}");
        }
        for name in ["20261128T094847Z", "20261128T094847Z-2", "20261128T094847Z-99"] {
            assert_eq!(TakeName::parse(name).map(|take| take.to_string()).as_deref(), Some(name));
        }
        for name in ["20261128T094847Z-1", "20261128T094847Z-02", "..", "20261128T094847Z/.."] {
            assert_eq!(TakeName::parse(name), None, "{name}");
        }
    }
}
