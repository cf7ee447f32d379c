//! `rtmp://` and `rtmps://` URLs, as interpreted by ffmpeg and OBS.

use ::url::{Host, Position};
use thiserror::Error;

use super::DEFAULT_PORT;

/// Default port of `rtmps` URLs.
const DEFAULT_TLS_PORT: u16 = 443;

/// Location of a stream: `rtmp://host[:port]/app[/instance]/stream[?query]`, or the same with
/// `rtmps`.
///
/// The application is the path up to the last slash, including any instance. The stream name is the
/// rest. ffmpeg parses one or two segments before the name in the same way.
///
/// ```
/// use mendcast_media::rtmp::Url;
///
/// let url = Url::parse("rtmp://origin.example/live/demo?key=secret").unwrap();
/// assert_eq!(url.tc_url(), "rtmp://origin.example/live");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Url {
    /// Whether the connection uses TLS (`rtmps`).
    pub tls: bool,
    /// Name or address, without the brackets of an IPv6 address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Application, with a slash and the instance if there is one.
    pub app: String,
    /// Stream name, including its query.
    pub stream: String,
}

/// Error of parsing an RTMP URL.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("RTMP URL {0}")]
pub struct UrlError(&'static str);

impl Url {
    /// Parses a URL.
    ///
    /// # Errors
    /// The URL is not an `rtmp` or `rtmps` URL of a stream, or has a user name.
    pub fn parse(url: &str) -> Result<Self, UrlError> {
        let url = ::url::Url::parse(url).map_err(|_| UrlError("is invalid"))?;
        let tls = match url.scheme() {
            "rtmp" => false,
            "rtmps" => true,
            _ => return Err(UrlError("does not start with rtmp:// or rtmps://")),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(UrlError("has a user name, which is not supported"));
        }
        let host = match url.host() {
            Some(Host::Ipv6(address)) => address.to_string(),
            Some(host) => host.to_string(),
            None => return Err(UrlError("has no host")),
        };
        let port = url.port().unwrap_or(if tls { DEFAULT_TLS_PORT } else { DEFAULT_PORT });
        if port == 0 {
            return Err(UrlError("has an invalid port"));
        }
        // Stream keys may contain `#`, which does not start a fragment here.
        let path = &url[Position::BeforePath..];
        let path_len = path.find('?').unwrap_or(path.len());
        let slash = path[..path_len].rfind('/').ok_or(UrlError("has no application"))?;
        let (app, stream) = (path[..slash].trim_matches('/'), &path[slash + 1..]);
        if app.is_empty() {
            return Err(UrlError("has no application"));
        }
        if stream.is_empty() || stream.starts_with('?') {
            return Err(UrlError("has no stream name"));
        }
        Ok(Self { tls, host, port, app: app.to_owned(), stream: stream.to_owned() })
    }

    /// Returns the URL of the application, as sent in `connect`.
    pub fn tc_url(&self) -> String {
        let Self { tls, host, port, app, .. } = self;
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        match (tls, *port) {
            (false, DEFAULT_PORT) => format!("rtmp://{host}/{app}"),
            (false, port) => format!("rtmp://{host}:{port}/{app}"),
            (true, DEFAULT_TLS_PORT) => format!("rtmps://{host}/{app}"),
            (true, port) => format!("rtmps://{host}:{port}/{app}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed() {
        for (url, host, port, app, stream) in [
            ("rtmp://example.org/live/demo", "example.org", 1935, "live", "demo"),
            ("RTMP://127.0.0.1:1936/live/demo?k=a/b", "127.0.0.1", 1936, "live", "demo?k=a/b"),
            ("rtmp://[::1]:9/app/inst/name", "::1", 9, "app/inst", "name"),
            ("rtmp://[::1]/a//b", "::1", 1935, "a", "b"),
        ] {
            let parsed = Url::parse(url).expect(url);
            let parts = (parsed.host.as_str(), parsed.port, parsed.app.as_str(), &*parsed.stream);
            assert_eq!(parts, (host, port, app, stream), "{url}");
        }
        let tc_url = |url| Url::parse(url).map(|url| url.tc_url());
        assert_eq!(tc_url("rtmp://h:1935/a/i/s?q").as_deref(), Ok("rtmp://h/a/i"));
        assert_eq!(tc_url("rtmp://[::1]:9/a/s").as_deref(), Ok("rtmp://[::1]:9/a"));
        assert_eq!(tc_url("rtmps://h/a/s").as_deref(), Ok("rtmps://h/a"));
        assert_eq!(tc_url("rtmps://h:1935/a/s").as_deref(), Ok("rtmps://h:1935/a"));
        assert_eq!(Url::parse("rtmps://h/a/s").map(|url| (url.tls, url.port)), Ok((true, 443)));
        assert_eq!(Url::parse("rtmp://h/a/s#x").map(|url| url.stream).as_deref(), Ok("s#x"));
    }

    #[test]
    fn urls_without_a_stream_are_rejected() {
        for url in [
            "http://h/a/s",
            "rtmp:/h/a/s",
            "rtmp://h",
            "rtmp://h/a",
            "rtmp://h/a/",
            "rtmp:///a/s",
            "rtmp://h:x/a/s",
            "rtmp://h:0/a/s",
            "rtmp://h:70000/a/s",
            "rtmp://[::1/a/s",
            "rtmp://u:p@h/a/s",
            "rtmp://h//s",
            "rtmp://h/a/?q",
            "rtmp://[::1]x/a/s",
            "",
        ] {
            assert!(Url::parse(url).is_err(), "{url}");
        }
    }
}
