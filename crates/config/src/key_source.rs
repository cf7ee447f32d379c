//! Places of key sets (JWKS).

use core::fmt;
use std::path::{Path, PathBuf};

use toml::de::DeValue;

use crate::redacted::Redacted;
use crate::url::HttpUrl;
use crate::value::{Value, quoted};

/// A file or URL with public keys (JWKS, RFC 7517).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum KeySource {
    /// File.
    File(PathBuf),
    /// URL.
    Url(HttpUrl),
}

impl Value for KeySource {
    fn expected() -> String {
        "a path, or an http:// or https:// URL".into()
    }
    fn read(value: &DeValue<'_>) -> Option<Self> {
        if value.as_str()?.contains("://") {
            return HttpUrl::read(value).map(Self::Url);
        }
        PathBuf::read(value).map(Self::File)
    }
    fn toml(&self) -> Option<String> {
        match self {
            Self::File(path) => path.toml(),
            Self::Url(url) => quoted(url.0.as_str()),
        }
    }
    fn resolve(&mut self, base: &Path) {
        if let Self::File(path) = self {
            path.resolve(base);
        }
    }
}

/// Shows no user name, password or query.
impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Url(url) => Redacted(&url.0).fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_a_path_or_a_url() {
        let read = |text: &str| KeySource::read(&DeValue::String(text.into()));
        let mut file = read("keys.json").expect("a path");
        file.resolve(Path::new("/etc"));
        assert_eq!(file, KeySource::File("/etc/keys.json".into()));
        let url = read("https://u:p@id.example/jwks?k=1").expect("a URL");
        assert_eq!(url.to_string(), "https://id.example/jwks?…");
        assert!(!format!("{url:?}").contains("u:p"));
        for text in ["", "ftp://id.example/jwks", "https://"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
