//! Self-inflicted delays of a server when one frame wakes thousands of viewers. All of them receive
//! and acknowledge the frame while the server still sends to others. Acknowledgements that wait
//! unread in the socket let timers expire for packets that have arrived.
//!
//! Loopback loses packets only if a socket's buffer overflows, which is counted. Further probes and
//! losses are the server's own fault. The stream has a low rate, so the machine has time for all of
//! it. The viewers' process needs as long per frame as the server, so acknowledgements are late and
//! clustered.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::media::TagSource;
use super::publisher::Publisher;
use super::servers::{self, Contestant, Process};
use super::turn::{SETTLE, Viewers};
use super::{identity, watch_command};
use crate::Failure;
use crate::client::MTU;
use crate::loopback::receive_errors;
use crate::report::{BenchReport, PeerTarget, Samples};

/// Concurrent viewers.
const VIEWERS: usize = 2_000;
/// Interval between pictures.
const PICTURE: Duration = Duration::from_millis(250);
/// Duration of the measurement.
const TIME: Duration = Duration::from_secs(10);
/// Time for a key frame to be published before the first viewer joins.
const LEAD: Duration = Duration::from_secs(3);
/// Time for the server to stop and log its connections.
const END: Duration = Duration::from_secs(20);

/// Sums over the connections, from the server's log.
#[derive(Debug, Default, PartialEq)]
struct WakeTotals {
    connections: u64,
    packets: u64,
    lost: u64,
    spurious: u64,
    probes: u64,
    retransmissions: u64,
}

/// Runs the benchmark and adds its rows.
pub(crate) fn measure(
    report: &mut BenchReport,
    quick: bool,
    mendcast: PathBuf,
) -> Result<(), Failure> {
    let viewers = if quick { VIEWERS / 10 } else { VIEWERS };
    let dir = tempfile::tempdir()?;
    identity(dir.path())?;
    let settings = format!(
        "cores = 1\n[quic]\ninitial_mtu = {MTU}\nmax_mtu = {MTU}\n\
         [log]\nconnections = \"connections.jsonl\"\n"
    );
    let (server, _) = servers::inspected_edge(&mendcast, dir.path(), &settings)?;
    let pid = server.process.0.id();
    let publisher = Publisher::start_with(&server.ingest, TagSource::thin(PICTURE))?;
    std::thread::sleep(LEAD);
    let watch = watch_command(Contestant::Edge, server.address, dir.path(), viewers)?;
    let (mut process, joined) = Viewers::start(watch, viewers)?;
    std::thread::sleep(SETTLE);
    let (cpu, errors, start) = (servers::cpu(pid)?, receive_errors(), Instant::now());
    process.measure(TIME)?;
    let busy = (servers::cpu(pid)? - cpu).as_secs_f64() / start.elapsed().as_secs_f64();
    let (seen, errors) = (process.seen()?, receive_errors() - errors);
    end(server.process)?;
    // The server has stopped and the stream with it.
    let _ = publisher.stop();
    let log = std::fs::read_to_string(dir.path().join("connections.jsonl"))?;
    let totals = totals(&log)?;
    println!(
        "      {joined} viewers; server {:.0} % of a CPU, viewers' process {:.0} %; delay of \
         pictures: {}; {errors} receive errors",
        busy * 100.0,
        seen.busy * 100.0,
        seen.pictures.text(),
    );
    println!("      totals of all connections: {totals:?}");
    if seen.stayed < viewers {
        let failure = seen.failure.as_deref().unwrap_or("too late");
        println!("      {} viewers lost: {failure}", viewers - seen.stayed);
    }
    let per_1000 = |count: u64| Samples::of(count as f64 * 1e3 / totals.packets.max(1) as f64);
    let rows = [("wake_probe_timeouts", totals.probes), ("wake_spurious_losses", totals.spurious)];
    for (name, count) in rows {
        let peer = ("losses declared", &per_1000(totals.lost));
        report.add((name, "per 1,000 packets"), &per_1000(count), peer, PeerTarget::None);
    }
    Ok(())
}

/// Lets the server stop by itself, which completes its log.
pub(super) fn end(mut process: Process) -> Result<(), Failure> {
    let pid = nix::unistd::Pid::from_raw(process.0.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM)?;
    let start = Instant::now();
    loop {
        match process.0.try_wait()? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(format!("the server exited with {status}").into()),
            None if start.elapsed() > END => return Err("the server does not exit".into()),
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn totals(log: &str) -> Result<WakeTotals, Failure> {
    let mut totals = WakeTotals::default();
    for line in log.lines() {
        let record: Value = serde_json::from_str(line).map_err(|e| format!("{e}: {line}"))?;
        if record["event"] != "connection_closed" {
            continue;
        }
        let of = |name: &str| record[name].as_u64().ok_or_else(|| format!("{name} in {line}"));
        totals.connections += 1;
        totals.packets += of("packets_sent")?;
        totals.lost += of("packets_lost")?;
        totals.spurious += of("spurious_losses")?;
        totals.probes += of("pto_count")?;
        totals.retransmissions += of("retransmissions")?;
    }
    Ok(totals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_summed_over_its_connections() {
        let line = "{\"event\": \"connection_closed\", \"packets_sent\": 7, \"packets_lost\": 2, \
                    \"spurious_losses\": 1, \"pto_count\": 3, \"retransmissions\": 4}\n";
        let log = format!("{line}{{\"event\": \"endpoint_stats\"}}\n{line}");
        let expected = WakeTotals {
            connections: 2,
            packets: 14,
            lost: 4,
            spurious: 2,
            probes: 6,
            retransmissions: 8,
        };
        assert_eq!(totals(&log).expect("totals"), expected);
        assert!(totals("{\"event\": \"connection_closed\"}").is_err());
    }
}
