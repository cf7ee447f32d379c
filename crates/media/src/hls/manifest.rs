//! Parser of an origin's playlists.
//!
//! Implements RFC 8216, section 4, with rendition groups of audio only, and without trick play.
//! Memory is bounded by the size of the text, at most [`MAX_PLAYLIST`]. The parser is as tolerant
//! as players: it accepts decimal numbers, lower-case tags and attributes, spaces, other line
//! endings, and missing durations.

use core::mem::take;
use core::time::Duration;
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
    Master(Master),
    Media(Media),
}

/// A master playlist.
#[derive(Clone, PartialEq, Default, Debug)]
pub(super) struct Master {
    pub(super) variants: Vec<Variant>,
    pub(super) audio: Vec<AudioRendition>,
}

/// EXT-X-STREAM-INF.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Variant {
    pub(super) uri: String,
    pub(super) bandwidth: u64,
    /// RESOLUTION, in pixels: width and height.
    pub(super) resolution: Option<(u64, u64)>,
    /// The entries of CODECS; empty without the attribute.
    pub(super) codecs: Vec<String>,
    /// AUDIO: the GROUP-ID of its audio renditions.
    pub(super) audio_group: Option<String>,
}

/// EXT-X-MEDIA with TYPE=AUDIO (section 4.3.4.1).
#[derive(Clone, PartialEq, Default, Debug)]
pub(super) struct AudioRendition {
    pub(super) group: String,
    pub(super) name: String,
    pub(super) language: Option<String>,
    /// The playlist. `None` if the variants of the group contain this audio.
    pub(super) uri: Option<String>,
    pub(super) is_default: bool,
    pub(super) is_automatic: bool,
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
    /// EXTINF.
    pub(super) duration: Duration,
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
    master: Master,
    /// The variant of the next URI.
    variant: Option<Variant>,
    /// Duration of the segment at the next URI.
    duration: Option<Duration>,
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
                let duration = duration(decimal(value));
                self.duration = Some(duration);
                self.longest = self.longest.max(duration);
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
                self.master.audio.extend(audio_rendition(value));
            }
            "-X-STREAM-INF" => self.variant = Some(variant(value)),
            _ => {}
        }
        Ok(())
    }

    /// Handles the URI of a variant or segment. A URI without a preceding tag is ignored.
    fn on_uri(&mut self, uri: &str) -> Result<(), Error> {
        if let Some(variant) = self.variant.take() {
            self.master.variants.push(Variant { uri: uri.to_owned(), ..variant });
        } else if let Some(duration) = self.duration.take() {
            let range = self.take_range(uri)?;
            self.media.entries.push(SegmentEntry {
                resource: SegmentLocation { uri: uri.to_owned(), range },
                duration,
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
        if !self.master.variants.is_empty() {
            return Ok(Manifest::Master(self.master));
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

/// Parses EXT-X-STREAM-INF.
fn variant(value: &str) -> Variant {
    let codecs = attribute(value, "CODECS").unwrap_or_default().split(',').map(str::trim);
    Variant {
        uri: String::new(),
        bandwidth: attribute(value, "BANDWIDTH").and_then(number).unwrap_or(0),
        resolution: attribute(value, "RESOLUTION").and_then(resolution),
        codecs: codecs.filter(|codec| !codec.is_empty()).map(str::to_owned).collect(),
        audio_group: attribute(value, "AUDIO").map(str::to_owned),
    }
}

/// Parses EXT-X-MEDIA of an audio rendition; `None` without a group.
fn audio_rendition(value: &str) -> Option<AudioRendition> {
    let text = |name| attribute(value, name).map(str::to_owned);
    Some(AudioRendition {
        group: text("GROUP-ID")?,
        name: text("NAME").unwrap_or_default(),
        language: text("LANGUAGE"),
        uri: text("URI"),
        is_default: is(attribute(value, "DEFAULT"), "YES"),
        is_automatic: is(attribute(value, "AUTOSELECT"), "YES"),
    })
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

/// Parses `1280x720`.
fn resolution(text: &str) -> Option<(u64, u64)> {
    let (width, height) = text.split_once(['x', 'X'])?;
    Some((number(width)?, number(height)?))
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
mod tests;
