//! What leads browsers to HTTP/3: the header `Alt-Svc` (RFC 7838, section 3; RFC 9114, section 3.1), and the HTTPS
//! record (RFC 9460) that an operator publishes, so that already the first visit is over QUIC.

use webpki::EndEntityCert;

use crate::config::Config;
use crate::plan::Plan;

/// How long browsers remember that this server speaks HTTP/3: 30 days. `persist` keeps that when they move to another
/// network; what fails there they try over TCP at once.
const SECONDS: u32 = 30 * 86_400;
/// The port of URLs that name none.
const HTTPS: u16 = 443;

/// The port at which viewers reach what listens on `port`.
fn reached(config: &Config, port: u16) -> u16 {
    match config.quic.advertised_port {
        0 => port,
        advertised => advertised,
    }
}

/// The value of `Alt-Svc` in responses over TCP from `port`.
pub(crate) fn alt_svc(config: &Config, port: u16) -> String {
    format!("h3=\":{}\"; ma={SECONDS}; persist=1", reached(config, port))
}

/// For an operator who looks at a configuration: the HTTPS records to publish, and what keeps browsers from HTTP/3.
pub(crate) fn advice(plan: &Plan) -> Vec<String> {
    let config = &plan.config;
    let mut lines = Vec::new();
    if plan.identity.development.is_some() {
        lines.push(
            "HTTP/3: browsers take no development certificate over QUIC, except with the command that the server \
             prints; they stay on TCP"
                .to_owned(),
        );
    }
    let public: Vec<u16> = config
        .server
        .listen
        .iter()
        .filter(|address| !address.ip().is_loopback())
        .map(|address| reached(config, address.port()))
        .collect();
    if public.is_empty() {
        lines.push("HTTP/3: nobody but this machine reaches [server] listen".to_owned());
        return lines;
    }
    let certificate = plan.identity.chain.first().map(EndEntityCert::try_from);
    let names: Vec<&str> = match &certificate {
        Some(Ok(certificate)) => certificate.valid_dns_names().collect(),
        _ => Vec::new(),
    };
    if names.is_empty() {
        lines.push(
            "HTTP/3: the certificate has no DNS names: there is no HTTPS record to publish"
                .to_owned(),
        );
    } else if plan.identity.development.is_none() {
        lines.push("HTTP/3 from the first visit on takes a HTTPS record (RFC 9460):".to_owned());
        let mut records: Vec<String> =
            names.iter().flat_map(|name| public.iter().map(|&port| https(name, port))).collect();
        records.sort();
        records.dedup();
        lines.extend(records);
    }
    lines
}

/// The record, as in a zone file.
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
    fn the_record_of_another_port_has_its_own_name() {
        // RFC 9460, section 9.1.
        assert_eq!(https("a.example", 443), "a.example. 3600 IN HTTPS 1 . alpn=\"h3,h2\"");
        assert_eq!(
            https("a.example", 4433),
            "_4433._https.a.example. 3600 IN HTTPS 1 a.example. alpn=\"h3,h2\" port=4433"
        );
    }

    #[test]
    fn the_port_that_viewers_reach_is_announced() {
        let mut config = Config::default();
        assert_eq!(alt_svc(&config, 4433), "h3=\":4433\"; ma=2592000; persist=1");
        config.quic.advertised_port = 443;
        assert_eq!(alt_svc(&config, 4433), "h3=\":443\"; ma=2592000; persist=1");
    }

    #[test]
    fn what_keeps_browsers_from_http_3_is_said() {
        let mut config = Config::default();
        config.server.listen = vec![([127, 0, 0, 1], 0).into()];
        let lines = advice(&Plan::new(config).expect("a plan"));
        assert!(lines[0].contains("development certificate"), "{lines:?}");
        assert!(lines[1].contains("[server] listen"), "{lines:?}");
    }
}
