//! URLs and header fields, parsed when the configuration is loaded.

use core::fmt;
use core::str::FromStr as _;

use hyper::header::{HeaderName, HeaderValue};
use media::rtmp;
use toml::de::DeValue;
use url::Url;

use super::value::{Value, quoted};
use crate::redacted::Redacted;

/// An `http` or `https` URL.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HttpUrl(pub Url);

impl HttpUrl {
    fn parse(text: &str) -> Option<Self> {
        let url = Url::parse(text).ok()?;
        let is_http = matches!(url.scheme(), "http" | "https");
        (is_http && text.contains("://") && url.port() != Some(0)).then_some(Self(url))
    }
}

impl fmt::Debug for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Redacted(&self.0), f)
    }
}

impl Value for HttpUrl {
    fn expected() -> String {
        "an http:// or https:// URL".into()
    }
    fn read(value: &DeValue<'_>) -> Option<Self> {
        Self::parse(value.as_str()?)
    }
    fn toml(&self) -> Option<String> {
        quoted(self.0.as_str())
    }
}

/// Returns whether all placeholders of a URL template are known and in path or query, given the
/// URL that it becomes. Stream names must not choose the server.
pub(crate) fn is_template(text: &str, filled: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    !scheme.contains('{') && !authority.contains('{') && !filled.contains(['{', '}'])
}

/// URL template of an upstream. In path and query, `{name}` is the stream's name and `{tail}` the
/// part that the `*` of the rule matched.
#[derive(Clone, PartialEq, Eq, PartialOrd)]
pub struct Upstream(String);

impl Upstream {
    fn parse(text: &str) -> Option<Self> {
        let upstream = Self(text.to_owned());
        let url = upstream.filled("a/a", "a/a");
        let is_url = rtmp::Url::parse(&url).is_ok() || HttpUrl::parse(&url).is_some();
        (is_url && is_template(text, &url)).then_some(upstream)
    }

    fn filled(&self, name: &str, tail: &str) -> String {
        self.0.replace("{name}", name).replace("{tail}", tail)
    }

    /// Returns the URL of the stream `name`, or `None` if the result is not a URL.
    pub fn url(&self, name: &str, tail: &str) -> Option<Url> {
        Url::parse(&self.filled(name, tail)).ok()
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.url("{name}", "{tail}") {
            Some(url) => fmt::Display::fmt(&Redacted(&url), f),
            None => f.write_str("Upstream"),
        }
    }
}

impl Value for Upstream {
    fn expected() -> String {
        "an rtmp://, rtmps://, http:// or https:// URL with {name} and {tail} only in its path or \
         query"
            .into()
    }
    fn read(value: &DeValue<'_>) -> Option<Self> {
        Self::parse(value.as_str()?)
    }
    fn toml(&self) -> Option<String> {
        quoted(&self.0)
    }
}

/// A header field of requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// Name.
    pub name: HeaderName,
    /// Value, which debug output hides.
    pub value: HeaderValue,
}

/// Fields that the HTTP client sets itself.
const RESERVED: [&str; 6] =
    ["connection", "content-length", "range", "te", "transfer-encoding", "upgrade"];

impl PartialOrd for Header {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        (self.name.as_str(), &self.value).partial_cmp(&(other.name.as_str(), &other.value))
    }
}

impl Value for Header {
    fn expected() -> String {
        r#"a header field such as "x-key: word""#.into()
    }
    fn read(value: &DeValue<'_>) -> Option<Self> {
        let (name, text) = value.as_str()?.split_once(':')?;
        let name = HeaderName::from_str(name.trim()).ok()?;
        let mut value = HeaderValue::from_str(text.trim()).ok()?;
        value.set_sensitive(true);
        (!RESERVED.contains(&name.as_str())).then_some(Self { name, value })
    }
    fn may_be_quoted() -> bool {
        false
    }
    fn toml(&self) -> Option<String> {
        quoted(&format!("{}: {}", self.name, self.value.to_str().ok()?))
    }
}

/// Variant of an HLS upstream to pull.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
pub enum Variant {
    /// Highest bitrate.
    Highest,
    /// Lowest bitrate.
    Lowest,
    /// All variants and audio renditions, each as a stream of its own.
    All,
    /// Highest bitrate up to this number of Mbit/s, or else the lowest.
    AtMost(f64),
}

impl Value for Variant {
    fn expected() -> String {
        r#""highest", "lowest", "all" or a number of Mbit/s"#.into()
    }
    fn read(value: &DeValue<'_>) -> Option<Self> {
        match value.as_str() {
            Some("highest") => Some(Self::Highest),
            Some("lowest") => Some(Self::Lowest),
            Some("all") => Some(Self::All),
            Some(_) => None,
            None => f64::read(value).filter(|mbps| *mbps > 0.0 && *mbps < 1e6).map(Self::AtMost),
        }
    }
    fn toml(&self) -> Option<String> {
        match self {
            Self::Highest => quoted("highest"),
            Self::Lowest => quoted("lowest"),
            Self::All => quoted("all"),
            Self::AtMost(mbps) => mbps.toml(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstream_urls_contain_the_stream_name() {
        let upstream = Upstream::parse("https://u:p@origin/{tail}.m3u8?s={name}").expect("a URL");
        let url = upstream.url("live/a", "a").expect("a URL");
        assert_eq!(url.as_str(), "https://u:p@origin/a.m3u8?s=live/a");
        assert!(!format!("{upstream:?}").contains("u:p"), "{upstream:?}");
    }

    #[test]
    fn rejects_invalid_upstream_urls() {
        for text in
            ["rtmp://h/{name}", "rtmps://h/a/{tail}?k=1", "http://h", "https://h:1/{name}.flv"]
        {
            assert!(Upstream::parse(text).is_some(), "{text}");
        }
        for text in [
            "",
            "nonsense",
            "srt://h/a",
            "file:///a",
            "http:h/a",
            "rtmp://h/app",
            "rtmp://u:p@h/{name}",
            "http://{name}/a",
            "http://h{tail}/a",
            "{name}://h/a",
            "http://h/{nmae}",
            "http://h/{name",
            "http://h:0/a",
        ] {
            assert!(Upstream::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn parses_headers_and_hides_their_values() {
        let read = |text: &str| Header::read(&DeValue::String(text.into()));
        let header = read("X-Key: a secret: word ").expect("a header");
        assert_eq!(
            (header.name.as_str(), header.value.as_bytes()),
            ("x-key", &b"a secret: word"[..])
        );
        assert!(!format!("{header:?}").contains("secret"), "{header:?}");
        for text in ["", "x", "x y: z", "Content-Length: 5", "x: a\nb"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
