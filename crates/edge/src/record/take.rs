//! A recording in progress: a directory with segments, initialisation segments and the playlist.
//!
//! Files are written under a temporary name and renamed, so that a reader and a later start see
//! whole files only.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::playlist::{Playlist, Position, init_name, is_finished};
use super::segment::{Gap, WrittenSegment};

/// Name of the playlist.
pub(crate) const PLAYLIST: &str = "index.m3u8";
/// Extension of unfinished files.
pub(super) const UNFINISHED: &str = "part";
/// Maximum size of a playlist that is read, in bytes.
const MAX_PLAYLIST: u64 = 64 << 20;

/// A recording in progress.
#[derive(Debug)]
pub(super) struct Take {
    path: PathBuf,
    playlist: Playlist,
    /// Start in milliseconds since 1970.
    start_ms: i64,
}

impl Take {
    /// Starts a recording in a new directory.
    ///
    /// # Errors
    /// The directory exists or cannot be created.
    pub(super) fn create(
        path: PathBuf,
        first: &WrittenSegment,
        position: Position,
    ) -> io::Result<Self> {
        fs::create_dir(&path)?;
        let playlist = Playlist::new(first.settings.segment, position);
        Ok(Self { path, playlist, start_ms: first.wall_ms })
    }

    /// Opens a recording of an earlier process, started at `start_ms`, and returns whether it is
    /// finished. `None` if it cannot be read.
    pub(super) fn resume(path: PathBuf, start_ms: i64) -> Option<(Self, bool)> {
        let file = path.join(PLAYLIST);
        let is_sane = fs::metadata(&file).is_ok_and(|m| m.is_file() && m.len() <= MAX_PLAYLIST);
        let text = is_sane.then(|| fs::read_to_string(file).ok()).flatten()?;
        let is_whole = |name: &str| fs::metadata(path.join(name)).is_ok_and(|m| m.len() > 0);
        let is_finished = is_finished(&text);
        let playlist = Playlist::resume(&text, |name| is_finished || is_whole(name))?;
        Some((Self { path, playlist, start_ms }, is_finished))
    }

    /// Returns the position after the last segment.
    pub(super) fn position(&self) -> Position {
        self.playlist.end()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the segment belongs to the next recording.
    pub(super) fn is_full(&self, segment: &WrittenSegment) -> bool {
        let rotate = i64::try_from(segment.settings.rotate.as_millis()).unwrap_or(i64::MAX);
        // A clock that was set back must not extend the recording forever.
        !(-rotate..rotate).contains(&segment.wall_ms.saturating_sub(self.start_ms))
    }

    /// Writes a segment, after `gaps`, and the playlist.
    ///
    /// # Errors
    /// A file cannot be written. The playlist then does not have the segment.
    pub(super) fn append(&mut self, gaps: &[Gap], segment: &WrittenSegment) -> io::Result<()> {
        let (id, bytes) = &segment.init;
        let init = self.path.join(init_name(*id));
        if fs::metadata(&init).map_or(0, |metadata| metadata.len()) != bytes.len() as u64 {
            write_file(&init, &[bytes])?;
        }
        let mut playlist = self.playlist.clone();
        gaps.iter().for_each(|gap| playlist.push_gap(*gap, *id));
        let file = self.path.join(playlist.next_file());
        let parts: Vec<&[u8]> = segment.parts.iter().map(|part| &part[..]).collect();
        write_file(&file, &parts)?;
        playlist.push(segment.discontinuity, (segment.wall_ms, segment.duration_ms), *id);
        let written = write_file(&self.path.join(PLAYLIST), &[playlist.render(false).as_bytes()]);
        if written.is_err() {
            // Without it in the playlist, the file would only take space.
            let _ = fs::remove_file(&file);
        }
        written?;
        self.playlist = playlist;
        Ok(())
    }

    /// Finishes the recording.
    ///
    /// # Errors
    /// The playlist cannot be written.
    pub(super) fn end(self) -> io::Result<()> {
        write_file(&self.path.join(PLAYLIST), &[self.playlist.render(true).as_bytes()])
    }
}

/// Writes a file under a temporary name, and renames it.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn write_file(path: &Path, parts: &[impl AsRef<[u8]>]) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(UNFINISHED);
    let unfinished = PathBuf::from(name);
    let written = File::create(&unfinished)
        .and_then(|mut file| parts.iter().try_for_each(|part| file.write_all(part.as_ref())));
    let renamed = written.and_then(|()| fs::rename(&unfinished, path));
    if renamed.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    renamed
}
