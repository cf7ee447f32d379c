//! Ladders: renditions of one stream, between which viewers switch.
//!
//! The name of a ladder stands for its renditions in `[[play]]` rules, hooks, passes and records.
//! `LADDER/RENDITION`, such as `live/show/live/show_720`, names a rendition below the ladder.

use std::sync::Arc;

use relay::{Registry, Status, Stream};
use units::Rate;

use crate::config::{Config, Ladder, MAX_RENDITIONS};
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

/// Returns the first ladder with this stream.
pub(crate) fn of_rendition<'a>(config: &'a Config, name: &str) -> Option<&'a Ladder> {
    config.ladder.iter().find(|ladder| ladder.renditions.iter().any(|r| matches(r, name)))
}

/// Splits `LADDER/RENDITION`.
pub(crate) fn split<'a, 'n>(config: &'a Config, name: &'n str) -> Option<(&'a Ladder, &'n str)> {
    config.ladder.iter().find_map(|ladder| {
        let rest = name.strip_prefix(ladder.name.as_str())?.strip_prefix('/')?;
        has(config, ladder, rest).then_some((ladder, rest))
    })
}

/// Whether the stream is a rendition of the ladder. A stream that needs a signature is none if the
/// ladder needs none.
fn has(config: &Config, ladder: &Ladder, stream: &str) -> bool {
    lists(config, ladder, stream)
        && (needs_signature(config, &ladder.name) || !needs_signature(config, stream))
}

/// Whether the stream is among `renditions` and no ladder.
fn lists(config: &Config, ladder: &Ladder, stream: &str) -> bool {
    let is_listed = ladder.renditions.iter().any(|rendition| matches(rendition, stream));
    is_listed && get(config, stream).is_none()
}

fn needs_signature(config: &Config, stream: &str) -> bool {
    config.play.iter().any(|rule| matches(&rule.stream, stream))
}

/// Returns the names of the ladder's renditions that need not exist: those without a pattern.
pub(crate) fn fixed<'a>(config: &Config, ladder: &'a Ladder) -> impl Iterator<Item = &'a str> {
    let names = ladder.renditions.iter().filter(|rendition| !rendition.ends_with('*'));
    names.map(String::as_str).filter(move |name| has(config, ladder, name))
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
            if !is_known && has(config, ladder, stream.name()) {
                found.push(stream);
            }
        }
    }
    found.retain(|stream| stream.status() != Status::Ended);
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
    for ladder in &config.ladder {
        let is_open = !needs_signature(config, &ladder.name);
        for rendition in ladder.renditions.iter().filter(|r| is_open && needs_signature(config, r))
        {
            let name = &ladder.name;
            let what = format!(
                "left out of {name:?}: only signed URLs play it, and {name:?} needs no signature; \
                 add a [[play]] rule for {name:?}"
            );
            findings.push(Finding::warning("[[ladder]] renditions", rendition, what));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
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
    fn names_below_a_ladder_are_its_renditions() {
        let config = config(SHOW);
        let part = |name| split(&config, name).map(|(ladder, rest)| (&ladder.name[..], rest));
        assert_eq!(part("live/show/live/a"), Some(("live/show", "live/a")));
        assert_eq!(part("live/show/live/show_1"), Some(("live/show", "live/show_1")));
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
}
