//! The server, the path to it, and its externally visible state.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use super::super::publisher::KEY;
use super::super::servers::{self, RunningServer};
use super::hook::SLOW_NAMES;
use super::log::LogMeter;
use crate::Failure;

/// Sampling interval.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum wait for an answer of the admin listener.
const ADMIN_WAIT: Duration = Duration::from_secs(10);
/// Recorded when `/healthz` did not answer.
const NO_HEALTH: Duration = Duration::from_secs(3_600);
/// Time for the server to forget all clients: its longest idle timeout is 30 s on QUIC, and final
/// player reports have 5 s more.
const FORGET_TIMEOUT: Duration = Duration::from_secs(60);
/// Source address of the healthy viewers' packets.
pub(super) const VIEWERS_ADDRESS: &str = "127.0.0.2";
/// Publish key of the streams `others/…`.
pub(super) const OTHER_KEY: &str = "others";
/// Places for TCP connections. Neighbours demand more, so places are shared.
const TCP_PLACES: u32 = 1_024;
/// Prefix of names pulled from an unresponsive upstream.
pub(super) const PULLED: &str = "far/";

/// Sample of the server's state.
#[derive(Clone, Debug, Default)]
pub(super) struct Look {
    /// Time since the start of the soak.
    pub at: Duration,
    /// Resident memory in bytes.
    pub resident: u64,
    /// Current viewers.
    pub viewers: f64,
    /// Sessions, ended and open.
    pub sessions: f64,
    /// Sessions that ended without media and leave no record.
    pub without_media: f64,
    /// Sessions below 2 s without a record, because their network had too many.
    pub fleeting: f64,
    /// Records dropped because of the disk.
    pub records_dropped: f64,
    /// Current QUIC connections.
    pub connections: f64,
    /// Current streams.
    pub streams: f64,
    /// Occupied places where their number is limited. One of RTMP is the publisher's.
    pub places: f64,
    /// Connections rejected or ended by a limit.
    pub limited: f64,
    /// Open descriptors of the server.
    pub descriptors: u64,
    /// Response time of `/healthz`; [`NO_HEALTH`] without an answer.
    pub health: Duration,
    /// Seconds played and frozen, and freezes, according to all player reports.
    pub reported: Reported,
}

/// Sums of player reports.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reported {
    pub played_s: f64,
    pub frozen_s: f64,
    pub freezes: f64,
}

/// Addresses of the server's upstream and hook.
pub(super) struct Servants {
    /// An unresponsive upstream.
    pub upstream: SocketAddr,
    /// The `on_play` hook.
    pub hook: SocketAddr,
}

/// Binds an upstream that never accepts. The kernel's queue fills, and then connections are not
/// even established.
pub(super) fn silent_upstream() -> Result<TcpListener, Failure> {
    TcpListener::bind("127.0.0.1:0").map_err(Into::into)
}

/// Starts the edge with its certificate in `dir`, and returns its admin address too. No address is
/// trusted, because limits per address are part of the isolation from neighbours. Record files are
/// rotated often, so that the memory Parquet needs at each rotation is allocated before growth is
/// measured. `settings` are further sections.
pub(super) fn start(
    mendcast: &Path,
    dir: &Path,
    &Servants { upstream, hook }: &Servants,
    settings: &str,
    log: LogMeter,
) -> Result<(RunningServer, SocketAddr), Failure> {
    let pull = |names: &str| {
        let upstream = format!("[\"http://{upstream}/{{name}}.flv\"]");
        format!("[[pull]]\nstream = \"{names}*\"\nupstream = {upstream}\n")
    };
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ncertificate = \"chain.pem\"\nkey = \"key.pem\"\n\
         [rtmp]\nlisten = \"127.0.0.1:0\"\n\
         [tcp]\nmax_connections = {TCP_PLACES}\n\
         [hooks]\non_play = \"http://{hook}/play\"\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n\
         [drain]\ntimeout = \"1s\"\n\
         [records]\ndirectory = \"records\"\nperiod = \"2m\"\n\
         [[publish]]\nstream = \"live/*\"\nkey = \"{KEY}\"\n\
         [[publish]]\nstream = \"others/*\"\nkey = \"{OTHER_KEY}\"\n\
         {}{}{settings}",
        pull(PULLED),
        // The server asks the hook only about streams that exist or can be pulled.
        pull(SLOW_NAMES),
    );
    let path = dir.join("edge.toml");
    std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    let (server, admin) = servers::start_logged_edge(mendcast, &path, log)?;
    Ok((server, admin.ok_or("the edge has no admin listener")?))
}

/// External view of the server.
pub(super) struct Observed {
    pub admin: SocketAddr,
    pub pid: u32,
    pub start: Instant,
}

impl Observed {
    /// Samples the server for `length`; prints every sixth sample.
    pub(super) fn look_for(&self, length: Duration) -> Result<Vec<Look>, Failure> {
        println!("    min  viewers  sessions  connections  places  resident MB  CPU s");
        let (mut looks, begin) = (Vec::new(), Instant::now());
        while begin.elapsed() < length {
            std::thread::sleep(SAMPLE_INTERVAL.min(length.saturating_sub(begin.elapsed())));
            let look = self.look()?;
            if looks.len() % 6 == 2 {
                println!(
                    "{:>7.1}  {:>7}  {:>8}  {:>11}  {:>6}  {:>11.1}  {:>5.0}",
                    look.at.as_secs_f64() / 60.0,
                    look.viewers,
                    look.sessions,
                    look.connections,
                    look.places,
                    look.resident as f64 * 1e-6,
                    servers::cpu(self.pid)?.as_secs_f64()
                );
            }
            looks.push(look);
        }
        Ok(looks)
    }

    /// Returns the first sample without clients other than the publisher, or the last one before
    /// the timeout.
    pub(super) fn look_until_empty(&self) -> Result<Look, Failure> {
        let gone = Instant::now();
        loop {
            let look = self.look()?;
            if look.is_empty() || gone.elapsed() > FORGET_TIMEOUT {
                return Ok(look);
            }
            std::thread::sleep(Duration::from_secs(1));
        }
    }

    /// Queries the server's admin listener and the system.
    pub(super) fn look(&self) -> Result<Look, Failure> {
        let asked = Instant::now();
        let health = get(self.admin, "/healthz").map_or(NO_HEALTH, |_| asked.elapsed());
        let text = get(self.admin, "/metrics").map_err(|e| format!("{}: {e}", self.admin))?;
        let resident = servers::resident(self.pid)?;
        let descriptors = descriptors(self.pid)?;
        let at = self.start.elapsed();
        Ok(Look { at, resident, descriptors, health, ..Look::read(&text)? })
    }
}

impl Look {
    /// Parses the metrics.
    ///
    /// # Errors
    /// A metric is missing. Without the check it would always read as 0.
    fn read(metrics: &str) -> Result<Self, Failure> {
        let sum = |name: &str| -> Result<f64, Failure> {
            let family = format!("# TYPE {} ", name.strip_suffix("_total").unwrap_or(name));
            if !metrics.lines().any(|line| line.starts_with(&family)) {
                return Err(format!("the server has no metric {name}").into());
            }
            let of = |line: &&str| {
                line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
            };
            let value = |line: &str| line.rsplit(' ').next()?.parse::<f64>().ok();
            Ok(metrics.lines().filter(of).filter_map(value).sum())
        };
        Ok(Self {
            viewers: sum("mendcast_viewers")?,
            sessions: sum("mendcast_sessions_total")?,
            without_media: sum("mendcast_sessions_without_media_total")?,
            fleeting: sum("mendcast_sessions_without_record_total")?,
            records_dropped: sum("mendcast_records_dropped_total")?,
            connections: sum("mendcast_quic_connections")?,
            streams: sum("mendcast_streams")?,
            places: sum("mendcast_places_used")?,
            limited: sum("mendcast_connections_limited_total")?,
            reported: Reported {
                played_s: sum("mendcast_played_seconds_total")?,
                frozen_s: sum("mendcast_freeze_seconds_total")?,
                freezes: sum("mendcast_freezes_total")?,
            },
            ..Self::default()
        })
    }

    /// Returns whether the publisher is the only client.
    pub(super) fn is_empty(&self) -> bool {
        self.viewers == 0.0 && self.connections == 0.0 && self.places <= 1.0 && self.streams <= 1.0
    }
}

fn get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(ADMIN_WAIT))?;
    let accept = "application/openmetrics-text; version=1.0.0, */*; q=0.1";
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: {accept}\r\n")?;
    write!(stream, "Connection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    match text.starts_with("HTTP/1.1 200 ") {
        true => Ok(text),
        false => Err(std::io::Error::other(text.lines().next().unwrap_or("no answer").to_owned())),
    }
}

/// Returns the number of open descriptors of a process.
fn descriptors(pid: u32) -> Result<u64, Failure> {
    let path = format!("/proc/{pid}/fd");
    let open = std::fs::read_dir(&path).map_err(|e| format!("{path}: {e}"))?;
    Ok(open.count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_sums_over_labels() {
        let types: String = [
            "viewers",
            "sessions",
            "sessions_without_media",
            "sessions_without_record",
            "records_dropped",
            "quic_connections",
            "streams",
            "places_used",
            "connections_limited",
            "played_seconds",
            "freeze_seconds",
            "freezes",
        ]
        .iter()
        .map(|name| format!("# TYPE mendcast_{name} gauge\n"))
        .collect();
        let look = |lines: &str| Look::read(&(types.clone() + lines)).expect("all are there");
        let busy = look(
            "mendcast_viewers{protocol=\"h3\"} 3\nmendcast_viewers{protocol=\"h2\"} 2\n\
             mendcast_viewers_refused_total 9\nmendcast_streams 1\n\
             mendcast_places_used{place=\"rtmp\"} 1\nmendcast_places_used{place=\"tcp\"} 4\n\
             mendcast_quic_connections 7\nmendcast_sessions_total{protocol=\"h3\"} 12\n\
             mendcast_sessions_without_media_total 1\n\
             mendcast_sessions_without_record_total 2\n\
             mendcast_played_seconds_total{cohort=\"a\"} 8.5\n\
             mendcast_freeze_seconds_total{cohort=\"a\"} 1.5\nmendcast_freezes_total 3\n",
        );
        assert_eq!((busy.viewers, busy.places, busy.connections), (5.0, 5.0, 7.0));
        assert_eq!((busy.sessions, busy.without_media, busy.streams), (12.0, 1.0, 1.0));
        assert_eq!(busy.fleeting, 2.0);
        let Reported { played_s, frozen_s, freezes } = busy.reported;
        assert_eq!((played_s, frozen_s, freezes), (8.5, 1.5, 3.0));
        assert!(!busy.is_empty());
        assert!(look("mendcast_streams 1\nmendcast_places_used{place=\"rtmp\"} 1\n").is_empty());
        let renamed = types.replace("quic_connections", "quic_sessions");
        let error = Look::read(&renamed).expect_err("one is missing");
        assert_eq!(error.to_string(), "the server has no metric mendcast_quic_connections");
    }
}
