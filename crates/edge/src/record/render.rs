//! Lines of media playlists of recordings. Writing to a string cannot fail.

use core::fmt::Write as _;

use units::date_time;

use super::entries::Entry;
use super::playlist::{Position, file_name, init_name};

/// Writes the position of a playlist's first segment.
pub(super) fn write_position(text: &mut String, first: Position) {
    let _ = writeln!(text, "#EXT-X-MEDIA-SEQUENCE:{}", first.msn);
    if first.discontinuity > 0 {
        let _ = writeln!(text, "#EXT-X-DISCONTINUITY-SEQUENCE:{}", first.discontinuity);
    }
}

/// Writes a segment. `prefix` precedes the names of files; `init` is the initialisation segment of
/// the previous segment.
pub(super) fn write_entry(text: &mut String, entry: &Entry, prefix: &str, init: &mut Option<u64>) {
    if entry.discontinuity {
        text.push_str("#EXT-X-DISCONTINUITY\n");
    }
    // A gap may have no initialisation segment.
    if entry.init != 0 && *init != Some(entry.init) {
        *init = Some(entry.init);
        let map = init_name(entry.init);
        let _ = writeln!(text, "#EXT-X-MAP:URI=\"{prefix}{map}\"");
    }
    let _ = writeln!(text, "#EXT-X-PROGRAM-DATE-TIME:{}", date_time(entry.wall_ms));
    if entry.is_gap {
        text.push_str("#EXT-X-GAP\n");
    }
    let (seconds, ms) = (entry.duration_ms / 1_000, entry.duration_ms % 1_000);
    let file = file_name(entry.number.into());
    let _ = writeln!(text, "#EXTINF:{seconds}.{ms:03},\n{prefix}{file}");
}
