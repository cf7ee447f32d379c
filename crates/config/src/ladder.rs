//! Checks of the ladders of a configuration.

/// Maximum number of renditions of a ladder, with and without patterns. Apple's authoring rules
/// have 9.
pub const MAX_RENDITIONS: usize = 16;
/// Maximum length of a stream's name.
const MAX_NAME: usize = 128;

/// Whether `name` is a valid stream name, which a URL's path can contain without encoding. No part
/// starts with a dot (hidden files) or a tilde (passes).
pub(crate) fn is_stream(name: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    let is_part = |part: &str| {
        !part.is_empty() && !part.starts_with(['.', '~']) && part.bytes().all(is_plain)
    };
    name.len() <= MAX_NAME && name.split('/').all(is_part)
}

/// Checks the ladders, which are pairs of a name and its renditions. Returns the first wrong key
/// and its problem.
pub(crate) fn fault(ladders: &[(&str, &[String])]) -> Option<(&'static str, String)> {
    for (index, (name, renditions)) in ladders.iter().enumerate() {
        if !is_stream(name) {
            let expected = "expected a name such as \"live/show\"";
            return Some(("name", format!("{expected}, got {name:?}")));
        }
        if ladders[..index].iter().any(|(other, _)| other == name) {
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
            if !is_stream(stem.unwrap_or(rendition)) {
                let expected = "expected stream names, or a prefix and *";
                return wrong(format!("{expected}, got {rendition:?}"));
            }
            if renditions[..at].contains(rendition) {
                return wrong(format!("expected each stream once, got {rendition:?} twice"));
            }
            if ladders.iter().any(|(ladder, _)| ladder == rendition) {
                return wrong(format!("expected streams, got the ladder {rendition:?}"));
            }
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
