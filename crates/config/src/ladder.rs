//! Checks of the ladders of a configuration.

use crate::stream_name::{MAX_STREAM_NAME, is_stream_name};

/// Maximum number of renditions of a ladder, with and without patterns. Apple's authoring rules
/// have 9.
pub const MAX_RENDITIONS: usize = 16;
/// Maximum length of what a track adds to the ladder's name: `_255`.
const MAX_TRACK: usize = 4;

/// Keys of a ladder.
pub(crate) struct LadderKeys<'a> {
    pub(crate) name: &'a str,
    pub(crate) renditions: &'a [String],
    /// Names and streams of the audio renditions.
    pub(crate) audio: Vec<(&'a str, &'a str)>,
    pub(crate) multitrack: bool,
}

/// Returns the first wrong key of the ladders and its problem.
pub(crate) fn fault(ladders: &[LadderKeys<'_>]) -> Option<(&'static str, String)> {
    for (index, ladder) in ladders.iter().enumerate() {
        let LadderKeys { name, renditions, multitrack, .. } = ladder;
        if !is_stream_name(name) {
            let expected = "expected a name such as \"live/show\"";
            return Some(("name", format!("{expected}, got {name:?}")));
        }
        if ladders[..index].iter().any(|other| other.name == *name) {
            return Some(("name", format!("expected unique names, got {name:?} twice")));
        }
        if renditions.len() > MAX_RENDITIONS {
            let got = renditions.len();
            let expected = format!("expected at most {MAX_RENDITIONS} streams or patterns");
            return Some(("renditions", format!("{expected}, got {got} in {name:?}")));
        }
        for (at, rendition) in renditions.iter().enumerate() {
            let wrong = |what: String| Some(("renditions", format!("{what} in {name:?}")));
            let start = rendition.strip_suffix('*');
            let stem = start.map(|start| start.strip_suffix('/').unwrap_or(start));
            if !is_stream_name(stem.unwrap_or(rendition)) {
                let expected = "expected stream names, or a prefix and *";
                return wrong(format!("{expected}, got {rendition:?}"));
            }
            if renditions[..at].contains(rendition) {
                return wrong(format!("expected each stream once, got {rendition:?} twice"));
            }
            if ladders.iter().any(|ladder| ladder.name == *rendition) {
                return wrong(format!("expected streams, got the ladder {rendition:?}"));
            }
        }
        if let Some(what) = audio_fault(ladders, ladder) {
            return Some(("audio", format!("{what} in {name:?}")));
        }
        if *multitrack {
            if name.len() + MAX_TRACK > MAX_STREAM_NAME {
                let most = MAX_STREAM_NAME - MAX_TRACK;
                let expected = format!("expected at most {most} bytes with multitrack");
                return Some(("name", format!("{expected}, got {name:?}")));
            }
            let default = format!("{name}_0");
            let has_default = |rendition: &String| match rendition.strip_suffix('*') {
                Some(start) => default.starts_with(start),
                None => *rendition == default,
            };
            if !renditions.iter().any(has_default) {
                let expected = format!("expected \"{name}_0\" or \"{name}_*\" for multitrack");
                return Some(("renditions", format!("{expected}, got {renditions:?}")));
            }
        }
    }
    None
}

/// Returns the problem of the audio renditions of a ladder.
fn audio_fault(ladders: &[LadderKeys<'_>], ladder: &LadderKeys<'_>) -> Option<String> {
    let audio = &ladder.audio;
    if audio.len() > MAX_RENDITIONS {
        let got = audio.len();
        return Some(format!("expected at most {MAX_RENDITIONS} audio renditions, got {got}"));
    }
    for (at, (name, stream)) in audio.iter().enumerate() {
        let before = &audio[..at];
        if before.iter().any(|(other, _)| other == name) {
            return Some(format!("expected unique names, got {name:?} twice"));
        }
        if before.iter().any(|(_, other)| other == stream) {
            return Some(format!("expected each stream once, got {stream:?} twice"));
        }
        if ladders.iter().any(|other| other.name == *stream) {
            return Some(format!("expected streams, got the ladder {stream:?}"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use crate::Config;

    /// Name and renditions.
    type Given<'a> = (&'a str, &'a [&'a str]);

    fn error(ladders: &[Given<'_>]) -> Option<String> {
        let text: String = ladders
            .iter()
            .map(|(name, renditions)| {
                format!("[[ladder]]\nname = {name:?}\nrenditions = {renditions:?}\n")
            })
            .collect();
        Config::parse("edge.toml", &text).err().map(|error| error.to_string())
    }

    #[test]
    fn ladders_of_streams_are_valid() {
        let show: Given<'_> = ("live/show", &["live/show_1080", "live/show_7*", "x/*"]);
        assert_eq!(error(&[show, ("live/other", &["live/show_1080", "live/*"])]), None);
        let config = Config::parse("edge.toml", "[[ladder]]\nname = \"a\"\nrenditions = [\"b\"]");
        assert_eq!(config.expect("valid").ladder[0].renditions, ["b"]);
    }

    #[test]
    fn the_default_track_is_a_rendition() {
        let parse = |name: &str, renditions: &[&str]| {
            let text = format!(
                "[[ladder]]\nname = {name:?}\nrenditions = {renditions:?}\nmultitrack = true\n"
            );
            Config::parse("edge.toml", &text).map(drop).map_err(|error| error.to_string())
        };
        for renditions in [&["live/show_1", "live/show_0"][..], &["live/show_*"], &["live/*"]] {
            assert_eq!(parse("live/show", renditions), Ok(()));
        }
        let error = parse("live/show", &["live/show_1"]).expect_err("without track 0");
        let expected = "[ladder] renditions: expected \"live/show_0\" or \"live/show_*\" for";
        assert!(error.contains(expected), "{error}");
        let long = "a".repeat(125);
        let error = parse(&long, &[&format!("{long}_*")]).expect_err("too long");
        assert!(error.contains("[ladder] name: expected at most 124 bytes"), "{error}");
        let long = &long[1..];
        assert!(parse(long, &[&format!("{long}_*")]).is_ok());
    }

    #[test]
    fn audio_renditions_are_checked() {
        let error = |audio: &[&str]| {
            let text = format!(
                "[[ladder]]\nname = \"a\"\nrenditions = [\"b\", \"c*\"]\naudio = {audio:?}\n"
            );
            Config::parse("edge.toml", &text).err().map(|error| error.to_string())
        };
        assert_eq!(error(&["en English: b", "fr: live/fr", "de: c_de"]), None);
        for (audio, expected) in [
            (&["en: x", "en: y"][..], "expected unique names, got \"en\" twice in \"a\""),
            (&["en: x", "fr: x"], "expected each stream once, got \"x\" twice"),
            (&["en: a"], "expected streams, got the ladder \"a\""),
            (&["en: x*"], "expected LANGUAGE, a name and a stream, such as"),
        ] {
            let error = error(audio).unwrap_or_else(|| panic!("{audio:?} is accepted"));
            assert!(error.contains("[ladder] audio: ") && error.contains(expected), "{error}");
        }
    }

    #[test]
    fn wrong_ladders_are_errors_that_name_the_key() {
        let many: Vec<String> = (0..17).map(|n| format!("live/{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let long = "a".repeat(129);
        let cases: [(&[Given<'_>], &str); 13] = [
            (&[("a", &["a"])], "renditions: expected streams, got the ladder \"a\" in \"a\""),
            (&[("a", &["b"]), ("b", &["a"])], "renditions: expected streams, got the ladder \"b\""),
            (&[("a", &["b"]), ("a", &["c"])], "name: expected unique names, got \"a\" twice"),
            (&[("a", &["b", "b"])], "renditions: expected each stream once, got \"b\" twice"),
            (&[("a", &[])], "renditions: expected "),
            (&[("", &["b"])], "name: expected "),
            (&[("a\"b", &["b"])], "name: expected a name such as"),
            (&[("a\nb", &["b"])], "name: expected a name such as"),
            (&[("a/~b", &["b"])], "name: expected a name such as"),
            (&[(&long, &["b"])], "name: expected a name such as"),
            (&[("a", &["b\n#EXT-X-ENDLIST"])], "renditions: expected stream names, or a prefix"),
            (&[("a", &["*"])], "renditions: expected stream names, or a prefix"),
            (&[("a", &many)], "renditions: expected at most 16 streams or patterns, got 17"),
        ];
        for (ladders, expected) in cases {
            let error = error(ladders).unwrap_or_else(|| panic!("{ladders:?} is accepted"));
            assert!(error.contains(&format!("[ladder] {expected}")), "{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }
}
