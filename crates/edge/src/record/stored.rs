//! A finished or running recording on disk, for its upload.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use super::directory::TakeName;
use super::entries::{Entries, Entry};
use super::playlist::{file_name, init_name};
use super::render::{write_entry, write_position};
pub(crate) use super::take::PLAYLIST;

/// Maximum size of a playlist that is read, in bytes.
const MAX_PLAYLIST: u64 = 16 << 20;

/// A segment that a playlist names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StoredSegment {
    /// Names of the segment and of its initialisation segment.
    pub file: String,
    pub init: String,
    pub is_gap: bool,
    /// Start in ms since 1970.
    pub wall_ms: i64,
}

/// A recording's playlist.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StoredPlaylist {
    pub segments: Vec<StoredSegment>,
    pub is_finished: bool,
    entries: Entries,
}

/// Returns start (in ms since 1970) of the recording in `path`, and time stamp and length of its
/// playlist. `None` if it is no recording.
pub(crate) fn take_of(path: &Path) -> Option<(i64, (SystemTime, u64))> {
    let name = TakeName::parse(path.file_name()?.to_str()?)?;
    let found = fs::symlink_metadata(path.join(PLAYLIST)).ok().filter(|found| found.is_file())?;
    Some((name.start_ms, (found.modified().ok()?, found.len())))
}

/// Reads the playlist of the recording in `path`. Files are not looked up. `None` if there is none.
pub(crate) fn read(path: &Path) -> Option<StoredPlaylist> {
    let file = path.join(PLAYLIST);
    let is_sane = fs::symlink_metadata(&file).is_ok_and(|m| m.is_file() && m.len() <= MAX_PLAYLIST);
    let text = is_sane.then(|| fs::read_to_string(file).ok()).flatten()?;
    let entries = Entries::parse(&text, |_| true)?;
    let segment = |entry: &Entry| StoredSegment {
        file: file_name(entry.number.into()),
        init: init_name(entry.init),
        is_gap: entry.is_gap,
        wall_ms: entry.wall_ms,
    };
    let segments = entries.all.iter().map(segment).collect();
    Some(StoredPlaylist { segments, is_finished: entries.is_finished, entries })
}

impl StoredPlaylist {
    /// Renders a playlist of the first `count` segments. The `lost` ones are gaps.
    pub(crate) fn render(&self, count: usize, lost: &BTreeSet<u64>, is_final: bool) -> String {
        let mut text =
            format!("#EXTM3U\n#EXT-X-VERSION:8\n#EXT-X-TARGETDURATION:{}\n", self.entries.target_s);
        text.push_str("#EXT-X-PLAYLIST-TYPE:EVENT\n");
        write_position(&mut text, self.entries.first);
        let mut init = None;
        for (index, entry) in self.entries.all.iter().take(count).enumerate() {
            let is_gap = entry.is_gap || lost.contains(&(index as u64));
            let entry = Entry { is_gap, ..*entry };
            write_entry(&mut text, &entry, "", &mut init);
        }
        if is_final {
            text.push_str("#EXT-X-ENDLIST\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::StoredTake;
    use super::*;

    #[test]
    fn an_uploaded_playlist_is_that_of_the_disk_with_lost_segments_as_gaps() {
        let scratch = tempfile::tempdir().expect("a directory");
        let mut take = StoredTake::new(scratch.path(), 1_795_856_400_000, (7, 2));
        take.add(3);
        take.add_gap();
        take.add(2);
        take.write(true);
        let playlist = read(&take.path).expect("a playlist");
        let own = fs::read_to_string(take.path.join(PLAYLIST)).expect("read");
        assert_eq!(playlist.render(6, &BTreeSet::new(), true), own);
        let part = playlist.render(2, &BTreeSet::new(), false);
        assert!(own.starts_with(&part) && part.ends_with("00000001.m4s\n"), "{part}");
        let lost = playlist.render(6, &[1].into(), true);
        assert_eq!(lost.matches("#EXT-X-GAP\n").count(), 2, "{lost}");
        assert!(take_of(&take.path).is_some() && take_of(scratch.path()).is_none());
    }
}
