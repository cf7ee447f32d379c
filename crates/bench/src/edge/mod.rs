//! Server cost of a live viewer: one stream of 2 Mbps to many viewers over loopback.
//!
//! The contestants take turns, each in its own process and on one event loop. FLV over HTTP/3:
//! `mendcast edge` and a relay on `quinn` and `h3` (same TLS cipher and datagram size, GSO as
//! implemented by each, CUBIC). HLS over TLS over TCP: `mendcast edge` and nginx. FLV over HTTP/2:
//! `mendcast edge` on two event loops against one. The viewers are another process that uses
//! third-party clients; only the statistics are ours.
//!
//! The kernel counts CPU time in nanoseconds (`/proc/…/schedstat`) while all viewers are present.
//! It does the work of loopback in the sender's context, and splits GSO batches there for receivers
//! without GRO. These receivers use GRO.

mod cost;
mod heap;
mod idle;
pub(crate) mod link;
mod media;
mod products;
mod publisher;
mod quinn_relay;
mod rtmp_view;
mod scale;
mod servers;
mod soak;
mod tally;
mod threads;
mod turn;
mod wake;
mod watch;

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Failure;
use crate::client::MTU;
use crate::identity::write as identity;
use crate::loopback::calibration;
use crate::report::{BenchReport, PeerTarget, Samples};
use cost::Cost;
use publisher::{Ingest, Publisher};
use servers::{Contestant, Programs, ViewTransport};
use turn::{Feed, LEAD, SETTLE, Viewers};

pub(crate) use heap::Heap;
pub(crate) use idle::Idle;
pub(crate) use products::Products;
pub(crate) use quinn_relay::run as serve_relay;
pub(crate) use scale::Scale;
pub(crate) use servers::cpu as process_cpu;
pub(crate) use soak::Soak;
pub(crate) use wake::measure as measure_wake;
pub(crate) use watch::Watch;

/// Measure the cost of a live viewer
#[derive(Debug, clap::Args)]
pub(crate) struct LiveCost {
    /// Concurrent viewers [default: 500, or 50 with --quick]
    #[arg(long)]
    viewers: Option<u64>,
    /// Seconds to measure [default: 30, or 5 with --quick]
    #[arg(long)]
    seconds: Option<u64>,
    /// Rounds [default: 5, or 1 with --quick]
    #[arg(long)]
    rounds: Option<u64>,
    /// Only contestants with this in their names; a row needs both sides
    #[arg(long, value_name = "TEXT", default_value = "")]
    contestant: String,
}

impl LiveCost {
    /// Runs the benchmark and adds its rows.
    pub(crate) fn run(
        &self,
        report: &mut BenchReport,
        quick: bool,
        mendcast: PathBuf,
    ) -> Result<(), Failure> {
        let pick = |full: u64, look: u64| if quick { look } else { full };
        let viewers = self.viewers.unwrap_or(pick(500, 50)).max(1) as usize;
        let time = Duration::from_secs(self.seconds.unwrap_or(pick(30, 5)).max(1));
        let rounds = self.rounds.unwrap_or(pick(5, 1));
        let dir = tempfile::tempdir()?;
        // Segments are served from memory, because reading them from disk would measure the disk.
        let memory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let memory = memory?;
        identity(dir.path())?;
        let programs = Programs::new(mendcast, dir.path(), memory.path())?;
        println!(
            "      {viewers} viewers of {} Mbps, {} s each, datagrams of {MTU} B; no process is \
             bound to a CPU",
            media::RATE / 1e6,
            time.as_secs()
        );
        let mut sides = Contestant::ALL.map(|contestant| (contestant, Vec::new()));
        for round in 0..rounds {
            println!("      round {}: sealing takes {:.0} ns per packet", round + 1, calibration());
            for (contestant, costs) in &mut sides {
                if !contestant.name().contains(&self.contestant) {
                    continue;
                }
                match run(*contestant, &programs, viewers, time) {
                    Ok(cost) => {
                        cost.tell(&contestant.name(), viewers, time);
                        if contestant.transport() == ViewTransport::H2 {
                            threads::tell(&cost)?;
                        }
                        costs.push(cost);
                    }
                    Err(e) if contestant.transport() == ViewTransport::Hls => {
                        println!("      skipped: {}: {e}", contestant.name());
                    }
                    Err(e) => return Err(format!("{}: {e}", contestant.name()).into()),
                }
            }
        }
        compare(report, &sides)?;
        if self.contestant.is_empty() {
            let heap = |name| heap_per_viewer(name, &programs, viewers).map(Samples::of);
            let (ours, peer) = (heap("mendcast")?, heap("quinn")?);
            let what = ("edge_heap_per_viewer", "B");
            report.add(what, &ours, ("quinn + h3", &peer), PeerTarget::AtMost(15_360.0));
        }
        Ok(())
    }
}

/// Adds the rows of contestants that both had a turn.
fn compare(report: &mut BenchReport, sides: &[(Contestant, Vec<Cost>); 6]) -> Result<(), Failure> {
    let [ours, quinn, hls, nginx, one, two] = sides;
    let samples = |side: &(Contestant, Vec<Cost>), value: &dyn Fn(&Cost) -> f64| {
        let mut samples = Samples::default();
        side.1.iter().for_each(|cost| samples.push(value(cost)));
        samples
    };
    let mut row =
        |what, ours, peer: &(Contestant, Vec<Cost>), value: &dyn Fn(&Cost) -> f64, target| {
            let (mine, theirs) = (samples(ours, value), samples(peer, value));
            if mine.median().is_finite() && theirs.median().is_finite() {
                report.add(what, &mine, (&peer.0.name(), &theirs), target);
            }
        };
    let hour = Cost::per_viewer_hour;
    let per_core = |cost: &Cost| 3_600.0 / cost.per_viewer_hour();
    let delay = |at: usize| move |cost: &Cost| cost.seen.pictures.quantiles[at] * 1e3;
    let cost = PeerTarget::RatioAtMost(0.3);
    row(("edge_cpu_per_viewer_hour", "CPU s"), ours, quinn, &hour, cost);
    let viewers = PeerTarget::RatioAtLeast(1.0 / 0.3);
    row(("edge_viewers_per_core", "viewers"), ours, quinn, &per_core, viewers);
    row(("edge_picture_delay_p50", "ms"), ours, quinn, &delay(0), PeerTarget::AtMost(5.0));
    row(("edge_picture_delay_p99", "ms"), ours, quinn, &delay(1), PeerTarget::AtMost(20.0));
    row(("edge_hls_cpu_per_viewer_hour", "CPU s"), hls, nginx, &hour, PeerTarget::None);
    threads::compare(report, &one.1, &two.1)
}

/// Runs one contestant's turn.
fn run(
    contestant: Contestant,
    programs: &Programs,
    viewers: usize,
    time: Duration,
) -> Result<Cost, Failure> {
    let server = contestant.start(programs)?;
    let watch = watch_command(contestant, server.address, &programs.dir, viewers)?;
    turn::run(server, |ingest| Publisher::start(ingest).map(Feed::Thread), watch, viewers, time)
}

/// Returns the command of a contestant's viewers.
fn watch_command(
    contestant: Contestant,
    address: SocketAddr,
    dir: &Path,
    viewers: usize,
) -> Result<Command, Failure> {
    turn::watch(address, dir, (contestant.path(), 1), contestant.transport(), viewers)
}

/// Returns the heap per viewer of a server with a counting allocator. The cached part of the stream
/// exists without viewers too.
fn heap_per_viewer(name: &str, programs: &Programs, viewers: usize) -> Result<f64, Failure> {
    let own = std::env::current_exe()?;
    let mut command = Command::new(own);
    command.arg("heap").arg(name).arg(&programs.dir).stdin(Stdio::piped());
    let (mut server, addresses) = servers::listening(command)?;
    let ingest = match name {
        "mendcast" => server.ingest.clone(),
        _ => Ingest::Flv(addresses[1]),
    };
    let publisher = Publisher::start(&ingest)?;
    std::thread::sleep(LEAD);
    let mut heap = || {
        let child = &mut server.process.0;
        let pipe = child.stdin.as_mut().ok_or("no pipe")?;
        writeln!(pipe).map_err(|e| format!("{name}: {e}"))?;
        let line = child.stdout.as_mut().map_or_else(String::new, servers::read_line);
        line.parse::<f64>().map_err(|e| Failure::from(format!("{name}: {e}: {line}")))
    };
    let before = heap()?;
    let watch = watch_command(Contestant::Edge, server.address, &programs.dir, viewers)?;
    let (_viewers, joined) = Viewers::start(watch, viewers)?;
    std::thread::sleep(SETTLE);
    let added = heap()? - before;
    publisher.stop()?;
    Ok(added / joined as f64)
}
