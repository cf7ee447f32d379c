//! Places for uploads.

use core::fmt;

use toml::de::DeValue;
use url::Url;

use crate::value::{Value, quoted};

/// Kind of a [`StoreUrl`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreScheme {
    /// `s3://BUCKET/PREFIX`: Amazon S3 and compatible stores.
    S3,
    /// `gs://BUCKET/PREFIX`: Google Cloud Storage.
    Google,
    /// `az://CONTAINER/PREFIX`: Azure Blob Storage.
    Azure,
    /// `file:///PATH`: a directory, such as a shared folder.
    File,
}

/// URL of an object store or directory, without credentials, query and fragment.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StoreUrl(Url);

impl StoreUrl {
    fn parse(text: &str) -> Option<Self> {
        let url = Self(Url::parse(text).ok()?);
        let scheme = url.find_scheme()?;
        let has_host = url.0.host_str().is_some_and(|host| !host.is_empty());
        let is_place = match scheme {
            StoreScheme::File => !has_host && url.path().len() > 1,
            _ => has_host && url.0.port().is_none(),
        };
        let has_parts = url.0.query().is_some() || url.0.fragment().is_some();
        let has_credentials = !url.0.username().is_empty() || url.0.password().is_some();
        // Parsing resolves `..`, and encodes characters.
        let is_plain = url.as_str() == text && !text.contains('%') && !url.path().contains("//");
        (is_place && is_plain && !has_parts && !has_credentials).then_some(url)
    }

    fn find_scheme(&self) -> Option<StoreScheme> {
        match self.0.scheme() {
            "s3" => Some(StoreScheme::S3),
            "gs" => Some(StoreScheme::Google),
            "az" => Some(StoreScheme::Azure),
            "file" => Some(StoreScheme::File),
            _ => None,
        }
    }

    /// Returns the kind of the place.
    pub fn scheme(&self) -> StoreScheme {
        // Other schemes are not parsed.
        self.find_scheme().unwrap_or(StoreScheme::File)
    }

    /// Returns the URL as text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Returns the path of the URL, which starts with `/`: the directory, or the prefix of names.
    pub fn path(&self) -> &str {
        self.0.path()
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Value for StoreUrl {
    fn expected() -> String {
        "s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///PATH, without \
         credentials, query and encoded characters"
            .into()
    }
    fn read(value: &DeValue<'_>) -> Option<Self> {
        Self::parse(value.as_str()?)
    }
    fn toml(&self) -> Option<String> {
        quoted(self.as_str())
    }
    fn may_be_quoted() -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_bucket_or_directory_without_credentials() {
        let read = |text: &str| StoreUrl::read(&DeValue::String(text.into()));
        for (text, scheme, path) in [
            ("s3://archive/edge-1", StoreScheme::S3, "/edge-1"),
            ("s3://archive", StoreScheme::S3, ""),
            ("gs://archive/a/b", StoreScheme::Google, "/a/b"),
            ("az://archive/", StoreScheme::Azure, "/"),
            ("file:///mnt/archive", StoreScheme::File, "/mnt/archive"),
        ] {
            let url = read(text).expect(text);
            assert_eq!((url.scheme(), url.path(), url.as_str()), (scheme, path, text));
        }
        for text in [
            "",
            "/mnt/archive",
            "s3:///prefix",
            "s3://key:secret@archive/x",
            "s3://key@archive/x",
            "s3://archive:99/x",
            "s3://archive/x?sig=secret",
            "s3://archive/x#y",
            "s3://archive/a//b",
            "s3://archive/%2e%2e/b",
            "s3://archive/../b",
            "s3://archive/a b",
            " s3://archive/b",
            "file:///mnt/../etc",
            "file://host/path",
            "file:///",
            "https://archive.example/x",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
