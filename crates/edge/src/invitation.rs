//! Discovery of HTTP/3 by browsers: `Alt-Svc` (RFC 7838, section 3; RFC 9114, section 3.1), and the
//! HTTPS record (RFC 9460), which lets the first visit use QUIC.

use crate::config::Config;
use crate::plan::Plan;

/// Lifetime of `Alt-Svc` in seconds: 30 days. `persist` keeps it across changes of the network.
/// Browsers fall back to TCP at once if QUIC fails there.
const MAX_AGE: u32 = 30 * 86_400;
/// Default port of https URLs.
const HTTPS: u16 = 443;

/// Returns the port at which viewers reach the listener on `port`.
fn public_port(config: &Config, port: u16) -> u16 {
    match config.quic.advertised_port {
        0 => port,
        advertised => advertised,
    }
}

/// Returns the value of `Alt-Svc` in responses over TCP from `port`.
pub(crate) fn alt_svc(config: &Config, port: u16) -> String {
    format!("h3=\":{}\"; ma={MAX_AGE}; persist=1", public_port(config, port))
}

/// Returns lines for `--check`: the HTTPS records to publish, and obstacles to HTTP/3.
pub(crate) fn advice(plan: &Plan) -> Vec<String> {
    let config = &plan.config;
    let mut lines = Vec::new();
    let is_development = plan.certificates.default().identity.development.is_some();
    if is_development {
        lines.push(
            "HTTP/3: browsers reject the development certificate over QUIC and use TCP, unless \
             started with the command that the server prints"
                .to_owned(),
        );
    }
    let public: Vec<u16> = config
        .server
        .listen
        .iter()
        .filter(|address| !address.ip().is_loopback())
        .map(|address| public_port(config, address.port()))
        .collect();
    if public.is_empty() {
        lines.push("HTTP/3: [server] listen has only loopback addresses".to_owned());
        return lines;
    }
    let certificates: Vec<_> = plan.certificates.all().collect();
    let names = certificates.iter().flat_map(|(_, certificate)| &certificate.names.dns);
    let names: Vec<&str> = names.map(String::as_str).collect();
    if names.is_empty() {
        lines.push(
            "HTTP/3: no HTTPS record to publish: the certificate has no DNS names".to_owned(),
        );
    } else if !is_development {
        lines.push("HTTPS records for HTTP/3 from the first visit on (RFC 9460):".to_owned());
        let mut records: Vec<String> =
            names.iter().flat_map(|name| public.iter().map(|&port| https(name, port))).collect();
        records.sort();
        records.dedup();
        lines.extend(records);
    }
    lines
}

/// Returns the record in zone file format.
fn https(name: &str, port: u16) -> String {
    match port {
        HTTPS => format!("{name}. 3600 IN HTTPS 1 . alpn=\"h3,h2\""),
        port => {
            format!("_{port}._https.{name}. 3600 IN HTTPS 1 {name}. alpn=\"h3,h2\" port={port}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_other_ports_have_a_port_prefix() {
        // RFC 9460, section 9.1.
        assert_eq!(https("a.example", 443), "a.example. 3600 IN HTTPS 1 . alpn=\"h3,h2\"");
        assert_eq!(
            https("a.example", 4433),
            "_4433._https.a.example. 3600 IN HTTPS 1 a.example. alpn=\"h3,h2\" port=4433"
        );
    }

    #[test]
    fn alt_svc_announces_the_advertised_port() {
        let mut config = Config::default();
        assert_eq!(alt_svc(&config, 4433), "h3=\":4433\"; ma=2592000; persist=1");
        config.quic.advertised_port = 443;
        assert_eq!(alt_svc(&config, 4433), "h3=\":443\"; ma=2592000; persist=1");
    }

    #[test]
    fn obstacles_to_http_3_are_reported() {
        let mut config = Config::default();
        config.server.listen = vec![([127, 0, 0, 1], 0).into()];
        let lines = advice(&Plan::new(config).expect("a plan"));
        assert!(lines[0].contains("development certificate"), "{lines:?}");
        assert!(lines[1].contains("[server] listen"), "{lines:?}");
    }
}
