//! Targets of pushed streams.

use core::fmt;

use media::rtmp;
use toml::de::DeValue;

use crate::url::is_template;
use crate::value::{Value, quoted};

/// Stands for the stream key in a URL.
const KEY: &str = "{key}";
/// Stands for the key while the URL is parsed, which would encode some characters of a key.
const PLACEHOLDER: &str = "0stream0key0";

/// URL template of a target over RTMP or RTMPS. In path and query, `{name}` is the stream's name,
/// `{tail}` the part that the `*` of the rule matched, and `{key}` the stream key.
#[derive(Clone, PartialEq, Eq, PartialOrd)]
pub struct PushUrl(String);

impl PushUrl {
    fn parse(text: &str) -> Option<Self> {
        let url = Self(text.to_owned());
        let filled = url.filled("a/a", "a/a");
        let is_url = rtmp::Url::parse(&filled).is_ok() && !text.contains(char::is_control);
        (is_url && is_template(text, &filled)).then_some(url)
    }

    /// Returns the URL with a placeholder for the key.
    fn filled(&self, name: &str, tail: &str) -> String {
        self.0.replace("{name}", name).replace("{tail}", tail).replace(KEY, PLACEHOLDER)
    }

    /// Returns whether the URL has a place for a stream key.
    pub fn takes_key(&self) -> bool {
        self.0.contains(KEY)
    }

    /// Returns the URL for the stream `name`. `None` if the result is not a URL of a stream.
    pub fn url(&self, name: &str, tail: &str, key: Option<&StreamKey>) -> Option<rtmp::Url> {
        let key = key.map_or("", |key| &key.0);
        let url = rtmp::Url::parse(&self.filled(name, tail)).ok()?;
        let [app, stream] = [&url.app, &url.stream].map(|text| text.replace(PLACEHOLDER, key));
        (!stream.is_empty()).then_some(rtmp::Url { app, stream, ..url })
    }
}

impl fmt::Display for PushUrl {
    /// Displays the URL without its query, and without a last part of the path that may be a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = &self.0[..self.0.find(['?', '#']).unwrap_or(self.0.len())];
        let (app, stream) = text.rsplit_once('/').unwrap_or((text, ""));
        match stream {
            "{name}" | "{tail}" | KEY => f.write_str(text)?,
            _ => write!(f, "{app}/…")?,
        }
        f.write_str(if self.0.contains('?') { "?…" } else { "" })
    }
}

impl fmt::Debug for PushUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Value for PushUrl {
    fn expected() -> String {
        "an rtmp:// or rtmps:// URL of a stream, with {name}, {tail} and {key} only in its path or \
         query"
            .into()
    }
    fn read(value: &DeValue<'_>) -> Option<Self> {
        Self::parse(value.as_str()?)
    }
    fn toml(&self) -> Option<String> {
        quoted(&self.0)
    }
    fn may_be_quoted() -> bool {
        false
    }
}

/// Stream key of a target: 1 to 512 visible ASCII characters, hidden from logs and debug output.
#[derive(Clone, PartialEq, Eq, PartialOrd)]
pub struct StreamKey(String);

impl StreamKey {
    /// Maximum length, which platforms do not reach.
    const MAX_LEN: usize = 512;

    /// Replaces the key in the text of a server.
    #[must_use]
    pub fn hidden_in(&self, text: &str) -> String {
        text.replace(&self.0, "…")
    }
}

impl fmt::Debug for StreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StreamKey(…)")
    }
}

impl Value for StreamKey {
    fn expected() -> String {
        format!("1 to {} letters, digits and punctuation marks without spaces", Self::MAX_LEN)
    }
    fn read(value: &DeValue<'_>) -> Option<Self> {
        let text = value.as_str()?;
        let is_valid = (1..=Self::MAX_LEN).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_valid.then(|| Self(text.to_owned()))
    }
    fn toml(&self) -> Option<String> {
        quoted(&self.0)
    }
    fn may_be_quoted() -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Option<StreamKey> {
        StreamKey::read(&DeValue::String(text.into()))
    }

    #[test]
    fn targets_are_filled_and_shown_without_secrets() {
        let word = key("abcd-{name}?s=1").expect("a key");
        for (text, shown, stream) in [
            ("rtmps://a.example/live2/{key}", "rtmps://a.example/live2/{key}", "abcd-{name}?s=1"),
            ("rtmp://h:1936/live/{tail}", "rtmp://h:1936/live/{tail}", "b"),
            ("rtmp://h/live/{tail}?key={key}", "rtmp://h/live/{tail}?…", "b?key=abcd-{name}?s=1"),
            ("rtmp://h/live/my-secret", "rtmp://h/live/…", "my-secret"),
            ("rtmp://h/live/x#y", "rtmp://h/live/…", "x#y"),
        ] {
            let url = PushUrl::parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((url.to_string().as_str(), format!("{url:?}").as_str()), (shown, shown));
            let filled = url.url("live/b", "b", Some(&word)).expect("a URL");
            assert_eq!(filled.stream, stream, "{text}");
        }
        assert_eq!(format!("{word:?}"), "StreamKey(…)");
        assert_eq!(word.hidden_in("no stream abcd-{name}?s=1 here"), "no stream … here");
    }

    #[test]
    fn invalid_targets_and_keys_are_rejected() {
        for text in [
            "",
            "http://h/a/b",
            "rtmp://h/app",
            "rtmp://h/app/",
            "rtmp://{name}/a/b",
            "rtmp://h{key}/a/b",
            "{name}://h/a/b",
            "rtmp://u:p@h/a/b",
            "rtmp://h/a/{nmae}",
            "rtmp://h/a/{key",
            "rtmp://h:0/a/b",
            "rtmp://h/a/b\n",
        ] {
            assert!(PushUrl::parse(text).is_none(), "{text}");
        }
        for text in ["", "two words", "ü", &"x".repeat(513)] {
            assert!(key(text).is_none(), "{text}");
        }
    }
}
