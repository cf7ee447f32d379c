//! Checks of pushes: targets that are this server.

use std::net::IpAddr;

use media::rtmp;

use crate::config::{self, Config};
use crate::finding::Finding;
use crate::names::matches;

/// Stands for the part of a name that `*` matches.
const SAMPLE: &str = "mendcast-check";

/// Finds pushes that return to this server under a name that is pushed again. The listeners of
/// `[rtmp]` and the host of the target must show it: other loops end at run time, by the servers
/// that a stream passed.
pub(super) fn check(config: &Config) -> Vec<Finding> {
    config.push.iter().filter_map(|rule| returning(config, rule)).collect()
}

fn returning(config: &Config, rule: &config::Push) -> Option<Finding> {
    let template = rule.url.as_ref()?;
    let (name, tail) = match rule.stream.strip_suffix('*') {
        Some(start) => (format!("{start}{SAMPLE}"), SAMPLE),
        None => (rule.stream.clone(), rule.stream.as_str()),
    };
    let url = template.url(&name, tail, rule.key.as_ref())?;
    if !is_own(config, &url) {
        return None;
    }
    let stream = url.stream.split(['?', '#']).next().unwrap_or_default();
    let target = format!("{}/{stream}", url.app);
    let is_pushed = config.push.iter().any(|rule| matches(&rule.stream, &target));
    is_pushed.then(|| {
        let what = format!(
            "leads to this server, as a stream that is pushed again; expected another server, or \
             a name that no [[push]] stream = {:?} matches",
            rule.stream
        );
        Finding::error("[[push]] url", template, what)
    })
}

/// Returns whether the URL leads to an RTMP listener of this server.
fn is_own(config: &Config, url: &rtmp::Url) -> bool {
    let literal = url.host.parse::<IpAddr>().ok().map(|address| address.to_canonical());
    let is_local = url.host.eq_ignore_ascii_case("localhost")
        || literal.is_some_and(|address| address.is_loopback() || address.is_unspecified());
    let leads_to = |own: IpAddr| match literal {
        Some(address) if address == own.to_canonical() => true,
        _ => is_local && (own.is_unspecified() || own.to_canonical().is_loopback()),
    };
    let listen = if url.tls { &config.rtmp.tls_listen } else { &config.rtmp.listen };
    listen.iter().flatten().any(|own| own.port() == url.port && leads_to(own.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(listen: &str, stream: &str, url: &str) -> Vec<Finding> {
        let text = format!(
            "[rtmp]\nlisten = \"{listen}\"\n[[push]]\nstream = \"{stream}\"\nurl = \"{url}\""
        );
        check(&Config::parse("edge.toml", &text).expect("valid"))
    }

    #[test]
    fn a_push_that_returns_over_rtmps_is_an_error() {
        let rule = "[[push]]\nstream = \"live/*\"\nurl = \"rtmps://localhost:1936/{name}\"";
        for (key, count) in [("tls_listen", 1), ("listen", 0)] {
            let text = format!("[rtmp]\n{key} = \"[::]:1936\"\n{rule}");
            let config = Config::parse("edge.toml", &text).expect("valid");
            assert_eq!(check(&config).len(), count, "{key}");
        }
    }

    #[test]
    fn a_push_that_returns_to_its_own_rule_is_an_error() {
        for (listen, stream, url) in [
            ("[::]:1935", "live/a", "rtmp://localhost/live/a"),
            ("127.0.0.1:1936", "live/*", "rtmp://127.0.0.1:1936/{name}"),
            ("0.0.0.0:1935", "live/*", "rtmp://[::1]/live/copy-{tail}"),
            ("192.0.2.1:1935", "*", "rtmp://192.0.2.1/x/y?key=z"),
        ] {
            let found = findings(listen, stream, url);
            assert!(found.len() == 1 && found[0].is_error, "{url}: {found:?}");
        }
        for (listen, stream, url) in [
            ("[::]:1935", "live/*", "rtmp://localhost/copy/{tail}"),
            ("[::]:1935", "live/*", "rtmp://localhost:1936/live/{tail}"),
            ("[::]:1935", "live/*", "rtmp://other.example/live/{tail}"),
            ("192.0.2.1:1935", "live/*", "rtmp://localhost/live/{tail}"),
            ("[::]:1935", "live/*", "rtmps://localhost:1935/live/{tail}"),
        ] {
            assert_eq!(findings(listen, stream, url), [], "{url}");
        }
    }
}
