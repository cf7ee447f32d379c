//! `mendcast watch`: a viewer without a screen, on a third-party HTTP/3 stack (`quinn` and `h3`,
//! unmodified): what the server does for viewers is measured with code that is not its own.

mod fetch;
mod measure;
mod trust;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use measure::Measured;

/// Silence after which the server counts as gone.
const SILENCE: Duration = Duration::from_secs(30);
/// Longest handshake with one address.
const CONNECT: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// What to watch: https://HOST[:PORT]/PATH.
    url: String,
    /// Stop after this long; otherwise at the end of the response.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// Trust the certificates in this file (PEM) instead of the system's.
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    ca: Option<PathBuf>,
    /// Trust any certificate: for tests only.
    #[arg(long)]
    insecure: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
    seconds.filter(|s| !s.is_zero()).ok_or_else(|| "expected a number above 0".to_owned())
}

/// Where a URL leads.
#[derive(Clone, Debug)]
struct Target {
    uri: http::Uri,
    /// Without the brackets of an IPv6 address.
    host: String,
    port: u16,
}

impl Target {
    fn parse(text: &str) -> Result<Self, String> {
        let uri: http::Uri = text.parse().map_err(|e| format!("{text}: {e}"))?;
        if uri.scheme_str() != Some("https") {
            return Err(format!("{text}: expected a URL that begins with https://"));
        }
        let host = uri.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(443);
        Ok(Self { uri, host, port })
    }

    async fn addresses(&self) -> Result<Vec<SocketAddr>, String> {
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await;
        let addresses: Vec<SocketAddr> =
            found.map_err(|e| format!("{}: {e}", self.host))?.collect();
        if addresses.is_empty() {
            return Err(format!("{}: no address", self.host));
        }
        Ok(addresses)
    }
}

impl Arguments {
    pub(crate) fn run(self) -> Result<(), String> {
        let target = Target::parse(&self.url)?;
        let tls = trust::client(self.ca.as_deref(), self.insecure)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| e.to_string())?;
        let measured = runtime.block_on(fetch::fetch(&target, tls, self.seconds))?;
        self.print(&measured);
        if (200..300).contains(&measured.status) {
            Ok(())
        } else {
            Err(format!("{}: HTTP status {}", self.url, measured.status))
        }
    }

    fn print(&self, measured: &Measured) {
        if self.json {
            println!("{}", measured.json(&self.url));
        } else {
            println!("{measured}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let target = Target::parse("https://[::1]:4433/live/a.flv?x=1").expect("a URL");
        assert_eq!((target.host.as_str(), target.port), ("::1", 4_433));
        assert_eq!(target.uri.path_and_query().map(|p| p.as_str()), Some("/live/a.flv?x=1"));
        assert_eq!(Target::parse("https://a.example/").expect("a URL").port, 443);
        for bad in ["http://a/", "a.example", "https://", ""] {
            assert!(Target::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_duration_is_above_0() {
        assert_eq!(seconds("1.5"), Ok(Duration::from_millis(1_500)));
        assert!(seconds("0").is_err() && seconds("-1").is_err() && seconds("x").is_err());
    }
}
