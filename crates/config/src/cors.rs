//! Access-Control-Allow-Origin (Fetch standard, section 3.3.3, HTTP responses).

use toml::de::DeValue;
use url::Url;

use super::value::{Value, quoted};

/// Origins of pages that may read responses.
#[derive(Clone, PartialEq, Eq, PartialOrd, Debug)]
pub enum Cors {
    /// This server only.
    SameOrigin,
    /// All origins.
    Any,
    /// One origin.
    Origin(String),
}

impl Value for Cors {
    fn expected() -> String {
        r#""", "*" or one origin as browsers write it, such as "https://www.example.com""#.into()
    }
    fn read(value: &DeValue<'_>) -> Option<Self> {
        match value.as_str()? {
            "" => Some(Self::SameOrigin),
            "*" => Some(Self::Any),
            text => is_origin(text).then(|| Self::Origin(text.to_owned())),
        }
    }
    fn toml(&self) -> Option<String> {
        quoted(match self {
            Self::SameOrigin => "",
            Self::Any => "*",
            Self::Origin(origin) => origin,
        })
    }
}

/// Whether `text` is an origin as browsers write it: scheme, host in lower case, and port unless it
/// is the scheme's default. Browsers compare bytes, so any other spelling would match nothing.
fn is_origin(text: &str) -> bool {
    let Ok(url) = Url::parse(text) else { return false };
    let Some(host) = url.host_str() else { return false };
    let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
    let is_of_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    host.bytes().all(is_of_host) && text == format!("{}://{host}{port}", url.scheme())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Cors> {
        Cors::read(&DeValue::String(text.into()))
    }

    #[test]
    fn accepts_an_origin_in_browser_form() {
        assert_eq!(read(""), Some(Cors::SameOrigin));
        assert_eq!(read("*"), Some(Cors::Any));
        for origin in [
            "https://www.example.com",
            "http://localhost:8080",
            "https://192.0.2.1",
            "https://[2001:db8::1]:8443",
            "capacitor://localhost",
        ] {
            assert_eq!(read(origin), Some(Cors::Origin(origin.into())), "{origin}");
        }
    }

    #[test]
    fn rejects_invalid_origins() {
        for text in [
            "https://a, https://b",
            "https://a,https://b",
            "https://a,b",
            "https://a https://b",
            "https://a/",
            "https://a/player",
            "https://A.example",
            "https://a:443",
            "https://u:p@a",
            "https://*.example.com",
            "https://a?b",
            "https://a#b",
            "https://a\r\nx: y",
            "https://bücher.example",
            "a.example",
            "null",
            "file:///tmp",
            " *",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
