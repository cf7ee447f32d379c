//! Parses playlists of origins.
//!
//! RFC 8216, section 4. Only what a client without rendition groups and trick play needs is looked
//! at. Memory is bounded by the text, and that by [`MAX_PLAYLIST`].

use core::mem::take;
use core::time::Duration;
use std::collections::HashMap;
use std::sync::Arc;

use super::error::Error;

/// Bytes of a playlist: some 10,000 segments.
pub(super) const MAX_PLAYLIST: usize = 1 << 20;
/// Durations above a day are no durations.
const MAX_DURATION: Duration = Duration::from_secs(86_400);

/// A playlist of either kind.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Manifest {
    Master(Vec<Variant>),
    Media(Media),
}

/// EXT-X-STREAM-INF.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Variant {
    pub(super) uri: String,
    pub(super) bandwidth: u64,
    /// CODECS, one by one; none if it does not say.
    pub(super) codecs: Vec<String>,
    /// Its sound is in playlists of its own: EXT-X-MEDIA with a URI (section 4.3.4.2.1).
    pub(super) separate_audio: bool,
}

#[derive(Clone, PartialEq, Default, Debug)]
pub(super) struct Media {
    pub(super) target: Duration,
    /// The number of the first of `entries`.
    pub(super) sequence: u64,
    pub(super) ended: bool,
    pub(super) entries: Vec<Entry>,
}

/// What a request asks for: a resource or a range of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Resource {
    pub(super) uri: String,
    /// First byte, and number of bytes.
    pub(super) range: Option<(u64, u64)>,
}

/// A segment.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Entry {
    pub(super) resource: Resource,
    pub(super) discontinuity: bool,
    /// EXT-X-GAP: nothing is there.
    pub(super) gap: bool,
    /// EXT-X-MAP.
    pub(super) map: Option<Arc<Resource>>,
}

/// Parses a playlist.
pub(super) fn parse(text: &[u8]) -> Result<Manifest, Error> {
    if text.len() > MAX_PLAYLIST {
        return Err(Error::TooLarge);
    }
    let text = core::str::from_utf8(text).map_err(|_| Error::Playlist)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    if lines.next().is_none_or(|line| !line.starts_with("#EXTM3U")) {
        return Err(Error::Playlist);
    }
    let mut parser = Parser::default();
    for line in lines {
        match line.strip_prefix("#EXT") {
            Some(tag) => parser.on_tag(tag)?,
            None if line.starts_with('#') => {}
            None => parser.on_uri(line)?,
        }
    }
    parser.finish()
}

/// The playlist so far, and what its tags say of the URIs that follow.
#[derive(Default)]
struct Parser {
    media: Media,
    variants: Vec<(Variant, Option<String>)>,
    /// The variant whose URI is next, and its group of sound.
    variant: Option<(Variant, Option<String>)>,
    /// Groups of sound: whether all of their renditions have playlists of their own.
    audio: HashMap<String, bool>,
    /// Whether the next URI is a segment's.
    timed: bool,
    discontinuity: bool,
    gap: bool,
    /// Length, and first byte if it is told.
    range: Option<(u64, Option<u64>)>,
    /// Holds for all segments until the next one.
    map: Option<Arc<Resource>>,
    /// Where the last range ended, and the resource that it was in.
    range_end: Option<(String, u64)>,
}

impl Parser {
    /// Takes a line that begins with `#EXT`, without that.
    fn on_tag(&mut self, tag: &str) -> Result<(), Error> {
        let (name, value) = tag.split_once(':').unwrap_or((tag, ""));
        match name {
            "INF" => self.timed = true,
            "-X-TARGETDURATION" => {
                let target = number(value).filter(|target| *target > 0).ok_or(Error::Playlist)?;
                self.media.target = Duration::from_secs(target).min(MAX_DURATION);
            }
            "-X-MEDIA-SEQUENCE" => {
                let sequence = number(value).filter(|sequence| *sequence < 1 << 62);
                self.media.sequence = sequence.ok_or(Error::Playlist)?;
            }
            "-X-DISCONTINUITY" => self.discontinuity = true,
            "-X-GAP" => self.gap = true,
            "-X-BYTERANGE" => self.range = Some(byte_range(value).ok_or(Error::Playlist)?),
            "-X-ENDLIST" => self.media.ended = true,
            "-X-KEY" if attribute(value, "METHOD") != Some("NONE") => return Err(Error::Encrypted),
            "-X-MAP" => self.map = Some(Arc::new(map(value)?)),
            "-X-MEDIA" if attribute(value, "TYPE") == Some("AUDIO") => {
                if let Some(group) = attribute(value, "GROUP-ID") {
                    let has_uri = attribute(value, "URI").is_some();
                    *self.audio.entry(group.to_owned()).or_insert(true) &= has_uri;
                }
            }
            "-X-STREAM-INF" => self.variant = Some(variant(value)),
            _ => {}
        }
        Ok(())
    }

    /// Takes the URI of a variant or a segment; one that no tag announced is left out.
    fn on_uri(&mut self, uri: &str) -> Result<(), Error> {
        if let Some((variant, group)) = self.variant.take() {
            self.variants.push((Variant { uri: uri.to_owned(), ..variant }, group));
        } else if take(&mut self.timed) {
            let range = self.take_range(uri)?;
            self.media.entries.push(Entry {
                resource: Resource { uri: uri.to_owned(), range },
                discontinuity: take(&mut self.discontinuity),
                gap: take(&mut self.gap),
                map: self.map.clone(),
            });
        }
        Ok(())
    }

    /// The range of the segment at `uri`, if it has one.
    fn take_range(&mut self, uri: &str) -> Result<Option<(u64, u64)>, Error> {
        let Some((length, offset)) = self.range.take() else { return Ok(None) };
        // "If o is not present, the sub-range begins at the next byte following the sub-range of
        // the previous Media Segment." (section 4.3.2.2)
        let before = self.range_end.take().filter(|(before, _)| before == uri);
        let offset = offset.or(before.map(|(_, end)| end)).ok_or(Error::Playlist)?;
        let end = length.checked_add(offset).ok_or(Error::Playlist)?;
        self.range_end = Some((uri.to_owned(), end));
        Ok(Some((offset, length)))
    }

    fn finish(self) -> Result<Manifest, Error> {
        if !self.variants.is_empty() {
            let variants = self.variants.into_iter().map(|(variant, group)| {
                let separate = group.and_then(|group| self.audio.get(&group).copied());
                Variant { separate_audio: separate.unwrap_or(false), ..variant }
            });
            return Ok(Manifest::Master(variants.collect()));
        }
        if self.media.target.is_zero() {
            return Err(Error::Playlist);
        }
        Ok(Manifest::Media(self.media))
    }
}

/// What EXT-X-STREAM-INF says, and the group of sound that it names.
fn variant(value: &str) -> (Variant, Option<String>) {
    let codecs = attribute(value, "CODECS").unwrap_or_default().split(',').map(str::trim);
    let variant = Variant {
        uri: String::new(),
        bandwidth: attribute(value, "BANDWIDTH").and_then(number).unwrap_or(0),
        codecs: codecs.filter(|codec| !codec.is_empty()).map(str::to_owned).collect(),
        separate_audio: false,
    };
    (variant, attribute(value, "AUDIO").map(str::to_owned))
}

/// The resource that EXT-X-MAP names.
fn map(value: &str) -> Result<Resource, Error> {
    let uri = attribute(value, "URI").ok_or(Error::Playlist)?.to_owned();
    let range = match attribute(value, "BYTERANGE") {
        None => None,
        Some(range) => {
            let (length, offset) = byte_range(range).ok_or(Error::Playlist)?;
            Some((offset.unwrap_or(0), length))
        }
    };
    Ok(Resource { uri, range })
}

fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// Length, and first byte if it is told.
fn byte_range(text: &str) -> Option<(u64, Option<u64>)> {
    match text.split_once('@') {
        Some((length, offset)) => Some((number(length)?, Some(number(offset)?))),
        None => Some((number(text)?, None)),
    }
}

/// The value of an attribute, without its quotes (section 4.2).
fn attribute<'a>(list: &'a str, wanted: &str) -> Option<&'a str> {
    let mut rest = list;
    loop {
        let (name, behind) = rest.split_once('=')?;
        let (value, behind) = match behind.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => behind.split_at(behind.find(',').unwrap_or(behind.len())),
        };
        if name.trim() == wanted {
            return Some(value);
        }
        rest = behind.strip_prefix(',')?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn media(text: &str) -> Media {
        match parse(text.as_bytes()) {
            Ok(Manifest::Media(media)) => media,
            other => panic!("no media playlist: {other:?}"),
        }
    }

    #[test]
    fn a_media_playlist_gives_its_segments() {
        let media = media(
            "#EXTM3U\r\n#EXT-X-TARGETDURATION:4\r\n#EXT-X-MEDIA-SEQUENCE:7\n# a comment\n\
             #EXT-X-MAP:URI=\"i,=.mp4\",BYTERANGE=\"10@5\"\n#EXTINF:4,\na.m4s\n\n\
             #EXT-X-DISCONTINUITY\n#EXT-X-BYTERANGE:20@100\n#EXTINF:3.9,t\nb.m4s\n\
             #EXT-X-BYTERANGE:30\n#EXTINF:3,\nb.m4s\n#EXT-X-GAP\n#EXTINF:3,\nc\n#EXT-X-ENDLIST\n",
        );
        assert_eq!((media.target, media.sequence, media.ended), (Duration::from_secs(4), 7, true));
        let ranges: Vec<_> = media.entries.iter().map(|entry| entry.resource.range).collect();
        assert_eq!(ranges, [None, Some((100, 20)), Some((120, 30)), None]);
        let breaks: Vec<_> = media.entries.iter().map(|e| (e.discontinuity, e.gap)).collect();
        assert_eq!(breaks, [(false, false), (true, false), (false, false), (false, true)]);
        let map = media.entries[3].map.as_deref().expect("a map");
        assert_eq!((&map.uri[..], map.range), ("i,=.mp4", Some((5, 10))));
    }

    #[test]
    fn a_master_playlist_gives_its_variants() {
        let text = "#EXTM3U\n#EXT-X-STREAM-INF:CODECS=\"a,BANDWIDTH=1\",BANDWIDTH=900\nhi\n\
                    #EXT-X-I-FRAME-STREAM-INF:BANDWIDTH=1,URI=\"x\"\n\
                    #EXT-X-STREAM-INF:BANDWIDTH=100\nlo\n";
        let Ok(Manifest::Master(variants)) = parse(text.as_bytes()) else { panic!("no master") };
        let bandwidths: Vec<_> = variants.iter().map(|v| (&v.uri[..], v.bandwidth)).collect();
        assert_eq!(bandwidths, [("hi", 900), ("lo", 100)]);
        assert_eq!(
            (&variants[0].codecs[..], variants[1].codecs.len()),
            (&["a".into(), "BANDWIDTH=1".into()][..], 0)
        );
    }

    #[test]
    fn sound_with_playlists_of_its_own_is_told_from_sound_in_the_variant() {
        let text = "#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"own\",NAME=\"e\",URI=\"e\"\n\
                    #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"in\",NAME=\"e\",DEFAULT=YES\n\
                    #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"in\",NAME=\"f\",URI=\"f\"\n\
                    #EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID=\"text\",NAME=\"e\",URI=\"t\"\n\
                    #EXT-X-STREAM-INF:BANDWIDTH=1,AUDIO=\"own\"\na\n\
                    #EXT-X-STREAM-INF:BANDWIDTH=1,AUDIO=\"in\"\nb\n\
                    #EXT-X-STREAM-INF:BANDWIDTH=1,SUBTITLES=\"text\"\nc\n";
        let Ok(Manifest::Master(variants)) = parse(text.as_bytes()) else { panic!("no master") };
        let separate: Vec<_> = variants.iter().map(|variant| variant.separate_audio).collect();
        assert_eq!(separate, [true, false, false]);
    }

    #[test]
    fn what_is_no_playlist_or_cannot_be_read_is_refused() {
        let refused = |text: &str| parse(text.as_bytes()).expect_err("refused");
        assert_eq!(refused(""), Error::Playlist);
        assert_eq!(refused("<html>"), Error::Playlist);
        assert_eq!(refused("#EXTM3U\n#EXTINF:1,\na"), Error::Playlist, "no target duration");
        assert_eq!(refused("#EXTM3U\n#EXT-X-TARGETDURATION:-1"), Error::Playlist);
        assert_eq!(refused("#EXTM3U\n#EXT-X-KEY:METHOD=AES-128,URI=\"k\""), Error::Encrypted);
        let first = "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n#EXT-X-BYTERANGE:5\na";
        assert_eq!(refused(first), Error::Playlist, "a range after nothing");
        assert_eq!(refused(&" ".repeat(MAX_PLAYLIST + 1)), Error::TooLarge);
        assert_eq!(parse(&[b'#', 0xff]), Err(Error::Playlist));
    }
}
