//! The recordings of a stream within its time-shift window, as one media playlist.
//!
//! Only directories and playlists that changed are read again. Segments have the numbers that
//! their recordings state, so that playlists agree over reloads and restarts.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::directory::TakeName;
use super::entries::{Entries, Entry, RecordedFile, RecordedKind};
use super::playlist::{Position, file_name};
use super::render::{write_entry, write_position};
use super::take::PLAYLIST;
use crate::gzip::gzip;

/// Longest recording, the maximum of `rotate`, in ms.
const MAX_TAKE_MS: i64 = 12 * 3_600_000;
/// Maximum size of a playlist that is read, in bytes. Larger ones are ignored.
const MAX_PLAYLIST: u64 = 16 << 20;
/// Playlists start at multiples of this part of the window and at least of this time, so that
/// viewers share them.
const GRID_PARTS: i64 = 60;
const MIN_GRID_MS: i64 = 60_000;
/// Minimum number of segments in a playlist, unless the window has fewer. Players buffer about
/// three.
const MIN_LISTED: usize = 3;
/// Segments stay available so long after they left the window, for players that read slowly.
const GRACE_MS: i64 = 120_000;
/// Age of the newest segment at which a stream that is not recorded is over, although its recording
/// is unfinished: the server was killed, and the publisher did not return.
const ABANDONED_MS: i64 = 60_000;
/// Age of a directory's time stamp below which a change may have left it as it was.
const STAMP_TRUST: Duration = Duration::from_secs(2);
/// Maximum number and total size of rendered playlists.
const MAX_RENDERED: usize = 64;
const MAX_RENDERED_BYTES: usize = 4 << 20;
/// Number of segments whose size is looked up for the bit rate.
const RATE_SAMPLES: usize = 32;

/// A recording in the window.
#[derive(Debug)]
struct WindowTake {
    name: TakeName,
    /// Time stamp and length of its playlist.
    stamp: (SystemTime, u64),
    /// `None` if it is older than the window, or has no segments.
    entries: Option<Entries>,
    /// Position of its first segment in the window's playlists.
    first: Position,
}

/// A media playlist, plain and compressed.
#[derive(Clone, Debug)]
pub(crate) struct RenderedPlaylist {
    pub text: Bytes,
    pub packed: Bytes,
}

/// Start of a viewer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entrance {
    /// Start of the playlist in seconds since 1970.
    pub start_s: u64,
    /// Requested start in the playlist, in ms.
    pub offset_ms: u64,
    /// Highest bit rate of some segments, in bit/s.
    pub bandwidth: u64,
}

/// The recordings of a stream within a window before the present.
#[derive(Debug)]
pub(super) struct Window {
    /// Directory of the stream's recordings.
    folder: PathBuf,
    length_ms: i64,
    /// Names in the directory, with its time stamp.
    listed: Option<(SystemTime, Vec<TakeName>)>,
    /// Recordings with segments in the window or up to [`MAX_TAKE_MS`] before it, in order.
    takes: Vec<WindowTake>,
    /// Target duration, which never falls: players rely on it.
    target_s: u64,
    /// Number of the first segment, whether the URLs are shared and the stream is over; and the
    /// playlist. Valid until a recording changes.
    rendered: Vec<((u64, bool, bool), RenderedPlaylist)>,
}

impl Window {
    pub(super) fn new(folder: PathBuf, length: Duration) -> Self {
        let length_ms = i64::try_from(length.as_millis()).unwrap_or(i64::MAX);
        Self { folder, length_ms, listed: None, takes: vec![], target_s: 1, rendered: vec![] }
    }

    /// Reads changes from the disk. Recordings that disappeared are left out.
    pub(super) fn refresh(&mut self, now_ms: i64) {
        let since_ms = now_ms.saturating_sub(self.length_ms);
        let names = self.names(since_ms.saturating_sub(MAX_TAKE_MS));
        let mut known = std::mem::take(&mut self.takes);
        let mut has_changed = known.len() != names.len();
        for name in names {
            let at = known.iter().position(|take| take.name == name);
            let previous = at.map(|at| known.swap_remove(at));
            let path = self.folder.join(name.to_string());
            let Ok(found) = fs::symlink_metadata(path.join(PLAYLIST)) else {
                has_changed = true;
                continue;
            };
            let stamp = (found.modified().unwrap_or(SystemTime::UNIX_EPOCH), found.len());
            match previous.filter(|take| take.stamp == stamp) {
                Some(same) => self.takes.push(same),
                None => {
                    has_changed = true;
                    let is_readable = found.is_file() && found.len() <= MAX_PLAYLIST;
                    let is_past = ms_of(stamp.0) < since_ms;
                    let entries = (is_readable && !is_past).then(|| read(&path)).flatten();
                    let entries = entries.filter(|entries| !entries.all.is_empty());
                    self.takes.push(WindowTake {
                        name,
                        stamp,
                        entries,
                        first: Position::default(),
                    });
                }
            }
        }
        // By position, because the clock may have been set back between two recordings.
        self.takes.sort_by_key(|take| {
            (take.entries.as_ref().map(|entries| entries.first.msn), take.name)
        });
        if has_changed || !known.is_empty() {
            self.arrange();
        }
    }

    /// Returns the names of recordings that started at `oldest_ms` or later.
    fn names(&mut self, oldest_ms: i64) -> Vec<TakeName> {
        let Ok(changed) = fs::metadata(&self.folder).and_then(|found| found.modified()) else {
            self.listed = None;
            return Vec::new();
        };
        // Recent time stamps are too coarse to show a further change.
        let is_settled = changed.elapsed().is_ok_and(|age| age > STAMP_TRUST);
        if !is_settled || self.listed.as_ref().is_none_or(|(stamp, _)| *stamp != changed) {
            let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
            let names = entries.filter_map(|e| TakeName::parse(e.file_name().to_str()?)).collect();
            self.listed = Some((changed, names));
        }
        let names = self.listed.iter().flat_map(|(_, names)| names);
        names.filter(|name| name.start_ms >= oldest_ms).copied().collect()
    }

    /// Assigns positions and times to the recordings, which are in order.
    fn arrange(&mut self) {
        self.rendered.clear();
        let mut end: Option<Position> = None;
        let mut contiguous_from = 0;
        for index in 0..self.takes.len() {
            let take = &mut self.takes[index];
            let Some(entries) = &take.entries else { continue };
            let own = entries.first;
            take.first = match end {
                // Recordings are missing in between. Numbers must not change, so the older
                // ones are no longer listed.
                Some(end) if own.msn > end.msn => {
                    contiguous_from = index;
                    own
                }
                Some(end) if own.msn == end.msn => {
                    let is_discontinuous = own.discontinuity != end.discontinuity;
                    end.next(is_discontinuous)
                }
                // Recordings without positions, of an earlier version.
                Some(end) => end.next(true),
                None => own,
            };
            let stated = entries.end();
            let discontinuities = stated.discontinuity.saturating_sub(own.discontinuity);
            end = Some(Position {
                msn: take.first.msn.saturating_add(entries.all.len() as u64),
                discontinuity: take.first.discontinuity.saturating_add(discontinuities),
            });
        }
        self.takes[..contiguous_from].iter_mut().for_each(|take| take.entries = None);
        let mut next_ms = i64::MAX;
        for entries in self.takes.iter_mut().rev().filter_map(|take| take.entries.as_mut()) {
            for entry in entries.all.iter_mut().rev() {
                entry.shown_ms =
                    entry.wall_ms.min(next_ms.saturating_sub(entry.duration_ms.into()));
                next_ms = entry.shown_ms;
                let rounded_s = (u64::from(entry.duration_ms) + 500) / 1_000;
                self.target_s = self.target_s.max(entries.target_s).max(rounded_s);
            }
        }
    }

    fn listed(&self) -> impl DoubleEndedIterator<Item = (&WindowTake, &Entries)> {
        self.takes.iter().filter_map(|take| Some((take, take.entries.as_ref()?)))
    }

    /// Whether the window has no segment.
    pub(super) fn is_empty(&self, now_ms: i64) -> bool {
        let last = self.listed().filter_map(|(_, entries)| entries.all.last()).next_back();
        last.is_none_or(|last| last.end_ms() <= now_ms.saturating_sub(self.length_ms))
    }

    /// Returns the recordings from the segment at `start_ms` on, each with the index of its first
    /// entry. Has at least [`MIN_LISTED`] segments, unless there are fewer.
    fn from(&self, start_ms: i64) -> Vec<(&WindowTake, &Entries, usize)> {
        let (mut found, mut count) = (Vec::new(), 0);
        for (take, entries) in self.listed().rev() {
            let length = entries.all.len();
            let by_time = entries.all.partition_point(|entry| entry.end_ms() <= start_ms);
            let by_count = length.saturating_sub(MIN_LISTED - count.min(MIN_LISTED));
            let from = by_time.min(by_count);
            if from < length {
                found.push((take, entries, from));
            }
            count += length - from;
            if from > 0 {
                break;
            }
        }
        found.reverse();
        found
    }

    /// Returns the start of the playlist for a viewer's start: a multiple of the grid, at most one
    /// step before the window.
    fn grid_ms(&self, start_ms: i64, now_ms: i64) -> i64 {
        let oldest_ms = now_ms.saturating_sub(self.length_ms);
        let grid_s = (self.length_ms / GRID_PARTS).max(MIN_GRID_MS) / 1_000;
        start_ms.max(oldest_ms).div_euclid(grid_s * 1_000).saturating_mul(grid_s * 1_000)
    }

    /// Returns the playlist and position for a viewer who starts `ago` before `now_ms`.
    pub(super) fn enter(&self, ago: Duration, now_ms: i64) -> Entrance {
        let ago_ms = i64::try_from(ago.as_millis()).unwrap_or(i64::MAX);
        let start_ms = now_ms.saturating_sub(ago_ms).max(now_ms.saturating_sub(self.length_ms));
        let grid_ms = self.grid_ms(start_ms, now_ms);
        let listed = self.from(grid_ms);
        let entries = || {
            listed.iter().flat_map(|(take, entries, from)| {
                entries.all[*from..].iter().map(move |entry| (*take, entry))
            })
        };
        let mut offset_ms = 0;
        for (_, entry) in entries() {
            if entry.end_ms() > start_ms {
                offset_ms += start_ms.saturating_sub(entry.shown_ms).max(0) as u64;
                break;
            }
            offset_ms += u64::from(entry.duration_ms);
        }
        let step = (entries().count() / RATE_SAMPLES).max(1);
        let rates = entries().step_by(step).filter(|(_, entry)| !entry.is_gap);
        let rates = rates.filter_map(|(take, entry)| {
            let path = self.folder.join(take.name.to_string()).join(file_name(entry.number.into()));
            let bits = fs::symlink_metadata(path).ok()?.len() * 8;
            Some(bits * 1_000 / u64::from(entry.duration_ms.max(100)))
        });
        Entrance {
            start_s: u64::try_from(grid_ms / 1_000).unwrap_or_default(),
            offset_ms,
            bandwidth: rates.max().unwrap_or_default().max(1),
        }
    }

    /// Returns the playlist from `start_s`, clamped to the window. `is_recorded` tells whether the
    /// stream is being recorded; with `is_shared`, URLs are the same for all viewers. `None` if the
    /// window is empty.
    pub(super) fn playlist(
        &mut self,
        start_s: u64,
        now_ms: i64,
        (is_recorded, is_shared): (bool, bool),
    ) -> Option<RenderedPlaylist> {
        let start_ms = i64::try_from(start_s).unwrap_or(i64::MAX).saturating_mul(1_000);
        let listed = self.from(self.grid_ms(start_ms, now_ms));
        let (first, _, from) = listed.first()?;
        let is_over = !is_recorded && self.is_over(now_ms);
        let key = (first.first.msn.saturating_add(*from as u64), is_shared, is_over);
        if let Some((_, known)) = self.rendered.iter().find(|(known, _)| *known == key) {
            return Some(known.clone());
        }
        let text = Bytes::from(render(&listed, self.target_s, is_shared, is_over));
        let rendered = RenderedPlaylist { packed: gzip(&text).into(), text };
        let size = |one: &RenderedPlaylist| one.text.len() + one.packed.len();
        let used: usize = self.rendered.iter().map(|(_, one)| size(one)).sum();
        if self.rendered.len() >= MAX_RENDERED || used + size(&rendered) > MAX_RENDERED_BYTES {
            self.rendered.clear();
        }
        self.rendered.push((key, rendered.clone()));
        Some(rendered)
    }

    /// Whether the last recording is finished or abandoned.
    fn is_over(&self, now_ms: i64) -> bool {
        let Some((_, last)) = self.listed().next_back() else { return true };
        let is_old = |entry: &Entry| now_ms.saturating_sub(entry.end_ms()) > ABANDONED_MS;
        last.is_finished || last.all.last().is_none_or(is_old)
    }

    /// Returns the path of a file that a playlist names now, or named a short time ago.
    pub(super) fn path(&self, file: &RecordedFile, now_ms: i64) -> Option<PathBuf> {
        let oldest_ms = now_ms.saturating_sub(self.length_ms).saturating_sub(GRACE_MS);
        let (_, entries) = self.listed().find(|(take, _)| take.name == file.take)?;
        let is_named = |entry: &Entry| match file.kind {
            RecordedKind::Init(id) => entry.init == id,
            RecordedKind::Segment(number) => entry.number == number,
        };
        let from = entries.all.partition_point(|entry| entry.end_ms() <= oldest_ms);
        let is_listed = entries.all[from..].iter().any(|entry| !entry.is_gap && is_named(entry));
        is_listed.then(|| self.folder.join(file.take.to_string()).join(file.file_name()))
    }
}

/// Reads the playlist of a recording, and finds its files.
fn read(path: &Path) -> Option<Entries> {
    let text = fs::read_to_string(path.join(PLAYLIST)).ok()?;
    let files: HashSet<OsString> =
        fs::read_dir(path).ok()?.flatten().map(|entry| entry.file_name()).collect();
    Entries::parse(&text, |name| files.contains(std::ffi::OsStr::new(name)))
}

fn ms_of(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Renders a media playlist. Writing to a string cannot fail.
fn render(
    listed: &[(&WindowTake, &Entries, usize)],
    target_s: u64,
    is_shared: bool,
    is_over: bool,
) -> String {
    let base = if is_shared { "../" } else { "" };
    let mut text = String::with_capacity(8_192);
    let _ = writeln!(text, "#EXTM3U\n#EXT-X-VERSION:8\n#EXT-X-TARGETDURATION:{target_s}");
    let mut end: Option<Position> = None;
    for (take, entries, from) in listed {
        // The number of a segment counts a discontinuity before it.
        let before = entries.all.iter().take(from + 1).skip(1).filter(|e| e.discontinuity);
        let first = Position {
            msn: take.first.msn.saturating_add(*from as u64),
            discontinuity: take.first.discontinuity.saturating_add(before.count() as u64),
        };
        match end {
            None => {
                write_position(&mut text, first);
                text.push_str("#EXT-X-START:TIME-OFFSET=0\n");
            }
            Some(end) if end.discontinuity != first.discontinuity => {
                text.push_str("#EXT-X-DISCONTINUITY\n");
            }
            Some(_) => {}
        }
        let (prefix, mut init) = (format!("{base}{}.", take.name), None);
        for (index, entry) in entries.all.iter().enumerate().skip(*from) {
            // The position states that of the first segment.
            let discontinuity = entry.discontinuity && index > *from;
            write_entry(&mut text, &Entry { discontinuity, ..*entry }, &prefix, &mut init);
        }
        let discontinuities = entries.all.iter().skip(1).filter(|e| e.discontinuity).count();
        end = Some(Position {
            msn: take.first.msn.saturating_add(entries.all.len() as u64),
            discontinuity: take.first.discontinuity.saturating_add(discontinuities as u64),
        });
    }
    if is_over {
        text.push_str("#EXT-X-ENDLIST\n");
    }
    text
}

#[cfg(test)]
mod tests;
