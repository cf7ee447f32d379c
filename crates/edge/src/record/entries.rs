//! Entries of a recording's playlist on disk, for time shift. The disk is not trusted: an entry
//! that this server did not write becomes a gap, and names are kept as numbers, so that no path of
//! a file leaves the directory of its recording.

use units::parse_compact_date;

use super::directory::TakeName;
use super::playlist::{Position, file_name, init_name, is_finished};

/// Maximum number of entries: 12 h of segments of 1 s have 43,200.
const MAX_ENTRIES: usize = 100_000;
/// Maximum duration of a segment in ms. Longer ones are cut to it.
const MAX_DURATION_MS: u32 = 86_400_000;

/// A segment of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    /// Start in ms since 1970, by the clock at its time.
    pub wall_ms: i64,
    /// Start on a time line without steps back: at most `wall_ms`, and before the next segment.
    pub shown_ms: i64,
    pub duration_ms: u32,
    /// Number in its file name.
    pub number: u32,
    /// ID of its initialisation segment.
    pub init: u64,
    pub is_gap: bool,
    pub discontinuity: bool,
}

impl Entry {
    /// End on the time line without steps back, in ms since 1970.
    pub(super) fn end_ms(&self) -> i64 {
        self.shown_ms.saturating_add(self.duration_ms.into())
    }
}

/// A recording's playlist.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entries {
    pub first: Position,
    /// Target duration in seconds.
    pub target_s: u64,
    pub is_finished: bool,
    pub all: Vec<Entry>,
}

impl Entries {
    /// Parses a playlist. An incomplete last line is ignored. Files that `exists` rejects become
    /// gaps. `None` if the text is no playlist.
    pub(super) fn parse(text: &str, exists: impl Fn(&str) -> bool) -> Option<Self> {
        let text = &text[..text.rfind('\n').map_or(0, |at| at + 1)];
        let lines = text.strip_prefix("#EXTM3U\n")?.lines();
        let mut entries = Self {
            first: Position::default(),
            target_s: 1,
            is_finished: is_finished(text),
            all: Vec::new(),
        };
        let mut next = NextEntry::default();
        for line in lines {
            if let Some(target) = line.strip_prefix("#EXT-X-TARGETDURATION:") {
                entries.target_s = target.parse().ok().filter(|target| *target > 0)?;
            } else if line.starts_with('#') {
                entries.first.read(line);
                next.read(line, &exists);
            } else if !line.is_empty() && entries.all.len() < MAX_ENTRIES {
                entries.all.push(next.take(line, &exists));
            }
        }
        Some(entries)
    }

    /// Returns the position after the last entry.
    pub(super) fn end(&self) -> Position {
        let count = self.all.iter().skip(1).filter(|entry| entry.discontinuity).count();
        Position {
            msn: self.first.msn.saturating_add(self.all.len() as u64),
            discontinuity: self.first.discontinuity.saturating_add(count as u64),
        }
    }
}

/// Tags before the URI of an entry.
#[derive(Default)]
struct NextEntry {
    init: Option<u64>,
    /// End of the previous entry, or the stated start of this one.
    wall_ms: i64,
    duration_ms: u32,
    is_gap: bool,
    discontinuity: bool,
}

impl NextEntry {
    fn read(&mut self, line: &str, exists: impl Fn(&str) -> bool) {
        if let Some(map) = line.strip_prefix("#EXT-X-MAP:URI=\"init-") {
            let id = map.strip_suffix(".mp4\"").and_then(|id| u64::from_str_radix(id, 16).ok());
            self.init = id.filter(|id| exists(&init_name(*id)));
        } else if let Some(date) = line.strip_prefix("#EXT-X-PROGRAM-DATE-TIME:") {
            self.wall_ms = parse_date(date).unwrap_or(self.wall_ms);
        } else if let Some(duration) = line.strip_prefix("#EXTINF:") {
            let seconds = duration.split(',').next().and_then(|text| text.parse::<f64>().ok());
            let ms = seconds.filter(|seconds| seconds.is_finite()).unwrap_or_default() * 1e3;
            self.duration_ms = (ms.round().max(0.0) as u32).min(MAX_DURATION_MS);
        } else if line == "#EXT-X-GAP" {
            self.is_gap = true;
        } else if line == "#EXT-X-DISCONTINUITY" {
            self.discontinuity = true;
        }
    }

    fn take(&mut self, uri: &str, exists: impl Fn(&str) -> bool) -> Entry {
        let number = uri.strip_suffix(".m4s").and_then(|number| number.parse::<u32>().ok());
        let own = number.filter(|number| file_name((*number).into()) == uri);
        let is_there = own.is_some() && self.init.is_some() && exists(uri);
        let entry = Entry {
            wall_ms: self.wall_ms,
            shown_ms: self.wall_ms,
            duration_ms: self.duration_ms,
            number: own.unwrap_or_default(),
            init: self.init.unwrap_or_default(),
            is_gap: self.is_gap || !is_there,
            discontinuity: self.discontinuity,
        };
        let end_ms = self.wall_ms.saturating_add(self.duration_ms.into());
        *self = Self { init: self.init, wall_ms: end_ms, ..Self::default() };
        entry
    }
}

/// Parses `2026-11-28T09:48:47.123Z` into ms since 1970.
fn parse_date(text: &str) -> Option<i64> {
    let (seconds, ms) = text.strip_suffix('Z')?.split_once('.')?;
    let digits: String = seconds.chars().filter(|c| *c != '-' && *c != ':').collect();
    let is_number = ms.len() == 3 && ms.bytes().all(|byte| byte.is_ascii_digit());
    let ms: i64 = ms.parse().ok().filter(|_| is_number)?;
    Some(parse_compact_date(&digits)? + ms)
}

/// A file of a recording, as its URL below the stream names it: `TIME.NUMBER.m4s` or
/// `TIME.init-ID.mp4`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecordedFile {
    pub(super) take: TakeName,
    pub(super) kind: RecordedKind,
}

/// Kind of a [`RecordedFile`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RecordedKind {
    /// An initialisation segment, by its ID.
    Init(u64),
    /// A segment, by its number.
    Segment(u32),
}

impl RecordedFile {
    /// Parses the last part of a URL's path.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (take, file) = text.split_once('.')?;
        let take = TakeName::parse(take)?;
        let kind = match file.strip_prefix("init-") {
            Some(id) => RecordedKind::Init(u64::from_str_radix(id.strip_suffix(".mp4")?, 16).ok()?),
            None => RecordedKind::Segment(file.strip_suffix(".m4s")?.parse().ok()?),
        };
        let parsed = Self { take, kind };
        // Rejects signs, missing zeros and the like.
        (parsed.file_name() == file).then_some(parsed)
    }

    /// Returns the name of the file in the directory of its recording.
    pub(super) fn file_name(&self) -> String {
        match self.kind {
            RecordedKind::Init(id) => init_name(id),
            RecordedKind::Segment(number) => file_name(number.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
#EXTM3U
#EXT-X-VERSION:8
#EXT-X-TARGETDURATION:12
#EXT-X-PLAYLIST-TYPE:EVENT
#EXT-X-MEDIA-SEQUENCE:40
#EXT-X-DISCONTINUITY-SEQUENCE:3
#EXT-X-MAP:URI=\"init-0000000000000001.mp4\"
#EXT-X-PROGRAM-DATE-TIME:1970-01-01T00:00:01.500Z
#EXTINF:6.000,
00000000.m4s
#EXT-X-DISCONTINUITY
#EXT-X-PROGRAM-DATE-TIME:1970-01-01T00:00:07.500Z
#EXT-X-GAP
#EXTINF:6.640,
00000001.m4s
#EXT-X-MAP:URI=\"init-0000000000000002.mp4\"
#EXTINF:2.000,
00000002.m4s
#EXT-X-ENDLIST
";

    #[test]
    fn playlists_are_parsed_and_missing_files_become_gaps() {
        let parsed = Entries::parse(TEXT, |_| true).expect("a playlist");
        assert_eq!((parsed.target_s, parsed.is_finished, parsed.all.len()), (12, true, 3));
        assert_eq!(parsed.end(), Position { msn: 43, discontinuity: 4 });
        let gaps = |parsed: &Entries| parsed.all.iter().map(|e| e.is_gap).collect::<Vec<_>>();
        assert_eq!(gaps(&parsed), [false, true, false]);
        let third = parsed.all[2];
        assert_eq!((third.wall_ms, third.duration_ms, third.init), (14_140, 2_000, 2));
        let no_init = Entries::parse(TEXT, |name| name != init_name(2)).expect("a playlist");
        assert_eq!(gaps(&no_init), [false, true, true]);
        let no_file = Entries::parse(TEXT, |name| name != "00000000.m4s").expect("a playlist");
        assert_eq!(gaps(&no_file), [true, true, false]);
    }

    #[test]
    fn damaged_and_foreign_playlists_name_no_other_file() {
        for cut in 0..TEXT.len() {
            if let Some(parsed) = Entries::parse(&TEXT[..cut], |_| true) {
                assert!(parsed.all.len() <= 3);
            }
        }
        for uri in [
            "../../secret.m4s",
            "/etc/passwd",
            "http://192.0.2.1/00000002.m4s",
            "%2e%2e/00000002.m4s",
            "00000002.m4s?x",
            "+0000002.m4s",
            "2.m4s",
            "99999999999.m4s",
        ] {
            let text = TEXT.replace("00000002.m4s", uri);
            let parsed = Entries::parse(&text, |_| true).expect("a playlist");
            assert!(parsed.all[2].is_gap, "{uri}");
            assert_eq!(parsed.end().msn, 43, "{uri}: the number is kept");
        }
        let text = TEXT.replace("init-0000000000000002.mp4", "../init-2.mp4");
        assert!(!Entries::parse(&text, |_| true).expect("a playlist").all[2].is_gap);
        let odd =
            "#EXTINF:NaN,\n#EXTINF:inf,\n#EXTINF:-5,\n#EXT-X-PROGRAM-DATE-TIME:x\n#EXTINF:1e99,\n";
        let text = TEXT.replace("#EXTINF:2.000,\n", odd);
        assert_eq!(Entries::parse(&text, |_| true).expect("one").all[2].duration_ms, 86_400_000);
        for text in ["", "#EXTM3U", "x", "#EXTM3U\n#EXT-X-TARGETDURATION:0\n", "\u{feff}#EXTM3U\n"]
        {
            assert_eq!(Entries::parse(text, |_| true).map(|p| p.all.len()).unwrap_or(0), 0);
        }
    }

    #[test]
    fn files_in_urls_are_parsed_strictly() {
        for text in [
            "20261128T094847Z.00000012.m4s",
            "20261128T094847Z-2.00000000.m4s",
            "20261128T094847Z.init-00000000000000ab.mp4",
        ] {
            let file = RecordedFile::parse(text).expect(text);
            assert_eq!(format!("{}.{}", file.take, file.file_name()), text);
        }
        for text in [
            "20261128T094847Z.12.m4s",
            "20261128T094847Z.+0000012.m4s",
            "20261128T094847Z.init-ab.mp4",
            "20261128T094847Z.init-00000000000000AB.mp4",
            "20261128T094847Z.index.m3u8",
            "20261128T094847Z...m4s",
            "20261128T094847Z.%2e%2e.m4s",
            "20261128T094847Z-1.00000012.m4s",
            "...00000012.m4s",
            "",
        ] {
            assert_eq!(RecordedFile::parse(text), None, "{text}");
        }
    }
}
