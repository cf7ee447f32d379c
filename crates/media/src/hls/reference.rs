//! Relative URLs in playlists and redirects.

use url::Url;

/// Resolves `reference` against `base` (RFC 3986, section 5.2).
///
/// Returns `None` if the result is not an `http` or `https` URL, or downgrades from `https` to
/// `http`, which would let an attacker remove TLS.
///
/// ```
/// use mendcast_media::hls::follow;
/// use url::Url;
///
/// let base = Url::parse("https://origin.example/live/index.m3u8").unwrap();
/// assert_eq!(follow(&base, "seg-1.m4s").unwrap().path(), "/live/seg-1.m4s");
/// assert_eq!(follow(&base, "http://origin.example/seg-1.m4s"), None);
/// ```
pub fn follow(base: &Url, reference: &str) -> Option<Url> {
    let url = base.join(reference).ok()?;
    match (base.scheme(), url.scheme()) {
        (_, "https") | ("http", "http") => Some(url),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_relative_to_their_document() {
        let base = Url::parse("http://a/b/c/d;p?q").expect("a URL");
        for (reference, expected) in [
            ("https://x/y", "https://x/y"),
            ("g", "http://a/b/c/g"),
            ("//g/h", "http://g/h"),
            ("/g", "http://a/g"),
            ("?y", "http://a/b/c/d;p?y"),
            ("../../../g", "http://a/g"),
        ] {
            let url = follow(&base, reference).map(String::from);
            assert_eq!(url.as_deref(), Some(expected), "{reference}");
        }
    }

    #[test]
    fn https_is_never_left_for_another_scheme() {
        let base = Url::parse("https://a/b").expect("a URL");
        assert!(follow(&base, "c").is_some() && follow(&base, "//x/c").is_some());
        for reference in ["http://a/c", "file:///etc/passwd", "rtmp://a/b/c", "data:,x", "http://"]
        {
            assert_eq!(follow(&base, reference), None, "{reference}");
        }
    }
}
