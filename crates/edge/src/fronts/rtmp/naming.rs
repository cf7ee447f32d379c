//! The stream that an RTMP client means: encoders spread its name over application, stream and URL as they
//! like.

use media::rtmp::Request;

/// The name of the stream: application and stream name, without empty parts.
///
/// A client whose user put the whole address into one field has an empty application or an empty stream
/// name, or a URL for a stream name. Where the application is empty, the URL of the connection has it.
pub(super) fn stream_name(request: &Request) -> String {
    let stream = match request.stream.split_once("://") {
        Some((scheme, rest)) if scheme.starts_with("rtmp") => return joined(&[path(rest)]),
        _ => request.stream.as_str(),
    };
    let app = match request.app.trim_matches('/') {
        "" => request.tc_url.split_once("://").map_or("", |(_, rest)| path(rest)),
        app => app,
    };
    joined(&[app, stream])
}

/// The path of a URL that lacks its scheme, without the query.
fn path(rest: &str) -> &str {
    let (_, path) = rest.split_once('/').unwrap_or_default();
    path.split(['?', '#']).next().unwrap_or_default()
}

fn joined(paths: &[&str]) -> String {
    let parts = paths.iter().flat_map(|path| path.split('/')).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_one_name_however_its_address_is_spread() {
        for (app, stream, tc_url, name) in [
            ("live", "x2", "rtmp://host/live", "live/x2"),
            ("live/x2", "", "rtmp://host/live/x2", "live/x2"),
            ("/live/", "/x2/", "", "live/x2"),
            ("live//a", "x2", "", "live/a/x2"),
            ("live", "a//x2", "", "live/a/x2"),
            ("", "x2", "rtmp://host/live", "live/x2"),
            ("", "x2", "rtmp://host:1935/live/?key=a/b", "live/x2"),
            ("/", "x2", "rtmps://[::1]:1935//live#x", "live/x2"),
            ("", "", "rtmp://host/live/x2", "live/x2"),
            ("", "live/x2", "", "live/x2"),
            ("", "x2", "rtmp://host", "x2"),
            ("live", "rtmp://host/live/x2", "", "live/x2"),
            ("live", "rtmps://host:443/live/a/x2/", "rtmp://host/live", "live/a/x2"),
            ("live", "", "rtmp://host/live", "live"),
            ("", "", "", ""),
            ("live", "http://x2", "", "live/http:/x2"),
        ] {
            let [app, stream, tc_url] = [app, stream, tc_url].map(str::to_owned);
            let (query, flash_ver) = (String::new(), String::new());
            let request = Request { app, stream, query, tc_url, flash_ver };
            assert_eq!(stream_name(&request), name, "{request:?}");
        }
    }
}
