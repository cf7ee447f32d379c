//! The master playlist, with one EXT-X-STREAM-INF per rendition, and EXT-X-MEDIA of the audio
//! renditions (RFC 8216, section 4.3.4).

use core::fmt::Write as _;
use core::time::Duration;

use super::playlist::seconds;
use super::retained::RetainedSegment;
use super::segmenter::{MEDIA_PLAYLIST, Segmenter};

/// Attributes of one rendition, measured over the retained segments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rendition {
    /// BANDWIDTH, in bits per second: the highest rate of any consecutive segments that together
    /// last 0.5 to 1.5 target durations (RFC 8216, section 4.1).
    pub peak: u64,
    /// AVERAGE-BANDWIDTH, in bits per second.
    pub average: u64,
    /// CODECS, video first. Contains no quotation marks.
    pub codecs: String,
    /// RESOLUTION in pixels: width and height. `None` without video, or if the parameter sets do
    /// not say.
    pub resolution: Option<(u16, u16)>,
    /// FRAME-RATE, in frames per 1,000 seconds. `None` without video.
    pub frame_rate: Option<u32>,
    /// Whether decoding can start with any retained segment.
    pub is_independent: bool,
}

/// An audio rendition among which viewers choose, whichever rendition they play (RFC 8216, section
/// 4.3.4.1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AudioRendition {
    /// NAME in the players' menus, unique in a playlist.
    pub name: String,
    /// LANGUAGE, a tag of RFC 5646.
    pub language: String,
    /// URI of the media playlist.
    pub uri: String,
    /// Its attributes.
    pub media: Rendition,
}

/// GROUP-ID of the audio renditions.
const GROUP: &str = "audio";

impl AudioRendition {
    /// Appends EXT-X-MEDIA.
    fn write(&self, text: &mut String, is_default: bool) {
        let Self { name, language, uri, .. } = self;
        let default = if is_default { "YES" } else { "NO" };
        let _ = writeln!(
            text,
            "#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"{GROUP}\",NAME=\"{name}\",\
             LANGUAGE=\"{language}\",DEFAULT={default},AUTOSELECT=YES,URI=\"{uri}\""
        );
    }
}

impl Rendition {
    /// Returns the attributes of this rendition with any of the audio renditions: the rates of the
    /// one with the highest, and the codecs of all (section 4.3.4.2).
    fn with_audio<'a>(&self, audio: impl Iterator<Item = &'a Self> + Clone) -> Self {
        let mut codecs: Vec<&str> = self.codecs.split(',').filter(|c| !c.is_empty()).collect();
        for codec in audio.clone().flat_map(|audio| audio.codecs.split(',')) {
            if !codec.is_empty() && !codecs.contains(&codec) {
                codecs.push(codec);
            }
        }
        Self {
            peak: self.peak + audio.clone().map(|audio| audio.peak).max().unwrap_or(0),
            average: self.average + audio.map(|audio| audio.average).max().unwrap_or(0),
            codecs: codecs.join(","),
            ..self.clone()
        }
    }

    /// Appends EXT-X-STREAM-INF and the URI. Writing to a string cannot fail.
    fn write(&self, text: &mut String, uri: &str, has_group: bool) {
        let Self { peak, average, codecs, .. } = self;
        let _ = write!(text, "#EXT-X-STREAM-INF:BANDWIDTH={peak},AVERAGE-BANDWIDTH={average}");
        if !codecs.is_empty() {
            let _ = write!(text, ",CODECS=\"{codecs}\"");
        }
        if let Some((width, height)) = self.resolution {
            let _ = write!(text, ",RESOLUTION={width}x{height}");
        }
        if let Some(rate) = self.frame_rate {
            let _ = write!(text, ",FRAME-RATE={}", seconds(rate.into()));
        }
        if has_group {
            let _ = write!(text, ",AUDIO=\"{GROUP}\"");
        }
        let _ = writeln!(text, "\n{uri}");
    }
}

/// Returns a master playlist of renditions with the URIs of their media playlists. Players start
/// with the first one. URIs must be valid in a line of their own and in quotation marks.
///
/// The default of the audio renditions is the first one.
///
/// ```
/// use mendcast_media::hls::{Rendition, master};
///
/// let low = Rendition {
///     peak: 900_000,
///     average: 800_000,
///     codecs: "avc1.64001f,mp4a.40.2".into(),
///     resolution: Some((640, 360)),
///     frame_rate: Some(29_970),
///     is_independent: true,
/// };
/// assert_eq!(
///     master([("low/media.m3u8", &low)], &[]),
///     "#EXTM3U\n#EXT-X-VERSION:6\n#EXT-X-INDEPENDENT-SEGMENTS\n\
///      #EXT-X-STREAM-INF:BANDWIDTH=900000,AVERAGE-BANDWIDTH=800000,\
///      CODECS=\"avc1.64001f,mp4a.40.2\",RESOLUTION=640x360,FRAME-RATE=29.970\nlow/media.m3u8\n"
/// );
/// ```
pub fn master<'a>(
    renditions: impl IntoIterator<Item = (&'a str, &'a Rendition), IntoIter: Clone>,
    audio: &[AudioRendition],
) -> String {
    let renditions = renditions.into_iter();
    let mut text = String::from("#EXTM3U\n#EXT-X-VERSION:6\n");
    if renditions.clone().all(|(_, rendition)| rendition.is_independent) {
        text.push_str("#EXT-X-INDEPENDENT-SEGMENTS\n");
    }
    audio.iter().enumerate().for_each(|(at, audio)| audio.write(&mut text, at == 0));
    for (uri, rendition) in renditions {
        let media = audio.iter().map(|audio| &audio.media);
        rendition.with_audio(media).write(&mut text, uri, !audio.is_empty());
    }
    text
}

/// Bytes and duration in milliseconds of a segment.
type Span = (usize, i64);

/// Returns a bit rate.
fn rate((bytes, ms): Span) -> u64 {
    bytes as u64 * 8_000 / ms.max(1) as u64
}

/// Returns the peak rate of consecutive segments, or `None` if no set of them has a valid duration.
fn peak(segments: &[Span], target_ms: i64) -> Option<u64> {
    let (least, most) = (target_ms / 2, target_ms * 3 / 2);
    let sets_from = |first: usize| {
        let sums = segments[first..].iter().scan((0, 0), |sum, (bytes, ms)| {
            *sum = (sum.0 + bytes, sum.1 + ms);
            Some(*sum)
        });
        sums.take_while(|(_, ms)| *ms <= most).filter(|(_, ms)| *ms >= least).map(rate).max()
    };
    (0..segments.len()).filter_map(sets_from).max()
}

impl Segmenter {
    /// Returns the attributes of the stream as a rendition. `None` before there is a complete
    /// segment.
    pub fn rendition(&self) -> Option<Rendition> {
        let pace = self.pace?;
        let complete = self.retained.segments.iter().filter(|segment| segment.complete);
        let span = |segment: &RetainedSegment| (segment.size(), segment.duration_ms());
        let spans: Vec<Span> = complete.clone().map(span).collect();
        if spans.is_empty() {
            return None;
        }
        let sum = |(bytes, ms): Span, span: &Span| (bytes + span.0, ms + span.1);
        let average = rate(spans.iter().fold((0, 0), sum));
        let tracks = &self.retained.versions.back()?.tracks;
        let codecs = [
            tracks.video.as_ref().map(|video| &video.codecs[..]),
            tracks.audio.as_ref().map(|audio| &audio.codecs[..]),
        ];
        let video = tracks.video.as_ref();
        let measured = self.groups.frame_us().map(|frame_us| 1_000_000_000 / frame_us);
        let frame_rate = video.and(measured).or(video.map(|_| pace.frame_rate));
        Some(Rendition {
            peak: peak(&spans, pace.target_s * 1_000).unwrap_or(average).max(average),
            average,
            codecs: codecs.into_iter().flatten().collect::<Vec<_>>().join(","),
            resolution: video.filter(|v| v.width > 0).map(|v| (v.width, v.height)),
            frame_rate: frame_rate.and_then(|rate| u32::try_from(rate).ok()).filter(|r| *r > 0),
            is_independent: complete.clone().all(RetainedSegment::is_independent),
        })
    }

    /// Returns the duration of the slots that number segments
    /// ([`slot`](super::segmenter::SegmenterConfig::slot)). `None` before the first segment is
    /// complete.
    pub fn slot(&self) -> Option<Duration> {
        self.pace.map(|pace| Duration::from_millis(pace.slot_ms.unsigned_abs()))
    }

    /// Returns the difference of dates and stream time
    /// ([`date_offset_ms`](super::segmenter::SegmenterConfig::date_offset_ms)). `None` before the
    /// first segment.
    pub fn date_offset_ms(&self) -> Option<i64> {
        self.wall.map(|(at, wall_ms)| wall_ms - self.clock.stream_ms(at))
    }

    /// Renders the master playlist of this stream alone.
    pub(super) fn master_playlist(&self) -> Option<String> {
        let rendition = self.rendition()?;
        Some(master([(MEDIA_PLAYLIST, &rendition)], &[]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hls::fixture::{WALL, audio_header, push, video_header};
    use crate::hls::segmenter::SegmenterConfig;

    #[test]
    fn the_peak_is_that_of_sets_of_about_a_target_duration() {
        // 2 s at 100 and 200 kbit/s; half a second at 1 Mbit/s counts only with a neighbour.
        let spans = [(25_000, 2_000), (50_000, 2_000), (62_500, 500), (25_000, 2_000)];
        assert_eq!(peak(&spans, 2_000), Some((62_500 + 50_000) * 8_000 / 2_500));
        assert_eq!(peak(&spans[..2], 2_000), Some(200_000));
        assert_eq!(peak(&[(1_000, 100)], 2_000), None, "too short");
        assert_eq!(peak(&[], 2_000), None);
    }

    /// Numbers, dates and complete durations of the retained segments.
    fn numbers(segmenter: &Segmenter) -> Vec<(u64, i64, i64)> {
        let complete = segmenter.retained.segments.iter().filter(|segment| segment.complete);
        complete.map(|s| (s.name.msn, s.wall_ms, s.duration_ms())).collect()
    }

    #[test]
    fn renditions_have_equal_numbers_and_dates_whenever_packaging_starts() {
        // 250 ms from the arrival, so that dates show where they come from.
        let ahead_ms = 0_u32.wrapping_sub(WALL as u32) as i32;
        let date_offset_ms = Some(250 - i64::from(ahead_ms));
        let config = SegmenterConfig { date_offset_ms, window: 30, ..Default::default() };
        let mut first = Segmenter::new(config);
        first.push(&video_header(12), 0);
        push(&mut first, 0..40_100, 100, false);
        let slot = first.slot();
        assert_eq!(slot, Some(Duration::from_secs(4)));
        let expected = numbers(&first);
        assert_eq!(expected[0].1, WALL as i64 + 250);
        for (late, given) in [(12_000, slot), (12_000, None), (20_000, slot)] {
            let mut other = Segmenter::new(SegmenterConfig { slot: given, ..config });
            other.push(&video_header(30), 0);
            push(&mut other, late..40_100, 100, true);
            assert_eq!(other.date_offset_ms(), date_offset_ms);
            let seen = numbers(&other);
            assert!(seen.len() >= 4, "{seen:?}");
            assert_eq!(seen, expected[expected.len() - seen.len()..], "{late} {given:?}");
        }
        // Packaging starts within a group of pictures that another publisher has cut short.
        let mut cut = Segmenter::new(SegmenterConfig { slot, ..config });
        cut.push(&video_header(12), 0);
        push(&mut cut, 16_000..17_000, 100, false);
        push(&mut cut, 24_000..40_100, 100, false);
        let seen = numbers(&cut);
        let last = seen.len() - 2;
        assert_eq!(seen[last..], expected[expected.len() - 2..], "{seen:?}");
    }

    #[test]
    fn attributes_are_measured_and_missing_ones_left_out() {
        let mut segmenter = Segmenter::new(SegmenterConfig::default());
        assert_eq!(segmenter.rendition(), None);
        segmenter.push(&video_header(12), 0);
        segmenter.push(&audio_header(), 0);
        push(&mut segmenter, 0..10_100, 50, true);
        let seen = segmenter.rendition().expect("segments");
        assert_eq!(seen.codecs, "avc1.64000c,mp4a.40.2");
        assert_eq!((seen.resolution, seen.frame_rate), (Some((318, 178)), Some(25_000)));
        assert!(seen.is_independent && seen.average > 0 && seen.peak >= seen.average, "{seen:?}");
        assert_eq!(segmenter.slot(), Some(Duration::from_secs(2)));

        let mut audio = Segmenter::new(SegmenterConfig::default());
        audio.push(&audio_header(), 0);
        for at in (0..10_000).step_by(21) {
            audio.push(&crate::hls::fixture::audio_frame(at), 0);
        }
        let seen = audio.rendition().expect("segments");
        assert_eq!((seen.resolution, seen.frame_rate, &seen.codecs[..]), (None, None, "mp4a.40.2"));
        let text = master([("a", &seen)], &[]);
        assert!(!text.contains("RESOLUTION") && !text.contains("FRAME-RATE"), "{text}");
        let unknown = Rendition { codecs: String::new(), is_independent: false, ..seen };
        let text = master([("a", &unknown)], &[]);
        assert!(!text.contains("CODECS") && !text.contains("INDEPENDENT"), "{text}");
    }

    #[test]
    fn audio_renditions_are_a_group_of_all_renditions() {
        let rendition = |peak: u64, codecs: &str| Rendition {
            peak,
            average: peak / 2,
            codecs: codecs.to_owned(),
            resolution: None,
            frame_rate: None,
            is_independent: true,
        };
        let audio = |language: &str, media: Rendition| AudioRendition {
            name: format!("name of {language}"),
            language: language.to_owned(),
            uri: format!("{language}.m3u8"),
            media,
        };
        let video = rendition(1_000, "avc1.64001f");
        let all = [audio("fr", rendition(60, "mp4a.40.2")), audio("de", rendition(90, "opus"))];
        let text = master([("video", &video)], &all);
        let lines: Vec<&str> = text.lines().skip(3).collect();
        let media = |language: &str, default: &str| {
            format!(
                "#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"audio\",NAME=\"name of {language}\",\
                 LANGUAGE=\"{language}\",DEFAULT={default},AUTOSELECT=YES,URI=\"{language}.m3u8\""
            )
        };
        assert_eq!(lines[..2], [media("fr", "YES"), media("de", "NO")]);
        let expected = "#EXT-X-STREAM-INF:BANDWIDTH=1090,AVERAGE-BANDWIDTH=545,\
                        CODECS=\"avc1.64001f,mp4a.40.2,opus\",AUDIO=\"audio\"";
        assert_eq!(lines[2..], [expected, "video"]);
    }
}
