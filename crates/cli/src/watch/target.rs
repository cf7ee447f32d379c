//! Parsing of a URL to watch, and address resolution.

use std::net::SocketAddr;

use crate::error::Error;

/// How the response carries media.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// A path that ends in `.flv`: HTTP-FLV.
    Flv,
    /// A path that ends in `.m3u8`: an HLS playlist.
    Hls,
    /// Any other: bytes.
    Bytes,
}

/// Where a URL leads.
#[derive(Clone, Debug)]
pub(super) struct WatchTarget {
    pub uri: http::Uri,
    /// Without the brackets of an IPv6 address.
    pub host: String,
    pub port: u16,
    pub form: Form,
}

impl WatchTarget {
    /// # Errors
    /// One line: it is no URL of HTTPS.
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        let uri: http::Uri = text.parse().map_err(Error::at(text))?;
        if uri.scheme_str() != Some("https") {
            return Err(Error::new(format_args!(
                "{text}: expected a URL that begins with https://"
            )));
        }
        let host = uri.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(443);
        let form = match uri.path().rsplit_once('.') {
            Some((_, "flv")) => Form::Flv,
            Some((_, "m3u8")) => Form::Hls,
            _ => Form::Bytes,
        };
        Ok(Self { uri, host, port, form })
    }

    /// The target with the viewer's pass, if it has one, as `viewer=` in its query.
    ///
    /// # Errors
    /// One line: the pass does not fit into a URL.
    pub(super) fn with_pass(&self, pass: Option<&str>) -> Result<http::Uri, Error> {
        let Some(pass) = pass else { return Ok(self.uri.clone()) };
        let separator = if self.uri.query().is_some() { '&' } else { '?' };
        format!("{}{separator}viewer={pass}", self.uri).parse().map_err(Error::at(&self.uri))
    }

    /// The stream's name in the player's reports: `live/demo` of `/live/demo.flv` and of
    /// `/live/demo/index.m3u8`.
    pub(super) fn stream(&self) -> &str {
        let path = self.uri.path();
        let cut = match self.form {
            Form::Flv => path.len() - ".flv".len(),
            Form::Hls => path.rfind('/').unwrap_or_default(),
            Form::Bytes => path.len(),
        };
        path[..cut].trim_start_matches('/')
    }

    /// # Errors
    /// One line: the name is not known.
    pub(super) async fn addresses(&self) -> Result<Vec<SocketAddr>, Error> {
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await;
        let addresses: Vec<SocketAddr> = found.map_err(Error::at(&self.host))?.collect();
        if addresses.is_empty() {
            return Err(Error::new(format_args!("{}: no address", self.host)));
        }
        Ok(addresses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed_into_targets() {
        let target = WatchTarget::parse("https://[::1]:4433/live/a.flv?x=1").expect("a URL");
        assert_eq!((target.host.as_str(), target.port), ("::1", 4_433));
        assert_eq!(target.uri.path_and_query().map(|p| p.as_str()), Some("/live/a.flv?x=1"));
        assert_eq!(WatchTarget::parse("https://a.example/").expect("a URL").port, 443);
        for bad in ["http://a/", "a.example", "https://", ""] {
            assert!(WatchTarget::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn streams_are_named_as_the_server_names_them() {
        for (url, form, stream, query) in [
            ("https://a/live/demo.flv", Form::Flv, "live/demo", "viewer=me"),
            ("https://a/live/demo/index.m3u8?b=1", Form::Hls, "live/demo", "b=1&viewer=me"),
            ("https://a/.m3u8", Form::Hls, "", "viewer=me"),
            ("https://a/file", Form::Bytes, "file", "viewer=me"),
        ] {
            let target = WatchTarget::parse(url).expect("a URL");
            assert_eq!((target.form, target.stream()), (form, stream), "{url}");
            let uri = target.with_pass(Some("me")).expect("a URL");
            assert_eq!(uri.query(), Some(query), "{url}");
            assert_eq!(target.with_pass(None).expect("a URL"), target.uri);
        }
    }
}
