//! Stream names and proofs of RTMP clients. Encoders split the name between application, stream and
//! URL in various ways.

use media::rtmp::Request;

use crate::config;
use crate::hosts::Scope;
use crate::http::parameter;
use crate::ingest::PublisherProofs;
use crate::signing::Proofs;

/// Returns the stream's name: application and stream name, without empty parts, below the prefix of
/// the URL's host.
///
/// If the user entered the whole address into one field, the application or the stream name is
/// empty, or the stream name is a URL. An empty application is taken from the connection's URL.
pub(super) fn stream_name(hosts: &[config::Host], request: &Request) -> String {
    let scoped = |authority, name: String| Scope::of(hosts, authority).full(&name).into_owned();
    let stream = match request.stream.split_once("://") {
        Some((scheme, rest)) if scheme.starts_with("rtmp") => {
            let (authority, path) = parts(rest);
            return scoped(authority, joined(&[path]));
        }
        _ => request.stream.as_str(),
    };
    let url = request.tc_url.split_once("://");
    let (authority, path) = url.map_or(("", ""), |(_, rest)| parts(rest));
    let app = match request.app.trim_matches('/') {
        "" => path,
        app => app,
    };
    scoped(authority, joined(&[app, stream]))
}

/// Returns authority and path of a URL without its scheme.
fn parts(rest: &str) -> (&str, &str) {
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    rest.split_once('/').unwrap_or((rest, ""))
}

/// Returns the proofs of a player, from the query of the stream's name.
pub(super) fn proofs(request: &Request) -> Proofs<'_> {
    let parameter = |name: &str| parameter(&request.query, name);
    Proofs { expires: parameter("expires"), signature: parameter("sig"), token: parameter("token") }
}

/// Returns the proofs of a publisher, from the query of the stream's name.
pub(super) fn publisher_proofs(request: &Request) -> PublisherProofs<'_> {
    let parameter = |name: &str| parameter(&request.query, name);
    PublisherProofs { key: parameter("key"), token: parameter("token") }
}

fn joined(paths: &[&str]) -> String {
    let parts = paths.iter().flat_map(|path| path.split('/')).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_name_is_independent_of_how_its_address_is_split() {
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
            let [query, flash_ver, cdn_loop] = [const { String::new() }; 3];
            let request = Request { app, stream, query, tc_url, flash_ver, cdn_loop };
            assert_eq!(stream_name(&[], &request), name, "{request:?}");
        }
    }

    #[test]
    fn the_host_of_the_url_decides_the_prefix() {
        let text = "[[host]]\nnames = [\"a.test\"]\nprefix = \"tenant\"\n";
        let config = config::Config::parse("edge.toml", text).expect("valid");
        for (stream, tc_url, name) in [
            ("x2", "rtmp://a.test/live", "tenant/live/x2"),
            ("x2", "rtmps://A.test:443/live?key=a", "tenant/live/x2"),
            ("x2", "rtmp://b.test/live", "live/x2"),
            ("x2", "", "live/x2"),
            ("x2", "a.test/live", "live/x2"),
            ("rtmp://a.test:1935/live/x2", "", "tenant/live/x2"),
            ("rtmp://b.test/live/x2", "rtmp://a.test/live", "live/x2"),
            ("x2", "rtmp://a.test?/live", "tenant/live/x2"),
        ] {
            let [app, stream, tc_url] = ["live", stream, tc_url].map(str::to_owned);
            let [query, flash_ver, cdn_loop] = [const { String::new() }; 3];
            let request = Request { app, stream, query, tc_url, flash_ver, cdn_loop };
            assert_eq!(stream_name(&config.host, &request), name, "{request:?}");
        }
    }
}
