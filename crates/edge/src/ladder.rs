//! Ladders: renditions of one stream, between which viewers switch.
//!
//! The name of a ladder stands for its renditions in `[[play]]` rules, hooks, passes and records.
//! `LADDER/RENDITION`, such as `live/show/live/show_720`, names a rendition below the ladder, and
//! `LADDER/STREAM@audio` an audio rendition. Names of streams contain no `@`.

use std::sync::Arc;

use media::hls::segmenter::TrackSelection;
use relay::{Registry, Status, Stream};
use units::Rate;

use crate::config::{AudioRendition, Config, Ladder, MAX_RENDITIONS};
use crate::finding::Finding;
use crate::names::matches;

/// Returns the ladder of this name.
pub(crate) fn get<'a>(config: &'a Config, name: &str) -> Option<&'a Ladder> {
    config.ladder.iter().find(|ladder| ladder.name == name)
}

/// Returns the stream of a video track, if it is a rendition and no ladder.
pub(crate) fn track(config: &Config, ladder: &Ladder, id: u8) -> Option<String> {
    let stream = format!("{}_{id}", ladder.name);
    lists(config, ladder, &stream).then_some(stream)
}

/// Whether this is the name of a video track's stream.
pub(crate) fn is_track(ladder: &str, stream: &str) -> bool {
    let id = stream.strip_prefix(ladder).and_then(|rest| rest.strip_prefix('_'));
    id.is_some_and(|id| id.parse::<u8>().is_ok())
}

/// Returns the first ladder with this stream as rendition or audio rendition.
pub(crate) fn of_rendition<'a>(config: &'a Config, name: &str) -> Option<&'a Ladder> {
    let is_in = |ladder: &&Ladder| {
        is_audio(ladder, name) || ladder.renditions.iter().any(|r| matches(r, name))
    };
    config.ladder.iter().find(is_in)
}

/// A stream of a ladder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Member {
    pub(crate) stream: String,
    /// The tracks that viewers of the ladder play.
    pub(crate) tracks: TrackSelection,
}

/// End of the name of an audio rendition.
const AUDIO: &str = "@audio";

impl Member {
    /// Returns the name below the ladder.
    pub(crate) fn name(&self) -> String {
        let end = if self.tracks == TrackSelection::Audio { AUDIO } else { "" };
        format!("{}{end}", self.stream)
    }
}

/// Splits `LADDER/RENDITION` and `LADDER/STREAM@audio`.
pub(crate) fn split<'a>(config: &'a Config, name: &str) -> Option<(&'a Ladder, Member)> {
    config.ladder.iter().find_map(|ladder| {
        let rest = name.strip_prefix(ladder.name.as_str())?.strip_prefix('/')?;
        let (stream, tracks) = match rest.strip_suffix(AUDIO) {
            Some(stream) if is_audio(ladder, stream) => (stream, TrackSelection::Audio),
            None if lists(config, ladder, rest) => (rest, tracks(ladder)),
            _ => return None,
        };
        let member = Member { stream: stream.to_owned(), tracks };
        is_open(config, ladder, stream).then_some((ladder, member))
    })
}

/// Returns the tracks of renditions that viewers of HLS play: no audio if there are audio
/// renditions. hls.js cannot replace the audio within segments of fragmented MP4.
fn tracks(ladder: &Ladder) -> TrackSelection {
    if audio(ladder).is_empty() { TrackSelection::All } else { TrackSelection::Video }
}

/// Whether viewers of the ladder may play the stream: one that needs a signature, only if the
/// ladder needs one.
fn is_open(config: &Config, ladder: &Ladder, stream: &str) -> bool {
    needs_signature(config, &ladder.name) || !needs_signature(config, stream)
}

/// Whether the stream is among `renditions` and no ladder.
fn lists(config: &Config, ladder: &Ladder, stream: &str) -> bool {
    let is_listed = ladder.renditions.iter().any(|rendition| matches(rendition, stream));
    is_listed && get(config, stream).is_none()
}

/// Whether the stream has these tracks, or is not known to lack them.
fn may_have(stream: &Stream, tracks: TrackSelection) -> bool {
    let kinds = stream.with_cache(|cache| cache.kinds());
    kinds.is_none_or(|(audio, video)| match tracks {
        TrackSelection::All => true,
        TrackSelection::Video => video,
        TrackSelection::Audio => audio,
    })
}

fn is_audio(ladder: &Ladder, stream: &str) -> bool {
    audio(ladder).iter().any(|rendition| rendition.stream == stream)
}

/// Returns the audio renditions of the ladder.
pub(crate) fn audio(ladder: &Ladder) -> &[AudioRendition] {
    ladder.audio.as_deref().unwrap_or_default()
}

fn needs_signature(config: &Config, stream: &str) -> bool {
    config.play.iter().any(|rule| matches(&rule.stream, stream))
}

/// Returns the names of the ladder's renditions that need not exist: those without a pattern, and
/// the audio renditions.
pub(crate) fn fixed<'a>(config: &Config, ladder: &'a Ladder) -> impl Iterator<Item = &'a str> {
    let names = ladder.renditions.iter().filter(|rendition| !rendition.ends_with('*'));
    let audio = audio(ladder).iter().map(|rendition| &rendition.stream);
    names.chain(audio).map(String::as_str).filter(move |name| is_open(config, ladder, name))
}

/// What viewers of HLS may play.
#[derive(Debug, Default)]
pub(crate) struct Playable {
    pub(crate) renditions: Vec<Arc<Stream>>,
    /// The tracks of the renditions that are played.
    pub(crate) tracks: TrackSelection,
    /// Streams whose audio is an audio rendition.
    pub(crate) audio: Vec<Arc<Stream>>,
}

/// Returns the running renditions, and the audio renditions with a publisher or a starting pull.
pub(crate) fn playable(config: &Config, streams: &Registry, ladder: &Ladder) -> Playable {
    let names = audio(ladder).iter().map(|rendition| &rendition.stream);
    let audio = names.filter(|name| is_open(config, ladder, name));
    let audio = audio.filter_map(|name| streams.get(name));
    Playable {
        renditions: running(config, streams, ladder),
        tracks: tracks(ladder),
        audio: audio
            .filter(|stream| !matches!(stream.status(), Status::Ended | Status::Interrupted))
            .filter(|stream| may_have(stream, TrackSelection::Audio))
            .collect(),
    }
}

/// Returns the running renditions in the order of the ladder, and by name within a pattern. Those
/// without a publisher at the moment are left out, unless none has one.
pub(crate) fn running(config: &Config, streams: &Registry, ladder: &Ladder) -> Vec<Arc<Stream>> {
    let all =
        if ladder.renditions.iter().any(|r| r.ends_with('*')) { streams.all() } else { vec![] };
    let mut found: Vec<Arc<Stream>> = Vec::new();
    for rendition in &ladder.renditions {
        let named = streams.get(rendition).filter(|_| !rendition.ends_with('*'));
        let matching = all.iter().filter(|stream| matches(rendition, stream.name())).cloned();
        for stream in named.into_iter().chain(matching) {
            let is_known = found.iter().any(|other| Arc::ptr_eq(other, &stream));
            let name = stream.name();
            if !is_known && lists(config, ladder, name) && is_open(config, ladder, name) {
                found.push(stream);
            }
        }
    }
    // Patterns match audio renditions too.
    found.retain(|stream| stream.status() != Status::Ended && may_have(stream, tracks(ladder)));
    let has_publisher = |stream: &Arc<Stream>| stream.status() != Status::Interrupted;
    if found.iter().any(has_publisher) {
        found.retain(has_publisher);
    }
    found.truncate(MAX_RENDITIONS);
    found
}

/// Whether `name` is a ladder with running renditions.
pub(crate) fn is_running(config: &Config, streams: &Registry, name: &str) -> bool {
    get(config, name).is_some_and(|ladder| !running(config, streams, ladder).is_empty())
}

/// Returns the bit rate of the stream `name`, or the highest one of the renditions of a ladder.
pub(crate) fn bitrate(config: &Config, streams: &Registry, name: &str) -> Option<Rate> {
    if let Some(stream) = streams.get(name) {
        return stream.bitrate();
    }
    let renditions = running(config, streams, get(config, name)?);
    renditions.iter().filter_map(|stream| stream.bitrate()).max()
}

/// Warns of renditions that a ladder never has.
pub(crate) fn check(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    for ladder in config.ladder.iter().filter(|ladder| !needs_signature(config, &ladder.name)) {
        let renditions = ladder.renditions.iter().map(|stream| ("[[ladder]] renditions", stream));
        let audio = audio(ladder).iter().map(|rendition| ("[[ladder]] audio", &rendition.stream));
        let all = renditions.chain(audio);
        for (key, stream) in all.filter(|(_, stream)| needs_signature(config, stream)) {
            let name = &ladder.name;
            let what = format!(
                "left out of {name:?}: only signed URLs play it, and {name:?} needs no signature; \
                 add a [[play]] rule for {name:?}"
            );
            findings.push(Finding::warning(key, stream, what));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use media::{Kind, Tag};
    use relay::{Publisher, Settings};

    use super::*;

    fn config(text: &str) -> Config {
        Config::parse("edge.toml", text).expect("valid")
    }

    const SHOW: &str = "[[ladder]]\nname = \"live/show\"\n\
                        renditions = [\"live/b\", \"live/a\", \"live/show*\"]\n";

    fn publish(streams: &Registry, name: &str) -> Publisher {
        streams.publish(name, Settings::default()).expect("room")
    }

    fn names(config: &Config, streams: &Registry) -> Vec<String> {
        let found = running(config, streams, &config.ladder[0]);
        found.iter().map(|stream| stream.name().to_owned()).collect()
    }

    #[test]
    fn running_renditions_come_and_go() {
        let (config, streams) = (config(SHOW), Registry::new(100));
        assert!(names(&config, &streams).is_empty() && !is_running(&config, &streams, "live/show"));
        let a = publish(&streams, "live/a");
        let b = publish(&streams, "live/b");
        // A stream of the ladder's name was published before the ladder was configured.
        let _others = ["live/show_2", "live/show_1", "live/other", "live/show"]
            .map(|name| publish(&streams, name));
        let all = ["live/b", "live/a", "live/show_1", "live/show_2"];
        assert_eq!(names(&config, &streams), all);
        assert!(is_running(&config, &streams, "live/show"));
        drop(b);
        assert_eq!(names(&config, &streams), all[1..]);
        streams.end(a.stream());
        assert_eq!(names(&config, &streams), all[2..]);
    }

    #[test]
    fn interrupted_renditions_stay_if_none_has_a_publisher() {
        let (config, streams) = (config(SHOW), Registry::new(100));
        drop([publish(&streams, "live/a"), publish(&streams, "live/b")]);
        assert_eq!(names(&config, &streams), ["live/b", "live/a"]);
    }

    #[test]
    fn patterns_are_bounded() {
        let (config, streams) = (config(SHOW), Registry::new(100));
        let _all: Vec<_> = (0..50).map(|n| publish(&streams, &format!("live/show_{n}"))).collect();
        assert_eq!(names(&config, &streams).len(), MAX_RENDITIONS);
    }

    #[test]
    fn tracks_are_renditions_and_no_ladders() {
        let one = "[[ladder]]\nname = \"live/show_1\"\nrenditions = [\"live/a\"]\n";
        let config = config(&format!("{SHOW}{one}"));
        let tracks = [0, 1, 255].map(|id| track(&config, &config.ladder[0], id));
        let named = |name: &str| Some(name.to_owned());
        assert_eq!(tracks, [named("live/show_0"), None, named("live/show_255")]);
        assert_eq!(track(&config, &config.ladder[1], 0), None);
        assert!(is_track("live/show", "live/show_255"));
        for other in ["live/show", "live/show_", "live/show_256", "live/show_a", "live/b_1"] {
            assert!(!is_track("live/show", other), "{other}");
        }
    }

    #[test]
    fn the_audio_of_a_track_may_be_an_audio_rendition() {
        let config = config(&format!("{SHOW}audio = [\"en: live/show_0\"]\n"));
        let track = track(&config, &config.ladder[0], 0);
        assert_eq!(track.as_deref(), Some("live/show_0"), "a pattern matches it");
    }

    #[test]
    fn names_below_a_ladder_are_its_renditions() {
        let config = config(SHOW);
        let part = |name| split(&config, name).map(|(ladder, m)| (&ladder.name[..], m.stream));
        let of_show = |stream: &str| Some(("live/show", stream.to_owned()));
        assert_eq!(part("live/show/live/a"), of_show("live/a"));
        assert_eq!(part("live/show/live/show_1"), of_show("live/show_1"));
        assert_eq!(part("live/show/live/a@audio"), None, "without audio renditions");
        for name in ["live/show", "live/show/", "live/show/live/other", "live/a/live/show"] {
            assert_eq!(part(name), None, "{name}");
        }
        assert_eq!(part("live/show/live/show"), None, "no ladder of a ladder");
    }

    #[test]
    fn an_open_ladder_does_not_open_renditions() {
        let paid = "[[play]]\nstream = \"live/a\"\nkey = \"secret\"\n";
        let open = config(&format!("{SHOW}{paid}"));
        assert!(split(&open, "live/show/live/b").is_some());
        assert!(split(&open, "live/show/live/a").is_none());
        let streams = Registry::new(10);
        let _all = ["live/a", "live/b"].map(|name| publish(&streams, name));
        assert_eq!(names(&open, &streams), ["live/b"]);
        assert!(fixed(&open, &open.ladder[0]).eq(["live/b"]));
        let text = check(&open)[0].to_string();
        assert!(text.starts_with("warning: [[ladder]] renditions = live/a: left out"), "{text}");
        let rule = "[[play]]\nstream = \"live/show\"\nkey = \"other\"\n";
        let signed = config(&format!("{SHOW}{paid}{rule}"));
        assert!(split(&signed, "live/show/live/a").is_some() && check(&signed).is_empty());
        assert_eq!(names(&signed, &streams), ["live/b", "live/a"]);
    }

    #[test]
    fn audio_renditions_take_the_audio_of_streams() {
        let text = format!(
            "{SHOW}audio = [\"en: live/a\", \"fr: live/show_fr\", \"de: live/paid\"]\n\
             [[play]]\nstream = \"live/paid\"\nkey = \"secret\"\n"
        );
        let (config, streams) = (config(&text), Registry::new(100));
        let ladder = &config.ladder[0];
        let heard = || -> Vec<String> {
            let all = playable(&config, &streams, ladder).audio;
            all.iter().map(|stream| stream.name().to_owned()).collect()
        };
        let mut all = ["live/a", "live/show_1", "live/show_fr", "live/paid"]
            .map(|name| Some(publish(&streams, name)));
        let tag = |payload: &[u8]| Tag::new(Kind::Audio, 0, payload).expect("short");
        let french = all[2].as_mut().expect("published");
        for payload in [&[0xaf, 0, 0x11, 0x90][..], &[0xaf, 1, 0x21]] {
            french.push(tag(payload));
        }
        // Without video, though a pattern matches.
        assert_eq!(names(&config, &streams), ["live/a", "live/show_1"]);
        assert_eq!(heard(), ["live/a", "live/show_fr"]);
        let member = |name: &str| split(&config, &format!("live/show/{name}")).map(|(_, m)| m);
        for (name, stream, tracks) in [
            ("live/a", "live/a", TrackSelection::Video),
            ("live/a@audio", "live/a", TrackSelection::Audio),
            ("live/show_fr@audio", "live/show_fr", TrackSelection::Audio),
        ] {
            let found = member(name).expect(name);
            assert_eq!(
                (&found.stream[..], found.tracks, &found.name()[..]),
                (stream, tracks, name)
            );
        }
        assert_eq!(["live/other", "live/b@audio", "live/a@video"].map(member), [None, None, None]);
        assert_eq!(member("live/paid@audio"), None, "an open ladder");
        assert_eq!(of_rendition(&config, "live/paid").map(|l| &l.name[..]), Some("live/show"));
        assert!(fixed(&config, ladder).any(|name| name == "live/show_fr"));
        let text = check(&config)[0].to_string();
        assert!(text.starts_with("warning: [[ladder]] audio = live/paid: left out"), "{text}");
        all[2] = None;
        assert_eq!(heard(), ["live/a"], "without a publisher");
    }
}
