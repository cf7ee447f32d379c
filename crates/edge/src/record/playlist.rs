//! The playlist of a recording, as text. RFC 8216, section 4.3; EXT-X-GAP:
//! draft-pantos-hls-rfc8216bis, section 4.4.4.7.

use core::fmt::Write as _;
use core::time::Duration;

use units::date_time;

use super::segment::Gap;

const END: &str = "#EXT-X-ENDLIST";
const MAP: &str = "#EXT-X-MAP:URI=\"init-";
const EXTINF: &str = "#EXTINF:";
const TARGET: &str = "#EXT-X-TARGETDURATION:";
const DATE: &str = "#EXT-X-PROGRAM-DATE-TIME:";
const SEQUENCE: &str = "#EXT-X-MEDIA-SEQUENCE:";
const DISCONTINUITY_SEQUENCE: &str = "#EXT-X-DISCONTINUITY-SEQUENCE:";
const DISCONTINUITY: &str = "#EXT-X-DISCONTINUITY";
const GAP: &str = "#EXT-X-GAP";

/// Place in the sequence of all segments of a stream. A recording starts where the previous one
/// ended, so that a playlist of several recordings has the same numbers after a restart.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Position {
    /// Media sequence number (RFC 8216, section 4.3.3.2).
    pub msn: u64,
    /// Discontinuity sequence number (RFC 8216, section 4.3.3.3).
    pub discontinuity: u64,
}

impl Position {
    /// Reads the tag that states a part of the position, if the line is one.
    pub(super) fn read(&mut self, line: &str) {
        let number = |tag| line.strip_prefix(tag).and_then(|number: &str| number.parse().ok());
        self.msn = number(SEQUENCE).unwrap_or(self.msn);
        self.discontinuity = number(DISCONTINUITY_SEQUENCE).unwrap_or(self.discontinuity);
    }

    /// Returns the position of a recording that starts here, after a discontinuity or not.
    pub(super) const fn next(self, is_discontinuous: bool) -> Self {
        let discontinuity = self.discontinuity.saturating_add(is_discontinuous as u64);
        Self { discontinuity, ..self }
    }
}

/// Entries of a recording's playlist.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Playlist {
    /// Position of the first segment.
    first: Position,
    /// Lines of the entries.
    entries: String,
    /// Discontinuities in `entries`.
    discontinuities: u64,
    /// Number of the next segment.
    next: u64,
    target_s: u64,
    /// ID of the initialisation segment of the last entry.
    init: Option<u64>,
    /// Start of the first segment, as text.
    pub started: Option<String>,
    /// Whether a discontinuity precedes the next segment in any case.
    is_interrupted: bool,
}

impl Playlist {
    /// Starts a playlist of segments with this target duration. They end at the next key frame, so
    /// that most are shorter than twice this duration.
    pub(super) fn new(target: Duration, first: Position) -> Self {
        Self { first, target_s: 2 * target.as_secs().max(1), ..Self::default() }
    }

    /// Returns the position after the last segment.
    pub(super) fn end(&self) -> Position {
        Position {
            msn: self.first.msn.saturating_add(self.next),
            discontinuity: self.first.discontinuity.saturating_add(self.discontinuities),
        }
    }

    /// Parses an unfinished playlist of this module, to continue it after a discontinuity. Entries
    /// from the first file on that `exists` rejects are left out. `None` if the playlist is not of
    /// this module. Finished playlists are parsed, too: [`is_finished`].
    pub(super) fn resume(text: &str, exists: impl Fn(&str) -> bool) -> Option<Self> {
        let mut playlist = Self { is_interrupted: true, ..Self::default() };
        let mut entry = String::new();
        let (mut init, mut is_gap) = (None, false);
        if !text.starts_with("#EXTM3U\n") {
            return None;
        }
        for line in text.lines() {
            if let Some(target) = line.strip_prefix(TARGET) {
                playlist.target_s = target.parse().ok()?;
                continue;
            }
            playlist.first.read(line);
            if let Some(date) = line.strip_prefix(DATE)
                && playlist.started.is_none()
            {
                playlist.started = Some(date.to_owned());
            }
            if let Some(id) = line.strip_prefix(MAP) {
                init = u64::from_str_radix(id.split('.').next()?, 16).ok();
            }
            is_gap |= line == GAP;
            let is_of_entry = line.starts_with(EXTINF)
                || line.starts_with(MAP)
                || line.starts_with(DATE)
                || matches!(line, DISCONTINUITY | GAP);
            if is_of_entry {
                let _ = writeln!(entry, "{line}");
            } else if !line.starts_with('#') && !line.is_empty() {
                if line != file_name(playlist.next) || !is_gap && !exists(line) {
                    break;
                }
                let _ = writeln!(entry, "{line}");
                let is_discontinuous = entry.lines().any(|line| line == DISCONTINUITY);
                playlist.discontinuities += u64::from(is_discontinuous);
                playlist.entries.push_str(&core::mem::take(&mut entry));
                (playlist.next, playlist.init, is_gap) = (playlist.next + 1, init, false);
            }
        }
        (playlist.target_s > 0).then_some(playlist)
    }

    /// Returns the file name of the next segment.
    pub(super) fn next_file(&self) -> String {
        file_name(self.next)
    }

    /// Adds a segment that does not exist.
    pub(super) fn push_gap(&mut self, gap: Gap, init: u64) {
        self.push_entry(true, true, (gap.wall_ms, gap.duration_ms), init);
    }

    /// Adds a segment with this start (in ms since 1970) and duration (in ms).
    pub(super) fn push(&mut self, discontinuity: bool, time_ms: (i64, i64), init: u64) {
        self.push_entry(false, discontinuity, time_ms, init);
    }

    fn push_entry(&mut self, gap: bool, discontinuity: bool, time_ms: (i64, i64), init: u64) {
        let (wall_ms, duration_ms) = (time_ms.0, time_ms.1.max(0) as u64);
        let is_first = self.next == 0;
        // Writing to a string does not fail.
        let text = &mut self.entries;
        if (discontinuity || self.is_interrupted) && !is_first {
            text.push_str("#EXT-X-DISCONTINUITY\n");
            self.discontinuities += 1;
        }
        if self.init != Some(init) {
            let _ = writeln!(text, "{MAP}{init:016x}.mp4\"");
        }
        let date = date_time(wall_ms);
        let _ = writeln!(text, "{DATE}{date}");
        if gap {
            text.push_str("#EXT-X-GAP\n");
        }
        let (seconds, ms) = (duration_ms / 1_000, duration_ms % 1_000);
        let _ = writeln!(text, "{EXTINF}{seconds}.{ms:03},\n{}", file_name(self.next));
        self.started.get_or_insert(date);
        // After a gap the decoder restarts.
        (self.init, self.is_interrupted) = (Some(init), gap);
        self.next += 1;
        // RFC 8216, section 4.3.3.1: durations rounded to the nearest integer are at most this.
        self.target_s = self.target_s.max((duration_ms + 500) / 1_000);
    }

    /// Renders the playlist. With `is_final`, the recording is finished.
    pub(super) fn render(&self, is_final: bool) -> String {
        // EXT-X-GAP needs version 8.
        let mut text = format!(
            "#EXTM3U\n#EXT-X-VERSION:8\n{TARGET}{}\n#EXT-X-PLAYLIST-TYPE:EVENT\n\
             {SEQUENCE}{}\n",
            self.target_s, self.first.msn
        );
        if self.first.discontinuity > 0 {
            let _ = writeln!(text, "{DISCONTINUITY_SEQUENCE}{}", self.first.discontinuity);
        }
        text.push_str(&self.entries);
        if is_final {
            let _ = writeln!(text, "{END}");
        }
        text
    }
}

/// Returns whether a playlist is finished.
pub(super) fn is_finished(text: &str) -> bool {
    text.lines().any(|line| line == END)
}

/// Returns the name of a segment.
pub(super) fn file_name(number: u64) -> String {
    format!("{number:08}.m4s")
}

/// Returns the name of an initialisation segment.
pub(super) fn init_name(id: u64) -> String {
    format!("init-{id:016x}.mp4")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn playlist() -> Playlist {
        let mut playlist = Playlist::new(Duration::from_secs(6), Position::default());
        playlist.push(false, (0, 6_000), 1);
        playlist.push(false, (6_000, 6_640), 1);
        playlist.push_gap(Gap { wall_ms: 12_640, duration_ms: 6_000 }, 1);
        playlist.push(true, (18_640, 2_000), 2);
        playlist
    }

    #[test]
    fn a_playlist_names_gaps_discontinuities_and_initialisation_segments() {
        let expected = "\
#EXTM3U
#EXT-X-VERSION:8
#EXT-X-TARGETDURATION:12
#EXT-X-PLAYLIST-TYPE:EVENT
#EXT-X-MEDIA-SEQUENCE:0
#EXT-X-MAP:URI=\"init-0000000000000001.mp4\"
#EXT-X-PROGRAM-DATE-TIME:1970-01-01T00:00:00.000Z
#EXTINF:6.000,
00000000.m4s
#EXT-X-PROGRAM-DATE-TIME:1970-01-01T00:00:06.000Z
#EXTINF:6.640,
00000001.m4s
#EXT-X-DISCONTINUITY
#EXT-X-PROGRAM-DATE-TIME:1970-01-01T00:00:12.640Z
#EXT-X-GAP
#EXTINF:6.000,
00000002.m4s
#EXT-X-DISCONTINUITY
#EXT-X-MAP:URI=\"init-0000000000000002.mp4\"
#EXT-X-PROGRAM-DATE-TIME:1970-01-01T00:00:18.640Z
#EXTINF:2.000,
00000003.m4s
#EXT-X-ENDLIST
";
        assert_eq!(playlist().render(true), expected);
    }

    #[test]
    fn an_unfinished_playlist_continues_after_a_discontinuity() {
        let text = playlist().render(false);
        let mut resumed = Playlist::resume(&text, |_| true).expect("unfinished");
        assert_eq!(resumed.render(false), text);
        assert_eq!(resumed.started.as_deref(), Some("1970-01-01T00:00:00.000Z"));
        resumed.push(false, (30_000, 6_000), 2);
        let end = "#EXT-X-DISCONTINUITY\n#EXT-X-PROGRAM-DATE-TIME:1970-01-01T00:00:30.000Z\n\
                   #EXTINF:6.000,\n00000004.m4s\n";
        assert!(resumed.render(false).ends_with(end), "{}", resumed.render(false));
        // Without the file of an entry, the entry and later ones are left out; gaps have no file.
        let resumed = Playlist::resume(&text, |file| file != "00000003.m4s").expect("unfinished");
        assert_eq!(resumed.next_file(), "00000003.m4s");
        let resumed = Playlist::resume(&text, |file| file != "00000002.m4s").expect("unfinished");
        assert_eq!(resumed.next_file(), "00000004.m4s");
        let finished = playlist().render(true);
        assert!(is_finished(&finished) && !is_finished(&text));
        let end = Position { msn: 4, discontinuity: 2 };
        assert_eq!(Playlist::resume(&finished, |_| true).expect("parsed").end(), end);
        // The next recording continues the numbers.
        let mut next = Playlist::new(Duration::from_secs(6), end.next(true));
        next.push(false, (60_000, 6_000), 2);
        let text = next.render(false);
        let head = "#EXT-X-MEDIA-SEQUENCE:4\n#EXT-X-DISCONTINUITY-SEQUENCE:3\n#EXT-X-MAP";
        assert!(text.contains(head), "{text}");
        let resumed = Playlist::resume(&text, |_| true).expect("parsed");
        assert_eq!(
            (resumed.render(false), resumed.end()),
            (text, Position { msn: 5, ..next.end() })
        );
        for text in ["", "#EXTM3U\n", "nonsense", "#EXTM3U\n#EXT-X-TARGETDURATION:x\n"] {
            assert_eq!(Playlist::resume(text, |_| true), None, "{text}");
        }
        let text = playlist().render(false);
        // Damage at any place is no panic.
        for cut in 0..text.len() {
            let _ = Playlist::resume(&text[..cut], |_| true);
        }
    }
}
