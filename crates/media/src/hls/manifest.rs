//! Parser of an origin's playlists.
//!
//! Implements RFC 8216, section 4, without rendition groups and trick play. Memory is bounded by
//! the size of the text, at most [`MAX_PLAYLIST`]. The parser is as tolerant as players: it accepts
//! decimal numbers, lower-case tags and attributes, spaces, other line endings, and missing
//! durations.

use core::mem::take;
use core::time::Duration;
use std::collections::HashMap;
use std::sync::Arc;

use super::error::Error;
use crate::deviation::{Deviation, Deviations};

/// Maximum size of a playlist, in bytes: some 10,000 segments.
pub(super) const MAX_PLAYLIST: usize = 1 << 20;
/// Longer durations are clamped.
const MAX_DURATION: Duration = Duration::from_secs(86_400);
/// Target duration of a playlist without durations.
const DEFAULT_TARGET: Duration = Duration::from_secs(2);
/// Upper bound of media sequence numbers.
const MAX_SEQUENCE: f64 = (1_u64 << 62) as f64;

/// A master or media playlist.
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
    /// The entries of CODECS; empty without the attribute.
    pub(super) codecs: Vec<String>,
    /// Whether audio is in separate playlists: EXT-X-MEDIA with a URI (section 4.3.4.2.1).
    pub(super) separate_audio: bool,
}

#[derive(Clone, PartialEq, Default, Debug)]
pub(super) struct Media {
    pub(super) target: Duration,
    /// Sequence number of the first entry; `None` without EXT-X-MEDIA-SEQUENCE.
    pub(super) sequence: Option<u64>,
    pub(super) ended: bool,
    pub(super) entries: Vec<SegmentEntry>,
}

/// A resource, or a byte range of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SegmentLocation {
    pub(super) uri: String,
    /// First byte and number of bytes.
    pub(super) range: Option<(u64, u64)>,
}

/// A segment.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct SegmentEntry {
    pub(super) resource: SegmentLocation,
    pub(super) discontinuity: bool,
    /// EXT-X-GAP: the segment is missing.
    pub(super) gap: bool,
    /// EXT-X-MAP.
    pub(super) map: Option<Arc<SegmentLocation>>,
}

/// Parses a playlist.
pub(super) fn parse(text: &[u8], deviations: &mut Deviations) -> Result<Manifest, Error> {
    if text.len() > MAX_PLAYLIST {
        return Err(Error::TooLarge);
    }
    let text = String::from_utf8_lossy(text);
    if text.contains('\u{fffd}') {
        deviations.note(Deviation::PlaylistText);
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let mut lines = text.split(['\n', '\r']).map(str::trim).filter(|line| !line.is_empty());
    if lines.next().is_none_or(|line| !line.starts_with("#EXTM3U")) {
        return Err(Error::Playlist);
    }
    let mut parser = Parser::default();
    for line in lines {
        match line.split_at_checked(4).filter(|(start, _)| start.eq_ignore_ascii_case("#EXT")) {
            Some((_, tag)) => parser.on_tag(tag, deviations)?,
            None if line.starts_with('#') => {}
            None => parser.on_uri(line)?,
        }
    }
    parser.finish(deviations)
}

/// Partially parsed playlist, and tags that apply to the next URI.
#[derive(Default)]
struct Parser {
    media: Media,
    variants: Vec<(Variant, Option<String>)>,
    /// The variant of the next URI, and its audio group.
    variant: Option<(Variant, Option<String>)>,
    /// For each audio group, whether all its renditions have separate playlists.
    audio: HashMap<String, bool>,
    /// Whether the next URI is a segment's.
    timed: bool,
    /// Duration of the longest segment.
    longest: Duration,
    /// Value of EXT-X-TARGETDURATION.
    target: Option<f64>,
    discontinuity: bool,
    gap: bool,
    /// Number of bytes, and the first byte if given.
    range: Option<(u64, Option<u64>)>,
    /// Applies to all segments up to the next EXT-X-MAP.
    map: Option<Arc<SegmentLocation>>,
    /// Resource and end of the last range.
    range_end: Option<(String, u64)>,
}

impl Parser {
    /// Parses a line after its prefix `#EXT`.
    fn on_tag(&mut self, tag: &str, deviations: &mut Deviations) -> Result<(), Error> {
        let (name, value) = tag.split_once(':').unwrap_or((tag, ""));
        match name.trim_end().to_ascii_uppercase().as_str() {
            "INF" => {
                self.timed = true;
                self.longest = self.longest.max(duration(decimal(value)));
            }
            "-X-TARGETDURATION" => self.target = decimal(value),
            "-X-MEDIA-SEQUENCE" => match decimal(value) {
                Some(number) if (0.0..MAX_SEQUENCE).contains(&number) => {
                    // A double is not exact for large integers.
                    self.media.sequence = Some(number_of(value).unwrap_or(number as u64));
                }
                Some(_) => return Err(Error::Playlist),
                None => deviations.note(Deviation::PlaylistTag),
            },
            "-X-DISCONTINUITY" => self.discontinuity = true,
            "-X-GAP" => self.gap = true,
            "-X-BYTERANGE" => self.range = Some(byte_range(value).ok_or(Error::Playlist)?),
            "-X-ENDLIST" => self.media.ended = true,
            "-X-KEY" if !is(attribute(value, "METHOD"), "NONE") => return Err(Error::Encrypted),
            "-X-MAP" => self.map = Some(Arc::new(map(value)?)),
            "-X-MEDIA" if is(attribute(value, "TYPE"), "AUDIO") => {
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

    /// Handles the URI of a variant or segment. A URI without a preceding tag is ignored.
    fn on_uri(&mut self, uri: &str) -> Result<(), Error> {
        if let Some((variant, group)) = self.variant.take() {
            self.variants.push((Variant { uri: uri.to_owned(), ..variant }, group));
        } else if take(&mut self.timed) {
            let range = self.take_range(uri)?;
            self.media.entries.push(SegmentEntry {
                resource: SegmentLocation { uri: uri.to_owned(), range },
                discontinuity: take(&mut self.discontinuity),
                gap: take(&mut self.gap),
                map: self.map.clone(),
            });
        }
        Ok(())
    }

    /// Returns the byte range of the segment at `uri`, if it has one.
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

    fn finish(mut self, deviations: &mut Deviations) -> Result<Manifest, Error> {
        if !self.variants.is_empty() {
            let variants = self.variants.into_iter().map(|(variant, group)| {
                let separate = group.and_then(|group| self.audio.get(&group).copied());
                Variant { separate_audio: separate.unwrap_or(false), ..variant }
            });
            return Ok(Manifest::Master(variants.collect()));
        }
        if self.target.is_none() && self.media.entries.is_empty() {
            return Err(Error::Playlist);
        }
        if self.target.is_none_or(|target| target <= 0.0 || target.fract() != 0.0) {
            deviations.note(Deviation::PlaylistTarget);
        }
        self.media.target = match duration(self.target) {
            Duration::ZERO if self.longest.is_zero() => DEFAULT_TARGET,
            Duration::ZERO => self.longest,
            target => target,
        };
        Ok(Manifest::Media(self.media))
    }
}

/// Parses EXT-X-STREAM-INF into the variant and its audio group.
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

/// Parses EXT-X-MAP.
fn map(value: &str) -> Result<SegmentLocation, Error> {
    let uri = attribute(value, "URI").ok_or(Error::Playlist)?.to_owned();
    let range = match attribute(value, "BYTERANGE") {
        None => None,
        Some(range) => {
            let (length, offset) = byte_range(range).ok_or(Error::Playlist)?;
            Some((offset.unwrap_or(0), length))
        }
    };
    Ok(SegmentLocation { uri, range })
}

fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// Parses the leading integer.
fn number_of(text: &str) -> Option<u64> {
    let text = text.trim();
    number(&text[..text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len())])
}

/// Parses the number at the start of a value: `4`, `4.0`, `4,0` and `4.004,title`.
fn decimal(text: &str) -> Option<f64> {
    let text = text.trim();
    let (whole, rest) = text.split_at(text.find(['.', ',']).unwrap_or(text.len()));
    let digits = rest.get(1..).unwrap_or_default();
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    // A title may start with digits, but then no other comma follows them.
    let is_fraction =
        rest.starts_with('.') || digits[end..].is_empty() || digits[end..].starts_with(',');
    let fraction = if is_fraction { &digits[..end] } else { "" };
    format!("{}.{fraction}0", whole.trim()).parse().ok()
}

fn duration(seconds: Option<f64>) -> Duration {
    let seconds = seconds.unwrap_or(0.0).clamp(0.0, MAX_DURATION.as_secs_f64());
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

/// Whether an enumerated value equals `wanted`.
fn is(value: Option<&str>, wanted: &str) -> bool {
    value.is_some_and(|value| value.eq_ignore_ascii_case(wanted))
}

/// Parses a byte range: number of bytes, and the first byte if given.
fn byte_range(text: &str) -> Option<(u64, Option<u64>)> {
    match text.split_once('@') {
        Some((length, offset)) => Some((number(length)?, Some(number(offset)?))),
        None => Some((number(text)?, None)),
    }
}

/// Returns the value of an attribute, without its quotes (section 4.2).
fn attribute<'a>(list: &'a str, wanted: &str) -> Option<&'a str> {
    let mut rest = list;
    loop {
        let (name, behind) = rest.split_once('=')?;
        // Skip attributes without a value.
        let name = name.rsplit(',').next().unwrap_or(name);
        let behind = behind.trim_start();
        let (value, behind) = match behind.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => behind.split_at(behind.find(',').unwrap_or(behind.len())),
        };
        if name.trim().eq_ignore_ascii_case(wanted) {
            return Some(value.trim());
        }
        rest = behind.trim_start().strip_prefix(',')?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn media(text: &str) -> Media {
        match parse(text.as_bytes(), &mut Deviations::default()) {
            Ok(Manifest::Media(media)) => media,
            other => panic!("no media playlist: {other:?}"),
        }
    }

    #[test]
    fn media_playlists_are_parsed() {
        let media = media(
            "#EXTM3U\r\n#EXT-X-TARGETDURATION:4\r\n#EXT-X-MEDIA-SEQUENCE:7\n# a comment\n\
             #EXT-X-MAP:URI=\"i,=.mp4\",BYTERANGE=\"10@5\"\n#EXTINF:4,\na.m4s\n\n\
             #EXT-X-DISCONTINUITY\n#EXT-X-BYTERANGE:20@100\n#EXTINF:3.9,t\nb.m4s\n\
             #EXT-X-BYTERANGE:30\n#EXTINF:3,\nb.m4s\n#EXT-X-GAP\n#EXTINF:3,\nc\n#EXT-X-ENDLIST\n",
        );
        assert_eq!(
            (media.target, media.sequence, media.ended),
            (Duration::from_secs(4), Some(7), true)
        );
        let ranges: Vec<_> = media.entries.iter().map(|entry| entry.resource.range).collect();
        assert_eq!(ranges, [None, Some((100, 20)), Some((120, 30)), None]);
        let breaks: Vec<_> = media.entries.iter().map(|e| (e.discontinuity, e.gap)).collect();
        assert_eq!(breaks, [(false, false), (true, false), (false, false), (false, true)]);
        let map = media.entries[3].map.as_deref().expect("a map");
        assert_eq!((&map.uri[..], map.range), ("i,=.mp4", Some((5, 10))));
    }

    #[test]
    fn master_playlists_are_parsed() {
        let text = "#EXTM3U\n#EXT-X-STREAM-INF:CODECS=\"a,BANDWIDTH=1\",BANDWIDTH=900\nhi\n\
                    #EXT-X-I-FRAME-STREAM-INF:BANDWIDTH=1,URI=\"x\"\n\
                    #EXT-X-STREAM-INF:BANDWIDTH=100\nlo\n";
        let Ok(Manifest::Master(variants)) = parse(text.as_bytes(), &mut Deviations::default())
        else {
            panic!("no master")
        };
        let bandwidths: Vec<_> = variants.iter().map(|v| (&v.uri[..], v.bandwidth)).collect();
        assert_eq!(bandwidths, [("hi", 900), ("lo", 100)]);
        assert_eq!(
            (&variants[0].codecs[..], variants[1].codecs.len()),
            (&["a".into(), "BANDWIDTH=1".into()][..], 0)
        );
    }

    #[test]
    fn separate_audio_playlists_are_detected() {
        let text = "#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"own\",NAME=\"e\",URI=\"e\"\n\
                    #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"in\",NAME=\"e\",DEFAULT=YES\n\
                    #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"in\",NAME=\"f\",URI=\"f\"\n\
                    #EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID=\"text\",NAME=\"e\",URI=\"t\"\n\
                    #EXT-X-STREAM-INF:BANDWIDTH=1,AUDIO=\"own\"\na\n\
                    #EXT-X-STREAM-INF:BANDWIDTH=1,AUDIO=\"in\"\nb\n\
                    #EXT-X-STREAM-INF:BANDWIDTH=1,SUBTITLES=\"text\"\nc\n";
        let Ok(Manifest::Master(variants)) = parse(text.as_bytes(), &mut Deviations::default())
        else {
            panic!("no master")
        };
        let separate: Vec<_> = variants.iter().map(|variant| variant.separate_audio).collect();
        assert_eq!(separate, [true, false, false]);
    }

    #[test]
    fn malformed_playlists_are_rejected() {
        let refused =
            |text: &str| parse(text.as_bytes(), &mut Deviations::default()).expect_err("rejected");
        assert_eq!(refused(""), Error::Playlist);
        assert_eq!(refused("<html>"), Error::Playlist);
        assert_eq!(refused("#EXTM3U\n"), Error::Playlist, "neither segments nor variants");
        let sequence = "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXT-X-MEDIA-SEQUENCE:";
        assert_eq!(refused(&format!("{sequence}{}", 1_u64 << 62)), Error::Playlist);
        assert_eq!(refused(&format!("{sequence}-1")), Error::Playlist);
        assert_eq!(refused("#EXTM3U\n#EXT-X-KEY:METHOD=AES-128,URI=\"k\""), Error::Encrypted);
        let first = "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n#EXT-X-BYTERANGE:5\na";
        assert_eq!(refused(first), Error::Playlist, "a range after nothing");
        assert_eq!(refused(&" ".repeat(MAX_PLAYLIST + 1)), Error::TooLarge);
        assert_eq!(parse(&[b'#', 0xff], &mut Deviations::default()), Err(Error::Playlist));
    }

    #[test]
    fn duration_formats_are_accepted() {
        for (target, inf, millis, deviates) in [
            ("#EXT-X-TARGETDURATION:2", "2.0,", 2_000, false),
            ("#EXT-X-TARGETDURATION:2.0", "2.0,", 2_000, false),
            ("#EXT-X-TARGETDURATION: 2", "2", 2_000, false),
            ("#EXT-X-TARGETDURATION:2.002", "2.0,", 2_002, true),
            ("#EXT-X-TARGETDURATION:2,5", "2.0,", 2_500, true),
            ("#EXT-X-TARGETDURATION:0", "2.004,title", 2_004, true),
            ("#EXT-X-TARGETDURATION:-1", "2,004,title", 2_004, true),
            ("#EXT-X-TARGETDURATION:two", "4,2 titles", 4_000, true),
            ("#EXT-X-TARGETDURATION:", "4, 2", 4_000, true),
            ("#EXT-X-TARGETDURATION:NaN", "4", 4_000, true),
            ("#EXT-X-VERSION:3", "4.5", 4_500, true),
            ("#EXT-X-VERSION:3", "", 2_000, true),
            ("#EXT-X-VERSION:3", "-1,", 2_000, true),
            ("#EXT-X-TARGETDURATION:1e300", "1,", 1_000, true),
            ("#EXT-X-TARGETDURATION:99999999999999999999", "1,", 86_400_000, false),
        ] {
            let mut seen = Deviations::default();
            let text = format!("#EXTM3U\n{target}\n#EXTINF:{inf}\na.ts\n");
            let Ok(Manifest::Media(media)) = parse(text.as_bytes(), &mut seen) else {
                panic!("{text}")
            };
            assert_eq!(media.target, Duration::from_millis(millis), "{text}");
            assert_eq!(media.entries.len(), 1);
            let expected = [(Deviation::PlaylistTarget, 1)];
            assert_eq!(
                seen.take().collect::<Vec<_>>(),
                &expected[..usize::from(deviates)],
                "{text}"
            );
        }
    }

    #[test]
    fn line_and_attribute_syntax_variants_are_accepted() {
        let plain = "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-MEDIA-SEQUENCE:18014398509481985\n\
                     #EXT-X-MAP:URI=\"i.mp4\",BYTERANGE=\"10@5\"\n#EXTINF:2.0,\na.m4s?x=1&y=a:b\n\
                     #EXTINF:2.0,\n//cdn.example/b.m4s\n";
        let expected = media(plain);
        assert_eq!(expected.sequence, Some(18_014_398_509_481_985));
        for text in [
            plain.replace('\n', "\r\n"),
            plain.replace('\n', "\r"),
            plain.replace('\n', " \n\n \t\n"),
            format!("\u{feff}{plain}"),
            format!("\n\n{plain}"),
            plain.replace(":2", ": 2").replace("INF:2.0,", "INF: 2.0 , title"),
            plain.replace("EXT-X", "ext-x").replace("MAP:URI", "map:uri"),
            plain
                .replace("URI=", "X, OLD=1 , uri = ")
                .replace(",BYTE", " , ByteRange = \"1@1\", BYTE"),
            plain.replace("#EXTINF", "#EXT-X-UNKNOWN:a=\"\n#EXTINF"),
            plain.replace("#EXTINF", "# a comment: \u{e9}t\u{e9}\n#EXTINF"),
        ] {
            let mut got = media(&text);
            // The first of two attributes with the same name applies.
            if text.contains("1@1") {
                let map = got.entries[0].map.as_deref().expect("a map");
                assert_eq!((&map.uri[..], map.range), ("i.mp4", Some((1, 1))), "{text}");
                got.entries
                    .iter_mut()
                    .zip(&expected.entries)
                    .for_each(|(a, b)| a.map.clone_from(&b.map));
            }
            assert_eq!(got, expected, "{text}");
        }
        let latin: Vec<u8> = plain
            .replace("#EXTINF", "#?\n#EXTINF")
            .bytes()
            .map(|b| if b == b'?' { 0xe9 } else { b })
            .collect();
        let mut seen = Deviations::default();
        let Ok(Manifest::Media(got)) = parse(&latin, &mut seen) else { panic!("no playlist") };
        assert_eq!(got.entries.len(), 2);
        assert_eq!(seen.take().collect::<Vec<_>>(), [(Deviation::PlaylistText, 1)]);
        assert!(media("#EXTM3U\n#EXT-X-KEY:method=none\n#EXTINF:1\na").sequence.is_none());
        let mut seen = Deviations::default();
        let text = "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-MEDIA-SEQUENCE:x\n#EXTINF:2,\na";
        parse(text.as_bytes(), &mut seen).expect("the sequence is ignored");
        assert_eq!(seen.take().collect::<Vec<_>>(), [(Deviation::PlaylistTag, 1)]);
        assert_eq!(media(&text.replace(":x", ":7.0")).sequence, Some(7));
    }
}
