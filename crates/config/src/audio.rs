//! Audio renditions of a ladder.

use toml::de::DeValue;

use crate::stream_name::is_stream_name;
use crate::value::{Value, quoted};

/// Maximum length of a language tag (RFC 5646, section 4.4.1).
const MAX_LANGUAGE: usize = 35;
/// Maximum length of a name, in bytes.
const MAX_NAME: usize = 64;

/// An audio rendition (EXT-X-MEDIA): LANGUAGE, optionally a name, a colon and a stream.
#[derive(Clone, PartialEq, Eq, PartialOrd, Debug)]
pub struct AudioRendition {
    /// Language tag (RFC 5646) such as `en` or `pt-BR`.
    pub language: String,
    /// Name in players' menus; by default the language tag. Contains no quotation marks and no line
    /// breaks.
    pub name: String,
    /// The stream whose audio it is.
    pub stream: String,
}

impl AudioRendition {
    fn parse(text: &str) -> Option<Self> {
        let (names, stream) = text.split_once(':')?;
        let stream = stream.trim();
        let (language, name) = names.trim().split_once(' ').unwrap_or((names.trim(), ""));
        let name = if name.trim().is_empty() { language } else { name.trim() };
        let is_part = |part: &str| {
            (1..=8).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_alphanumeric())
        };
        let is_language = language.len() <= MAX_LANGUAGE && language.split('-').all(is_part);
        let is_name =
            name.len() <= MAX_NAME && !name.contains(|c: char| c == '"' || c.is_control());
        let is_valid = is_language && is_name && is_stream_name(stream);
        is_valid.then(|| Self {
            language: language.to_owned(),
            name: name.to_owned(),
            stream: stream.to_owned(),
        })
    }
}

impl Value for AudioRendition {
    fn expected() -> String {
        r#"LANGUAGE, a name and a stream, such as "fr Français: live/show_fr""#.into()
    }
    fn read(value: &DeValue<'_>) -> Option<Self> {
        Self::parse(value.as_str()?)
    }
    fn toml(&self) -> Option<String> {
        quoted(&format!("{} {}: {}", self.language, self.name, self.stream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn language_name_and_stream_are_read() {
        for (text, language, name, stream) in [
            ("pt-BR: live/a", "pt-BR", "pt-BR", "live/a"),
            (" fr  Français (Québec) :live/a ", "fr", "Français (Québec)", "live/a"),
        ] {
            let read = AudioRendition::parse(text).expect(text);
            let expected = (language, name, stream);
            assert_eq!((&read.language[..], &read.name[..], &read.stream[..]), expected);
            let shown = read.toml().expect("a string");
            assert_eq!(AudioRendition::parse(shown.trim_matches('"')), Some(read), "{shown}");
        }
    }

    #[test]
    fn text_that_would_break_a_playlist_is_rejected() {
        let long = format!("en {}", "a".repeat(65));
        for text in [
            "",
            ":",
            "en",
            ": live/a",
            "en: ",
            "en: live/*",
            "en: live/a b",
            "en\",URI=\"x: live/a",
            "en \"x\"",
            "en a\n#EXT-X-ENDLIST",
            "english_us",
            "en-",
            "Français",
            &long,
        ] {
            assert_eq!(AudioRendition::parse(text), None, "{text:?}");
        }
    }
}
