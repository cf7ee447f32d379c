//! Recordings on disk for tests, as the writer leaves them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::directory::TakeName;
use super::playlist::{Playlist, Position, init_name};
use super::segment::Gap;
use super::take::PLAYLIST;

/// Duration of each segment in ms.
pub(crate) const SEGMENT_MS: i64 = 6_000;

/// A recording in progress on disk.
pub(crate) struct StoredTake {
    pub path: PathBuf,
    playlist: Playlist,
    wall_ms: i64,
    init: u64,
}

impl StoredTake {
    /// Starts a recording at `wall_ms`, with media sequence number and discontinuity number.
    pub(crate) fn new(folder: &Path, wall_ms: i64, (msn, discontinuity): (u64, u64)) -> Self {
        let name =
            |number| TakeName::parse(&format!("{}{number}", super::directory::compact(wall_ms)));
        let names = [name(String::new()), name("-2".into())];
        let mut paths = names.iter().flatten().map(|name| folder.join(name.to_string()));
        let path = paths.find(|path| !path.exists()).expect("an unused name");
        fs::create_dir_all(&path).expect("created");
        let position = Position { msn, discontinuity };
        let playlist = Playlist::new(Duration::from_secs(6), position);
        Self { path, playlist, wall_ms, init: 1 }
    }

    /// Adds segments. The content of each is its file name.
    pub(crate) fn add(&mut self, count: usize) {
        fs::write(self.path.join(init_name(self.init)), "initialisation").expect("written");
        for _ in 0..count {
            let file = self.playlist.next_file();
            fs::write(self.path.join(&file), &file).expect("written");
            self.playlist.push(false, (self.wall_ms, SEGMENT_MS), self.init);
            self.wall_ms += SEGMENT_MS;
        }
        self.write(false);
    }

    pub(crate) fn add_gap(&mut self) {
        let gap = Gap { wall_ms: self.wall_ms, duration_ms: SEGMENT_MS };
        self.playlist.push_gap(gap, self.init);
        self.wall_ms += SEGMENT_MS;
    }

    /// Uses another initialisation segment from the next segment on.
    pub(crate) fn set_init(&mut self, id: u64) {
        self.init = id;
    }

    /// Writes the playlist, last changed at the end of its last segment.
    pub(crate) fn write(&self, is_final: bool) {
        let path = self.path.join(PLAYLIST);
        fs::write(&path, self.playlist.render(is_final)).expect("written");
        let end = SystemTime::UNIX_EPOCH + Duration::from_millis(self.wall_ms as u64);
        File::options().append(true).open(path).and_then(|f| f.set_modified(end)).expect("set");
    }

    /// Media sequence number and discontinuity number after the last segment.
    pub(crate) fn end(&self) -> (u64, u64) {
        let Position { msn, discontinuity } = self.playlist.end();
        (msn, discontinuity)
    }

    /// End of the last segment in ms since 1970.
    pub(crate) fn end_ms(&self) -> i64 {
        self.wall_ms
    }
}
